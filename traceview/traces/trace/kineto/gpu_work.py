"""Kernels, copies and memsets of a trace of torch.profiler, and the calls that enqueued them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask, RowNumbers, Texts, constant
from traceview.kernels.ptx import producers
from traceview.kernels.toolchain import tools
from traceview.traces.trace.kineto.columns import (
    ABSENT,
    MOST_BYTES,
    Codes,
    ColumnParts,
    TimedEvents,
    amounts,
    integers,
)
from traceview.traces.trace.kineto.events import Arguments, Events
from traceview.traces.trace.kineto.owners import gpu_numbers
from traceview.traces.trace.staged import Staged, absent_texts, numbers_of, same_text

# The API calls that enqueued the work on GPUs.
#
# GPU events have the correlation id of their call and no process: in a file merged from the
# traces of several ranks, calls of several processes share ids.

_NEVER = np.iinfo(np.int64).max
_AS_MANY = 0.98
_SHARED = 0.1


@record
class LaunchCalls:
    """The API calls that enqueued GPU work; they supply what GPU events do not record."""

    process: RowNumbers
    correlation: Integers
    start_ns: Integers
    graph: Mask
    grid: RowNumbers
    block: RowNumbers
    shared: RowNumbers
    bytes: Integers

    def of(self, correlation: Integers) -> Integers:
        """The row of the call with each correlation id, −1 if none; of any process that has it."""
        return _rows(self.correlation, self._keyed, correlation)

    def process_of(self, rows: Integers, main: int) -> RowNumbers:
        """The process of each call; for row −1 it is `main`, the process with most calls."""
        if not any(self.process.strides):
            return constant(main, len(rows), np.int32)
        process = np.full(len(rows), main, np.int32)
        known = rows >= 0
        process[known] = self.process[rows[known]]
        return process

    def of_work(
        self, correlation: Integers, start_ns: Integers, device: Integers, track: Integers
    ) -> Integers:
        """The row of the launch call of each GPU event, −1 if none.

        `track` identifies the stream. Where processes share correlation ids, one process owns all
        calls of a stream: one whose calls precede the work. If there are several, it is the one
        whose place among the processes is that of the GPU among the GPUs, else the one with the
        shortest wait. On a stream that processes share, the work of one id starts in the order of
        the calls with that id.
        """
        rows = np.stack(
            [_rows(self.correlation, keyed, correlation) for keyed in self._keyed_by_process]
        )
        call_ns = np.where(rows >= 0, self.start_ns[rows], _NEVER)
        gpus = groups.different(device).tolist()
        chosen = np.zeros(len(correlation), np.int64)
        for number in groups.different(track).tolist():
            own = np.flatnonzero(track == number)
            if self._is_shared(rows[:, own], correlation[own]):
                chosen[own] = _in_turn(call_ns[:, own], correlation[own], start_ns[own])
            else:
                place = gpus.index(device[own[0]]) if len(gpus) == len(rows) else -1
                chosen[own] = _process_of(call_ns[:, own], start_ns[own], place)
        return rows[chosen, np.arange(len(correlation))]

    @cached_property
    def _keyed(self) -> Integers:
        return np.flatnonzero(self.correlation != NULL)

    @cached_property
    def _keyed_by_process(self) -> list[Integers]:
        keyed = self._keyed
        process = self.process[keyed]
        return [keyed[process == number] for number in groups.different(process).tolist()]

    @cached_property
    def ambiguous(self) -> bool:
        """Whether calls of different processes have equal correlation ids."""
        keyed = self._keyed
        if not len(keyed) or (self.process[keyed] == self.process[keyed[0]]).all():
            return False
        every = groups.group(self.correlation[keyed]).size
        pairs = groups.group(self.correlation[keyed], self.process[keyed]).size
        return pairs > every

    def _is_shared(self, rows: Integers, correlation: Integers) -> bool:
        """Whether a stream has work of several processes: ids repeat, graph launches aside."""
        of_graph = (rows >= 0) & self.graph[rows]
        single = correlation[~of_graph.any(axis=0)]
        return len(single) - groups.group(single).size > _SHARED * len(single)


def _rows(numbers: Integers, keyed: Integers, wanted: Integers) -> Integers:
    """The row, among `keyed`, that has each wanted number, −1 if none has."""
    if not len(keyed):
        return np.full(len(wanted), -1, np.int64)
    keys = numbers[keyed]
    if not groups.in_order(keys):
        order = np.argsort(keys, kind="stable")
        keys, keyed = keys[order], keyed[order]
    row = keyed[np.minimum(intervals.places(keys, wanted, side="left"), len(keys) - 1)]
    return np.where((numbers[row] == wanted) & (wanted != NULL), row, -1)


def _process_of(call_ns: Integers, start_ns: Integers, place: int) -> int:
    """The process whose calls precede a stream's work; `place`, if it is one of several."""
    precedes = call_ns <= start_ns
    count = precedes.sum(axis=1)
    likely = np.flatnonzero(count >= _AS_MANY * max(int(count.max()), 1)).tolist()
    if place in likely or not likely:
        return max(place, 0)
    wait = [np.median((start_ns - call_ns[process])[precedes[process]]) for process in likely]
    return int(likely[int(np.argmin(wait))])


