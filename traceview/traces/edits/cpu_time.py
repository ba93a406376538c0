"""Edits of the CPU: the pauses between CUDA calls at a line or in a range, and waits that
are removed.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceview.base import errors, groups, intervals
from traceview.base.tables import Array, Integers, Mask
from traceview.traces.edits.requests import EditRequest
from traceview.traces.edits.scope import (
    AppliedEdit,
    EditScope,
    LinePlace,
    globbed,
    line_place,
    named_ranges,
    no_match,
    no_range,
    place_text,
    wait_lines,
    windows,
)
from traceview.traces.facts import copies, launches
from traceview.traces.facts.dependencies.graph import Edge
from traceview.traces.facts.dependencies.replay import Changed
from traceview.traces.facts.idle.lines import LONG_PERIODS, sampled_threads
from traceview.traces.facts.operations import CallKind, api_calls, calls_that_enqueue, operations
from traceview.traces.facts.ranges.ranges import attributed_calls, range_tree
from traceview.traces.facts.ranges.selection import windows_of, within
from traceview.traces.facts.samples import UNNAMED_FUNCTIONS
from traceview.traces.facts.waits import wait_sites
from traceview.traces.trace.model import is_library

# The edit of CPU time: the pauses between CUDA calls that a thread spends at a line or in a
# range.
#
# Python samples say which part of a pause is at a line, in the line's own code and in all that it
# calls. A pause of two sampling periods and more is divided by the samples in it. Shorter ones
# are hit by chance: all those before calls of one name in one range count together.


class _Pauses:
    """The pauses of threads before their calls: items, rows of api_calls, threads and times."""

    def __init__(self, scope: EditScope) -> None:
        graph, calls = scope.model.graph, api_calls(scope.trace)
        kind, lag = graph.begin.kind, graph.begin.lag_ns
        edges = np.flatnonzero(((kind == Edge.THREAD) | (kind == Edge.HAND_OVER)) & (lag > 0))
        edges = edges[scope.calls[graph.call[graph.begin.of[edges]]]]
        self.item: Array = graph.begin.of[edges]
        self.call: Array = graph.call[self.item]
        self.thread: Array = calls.thread[self.call]
        self.end: Integers = graph.start_ns[self.item]
        self.length: Integers = lag[edges].astype(np.int64)
        self.start: Integers = self.end - self.length

    def __len__(self) -> int:
        return len(self.item)


def cpu(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """The threads take a part of their time at a line, in a function or in a range."""
    pauses = _Pauses(scope)
    fraction = _fraction(scope, asked.target, pauses)
    found = fraction > 0
    if not found.any():
        raise errors.InputError(
            f"no thread that launches work spends time between CUDA calls at {asked.target[:80]!r}",
            "traceview report TRACE --only gpu-idle lists the lines that the GPU waits for",
        )
    items, factor = pauses.item[found], 1 - fraction[found] * (1 - asked.factor)

    def change(changed: Changed) -> None:
        changed.scale_pause(items, factor)

    counted = np.isin(pauses.call, scope.measured_calls(pauses.call[found])) & found
    time = float((pauses.length * fraction)[counted].sum())
    return AppliedEdit(
        asked, "pause", scope.per_step(int(counted.sum())), scope.per_step(time), change
    )


def _fraction(scope: EditScope, text: str, pauses: _Pauses) -> npt.NDArray[np.float64]:
    """The part of each pause at the place that a text names: a line, a function, a range."""
    samples, trace = _Samples(scope), scope.trace
    line = line_place(text)
    if len(samples):
        hit = samples.at_line(line) if line else samples.in_function(text)
        if hit.any():
            return samples.fraction(hit, pauses)
    ranges = named_ranges(trace, text)
    if ranges.any():
        result = np.zeros(len(pauses))
        for thread, rows in groups.rows_of(pauses.thread).items():
            window = windows(scope.trace, ranges, thread)
            inside = intervals.overlap(window, pauses.start[rows], pauses.end[rows])
            result[rows] = inside / pauses.length[rows]
        return result
    if not len(samples):
        how = f"record them with: {trace.how_to_record('python_samples')}"
        if line:
            what = f"the recording has no Python samples, so {text[:80]!r} cannot be found"
            raise errors.InputError(what, f"{how}; or name a range")
        raise no_range(trace, text, "range", f"functions need Python samples, {how}")
    if line:
        raise no_match("sampled line", text, samples.lines())
    names = samples.functions()
    names.update(Counter(dict.fromkeys(map(str, range_tree(trace).patterns), 0)))
    raise no_match("sampled function or range", text, names)


class _Samples:
    """The Python samples of a trace, and the lines and functions on their stacks."""

    def __init__(self, scope: EditScope) -> None:
        self.scope = scope
        self.table = scope.trace.recorded("python_samples")
        self.frames = scope.trace.recorded("python_frames")

    def __len__(self) -> int:
        return len(self.table)

    def at_line(self, place: LinePlace) -> Mask:
        """True for the stacks with a frame at a line."""
        files = self.frames.texts("file")
        in_file = files.matching(place.is_in)
        return self._stacks(in_file & (self.frames["line"] == place.line))

    def in_function(self, text: str) -> Mask:
        """True for the stacks with a frame in a function whose name matches a glob."""
        pattern = globbed(text)
        names = self.frames.texts("function")
        return self._stacks(names.matching(lambda name: bool(pattern.fullmatch(name))))

    def _stacks(self, frames: Mask) -> Mask:
        result = np.zeros(int(self.frames["stack"].max(initial=-1)) + 1, bool)
        result[self.frames["stack"][frames]] = True
        return result

    def fraction(self, hit: Mask, pauses: _Pauses) -> npt.NDArray[np.float64]:
        """The part of each pause in which its thread had one of some stacks."""
        hits, count, short = (np.zeros(len(pauses), kind) for kind in (np.int64, np.int64, bool))
        sampled_as = sampled_threads(self.scope.trace)[pauses.thread]
        for thread, rows in groups.rows_of(self.table["thread"]).items():
            of = np.flatnonzero(sampled_as == thread)
            time = self.table["time_ns"][rows]
            if not len(of) or len(time) < 2:
                continue
            before = np.concatenate([[0], np.cumsum(hit[self.table["stack"][rows]])])
            first, last = (
                np.searchsorted(time, pauses.start[of]),
                np.searchsorted(time, pauses.end[of]),
            )
            hits[of], count[of] = before[last] - before[first], last - first
            period_ns = max(int(np.median(np.diff(time))), 1)
            short[of] = (pauses.length[of] < LONG_PERIODS * period_ns) | (count[of] == 0)
        result = hits / np.maximum(count, 1)
        kind = self._kinds(pauses)
        total, at = (np.bincount(kind[short], each[short], minlength=1) for each in (count, hits))
        result[short] = (at / np.maximum(total, 1))[kind[short]]
        return result

    def _kinds(self, pauses: _Pauses) -> Integers:
        """Equal for pauses of one thread before calls of one name in one range."""
        trace = self.scope.trace
        tree, of = range_tree(trace), attributed_calls(trace).range[pauses.call]
        name = trace.recorded("api_calls").texts("name").codes[pauses.call]
        pattern = tree.pattern_of_paths(tree.path_of_ranges(of))
        return groups.group(pauses.thread, name, pattern).ids

    @cached_property
    def _weights(self) -> npt.NDArray[np.int64]:
        """The samples of each frame's stack."""
        stacks = int(self.frames["stack"].max(initial=-1)) + 1
        return np.bincount(self.table["stack"], minlength=stacks)[self.frames["stack"]]

    def _program(self) -> Array:
        files = self.frames.texts("file")
        return np.flatnonzero(~files.matching(is_library))

    def lines(self) -> Counter[str]:
        """Samples by line of the program."""
        files, rows = self.frames.texts("file"), self._program()
        counts: Counter[str] = Counter()
        each = groups.group(files.codes[rows], self.frames["line"][rows])
        for row, weight in zip(
            rows[each.first].tolist(), groups.sums(each, self._weights[rows]).tolist(), strict=True
        ):
            counts[place_text(str(files[row]), int(self.frames["line"][row]))] += weight
        return counts

    def functions(self) -> Counter[str]:
        """Samples by function of the program."""
        names, rows = self.frames.texts("function"), self._program()
        each = groups.group(names.codes[rows])
        weights = groups.sums(each, self._weights[rows]).tolist()
        named = zip((str(names[row]) for row in rows[each.first].tolist()), weights, strict=True)
        return Counter({name: n for name, n in named if name not in UNNAMED_FUNCTIONS})


