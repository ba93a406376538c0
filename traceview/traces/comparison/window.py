"""What is compared of a run: its steady steps, their operations, the places of work and waits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b

import numpy as np

from traceview.base import errors, groups, intervals
from traceview.base.intervals import Intervals, Timed
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, Texts, object_array
from traceview.base.tables.arrays import row_numbers
from traceview.base.vocabulary.activities import CPU
from traceview.traces.facts import compilation, kernel_classes, launches, operations, waits
from traceview.traces.facts.idle.causes import gap_causes
from traceview.traces.facts.idle.cpu_activity import IN_FLIGHT, cpu_activity
from traceview.traces.facts.idle.gaps import every_gap, main_device
from traceview.traces.facts.idle.lines import idle_samples
from traceview.traces.facts.idle.stack_sites import stack_sites
from traceview.traces.facts.ranges.origins import program_ranges
from traceview.traces.facts.ranges.ranges import attributed_calls, attributed_operations, range_tree
from traceview.traces.facts.steps.recompilation import recompiling
from traceview.traces.facts.steps.steps import (
    longest_loop,
    operations_in_warm_up_ranges,
    pace,
    step_of_operations,
    steps,
    warm_up_end_ns,
    warm_up_of,
)
from traceview.traces.trace import Trace, fact, schema


@record
class RunWindow:
    """The steps that are compared, on one GPU (row in devices).

    `steps` are rows in steps, empty where the trace has none. `covered` is the time of the steps as
    a union, `step_ns` the duration of each; without steps `step_ns` has one entry, the steady time.
    Neither has idle time that a longer run does not repeat.
    """

    device: int
    steps: Integers
    step_ns: Integers
    covered: Intervals

    @property
    def total_ns(self) -> int:
        return self.covered.total()


@fact
def run_window(trace: Trace) -> RunWindow:
    """The steady steps of the GPU with the longest steady span.

    Raises ComparisonRefusedError where no GPU work was recorded.
    """
    device = main_device(trace)
    if device < 0:
        raise errors.ComparisonRefusedError(
            f"{trace.path} has no GPU work to compare", "record a program that runs work on a GPU"
        )
    rows = _steady_steps(trace, device)
    if not len(rows):
        covered = _steady_time(trace, device)
        return RunWindow(device, rows, np.array([covered.total()]), covered)
    begin, end = pace(trace).begin_ns[rows], pace(trace).end_ns[rows]
    every, gaps = intervals.union(begin, end), every_gap(trace)
    # No longer run repeats first uses of kernels and compilation.
    once = gap_causes(trace).first_use | compilation.compiling(trace, gaps.start_ns, gaps.end_ns)
    once &= ~recompiling(trace, gaps.start_ns, gaps.end_ns) & (gaps.device == device)
    covered = intervals.without(every, intervals.covered(gaps, once))
    covered = covered if covered.total() else every
    return RunWindow(device, rows, intervals.overlap(covered, begin, end), covered)


def _steady_steps(trace: Trace, device: int) -> Integers:
    """Rows of steps after warm-up with work on a GPU, in the series that takes most time."""
    rows = longest_loop(trace, operations.operations(trace).device == device)
    return rows[~warm_up_of(trace, rows)]


def _steady_time(trace: Trace, device: int) -> Intervals:
    """Busy and idle time of a GPU without warm-up and first uses, as a union."""
    ops, every = operations.operations(trace), every_gap(trace)
    chosen = (ops.device == device) & (ops.start_ns >= warm_up_end_ns(trace))
    warm = operations_in_warm_up_ranges(trace)
    if warm is not None:
        chosen &= ~warm
    kept = every.steady(device)
    first = _before_first_work(trace, device, chosen)
    return intervals.union(
        np.concatenate((first.start, ops.start_ns[chosen], every.start_ns[kept])),
        np.concatenate((first.end, ops.end_ns[chosen], every.end_ns[kept])),
    )


def _before_first_work(trace: Trace, device: int, chosen: Mask) -> Intervals:
    """The time from the launch call of the first chosen work of a GPU to its start.

    None in a program's start-up, and none in which work of warm-up still runs. Of a pass that is
    recorded alone it is part: a graph of 4,600 nodes takes 9 ms to launch.
    """
    ops = operations.operations(trace)
    in_program = trace.recorder == schema.TORCH_PROFILER or launches.cut_window(trace) is not None
    rows = np.flatnonzero(chosen)[:1]
    if not in_program or not len(rows) or ops.call[rows[0]] < 0:
        return intervals.EMPTY
    before = np.flatnonzero(ops.device[: rows[0]] == device)
    called = trace.recorded("api_calls")["start_ns"][ops.call[rows]]
    called = np.maximum(called, ops.end_ns[before].max(initial=warm_up_end_ns(trace)))
    return Intervals(np.minimum(called, ops.start_ns[rows]), ops.start_ns[rows])


class WorkKind(IntEnum):
    """The kind of an operation in a comparison."""

    KERNEL = 0
    GRAPH = 1
    COMMUNICATION = 2
    COPY = 3
    MEMSET = 4


_OF_OPERATION = {
    operations.Kind.KERNEL: WorkKind.KERNEL,
    operations.Kind.COPY: WorkKind.COPY,
    operations.Kind.SET: WorkKind.MEMSET,
    operations.Kind.GRAPH: WorkKind.GRAPH,
}
_PRECEDENCE = np.array([0, 0, 1, 2, 3])


@record
class WindowWork:
    """The operations that belong to the steps of the window or run in it, in order of start.

    `rows` are rows in operations. `own_ns` is an operation's exclusive time in the window,
    `busy_ns` all of its time in it. `counted` is True for operations of the steps, and for others
    that start in the window.
    """

    rows: Integers
    kind: Array
    own_ns: Integers
    busy_ns: Integers
    counted: Mask
    idle: Intervals
    """The rest of the window."""


@fact
def window_work(trace: Trace) -> WindowWork:
    """The work of the GPU that is compared."""
    ops, window = operations.operations(trace), run_window(trace)
    starts_inside = intervals.inside(window.covered, ops.start_ns)
    counted = in_steps(window, step_of_operations(trace), starts_inside)
    touching = intervals.overlap(window.covered, ops.start_ns, np.maximum(ops.end_ns, ops.start_ns))
    rows = np.flatnonzero((ops.device == window.device) & (counted | (touching > 0)))
    kinds = np.array([_OF_OPERATION[kind] for kind in operations.Kind], np.int64)[ops.kind]
    kinds[kernel_classes.communication_operations(trace)] = WorkKind.COMMUNICATION
    start, end, kind = ops.start_ns[rows], ops.end_ns[rows], kinds[rows]
    own = intervals.exclusive_ns(start, end, _PRECEDENCE[kind], window.covered)
    idle = intervals.without(window.covered, intervals.union(start, end))
    return WindowWork(rows, kind, own, touching[rows], counted[rows], idle)


def in_steps(window: RunWindow, step: Array, otherwise: Mask) -> Mask:
    """True for entries whose `step` is one of the window's; those without any get `otherwise`.

    `step` has one row of steps per entry, −1 for none.
    """
    if not len(window.steps):
        return otherwise
    chosen = np.zeros(int(max(step.max(initial=-1), window.steps.max())) + 2, bool)
    chosen[window.steps] = True
    return np.where(step >= 0, chosen[step], otherwise)


@fact
def step_pattern(trace: Trace) -> str:
    """The pattern of the range path of the window's steps; empty without steps."""
    in_window, tree = run_window(trace).steps, range_tree(trace)
    if not len(in_window):
        return ""
    row = steps(trace).range[in_window[:1]]
    return tree.patterns[int(tree.path_pattern[tree.path[row]][0])]