def _in_turn(call_ns: Integers, correlation: Integers, start_ns: Integers) -> Integers:
    """For the n-th GPU event with an id, the process that made the n-th call with that id."""
    order = np.lexsort((start_ns, correlation))
    opens = np.flatnonzero(groups.opens(correlation[order]))
    length = np.diff(np.append(opens, len(order)))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(opens, length)
    by_call = np.argsort(call_ns, axis=0, kind="stable")
    calls = np.maximum((call_ns < _NEVER).sum(axis=0), 1)
    return by_call[turn % calls, np.arange(len(order))]


_COPY = re.compile(r"Memcpy (\w+?)to(\w+)(?: \((.+?) -> (.+?)\))?$", re.IGNORECASE)
_TRACK = ("device", "context_id", "stream_id")
_SIDES = {"h": "H", "d": "D", "a": "A", "p": "P"}


@dataclass
class GpuWork:
    """Events on the GPU, gathered chunk by chunk.

    `undated` counts those without a time or duration, `unsized` the copies without a size.
    """

    kernels: ColumnParts = field(default_factory=ColumnParts)
    copies: ColumnParts = field(default_factory=ColumnParts)
    sets: ColumnParts = field(default_factory=ColumnParts)
    names: Codes = field(default_factory=Codes)
    copy_names: Codes = field(default_factory=Codes)
    undated: int = 0
    unsized: int = 0

    @property
    def parts(self) -> tuple[ColumnParts, ColumnParts, ColumnParts]:
        return self.kernels, self.copies, self.sets

    def add_kernels(self, events: Events) -> None:
        timed = self._timed(events)
        self.kernels.add(
            **_on_stream(timed),
            name=self.names.of(timed.names),
            **_by_axis("grid", triples(timed.values("grid"))),
            **_by_axis("block", triples(timed.values("block"))),
            registers=timed.amounts("registers"),
            shared=timed.amounts("shared_memory"),
            node=timed.integers("graph_node"),
        )

    def add_copies(self, events: Events) -> None:
        timed = self._timed(events)
        names = self.copy_names.of(list(map(_copy_name, timed.names, timed.args)))
        self.copies.add(**_on_stream(timed), **_sized(timed), name=names)

    def add_sets(self, events: Events) -> None:
        timed = self._timed(events)
        self.sets.add(**_on_stream(timed), **_sized(timed))

    def _timed(self, events: Events) -> TimedEvents:
        timed = TimedEvents.of(events)
        self.undated += timed.undated
        return timed


