"""Processes, threads and GPUs: from the ids of an export to the rows of a Trace.

While tables are read, they get provisional numbers in order of appearance. Once all are known,
`Owners.settle` sorts and renumbers them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from traceview.base.hardware.rates import unsaid
from traceview.base.records import record
from traceview.base.tables import Array, Cell, Mask, Table, Texts, constant, picked
from traceview.base.tables.arrays import numbered
from traceview.traces.trace.nsys.rows import Names, Rows, numbered_pairs
from traceview.traces.trace.schema import DEVICES, PROCESSES, THREADS
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.staged import INT32, Staged

Codes = npt.NDArray[np.int32]
Key = TypeVar("Key", bound=Hashable)
# globalTid is host << 48 | process << 24 | thread; a globalPid has thread 0.
THREAD_BITS = 0xFFFFFF
PROCESS_BITS = 0xFFFFFF
UNKNOWN = 0
ABSENT = int(INT32.min)
GPU_COLUMNS = {
    "sm_count": "smCount",
    "max_warps_per_sm": "maxWarpsPerSm",
    "max_blocks_per_sm": "maxBlocksPerSm",
    "max_registers_per_sm": "maxRegistersPerSm",
    "max_shared_memory_per_sm_bytes": "maxShmemPerSm",
    "max_shared_memory_per_block_bytes": "maxShmemPerBlockOptin",
    "l2_cache_bytes": "l2CacheSize",
    "copy_engines": "asyncEngines",
    "total_memory_bytes": "totalMemory",
    "memory_bytes_per_s": "memoryBandwidth",
    "clock_hz": "clockRate",
}
_NARROW = {column.name for column in DEVICES.columns if column.dtype == "int32"}
_NO_CUDA = (0, 0)
_MOST = [INT32.max if name in _NARROW else INT32.max << 24 for name in GPU_COLUMNS]


def host_of(global_id: int) -> int:
    """The host bits of a globalTid or globalPid."""
    return (global_id >> 48) & 0xFFFF


def process_of(global_id: int) -> int:
    """The operating system's process id in a globalTid or globalPid."""
    return (global_id >> 24) & PROCESS_BITS


@dataclass
class _Numbering(Generic[Key]):
    """Numbers in order of first appearance."""

    number: dict[Key, int] = field(default_factory=dict)

    def of(self, key: Key) -> int:
        return self.number.setdefault(key, len(self.number))

    def all(self, keys: Sequence[Key]) -> Codes:
        return np.array([self.of(key) for key in keys], np.int32)


