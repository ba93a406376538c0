"""API calls, ranges, overheads and allocator memory of a trace of torch.profiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.base.tables import NULL, RowNumbers, Texts, constant, joined, object_array, picked
from traceview.traces.trace.kineto import columns
from traceview.traces.trace.kineto.events import (
    NO_ARGUMENTS,
    NOTHING,
    Arguments,
    Events,
    KinetoEvent,
)
from traceview.traces.trace.kineto.gpu_work import LaunchCalls, triples
from traceview.traces.trace.kineto.owners import KinetoOwners, SettledOwners, gpu_numbers
from traceview.traces.trace.schema import OPERATORS
from traceview.traces.trace.staged import Staged, numbers_of, same_text

_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds|R\d{4})+$")
_GRAPH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_SYNCS = {
    "Stream Sync": "stream",
    "Event Sync": "event",
    "Context Sync": "context",
    "Stream Wait Event": "stream-wait-event",
}
_LONGEST_DIMS = 400


@dataclass
class RangeParts:
    """Ranges of one kind, gathered chunk by chunk."""

    parts: columns.ColumnParts = field(default_factory=columns.ColumnParts)
    names: columns.Codes = field(default_factory=columns.Codes)

    def add(self, timed: columns.TimedEvents, owners: KinetoOwners, names: Sequence[Any]) -> None:
        thread, name = owners.of(timed.events), self.names.of(names)
        self.parts.add(start_ns=timed.start_ns, end_ns=timed.end_ns, thread=thread, name=name)


@dataclass
class CpuWork:
    """Events on the CPU, gathered chunk by chunk."""

    owners: KinetoOwners = field(default_factory=KinetoOwners)
    calls: columns.ColumnParts = field(default_factory=columns.ColumnParts)
    shapes: columns.ColumnParts = field(default_factory=columns.ColumnParts)
    annotations: RangeParts = field(default_factory=RangeParts)
    operators: RangeParts = field(default_factory=RangeParts)
    syncs: columns.ColumnParts = field(default_factory=columns.ColumnParts)
    overheads: columns.ColumnParts = field(default_factory=columns.ColumnParts)
    call_names: columns.Codes = field(default_factory=columns.Codes)
    sync_kinds: columns.Codes = field(default_factory=columns.Codes)
    overhead_names: columns.Codes = field(default_factory=columns.Codes)
    undated: int = 0

    def timed(self, events: Events) -> columns.TimedEvents:
        """The events that have a time; counts the others."""
        timed = columns.TimedEvents.of(events)
        self.undated += timed.undated
        return timed

    def add_calls(self, events: Events) -> None:
        timed = self.timed(events)
        first = self.calls.rows
        self.calls.add(
            start_ns=timed.start_ns,
            end_ns=timed.end_ns,
            thread=self.owners.of(timed.events),
            correlation_id=timed.integers("correlation"),
            name=self.call_names.of(timed.names),
        )
        noted = [
            (row, one)
            for row, one in enumerate(timed.args, first)
            if one.grid is not None or one.size is not None
        ]
        self.add_shapes([one for _, one in noted], [row for row, _ in noted])

    def add_shapes(self, args: Sequence[Arguments], calls: Sequence[int]) -> None:
        """Add launch shapes and copy sizes of `calls` (rows), which only ROCm records there."""
        if not calls:
            return
        self.shapes.add(
            call=np.array(calls, np.int64),
            grid=triples([one.grid for one in args]),
            block=triples([one.block for one in args]),
            shared=columns.amounts([one.shared_memory for one in args]),
            bytes=columns.integers([one.size for one in args], -1).clip(-1, 1 << 50),
        )

    def add_annotations(self, events: Events) -> None:
        """Add ranges of the program: record_function, ProfilerStep and ranges of libraries."""
        timed = self.timed(events)
        self.annotations.add(timed, self.owners, timed.names)

    def add_operators(self, events: Events) -> None:
        timed = self.timed(events)
        self.operators.add(timed, self.owners, [_with_sizes(event) for event in timed.events])

    def add_syncs(self, events: Events) -> None:
        timed = self.timed(events)
        stream = timed.integers("stream")
        kinds = zip(timed.values("sync_kind"), timed.names, strict=True)
        self.syncs.add(
            start_ns=timed.start_ns,
            end_ns=timed.end_ns,
            context_id=timed.amounts("context"),
            stream_id=np.where(stream < 0, NULL, stream),
            correlation_id=timed.integers("correlation"),
            kind=self.sync_kinds.of([kind or name for kind, name in kinds]),
        )

    def add_overheads(self, events: Events) -> None:
        timed = self.timed(events)
        names = self.overhead_names.of(timed.names)
        self.overheads.add(start_ns=timed.start_ns, end_ns=timed.end_ns, name=names)


def _with_sizes(event: KinetoEvent) -> Any:
    """The operator's name with its tensor shapes, in the form of torch's emit_nvtx."""
    args = event.args
    if type(event.name) is not str or event.name not in _WITH_WORK:
        return event.name
    if args is None or args.input_dims is NOTHING or len(args.input_dims) > _LONGEST_DIMS:
        return event.name
    return named_with_sizes(event.name, bytes(args.input_dims))


def named_with_sizes(name: str, dims: bytes) -> str:
    return f"{name}, sizes = {dims.decode('ascii', 'replace')}"


_WITH_WORK = frozenset(
    f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "_scaled_mm")
)


def api_calls(work: CpuWork, thread: RowNumbers, process: RowNumbers) -> tuple[Staged, LaunchCalls]:
    """The api_calls table in file order, and the calls as LaunchCalls for the GPU work."""
    parts = work.calls
    provisional = parts.take("thread", np.int32)
    names = work.call_names.texts(parts.take("name", np.int32))
    names = names.map(
        [_VERSION.sub("", str(name)) or "(unnamed)" for name in work.call_names.index]
    )
    names = Texts(np.maximum(names.codes, 0), names.values)
    correlation = parts.take("correlation_id")
    graph = names.isin([str(name) for name in names.values if _GRAPH.match(str(name))])
    of_process = _of_threads(process, provisional)
    staged: Staged = {
        "start_ns": parts.take("start_ns"),
        "end_ns": parts.take("end_ns"),
        "thread": _of_threads(thread, provisional),
        "process": of_process,
        "correlation_id": correlation,
        "name": names,
        "callchain_id": constant(NULL, len(correlation), np.int64),
    }
    start = numbers_of(staged, "start_ns")
    # Grid, block, shared memory and bytes of each call; 0, and −1 bytes, where not recorded.
    calls = len(graph)
    grid, block = np.zeros((calls, 3), np.int32), np.zeros((calls, 3), np.int32)
    shared, size = np.zeros(calls, np.int32), constant(-1, calls, np.int64)
    if work.shapes.rows:
        of, size = work.shapes.take("call"), size.copy()
        grid[of], block[of] = work.shapes.take("grid"), work.shapes.take("block")
        shared[of], size[of] = work.shapes.take("shared"), work.shapes.take("bytes")
    return staged, LaunchCalls(of_process, correlation, start, graph, grid, block, shared, size)


def ranges(work: CpuWork, thread: RowNumbers, process: RowNumbers) -> Staged:
    """The ranges table: ranges of the program, then operators of torch in the domain OPERATORS."""
    both = (work.annotations, work.operators)
    first = work.annotations.parts.rows
    provisional = joined([part.parts.take("thread", np.int32) for part in both])
    count = len(provisional)
    names = [str(name) or "(unnamed)" for part in both for name in part.names.index]
    of_annotations, of_operators = (part.parts.take("name", np.int32) for part in both)
    later = np.int32(len(work.annotations.names.index))
    codes = np.concatenate((of_annotations, of_operators + later))
    # In traces of 2021 the profiler's steps are listed among the operators.
    steps = np.array([name.startswith("ProfilerStep#") for name in names], bool)
    operator = (np.arange(count) >= first) & ~steps[codes]
    return {
        "start_ns": joined([part.parts.take("start_ns") for part in both]),
        "end_ns": joined([part.parts.take("end_ns") for part in both]),
        "thread": _of_threads(thread, provisional),
        "process": _of_threads(process, provisional),
        "end_thread": constant(columns.ABSENT, count, np.int32),
        "name": Texts(codes, object_array(names)).map(names),
        "domain": Texts(np.where(operator, 0, -1).astype(np.int32), object_array([OPERATORS])),
        "kind": same_text("push-pop", count),
        "payload": constant(NULL, count, np.int64),
    }


def _of_threads(final: RowNumbers, provisional: RowNumbers) -> RowNumbers:
    return picked(final, provisional) if len(final) else provisional


def synchronizations(work: CpuWork, launches: LaunchCalls, main: int) -> Staged:
    parts = work.syncs
    correlation = parts.take("correlation_id")
    process = launches.process_of(launches.of(correlation), main)
    kinds = work.sync_kinds.texts(parts.take("kind", np.int32))
    return {
        "start_ns": parts.take("start_ns"),
        "end_ns": parts.take("end_ns"),
        "process": process,
        "context_id": parts.take("context_id", np.int32),
        "stream_id": parts.take("stream_id"),
        "correlation_id": correlation,
        "kind": kinds.map([_SYNCS.get(str(kind), str(kind)) for kind in kinds.values]),
    }


def overheads(work: CpuWork, main: int) -> Staged:
    parts = work.overheads
    start = parts.take("start_ns")
    names = work.overhead_names.texts(parts.take("name", np.int32))
    names = names.map([str(name) or "(unnamed)" for name in work.overhead_names.index])
    return {
        "start_ns": start,
        "end_ns": parts.take("end_ns"),
        "thread": constant(columns.ABSENT, len(start), np.int32),
        "process": constant(main, len(start), np.int32),
        "name": Texts(np.maximum(names.codes, 0), names.values),
        "kind": same_text("cupti", len(start)),
    }


_CUDA_DEVICES = (1, 20)
"""c10::DeviceType of CUDA (which ROCm uses too) and of HIP."""


@dataclass
class MemoryEvents:
    """Allocations and releases on GPUs, gathered chunk by chunk."""

    parts: columns.ColumnParts = field(default_factory=columns.ColumnParts)
    seen: bool = False

    def add(self, events: Events, owners: KinetoOwners) -> None:
        chosen = [event for event in events if event.name == "[memory]" and event.args]
        self.seen |= bool(chosen)
        args = [event.args or NO_ARGUMENTS for event in chosen]
        on_gpu = np.isin(columns.integers([one.device_type for one in args]), _CUDA_DEVICES)
        chosen = [event for event, gpu in zip(chosen, on_gpu.tolist(), strict=True) if gpu]
        if not chosen:
            return
        for event in chosen:
            event.dur = event.ts
        timed = columns.TimedEvents.of(chosen)
        size = timed.integers("allocated_bytes")
        kept = (size != NULL) & (size != 0)
        self.parts.add(
            time_ns=timed.start_ns[kept],
            thread=owners.of(timed.events)[kept],
            device=gpu_numbers(timed.integers("device_id"))[kept],
            bytes=size[kept].clip(-columns.MOST_BYTES, columns.MOST_BYTES),
            total=timed.integers("total_allocated")[kept],
        )


def memory_events(events: MemoryEvents, settled: SettledOwners) -> Staged:
    """The memory_events table in order of time.

    Memory allocated before the recording, computed from the first event of each GPU, comes first.
    """
    parts = events.parts
    time = parts.take("time_ns")
    order = np.argsort(time, kind="stable")
    time = time[order]
    device, bytes_ = parts.take("device", np.int32)[order], parts.take("bytes")[order]
    process = settled.process[parts.take("thread", np.int32)][order]
    before = parts.take("total")[order] - bytes_
    first = np.unique(device, return_index=True)[1]
    first = first[(before[first] > 0) & (before[first] < 1 << 50)]
    row = np.concatenate((first, np.arange(len(time))))
    size = np.concatenate((before[first], bytes_))
    place = np.argsort(time[row], kind="stable")
    row, size = row[place], size[place]
    return {
        "time_ns": time[row],
        "process": process[row],
        "device": device[row],
        "bytes": np.abs(size),
        "operation": Texts((size < 0).astype(np.int32), object_array(["allocation", "release"])),
        "memory": same_text("device", len(row)),
        "correlation_id": constant(NULL, len(row), np.int64),
    }