def _on_stream(timed: TimedEvents) -> dict[str, Array]:
    device, stream = timed.integers("device"), timed.integers("stream")
    missing = (device == NULL) | (stream == NULL)
    if missing.any():
        # Such events use the GPU as process and the stream as thread.
        device = np.where(device == NULL, integers([e.pid for e in timed.events]), device)
        stream = np.where(stream == NULL, integers([e.tid for e in timed.events]), stream)
    return {
        "start_ns": timed.start_ns,
        "end_ns": timed.end_ns,
        "device": gpu_numbers(device),
        "context_id": timed.amounts("context"),
        "stream_id": np.where(abs(stream) < 1 << 31, stream, 0).astype(np.int32),
        "correlation_id": timed.integers("correlation"),
    }


def _sized(timed: TimedEvents) -> dict[str, Array]:
    """Bytes of copies and memsets, −1 where the event has none, as on ROCm; and graph nodes."""
    size = timed.integers("bytes", -1).clip(-1, MOST_BYTES)
    return {"bytes": size, "node": timed.integers("graph_node")}


def triples(values: Sequence[Any]) -> RowNumbers:
    """Rows of x, y and z; zeros where the event has none."""
    if set(map(type, values)) == {type(None)}:
        return np.zeros((len(values), 3), np.int32)
    listed = [value if type(value) is list and len(value) == 3 else (0, 0, 0) for value in values]
    return amounts([*chain.from_iterable(listed)]).reshape(-1, 3)


def _placed(parts: ColumnParts, launches: LaunchCalls, main: int) -> tuple[Staged, Integers]:
    """The columns that all GPU work has, and the launch call of each row (−1: none)."""
    staged: Staged = {name: parts.take(name, np.int32) for name in _TRACK}
    staged |= {name: parts.take(name) for name in ("start_ns", "end_ns", "correlation_id")}
    correlation = numbers_of(staged, "correlation_id")
    if launches.ambiguous:
        track = groups.group(*(numbers_of(staged, name) for name in _TRACK)).ids
        start, device = numbers_of(staged, "start_ns"), numbers_of(staged, "device")
        launch = launches.of_work(correlation, start, device, track)
    else:
        launch = launches.of(correlation)
    staged["process"] = launches.process_of(launch, main)
    return staged, launch


def kernels(work: GpuWork, launches: LaunchCalls, main: int) -> Staged:
    """The kernels table in file order, with devices as GPU numbers."""
    parts = work.kernels
    staged, launch = _placed(parts, launches, main)
    count = len(launch)
    recorded = [str(name) or "(unnamed)" for name in work.names.index]
    symbols = work.names.texts(parts.take("name", np.int32)).map(recorded)
    symbols = Texts(np.maximum(symbols.codes, 0), symbols.values) if recorded else symbols
    # torch demangles names with the C++ library of Linux, which Windows does not have.
    plain = tools.demangled(recorded)
    names = symbols.map([plain[name] for name in recorded])
    absent32 = constant(ABSENT, count, np.int32)
    return {
        **staged,
        **_shapes(parts, launches, launch),
        "name": names,
        "short_name": names.map([producers.base_name(str(name)) for name in names.values]),
        "mangled_name": symbols.map([n if plain[n] != n else None for n in recorded]),
        "registers_per_thread": parts.take("registers", np.int32),
        "static_shared_memory_bytes": constant(0, count, np.int32),
        "shared_memory_config_bytes": absent32,
        "cluster_blocks": absent32,
        "max_active_clusters": absent32,
        "sm_count": absent32,
        "graph_node_id": _nodes(parts, staged, launches, launch),
    }


def _by_axis(name: str, extents: RowNumbers) -> dict[str, Array]:
    return {f"{name}_{axis}": extents[:, place] for place, axis in enumerate("xyz")}


