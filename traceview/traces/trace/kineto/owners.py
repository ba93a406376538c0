"""Processes, threads and GPUs of a trace of torch.profiler.

Events of the CPU have the ids of the operating system, as numbers or as text; events of the GPU
have the GPU in place of the process and the stream in place of the thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Cell, Integers, RowNumbers, Table
from traceview.traces.trace.kineto.columns import INT32, integers
from traceview.traces.trace.kineto.events import Arguments, Events, KinetoEvent
from traceview.traces.trace.nsys.processes import device_table
from traceview.traces.trace.schema import DEVICES, PROCESSES, THREADS

Id = int | str
_PLAIN = (int, str)
_SHORT = 15


@dataclass
class KinetoOwners:
    """Numbers of the processes and threads that events of the CPU name, and the names of both."""

    threads: dict[tuple[Any, Any], int] = field(default_factory=dict)
    process_names: dict[Id, str] = field(default_factory=dict)
    process_labels: dict[Id, str] = field(default_factory=dict)
    thread_names: dict[tuple[Id, Id], str] = field(default_factory=dict)

    def of(self, events: Events) -> RowNumbers:
        """Provisional thread numbers."""
        keys = [(e.pid, e.tid) for e in events]
        try:
            distinct = dict.fromkeys(keys)
        except TypeError:
            keys = [(_hashable(pid), _hashable(tid)) for pid, tid in keys]
            distinct = dict.fromkeys(keys)
        threads = self.threads
        for key in distinct:
            threads.setdefault(key, len(threads))
        if len(distinct) == 1:
            return np.full(len(keys), threads[keys[0]], np.int32)
        return np.array([threads[key] for key in keys], np.int32)

    def number(self, pid: Any, tid: Any) -> int:
        """The provisional number of one thread."""
        key = (_hashable(pid), _hashable(tid))
        return self.threads.setdefault(key, len(self.threads))

    def note(self, event: KinetoEvent) -> None:
        """Keep what a metadata event names; with the category of another event it names nothing."""
        args = getattr(event, "args", None)
        if not isinstance(args, Arguments):
            return
        process, thread = _plain(event.pid), _plain(event.tid)
        if event.name == "process_name" and args.name:
            self.process_names.setdefault(process, str(args.name))
        elif event.name == "process_labels" and args.labels:
            self.process_labels.setdefault(process, str(args.labels))
        elif event.name == "thread_name" and args.name:
            self.thread_names.setdefault((process, thread), str(args.name))

    def settle(self, properties: Sequence[Any], used: Integers, amd: bool) -> SettledOwners:
        """Tables of processes, threads and GPUs; `used` are the GPUs that ran work."""
        pairs = [(_plain(pid), _plain(tid)) for pid, tid in self.threads]
        processes = sorted({pid for pid, _ in pairs}, key=_order)
        # Python's frames of a thread that has ended have neither process nor thread.
        real = [pid for pid in processes if pid != 0]
        if real and 0 in processes:
            processes = real
            pairs = [(pid if pid != 0 else real[0], tid) for pid, tid in pairs]
        processes = processes or [0]
        row_of = {pid: row for row, pid in enumerate(processes)}
        threads = sorted(
            {(row_of[pid], tid) for pid, tid in pairs}, key=lambda t: (t[0], _order(t[1]))
        )
        thread_row = {pair: row for row, pair in enumerate(threads)}
        process_rows: list[dict[str, Cell]] = []
        for row, pid in enumerate(processes):
            name = self.process_names.get(pid, None if isinstance(pid, int) else pid)
            process_rows.append({"host_id": 0, "process_id": _number(pid, row), "name": name})
        thread_rows: list[dict[str, Cell]] = []
        for row, (process, tid) in enumerate(threads):
            name = self.thread_names.get((processes[process], tid))
            number = _number(tid, row)
            thread_rows.append({"process": process, "thread_id": number, "name": name})
        return SettledOwners(
            np.array([thread_row[row_of[pid], tid] for pid, tid in pairs], np.int32),
            np.array([row_of[pid] for pid, _ in pairs], np.int32),
            Table.from_rows(PROCESSES.columns, process_rows),
            Table.from_rows(THREADS.columns, thread_rows),
            _devices(properties, used, amd),
        )


@record
class SettledOwners:
    """The row of each provisional thread number, its process, and the three tables."""

    thread: RowNumbers
    process: RowNumbers
    processes: Table
    threads: Table
    devices: Table


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (*_PLAIN, float, type(None))) else str(value)


def _plain(value: Any) -> Id:
    """An id as an integer where it is one, else as text."""
    if type(value) is int and abs(value) < 1 << 62:
        return value
    text = str(value)
    return int(text) if text.removeprefix("-").isdecimal() and len(text) <= _SHORT else text


def _order(value: Id) -> tuple[bool, int, str]:
    return (isinstance(value, str), value if isinstance(value, int) else 0, str(value))


def _number(value: Id, row: int) -> int:
    """The id, or a number below 0 for one that is a text."""
    return value if isinstance(value, int) else -1 - row


_DTYPES = {column.name: column.dtype for column in DEVICES.columns}
_PROPERTIES = {
    "sm_count": ("numSms",),
    "max_registers_per_sm": ("regsPerMultiprocessor", "regsPerBlock"),
    "max_shared_memory_per_sm_bytes": (
        "sharedMemPerMultiprocessor",
        "maxSharedMemoryPerMultiProcessor",
    ),
    "max_shared_memory_per_block_bytes": ("sharedMemPerBlockOptin", "sharedMemPerBlock"),
    "total_memory_bytes": ("totalGlobalMem",),
}


def _devices(properties: Sequence[Any], used: Integers, amd: bool) -> Table:
    known: dict[int, Mapping[str, Any]] = {}
    for one in properties:
        number = one.get("id") if isinstance(one, Mapping) else None
        if type(number) is int and 0 <= number <= INT32.max:
            known.setdefault(number, one)
    others = [gpu for gpu in used.tolist() if gpu not in known]
    alike = {repr({**one, "id": None}) for one in known.values()}
    if others and len(others) == len(used) and len(alike) == 1:
        # ROCm numbers the GPUs of the machine there, and those that the process sees here.
        known = dict.fromkeys(others, next(iter(known.values())))
    gpus = sorted({*known, *used.tolist()})
    described = {(0, gpu): _described(known.get(gpu, {}), amd) for gpu in gpus}
    return device_table([(0, gpu) for gpu in gpus], described)


def _described(one: Mapping[str, Any], amd: bool) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for column, keys in _PROPERTIES.items():
        values = integers([one.get(key) for key in keys], 0)
        most = INT32.max if _DTYPES[column] == "int32" else 1 << 55
        found[column] = next((int(v) for v in values if 0 < v <= most), None)
    name = one.get("name")
    if isinstance(name, str) and name:
        found["name"] = name
    keys = ("maxThreadsPerMultiprocessor", "warpSize", "computeMajor", "computeMinor")
    threads, warp, major, minor = integers([one.get(key) for key in keys]).tolist()
    if warp > 0 and 0 < threads <= INT32.max:
        found["max_warps_per_sm"] = threads // warp
    # ROCm fills these with the numbers of gfx, which are not compute capabilities of CUDA.
    if 0 < major < 1000 and 0 <= minor < 1000 and not amd:
        found["compute_capability"] = f"{major}.{minor}"
    return found


def gpu_numbers(values: Integers) -> RowNumbers:
    """GPU indices; 0 where the event has none."""
    return np.where((values < 0) | (values > INT32.max), 0, values).astype(np.int32)
