"""Write a large nsys export that looks like a training run: deterministic, for benchmarks.

    python -m benchmarks.traces.generator OUT.sqlite --kernels 1000000 [--shape NAME]

Every process trains on its own GPU with the same correlation ids; threads of a process share it.
A step is a forward and a backward pass of layers; a layer runs four operations, each in its own
range, like torch's autograd ranges. 1 M kernels make about 3.6 M rows and 200 MB. The shapes are
those of shapes.py beside it.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.traces.processes import (
    KERNELS_PER_STEP,
    LAYERS_PER_PASS,
    OPERATIONS_PER_LAYER,
    PASSES,
    WARM_UP_NS,
    Array,
    Run,
    runs_of,
)
from benchmarks.traces.shapes import SHAPES, Shape
from benchmarks.traces.tables import (
    CALLS,
    FIRST_CALL_ID,
    FIRST_FRAME_ID,
    FIRST_KERNEL_ID,
    FIRST_SHORT_ID,
    FRAMES,
    KERNEL_NAMES,
    SCHEMA,
    write_small_tables,
)

PUSH_POP, MARK, DOMAIN_CREATE = 59, 34, 75
BATCH = 100_000
LAUNCH, CAPTURING, COPY, SYNC, GRAPH_LAUNCH = range(len(CALLS))
OPERATIONS = ("aten::linear", "aten::gelu", "aten::layer_norm", "aten::add", "aten::mul")
SAMPLER, SAMPLER_DOMAIN = "Python Periodic Sampling", 1


def make_trace(path: Path, kernels: int, shape: Shape, seed: int = 0) -> int:
    """Write the export and return its number of rows. Raises FileExistsError."""
    with path.open("xb"):
        pass
    rng = np.random.default_rng(seed)
    runs = runs_of(rng, shape, kernels)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for table, columns in SCHEMA.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
        rows = write_small_tables(connection, runs)
        for write in (_kernels, _api_calls, _ranges, _samples, _copies, _syncs):
            rows += write(connection, rng, runs)
    connection.close()
    return rows


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
    launch = _per_kernel(runs, lambda run: run.first + run.launch)
    launched = number + _per_kernel(runs, lambda run: run.first)
    # Names by position in the step, so that every step launches the same kernels.
    name = number % KERNELS_PER_STEP * 7 % KERNEL_NAMES
    grid = [1 + name * 37 % 2000 + launched * 7_919 % shape.grids, 1 + name % 3, 1]
    block = [32 << name % 5, 1, 1]
    shared = name % 7 * 8192 + grid[0] % shape.shared_sizes * 16
    node = 1 + number % shape.graph_nodes if shape.graph_nodes else None
    columns = [
        *(start, _per_kernel(runs, lambda run: run.kernel_end), 0, 1, None),
        *(_per_kernel(runs, lambda run: run.stream), launch + 1),
        *(_per_kernel(runs, lambda run: run.global_pid), FIRST_KERNEL_ID + name),
        *(FIRST_SHORT_ID + name, FIRST_KERNEL_ID + name, 1, 0, 16 + name % 12 * 16, *grid),
        *(*block, name % 4 * 1024, shared, 0, rng.integers(0, 1 << 28, len(start))),
        *(number + 1, 102_400, node, 0),
    ]
    return _insert(connection, "CUPTI_ACTIVITY_KIND_KERNEL", columns, np.argsort(start))


def _api_calls(
    connection: sqlite3.Connection, rng: np.random.Generator, runs: Sequence[Run]
) -> int:
    launches = _per_call(runs, lambda run: run.call_start)
    ends = _per_call(runs, lambda run: run.call_end)
    number = _per_call(runs, lambda run: run.first + np.arange(len(run.call_start)))
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
            texts = (f"{text}, id = {run.tid}{at:07d}" for at, text in enumerate(texts))
        if level and (hashes := run.shape.hashes_in_range_names):
            # Only the program's own names have hashes, those of torch's operators do not.
            own = (text.removeprefix("aten::") for text in texts)
            texts = (f"{text}_{_hash(run.tid, at % hashes)}" for at, text in enumerate(own))
        text = np.array([*texts, None], object)[:-1]
        found.append((start, end, np.full(len(start), run.global_tid), text))
    return found


def _hash(*of: int) -> str:
    return f"{zlib.crc32(repr(of).encode()):08x}"


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
    number = _per_call(runs, lambda run: run.first + np.arange(len(run.call_start)))
    picked = np.flatnonzero(number % every == rest)
    before = _per_call(runs, lambda run: run.call_start)[picked]
    pid = _per_call(runs, lambda run: run.global_pid)[picked]
    common = [before - 1_400, before - 600, 0, 1, None, 7, 1 + len(number) + number[picked], pid]
    copied = [4 << 20, 1, None, 0, 2, *(None,) * 6, None, 1]
    waited = [None, 2, 4_294_967_295, 4_294_967_295]
    columns = [*common, *(copied if table.endswith("MEMCPY") else waited)]
    return _insert(connection, table, columns, np.argsort(before))


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