def _shapes(parts: ColumnParts, launches: LaunchCalls, launch: Integers) -> dict[str, Array]:
    """Grid, block and dynamic shared memory of kernels, else those recorded at the launch call."""
    names = [f"{name}_{axis}" for name in ("grid", "block") for axis in "xyz"]
    columns: dict[str, Array] = {name: parts.take(name, np.int32) for name in names}
    columns["dynamic_shared_memory_bytes"] = parts.take("shared", np.int32)
    bare = np.flatnonzero((launch >= 0) & (columns["grid_x"] == 0))
    if len(bare):
        columns = {name: values.copy() for name, values in columns.items()}
        call = launch[bare]
        of_launch = np.column_stack(
            (launches.grid[call], launches.block[call], launches.shared[call])
        )
        for values, of_calls in zip(columns.values(), of_launch.T, strict=True):
            values[bare] = of_calls
    return columns


def _nodes(parts: ColumnParts, staged: Staged, launches: LaunchCalls, launch: Integers) -> Integers:
    """The graph node id of each row; if a graph launch recorded none, the row's place in it.

    A graph runs its nodes in the same order each time, so the place identifies the node as well.
    """
    node: Integers = parts.take("node")
    if (node == 0).any():
        node = np.where(node == 0, NULL, node)
    of_graph = (launch >= 0) & (node == NULL)
    of_graph[of_graph] = launches.graph[launch[of_graph]]
    rows = np.flatnonzero(of_graph)
    if len(rows):
        start = numbers_of(staged, "start_ns")
        rows = rows[np.lexsort((start[rows], launch[rows]))]
        opens = np.flatnonzero(np.append(True, launch[rows][1:] != launch[rows][:-1]))
        counts = np.diff(np.append(opens, len(rows)))
        node = node.copy()
        node[rows] = np.arange(len(rows)) - np.repeat(opens, counts) + 1
    return node


def copies(work: GpuWork, launches: LaunchCalls, main: int) -> Staged:
    """The copies table; copies without a size are counted in `work.unsized`, as 0 bytes."""
    parts = work.copies
    staged, launch = _placed(parts, launches, main)
    size = _sizes(parts, launches, launch)
    names = work.copy_names.texts(parts.take("name", np.int32))
    parsed = [_copy(str(name)) for name in names.values]
    unknown = same_text("unknown", len(launch))
    sides = {
        column: names.map([one[place] for one in parsed]) if len(parsed) else unknown
        for place, column in enumerate(("direction", "source_memory", "destination_memory"))
    }
    work.unsized = int((size < 0).sum())
    return {
        **staged,
        **sides,
        "bytes": np.maximum(size, 0),
        "migration_cause": absent_texts(len(launch)),
        "graph_node_id": _nodes(parts, staged, launches, launch),
    }


def sets(work: GpuWork, launches: LaunchCalls, main: int) -> Staged:
    parts = work.sets
    staged, launch = _placed(parts, launches, main)
    size = np.maximum(_sizes(parts, launches, launch), 0)
    return {**staged, "bytes": size, "graph_node_id": _nodes(parts, staged, launches, launch)}


def _sizes(parts: ColumnParts, launches: LaunchCalls, launch: Integers) -> Integers:
    """Bytes of each row, else those recorded at its launch call; −1 where neither has them."""
    size: Integers = parts.take("bytes")
    bare = np.flatnonzero((size < 0) & (launch >= 0))
    if len(bare):
        size = size.copy()
        size[bare] = launches.bytes[launch[bare]]
    return size


def _copy_name(name: Any, args: Arguments) -> Any:
    """Kineto's name of a copy; torch's recorder on CUPTI alone writes its parts as arguments."""
    if args.copy_kind is None:
        return name
    return f"Memcpy {args.copy_kind} ({args.source_kind} -> {args.target_kind})"


def _copy(name: str) -> tuple[str, str, str]:
    """Direction, source and destination memory in `Memcpy HtoD (Pinned -> Device)`."""
    match = _COPY.match(name)
    if not match:
        return ("unknown", "unknown", "unknown")
    source, target = (_SIDES.get(match[place].lower()) for place in (1, 2))
    memory = ((match[place] or "unknown").lower() for place in (3, 4))
    source_memory, target_memory = ("unknown" if kind == "host" else kind for kind in memory)
    return (f"{source}2{target}" if source and target else "unknown", source_memory, target_memory)