LONG_NS = 1_000_000
"""Samples of a stack come about once per millisecond: they hit a shorter gap by chance."""


@fact
def work_places(trace: Trace) -> Integers:
    """The pattern of the range of each operation of `window_work`, −1 for none."""
    ranges = attributed_operations(trace).range[window_work(trace).rows]
    return _patterns(trace, ranges)


def _patterns(trace: Trace, ranges: Array) -> Integers:
    """The path pattern of the innermost range of the program around these ranges, −1 for none.

    Ranges of operators and libraries, thousands per step, would split each part into many.
    """
    tree = range_tree(trace)
    innermost = np.append(_ranges_of_program(trace), np.int32(-1))[ranges]
    return tree.pattern_of_paths(tree.path_of_ranges(innermost)).astype(np.int64)


@fact
def _ranges_of_program(trace: Trace) -> RowNumbers:
    """For each row of the range tree the innermost range of the program around it, −1 for none."""
    tree = range_tree(trace)
    own = program_ranges(trace)[tree.row]
    return tree.own_or_inherited(np.where(own, np.arange(len(own)), -1).astype(np.int32))


def place_texts(trace: Trace, place: Array) -> list[str]:
    """The texts of range patterns, empty for −1; the path below the step where it is in one."""
    patterns, step = range_tree(trace).patterns, step_pattern(trace)
    texts = {-1: ""}
    for number in set(place.tolist()) - {-1}:
        path = patterns[number]
        if step:
            path = "" if path == step else path.removeprefix(f"{step}/")
        texts[number] = path
    return [texts[number] for number in place.tolist()]


