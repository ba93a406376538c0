"""Write a large nsys export that looks like a training run: deterministic, for benchmarks.

    python benchmarks/make_trace.py OUT.sqlite --kernels 1000000 [--shape NAME]

Every process trains on its own GPU with the same correlation ids. A step is a forward and a
backward pass of layers; a layer runs four operations, each in its own range, like torch's
autograd ranges. 1 M kernels make about 3.6 M rows and 200 MB. The shapes are those of
benchmarks/trace_shapes.py.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Run as a program and imported by tests; its neighbours are found either way.
sys.path.append(str(Path(__file__).parent))

from trace_shapes import SHAPES, Shape

Array = npt.NDArray[np.int64]
HOST = 1 << 48
FIRST_PID = 4242
OPERATIONS_PER_LAYER, LAYERS_PER_PASS, PASSES = 4, 12, ("forward", "backward")
KERNELS_PER_STEP = OPERATIONS_PER_LAYER * LAYERS_PER_PASS * len(PASSES)
PUSH_POP, MARK, DOMAIN_CREATE = 59, 34, 75
LAUNCH_PERIOD_NS, LAUNCH_NS, GAP_NS, WARM_UP_NS = 6_000, 3_500, 1_500, 2_000_000_000
BATCH = 100_000
KERNEL_NAMES = 120
CALLS = (
    "cudaLaunchKernel_v7000",
    "cudaStreamIsCapturing_v10000",
    "cudaMemcpyAsync_v3020",
    "cudaStreamSynchronize_v3020",
    "cudaGraphLaunch_v10000",
)
LAUNCH, CAPTURING, COPY, SYNC, GRAPH_LAUNCH = range(len(CALLS))
OPERATIONS = ("aten::linear", "aten::gelu", "aten::layer_norm", "aten::add", "aten::mul")
FIRST_CALL_ID, FIRST_KERNEL_ID, FIRST_SHORT_ID, THREAD_NAME_ID = 10, 100, 1_000, 5
FIRST_FRAME_ID, FRAMES = 2_000, 16
SAMPLER, SAMPLER_DOMAIN = "Python Periodic Sampling", 1

ON_STREAM = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,"
    " correlationId INTEGER, globalPid INTEGER, "
)
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": ON_STREAM
    + "demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,"
    " launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,"
    " gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,"
    " blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,"
    " staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,"
    " localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,"
    " gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,"
    " sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": ON_STREAM
    + "bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER,"
    " srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER,"
    " dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER,"
    " virtualAddress INTEGER, copyCount INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ON_STREAM
    + "deprecatedSyncType INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL,"
    " eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,"
    " nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,"
    " rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,"
    " endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,"
    " int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER,"
    " floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT,"
    " l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER,"
    " smCount INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER,"
    " maxRegistersPerSm INTEGER, maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER,"
    " computeMajor INTEGER, computeMinor INTEGER, busLocation TEXT, chipName TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
}


@dataclass(frozen=True)
class Run:
    """One process: when its launch calls and kernels ran, and which call launched each kernel."""

    shape: Shape
    pid: int
    gpu: int
    call_start: Array
    call_end: Array
    launch: Array
    kernel_start: Array
    kernel_end: Array
    stream: Array

    @property
    def global_pid(self) -> int:
        return HOST | self.pid << 24

    @property
    def global_tid(self) -> int:
        return self.global_pid | self.pid

    def ends_of(self, group: int, margin: int) -> tuple[Array, Array]:
        """Start of the first and end of the last launch call of every `group`, and a margin."""
        first = np.arange(0, len(self.call_start), group)
        last = np.minimum(first + group, len(self.call_start)) - 1
        return self.call_start[first] - margin, self.call_end[last] + margin


def make_trace(path: Path, kernels: int, shape: Shape, seed: int = 0) -> int:
    """Write the export and return its number of rows. Raises FileExistsError."""
    with path.open("xb"):
        pass
    rng = np.random.default_rng(seed)
    each, more = divmod(kernels, shape.processes)
    runs = [_run(rng, shape, place, each + (place < more)) for place in range(shape.processes)]
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for table, columns in SCHEMA.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
        rows = _small_tables(connection, runs)
        for write in (_kernels, _api_calls, _ranges, _samples, _copies, _syncs):
            rows += write(connection, rng, runs)
    connection.close()
    return rows


def _run(rng: np.random.Generator, shape: Shape, place: int, count: int) -> Run:
    kernels_per_launch = max(shape.graph_nodes, 1)
    calls = -(-count // kernels_per_launch)
    # Calls of one thread do not overlap: jitter and longest call stay within the period.
    jitter = rng.integers(0, LAUNCH_PERIOD_NS // 4, calls)
    period = LAUNCH_PERIOD_NS * kernels_per_launch
    call_start = WARM_UP_NS + place * 777 + np.arange(calls) * period + jitter
    call_end = call_start + LAUNCH_NS // 2 + rng.integers(0, LAUNCH_NS // 2, calls)
    duration = rng.integers(2_000, 2_000 + 7_000 * shape.streams, count)
    stream = 7 + np.arange(count) // LAYERS_PER_PASS % shape.streams
    launch = np.arange(count) // kernels_per_launch
    kernel_start = np.zeros(count, np.int64)
    for number in range(7, 7 + shape.streams):
        own = stream == number
        ready = call_end[launch[own]] + GAP_NS
        kernel_start[own] = _queued(ready, duration[own] + GAP_NS)
    ends = kernel_start + duration
    pid = FIRST_PID + place
    return Run(shape, pid, place, call_start, call_end, launch, kernel_start, ends, stream)


def _queued(ready: Array, occupied: Array) -> Array:
    """Start of each operation, which waits until it is ready and the previous one has ended."""
    before = np.cumsum(occupied) - occupied
    return np.asarray(np.maximum.accumulate(ready - before) + before, np.int64)


def _insert(
    connection: sqlite3.Connection, table: str, columns: Sequence[object], order: Array
) -> int:
    """Write columns, each an array, a list or one value for all rows, in the given order."""
    marks = ", ".join("?" * len(columns))
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        cells = [_cells(column, rows) for column in columns]
        lines = zip(*cells, strict=True)
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", lines)
    return len(order)


def _cells(column: object, rows: Array) -> Sequence[object]:
    if isinstance(column, np.ndarray):
        return list(column[rows].tolist())
    return [column] * len(rows)


def _per_call(runs: Sequence[Run], part: Callable[[Run], Array | int]) -> Array:
    pieces = [np.broadcast_to(part(run), run.call_start.shape) for run in runs]
    return np.concatenate(pieces).astype(np.int64)


def _per_kernel(runs: Sequence[Run], part: Callable[[Run], Array | int]) -> Array:
    pieces = [np.broadcast_to(part(run), run.kernel_start.shape) for run in runs]
    return np.concatenate(pieces).astype(np.int64)


def _kernels(connection: sqlite3.Connection, rng: np.random.Generator, runs: Sequence[Run]) -> int:
    shape = runs[0].shape
    start = _per_kernel(runs, lambda run: run.kernel_start)
    number = _per_kernel(runs, lambda run: np.arange(len(run.kernel_start)))
    launch = _per_kernel(runs, lambda run: run.launch)
    # Names by position in the step, so that every step launches the same kernels.
    name = number % KERNELS_PER_STEP * 7 % KERNEL_NAMES
    grid = [1 + name * 37 % 2000 + number * 7_919 % shape.grids, 1 + name % 3, 1]
    block = [32 << name % 5, 1, 1]
    node = 1 + number % shape.graph_nodes if shape.graph_nodes else None
    columns = [
        *(start, _per_kernel(runs, lambda run: run.kernel_end), 0, 1, None),
        *(_per_kernel(runs, lambda run: run.stream), launch + 1),
        *(_per_kernel(runs, lambda run: run.global_pid), FIRST_KERNEL_ID + name),
        *(FIRST_SHORT_ID + name, FIRST_KERNEL_ID + name, 1, 0, 16 + name % 12 * 16, *grid),
        *(*block, name % 4 * 1024, name % 7 * 8192, 0, rng.integers(0, 1 << 28, len(start))),
        *(number + 1, 102_400, node, 0),
    ]
    return _insert(connection, "CUPTI_ACTIVITY_KIND_KERNEL", columns, np.argsort(start))


def _api_calls(
    connection: sqlite3.Connection, rng: np.random.Generator, runs: Sequence[Run]
) -> int:
    launches = _per_call(runs, lambda run: run.call_start)
    ends = _per_call(runs, lambda run: run.call_end)
    number = _per_call(runs, lambda run: np.arange(len(run.call_start)))
    tid = _per_call(runs, lambda run: run.global_tid)
    extra = np.flatnonzero(number % 10 < 3)
    kind = np.select(
        [number[extra] % 100 == 0, number[extra] % 200 == 1], [COPY, SYNC], default=CAPTURING
    )
    before = launches[extra]
    launch = GRAPH_LAUNCH if runs[0].shape.graph_nodes else LAUNCH
    columns = [
        np.concatenate([launches, before - 1_500]),
        np.concatenate([ends, before - 500 + rng.integers(0, 300, len(extra))]),
        0,
        np.concatenate([tid, tid[extra]]),
        np.concatenate([number + 1, 1 + len(number) + number[extra]]),
        FIRST_CALL_ID + np.concatenate([np.full(len(number), launch), kind]),
        0,
        None,
    ]
    # The profiler writes calls as its buffers fill, not quite in the order of their starts.
    arrival = columns[0] + rng.integers(0, 20_000, len(tid) + len(extra))
    return _insert(connection, "CUPTI_ACTIVITY_KIND_RUNTIME", columns, np.argsort(arrival))


Ranges = tuple[Array, Array, Array, npt.NDArray[np.object_]]
"""Start, end (that of a mark is its start), thread and text."""


def _ranges(connection: sqlite3.Connection, _: np.random.Generator, runs: Sequence[Run]) -> int:
    return _write_ranges(
        connection, [part for run in runs for part in (*_ranges_of(run), *_inside_launches(run))]
    )


def _write_ranges(connection: sqlite3.Connection, parts: Sequence[Ranges]) -> int:
    start, end, tid = (np.concatenate([part[at] for part in parts]) for at in range(3))
    text = np.concatenate([part[3] for part in parts])
    is_mark = start == end
    kind = np.where(is_mark, MARK, PUSH_POP)
    ends = end.astype(object)
    ends[is_mark] = None
    columns = [start, ends, kind, *(None,) * 2, 4_278_190_080, text, tid, None, None, 0]
    columns += [None] * 9
    return _insert(connection, "NVTX_EVENTS", columns, np.lexsort((-end, start)))


def _inside_launches(run: Run) -> Iterator[Ranges]:
    """Nested ranges around each launch call, and a mark in the innermost."""
    shape = run.shape
    tid = np.full(len(run.call_start), run.global_tid)
    for level in range(shape.ranges_per_launch):
        margin = 30 - 2 * level
        text = np.full(len(tid), f"detail_{level}", object)
        yield run.call_start - margin, run.call_end + margin, tid, text
    if shape.marks:
        yield run.call_start - 5, run.call_start - 5, tid, np.full(len(tid), "mark", object)


def _ranges_of(run: Run) -> list[Ranges]:
    found = []
    names: list[tuple[int, Callable[[int], str]]] = [
        (KERNELS_PER_STEP, lambda at: f"step_{at}"),
        (KERNELS_PER_STEP // len(PASSES), lambda at: PASSES[at % len(PASSES)]),
        (OPERATIONS_PER_LAYER, lambda at: f"layer_{at % LAYERS_PER_PASS}"),
        (1, lambda at: OPERATIONS[at % len(OPERATIONS)]),
    ]
    if run.shape.graph_nodes:
        names = [(1, lambda at: f"step_{at}")]
    for level, (group, name) in enumerate(names):
        # Ranges of one thread nest: the margin of a level is wider than that of those inside.
        start, end = run.ends_of(group, margin=40 * (len(names) - level))
        texts = map(name, range(len(start)))
        if run.shape.id_in_range_names and level:
            texts = (f"{text}, id = {run.pid}{at:07d}" for at, text in enumerate(texts))
        text = np.array([*texts, None], object)[:-1]
        found.append((start, end, np.full(len(start), run.global_tid), text))
    return found


def _samples(connection: sqlite3.Connection, _: np.random.Generator, runs: Sequence[Run]) -> int:
    """Stacks as nsys samples them: marks of a domain of their own, as JSON, innermost first."""
    every = runs[0].shape.sample_every_ns
    if not every:
        return 0
    rows: list[tuple[object, ...]] = []
    for run in runs:
        head = (0, None, DOMAIN_CREATE, *(None,) * 3, SAMPLER, run.global_tid, *(None,) * 2)
        rows.append((*head, SAMPLER_DOMAIN, *(None,) * 9))
        for time in range(WARM_UP_NS, int(run.call_end[-1]), every):
            head = (time, None, MARK, *(None,) * 3, None, run.global_tid, *(None,) * 2)
            stack = _stack(time // every % KERNELS_PER_STEP)
            rows.append((*head, SAMPLER_DOMAIN, *(None,) * 7, stack, None))
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO NVTX_EVENTS VALUES ({marks})", rows)
    return len(rows)


def _stack(line: int) -> str:
    frames = [
        {"Function": FIRST_FRAME_ID + 2 * depth, "File": FIRST_FRAME_ID + 2 * depth + 1, "Line": at}
        for depth, at in enumerate([10 + line, *range(20, 19 + FRAMES)])
    ]
    head = {"Thread state ID": 1, "Thread state": "Running", "Frames count": FRAMES}
    return json.dumps({SAMPLER: {**head, "Frames": frames}}, separators=(",", ":"))


def _copies(connection: sqlite3.Connection, _: np.random.Generator, runs: Sequence[Run]) -> int:
    return _beside_calls(connection, runs, "CUPTI_ACTIVITY_KIND_MEMCPY", 100, 0)


def _syncs(connection: sqlite3.Connection, _: np.random.Generator, runs: Sequence[Run]) -> int:
    return _beside_calls(connection, runs, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 200, 1)


def _beside_calls(
    connection: sqlite3.Connection, runs: Sequence[Run], table: str, every: int, rest: int
) -> int:
    number = _per_call(runs, lambda run: np.arange(len(run.call_start)))
    picked = np.flatnonzero(number % every == rest)
    before = _per_call(runs, lambda run: run.call_start)[picked]
    pid = _per_call(runs, lambda run: run.global_pid)[picked]
    common = [before - 1_400, before - 600, 0, 1, None, 7, 1 + len(number) + number[picked], pid]
    copied = [4 << 20, 1, None, 0, 2, *(None,) * 6, None, 1]
    waited = [None, 2, 4_294_967_295, 4_294_967_295]
    columns = [*common, *(copied if table.endswith("MEMCPY") else waited)]
    return _insert(connection, table, columns, np.argsort(before))


def _small_tables(connection: sqlite3.Connection, runs: Sequence[Run]) -> int:
    gpu = ("NVIDIA H200", 62914560, 150109880320, 4814304000000, 1980000000, 132, 232448, 233472)
    captured = [("CAPTURE_EVENT_TYPE", "Cuda"), ("CAPTURE_EVENT_TYPE", "NvtxEvents")]
    version = [("EXPORT_PRODUCT_VERSION", "2025.3.2.0"), ("EXPORT_SCHEMA_VERSION", "3.20.3")]
    version += [("EXPORT_SCHEMA_VERSION_MAJOR", "3"), ("EXPORT_SCHEMA_VERSION_MINOR", "20")]
    # Without it nsys stats skips two of its reports and looks faster than it is.
    copied = [(1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device")]
    tables: dict[str, list[tuple[object, ...]]] = {
        "StringIds": [*_strings()],
        "TARGET_INFO_GPU": [
            (HOST, run.gpu, *gpu, 65536, 64, 32, 9, 0, _bus(run), "GH100") for run in runs
        ],
        "TARGET_INFO_CUDA_DEVICE": [(run.gpu, 0, run.pid) for run in runs],
        "PROCESSES": [(run.global_pid, run.pid, "python3") for run in runs],
        "ThreadNames": [(THREAD_NAME_ID, 20, run.global_tid) for run in runs],
        "ENUM_CUDA_MEMCPY_OPER": [*copied],
        "META_DATA_CAPTURE": [*captured],
        "META_DATA_EXPORT": [*version],
    }
    for table, rows in tables.items():
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    return sum(map(len, tables.values()))


def _bus(run: Run) -> str:
    return f"0000:{0x18 + run.gpu:02x}:00.0"


def _strings() -> list[tuple[int, str]]:
    names = [(THREAD_NAME_ID, "python3")]
    names += [(FIRST_CALL_ID + at, name) for at, name in enumerate(CALLS)]
    for at in range(KERNEL_NAMES):
        arguments = f"<float, (int){at}, at::native::functor_{at}<float>>(int, T2, T3)"
        names.append((FIRST_KERNEL_ID + at, f"void at::native::kernel_{at}{arguments}"))
        names.append((FIRST_SHORT_ID + at, f"kernel_{at}"))
    for depth in range(FRAMES):
        names.append((FIRST_FRAME_ID + 2 * depth, f"function_{depth}"))
        names.append((FIRST_FRAME_ID + 2 * depth + 1, f"/model/file_{depth % 5}.py"))
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--shape", choices=SHAPES, default="plain")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = make_trace(given.out, given.kernels, SHAPES[given.shape], given.seed)
    print(f"Wrote {given.out}: {rows} rows, {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