class Owners:
    """Provisional numbers of the processes, threads and GPUs that rows refer to."""

    def __init__(self) -> None:
        self._processes = _Numbering[int]()
        self._threads = _Numbering[int]()
        self._devices = _Numbering[tuple[int, int]]()

    def processes(self, rows: Rows, name: str = "globalPid") -> Codes:
        """Provisional process numbers of a column of global ids."""
        distinct, codes = numbered(rows.integer(name, UNKNOWN))
        return _picked(self._processes.all((distinct & ~THREAD_BITS).tolist()), codes)

    def threads(self, rows: Rows, name: str = "globalTid") -> tuple[Codes, Codes]:
        """Provisional thread and process numbers of a column of global ids."""
        distinct, codes = numbered(rows.integer(name, UNKNOWN))
        threads = self._threads.all(distinct.tolist())
        processes = self._processes.all((distinct & ~THREAD_BITS).tolist())
        return _picked(threads, codes), _picked(processes, codes)

    def has_threads(self, rows: Rows) -> Mask:
        """True for the rows of threads that appeared before."""
        distinct, codes = numbered(rows.integer("globalTid", UNKNOWN))
        known = np.array([thread in self._threads.number for thread in distinct.tolist()], bool)
        return known[codes] if len(known) else np.zeros(len(rows), bool)

    def has_processes(self, rows: Rows) -> Mask:
        """True for the rows of threads of processes that appeared before; for all if none has."""
        known = list(self._processes.number)
        result: Mask = np.isin(rows.integer("globalTid", UNKNOWN) & ~THREAD_BITS, known)
        return result if known else ~result

    def devices(self, rows: Rows, processes: Codes) -> Codes:
        """Provisional GPU numbers, by process: each process numbers the GPUs it sees."""
        pairs, codes = numbered_pairs(processes, rows.identity("deviceId"))
        return _picked(self._devices.all(pairs), codes)

    def settle(self, database: Database, names: Names) -> Settled:
        """Sort and name all processes, threads and GPUs."""
        global_ids, process_rows = _settled_processes(list(self._processes.number))
        gpus = _gpu_rows(database)
        owners = [global_ids[row] for row in process_rows]
        # The GPU behind each device as a process sees it.
        lines = database.lines("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
        gpu_of = {
            (pid, device): gpu
            for pid, device, gpu in lines
            if type(pid) is type(device) is type(gpu) is int and 0 <= gpu <= INT32.max
        }
        seen = [
            (host_of(owners[process]), gpu_of.get((process_of(owners[process]), device), device))
            for process, device in self._devices.number
        ]
        warnings = () if gpu_of else _merged(seen, gpus)
        devices = sorted({*gpus, *seen})
        row_of = dict(zip(self._processes.number, process_rows, strict=True))
        used = [(row_of[tid & ~THREAD_BITS], tid & THREAD_BITS) for tid in self._threads.number]
        threads = sorted(set(used))
        rows = {
            "process": np.array(process_rows, np.int32),
            "thread": _positions(used, threads),
            "device": _positions(seen, devices),
        }
        tables = {
            "processes": _process_table(global_ids, database),
            "threads": _thread_table(threads, global_ids, database, names),
            "devices": device_table(devices, gpus),
        }
        return Settled(rows, tables, warnings)


@record
class Settled:
    """Tables of processes, threads and devices, and the row of each provisional number."""

    rows: Mapping[str, Codes]
    tables: Mapping[str, Table]
    warnings: tuple[str, ...] = ()

    def renumber(self, staged: Staged) -> Staged:
        """Staged columns with final instead of provisional numbers; absent values stay absent."""
        kind = {"end_thread": "thread"}
        return {
            name: _final(values, self.rows[kind.get(name, name)])
            if kind.get(name, name) in self.rows and not isinstance(values, Texts)
            else values
            for name, values in staged.items()
        }


def _settled_processes(found: Sequence[int]) -> tuple[list[int], list[int]]:
    """All global process ids in order, and the row of each id in `found`."""
    known = sorted((g for g in found if g != UNKNOWN), key=lambda g: (host_of(g), process_of(g), g))
    # Rows without a process id belong to the only process, if there is just one.
    if UNKNOWN in found and len(known) != 1:
        known = [UNKNOWN, *known]
    row = {UNKNOWN: 0} | {global_id: place for place, global_id in enumerate(known)}
    return known, [row[global_id] for global_id in found]


def _positions(keys: Sequence[tuple[int, int]], ordered: Sequence[tuple[int, int]]) -> Codes:
    place = {key: row for row, key in enumerate(ordered)}
    return np.array([place[key] for key in keys], np.int32)


def _merged(
    seen: Sequence[tuple[int, int]], gpus: Mapping[tuple[int, int], object]
) -> tuple[str, ...]:
    """A warning if GPU 0 of several processes may be different GPUs."""
    shared = sorted({gpu for host, gpu in seen if seen.count((host, gpu)) > 1})
    if not shared or len(gpus) < 2:
        return ()
    return (
        f"several processes used GPU {', '.join(map(str, shared))} by their own numbering; "
        "this export does not say whether it is the same device, so it is treated as one "
        "(nsys 2025.3 and newer record it)",
    )


def _gpu_rows(database: Database) -> dict[tuple[int, int], dict[str, Cell]]:
    """Properties of every GPU that CUDA can use, by host and GPU; Windows lists others as well."""
    # Up to 2021 the number is in `deviceId`.
    identity = ("vmId", "id", "deviceId")
    names = (*identity, "name", "computeMajor", "computeMinor", *GPU_COLUMNS.values())
    rows: dict[tuple[int, int], dict[str, Cell]] = {}
    for vm, number, older, name, major, minor, *figures in database.lines("TARGET_INFO_GPU", names):
        gpu = older if number is None else number
        if type(vm) is not int or type(gpu) is not int or not 0 <= gpu <= INT32.max:
            continue
        if (major, minor) == _NO_CUDA:
            continue
        capability = f"{major}.{minor}" if type(major) is int and type(minor) is int else None
        row: dict[str, Cell] = {
            "name": None if name is None else str(name),
            "compute_capability": capability,
        }
        # 0 and out-of-range values mean unknown.
        for column, value, most in zip(GPU_COLUMNS, figures, _MOST, strict=True):
            row[column] = value if type(value) is int and 0 < value <= most else None
        if capability is None and (known := unsaid(str(name))):
            row["compute_capability"], row["sm_count"] = known
        rows.setdefault((host_of(vm), gpu), row)
    return rows


def device_table(
    devices: Sequence[tuple[int, int]], gpus: Mapping[tuple[int, int], Mapping[str, Cell]]
) -> Table:
    """The devices table of (host, GPU) pairs, with the properties known of some."""
    unknown: dict[str, Cell] = {c.name: None for c in DEVICES.columns if c.nullable}
    rows = [
        {"host_id": host, "device_id": gpu, **unknown, **gpus.get((host, gpu), {})}
        for host, gpu in devices
    ]
    return Table.from_rows(DEVICES.columns, rows)


def _process_table(global_ids: Sequence[int], database: Database) -> Table:
    named = {line[0]: line[1] for line in database.lines("PROCESSES", ("globalPid", "name"))}
    rows: list[dict[str, Cell]] = [
        {
            "host_id": host_of(global_id),
            "process_id": process_of(global_id),
            "name": None if named.get(global_id) is None else str(named[global_id]),
        }
        for global_id in global_ids
    ]
    return Table.from_rows(PROCESSES.columns, rows)


def _thread_table(
    threads: Sequence[tuple[int, int]], global_ids: Sequence[int], database: Database, names: Names
) -> Table:
    lines = database.lines("ThreadNames", ("globalTid", "nameId"))
    wanted = [global_ids[process] | thread for process, thread in threads]
    # A thread that renamed itself has several names; the last one counts.
    name_ids = {tid: name for tid, name in lines if type(name) is int and tid in set(wanted)}
    texts = names.of(np.array(list(name_ids.values()), np.int64))
    named = dict(zip(name_ids, texts, strict=True))
    rows: list[dict[str, Cell]] = [
        {"process": process, "thread_id": thread, "name": named.get(global_id)}
        for (process, thread), global_id in zip(threads, wanted, strict=True)
    ]
    return Table.from_rows(THREADS.columns, rows)


def _picked(of_distinct: Codes, codes: Codes) -> Codes:
    return picked(of_distinct, codes) if len(of_distinct) else codes


def _final(codes: Array, rows: Codes) -> Array:
    if not len(rows) or not len(codes):
        return codes
    if codes.strides == (0,):
        return constant(codes[0] if codes[0] == ABSENT else rows[codes[0]], len(codes), np.int32)
    if (rows == np.arange(len(rows))).all():
        return codes
    absent = codes == ABSENT
    if not absent.any():
        return rows[codes]
    return np.where(absent, np.int32(ABSENT), rows[np.where(absent, 0, codes)])