@record
class PlacedIdle(Timed):
    """Pieces of idle gaps, each with its place: a source line or a range; absent where unknown.

    `row` is the index of the gap among those asked for. `code` is a hash of the code at a line,
    equal for the same code at another line of the file; absent for ranges.
    """

    row: RowNumbers
    start_ns: Integers
    end_ns: Integers
    place: Texts
    code: Texts


def placed_idle(trace: Trace, rows: Integers) -> PlacedIdle:
    """The pieces of these gaps, with the place of the program in each.

    The line of the synchronization behind a gap, or the line that the launching thread was at in
    most of a long gap; else the range of the synchronization, or that which the CPU was in, or of
    the work that ended the gap.
    """
    row, span, of_range = _by_range(trace, rows)
    every = np.ones(len(idle_samples(trace).gap), bool)
    # A thread that sleeps or waits for data after a synchronization loses the time there.
    off_cpu = idle_samples(trace).doing != CPU
    # Line and code hash of the synchronization that caused each gap, absent where unknown.
    wait, sites = every_gap(trace).wait[rows], waits.wait_sites(trace)
    waited = np.flatnonzero(wait >= 0)
    waited = waited[sites.file.codes[wait[waited]] >= 0]
    site = sites.take(wait[waited])
    sources = [
        _sampled_lines(trace, rows, every),
        _lines(len(rows), waited, site.file, site.line, site.source),
        _sampled_lines(trace, rows, off_cpu),
    ]
    places, codes = ([text.take(row) for text in of_all] for of_all in zip(*sources, strict=True))
    place = _last_known([of_range, *places], len(row))
    return PlacedIdle(row, *span, place, _last_known(codes, len(row)))


def _last_known(columns: Sequence[Texts], count: int) -> Texts:
    """For each row, the text of the last of the columns that has one."""
    values = list(dict.fromkeys(str(text) for column in columns for text in column.values))
    number = {text: code for code, text in enumerate(values)}
    result = np.full(count, -1, np.int32)
    for column in columns:
        common = np.array([*(number[str(text)] for text in column.values), -1], np.int32)
        result = np.where(column.codes >= 0, common[column.codes], result)
    return Texts(result, object_array(values))