_WAITING = (CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC)


def no_sync(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Synchronizations, and copies that block for a result, wait for nothing."""
    every, graph = launches.waits(scope.trace), scope.model.graph
    able = np.flatnonzero(_removable(scope))
    if not len(able):
        raise errors.InputError(
            "the recording has no synchronizations or blocking copies of results",
            "leave out no-sync",
        )
    rows = able[_at(scope, asked.target, able)]
    if not len(rows):
        raise _no_wait(scope, asked.target, able)
    calls = every.call[rows]
    items = groups.different(graph.item_of_call[calls])

    def change(changed: Changed) -> None:
        changed.wait_for_nothing(items)

    measured = np.isin(calls, scope.measured_calls(calls))
    time = int((every.end_ns - every.start_ns)[rows[measured]].sum())
    return AppliedEdit(
        asked, "wait", scope.per_step(int(measured.sum())), scope.per_step(time), change
    )


def _removable(scope: EditScope) -> Mask:
    """True for the waits that can be removed: not for uploads, whose bytes the CPU moves itself."""
    trace = scope.trace
    every, graph, ops = launches.waits(trace), scope.model.graph, operations(trace)
    upload = calls_that_enqueue(ops, len(trace.recorded("api_calls")), copies.uploads(trace))
    item = graph.item_of_call[every.call]
    modelled = np.diff(graph.finish.first)[np.maximum(item, 0)] > 0 if len(graph) else item >= 0
    able = np.isin(every.does, _WAITING) | modelled
    return able & scope.calls[every.call] & ~upload[every.call]


def _at(scope: EditScope, text: str, rows: Array) -> Mask:
    """True for the waits at a line, else by the name of the call or what called it, else in a
    range.
    """
    trace, every = scope.trace, launches.waits(scope.trace)
    if place := line_place(text):
        hit = wait_lines(trace).at(place)[rows]
        if hit.any():
            return hit
    pattern = globbed(text)
    names = trace.recorded("api_calls").texts("name").take(every.call[rows])
    hit = names.matching(lambda name: bool(pattern.fullmatch(name)))
    hit |= wait_sites(trace).hint.take(rows).matching(lambda name: bool(pattern.fullmatch(name)))
    if not hit.any():
        ranges = windows_of(range_tree(trace), named_ranges(trace, text))
        hit = within(ranges, every.process[rows], every.start_ns[rows])
    return hit


def _no_wait(scope: EditScope, text: str, rows: Array) -> errors.InputError:
    """The error for a place without waits, with the lines or the names of those that there are."""
    trace, every = scope.trace, launches.waits(scope.trace)
    if line_place(text):
        if counts := wait_lines(trace).counts():
            return no_match("line that waits", text, counts)
        return errors.InputError(
            f"the recording does not say which lines wait, such as {text[:80]!r}",
            f"record them with: {trace.how_to_record('call_sites')}; or name the call, such as "
            "cudaStreamSynchronize",
        )
    names = trace.recorded("api_calls").texts("name").take(every.call[rows])
    hints = wait_sites(trace).hint.take(rows)
    counts = Counter(str(name) for texts in (names, hints) for name in texts.decode() if name)
    counts.update(Counter({str(path): 0 for path in range_tree(trace).patterns}))
    return no_match("wait", text, counts)