def _by_range(trace: Trace, rows: Integers) -> tuple[RowNumbers, Intervals, Texts]:
    """The gaps cut where the CPU that launched too late came to another range, and these ranges."""
    every, tree = every_gap(trace), range_tree(trace)
    ranges = attributed_operations(trace).range[every.after[rows]]
    waited = np.flatnonzero(every.wait[rows] >= 0)
    call = launches.waits(trace).call[every.wait[rows[waited]]]
    ranges[waited] = attributed_calls(trace).range[call]
    row, start, end = row_numbers(np.arange(len(rows))), every.start_ns[rows], every.end_ns[rows]
    index = np.full(len(every), -1, np.int64)
    index[rows] = row
    late = rows[every.wait[rows] < 0] if len(tree.row) else rows[:0]
    pieces = list(cpu_activity(trace, late, every))
    if pieces:
        of, begin, until, inside, doing = (
            np.concatenate([getattr(some, name) for some in pieces])
            for name in ("row", "start_ns", "end_ns", "range", "activity")
        )
        of = index[of]
        # What is on its way to the GPU waits on behalf of the range that launched it.
        inside = np.where(doing == IN_FLIGHT, ranges[of], inside)
        whole = np.ones(len(rows), bool)
        whole[of] = False
        row, start, end, ranges = (
            np.concatenate((column[whole], cut))
            for column, cut in ((row, of), (start, begin), (end, until), (ranges, inside))
        )
    pattern = _patterns(trace, ranges)
    by = groups.group(pattern)
    texts = place_texts(trace, pattern[by.first])
    return row, Intervals(start, end), Texts(by.ids.astype(np.int32), object_array(texts))


def _sampled_lines(trace: Trace, rows: Integers, chosen: Mask) -> tuple[Texts, Texts]:
    """Line and code hash of the function with most idle time of one cause in each long gap, by the
    chosen samples.

    Absent for other gaps. A cause has several parts of a gap, such as one per call: they count as
    one. The line is that of the function with most time in all such gaps, whichever of its lines a
    sample happened to hit.
    """
    samples, sites, every = idle_samples(trace), stack_sites(trace), every_gap(trace)
    of_rows = groups.group(every.gap[rows], every.cause[rows])
    idle_ns = groups.sums(of_rows, every.idle_ns[rows])
    number = np.full(len(every), -1, np.int64)
    number[rows] = of_rows.ids
    known = np.append(idle_ns >= LONG_NS, False)[number]
    python = (sites.function_number >= 0) & ~sites.native
    samples = samples.take(chosen & known[samples.gap] & python[samples.site])
    function = sites.function_number[samples.site]
    pairs = groups.group(number[samples.gap], function)
    time, part = groups.sums(pairs, samples.time_ns), number[samples.gap[pairs.first]]
    most = np.flatnonzero(2 * time > idle_ns[part])
    # The site with most of a function's time, which is the last to be written.
    usual = np.full(int(function.max(initial=-1)) + 1, -1, np.int64)
    by = groups.group(function, samples.site)
    order = by.first[np.argsort(groups.sums(by, samples.time_ns), kind="stable")]
    usual[function[order]] = samples.site[order]
    site = usual[function[pairs.first[most]]]
    whole = sites.function.take(site)
    # Code outside of functions has one function number per line, so its source is hashed.
    source = where(sites.source.take(site), whole.isin(["<module>"]))
    text = _last_known([whole, source], len(site))
    # To all rows of these gaps and causes.
    place = np.full(of_rows.size, -1, np.int64)
    place[part[most]] = np.arange(len(most))
    own = np.flatnonzero(place[of_rows.ids] >= 0)
    at = place[of_rows.ids[own]]
    files, line = sites.file.take(site).take(at), sites.line[site][at]
    return _lines(len(rows), own, files, line, text.take(at))


def where(texts: Texts, kept: Mask) -> Texts:
    """The texts of the rows that are kept; absent elsewhere."""
    return Texts(np.where(kept, texts.codes, -1).astype(np.int32), texts.values)


def _lines(
    count: int, rows: Integers, file: Texts, line: Array, text: Texts
) -> tuple[Texts, Texts]:
    """`train.py:75` and a hash of the code there, for the `rows` of `count`; absent elsewhere."""
    by = groups.group(file.codes, line, text.codes)
    names, codes = [], []
    files, texts = (column.take(by.first).decode() for column in (file, text))
    for path, number, code in zip(files, line[by.first].tolist(), texts, strict=True):
        name = str(path).replace("\\", "/").rpartition("/")[2]
        names.append(f"{name}:{number}")
        codes.append(hash_of(f"{name}:{code or number}"))
    number_of = np.full(count, -1, np.int32)
    number_of[rows] = by.ids
    return Texts(number_of, object_array(names)), Texts(number_of, object_array(codes))


def hash_of(text: str) -> str:
    """A short hash, equal for equal texts of all recordings."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
