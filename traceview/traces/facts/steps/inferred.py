"""Inferred steps: ranges added to a trace whose steps show only in its launches.

Where no range of the program repeats, the passes of its launch sequence become ranges named
`step_0`, `step_1` …, in a domain of their own, on the thread that launches. Everything that speaks
of steps then works as if the program had marked them. So do passes that hold each range of the
program several times, where these hold less than half of the launches: then they mark parts, such
as the attention of each layer. What repeats within the only step that a profiler marked are its
layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from string import ascii_lowercase

import numpy as np

from traceview.base import groups, intervals
from traceview.base.failures import AnswerParts
from traceview.base.intervals import Intervals
from traceview.base.tables import NULL, Array, Integers, Mask, Table, Texts, joined, object_array
from traceview.base.tables.arrays import median
from traceview.traces.facts import code
from traceview.traces.facts.compilation import compilation, only_by_pauses, xla_trials
from traceview.traces.facts.kernel_classes import KernelClass, framework, kernel_classes
from traceview.traces.facts.launches import cuda_graphs, unpaired, waits
from traceview.traces.facts.operations import CallKind, Kind, Operations, operations
from traceview.traces.facts.ranges import origins
from traceview.traces.facts.ranges.ranges import attributed_operations, main_threads, pattern_of
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.steps.nesting import call_other_modules, within_one_call
from traceview.traces.facts.steps.repetition import (
    LEAST_STEPS,
    Repetition,
    find_repetition,
    regular_stretches,
)
from traceview.traces.facts.steps.series import CALL, is_epoch, is_step
from traceview.traces.facts.steps.steps import Steps, step_of_operations, steps, steps_source
from traceview.traces.trace import Fact, Trace, fact
from traceview.traces.trace.schema import TABLES, TORCH_PROFILER

# The steps that `traceview record` adds to a program, used where it marks none of its own.
#
# The recorder begins a step before it can know whether it is one; a step is complete if an
# optimizer ran in it. Where the program has steps of its own, the added ones are removed, since
# they would cross its ranges. The other added ranges stay as labels.

_OPTIMIZER = "optimizer"


def with_added_steps(trace: Trace) -> Trace:
    """The trace without added steps that are incomplete or beside steps of the program's own."""
    step = origins.added_ranges(trace) & origins.candidates_for_steps(trace)
    if not step.any():
        return trace
    ranges = trace.recorded("ranges")
    without = trace.with_ranges(ranges.take(~step))
    names = steps(without).names
    named = names.values_of(groups.different(names.codes[names.codes >= 0]))
    if steps_source(without) == "user-ranges" and not all(map(is_epoch, named)):
        return without
    start, end, process = ranges["start_ns"], ranges["end_ns"], ranges["process"]
    optimizer = origins.added_ranges(trace) & ranges.texts("name").isin([_OPTIMIZER])
    incomplete = step.copy()
    for number in groups.different(process[step]):
        rows = np.flatnonzero(step & (process == number) & (end != NULL))
        worked = np.sort(start[optimizer & (process == number)])
        incomplete[rows] = np.searchsorted(worked, end[rows]) <= np.searchsorted(
            worked, start[rows]
        )
    return trace.with_ranges(ranges.take(~incomplete)) if incomplete.any() else trace


def without_left_open(trace: Trace) -> Trace:
    """The trace without ranges that were pushed again and again, and never popped.

    They mark no part of the program. Where a recording is cut, one of each name may be open.
    """
    ranges = trace.recorded("ranges")
    thread, end = ranges["thread"], ranges["end_ns"]
    last = np.full(len(trace.threads) + 1, NULL)
    np.maximum.at(last, thread, end)
    left = np.flatnonzero((end == NULL) | (end == last[thread]))
    left = left[ranges.texts("kind").take(left).isin(["push-pop"])]
    if len(left) < _OFTEN_OPEN:
        return trace
    names = Texts.of(map(pattern_of, ranges.texts("name").take(left).decode()))
    alike = groups.group(thread[left], names.codes)
    often = (groups.count(alike) >= _OFTEN_OPEN)[alike.ids]
    if not often.any():
        return trace
    kept = np.ones(len(ranges), bool)
    kept[left[often]] = False
    which = ", ".join(sorted(set(names.take(np.flatnonzero(often)).decode())))
    text = f"{len(ranges) - int(kept.sum())} ranges that were never closed are left out: {which}"
    return replace(trace.with_ranges(ranges.take(kept)), warnings=(*trace.warnings, text))


_OFTEN_OPEN = 5
"""From so many open ranges of one name on, such as `step_#`, they were never closed: modules within
modules of their class, as a cut recording leaves open, are seldom so deep."""
_MOST_OF_A_RANGE = 0.9
_LEAST_OF_STEPS = 0.5
_EQUAL_PASSES = 0.8
"""Of the passes: so many hold a range as often as the median pass if it is a part of each."""
_LEAST_OF_WORK = 0.01
FEW_OPERATIONS, NEXT_TO_NOTHING, LEAST_NS = 20, 0.01, 1_000_000
"""Fewer operations, shorter than this part of the recording and than 1 ms in all, are the start of
a program, not the program: a public recording holds 17 of 35 µs in 1.3 s, and what repeats in them
are four loads of code."""
_MODULE = re.compile(r"XlaModule:")
_OF_MODELS = ("torch", "jax", "julia")
"""Frameworks whose programs have layers. Programs of directives or arrays have loops alone."""
_SHORT = 8
"""A pass of fewer launches must repeat in its sizes as well as in its kernels."""


_NEEDED: tuple[Fact[object], ...] = (operations, unpaired, kernel_classes)
"""Facts without ranges that repeated passes are found by, the first needed first."""


def with_steps(trace: Trace, beside: Sequence[Fact[object]] = ()) -> Trace:
    """The trace itself if its ranges hold steps, else with a range for each repeated pass.

    Added steps are removed where the program has steps of its own. Another thread computes facts
    that do not depend on ranges meanwhile, which the returned trace shares: first those needed
    here, then those of `beside`, for which this does not wait. If it ends first, it attributes the
    operations as soon as the tree of ranges is built.

    An internal error leaves the ranges as they are, and a warning in the trace.
    """
    pool = ThreadPoolExecutor(1)
    for needed in (*_NEEDED, *beside):
        pool.submit(needed, trace)
    parts = AnswerParts()
    trace = parts.part("recognition of open ranges", partial(without_left_open, trace), trace)
    trace = parts.part("recognition of recorded steps", partial(with_added_steps, trace), trace)
    pool.submit(attributed_operations, trace)
    pool.shutdown(wait=False)
    trace = parts.part("inference of steps", partial(_with_inferred, trace), trace)
    new = [warning for warning in parts.warnings if warning not in trace.warnings]
    return replace(trace, warnings=(*new, *trace.warnings)) if new else trace


def _with_inferred(trace: Trace) -> Trace:
    marked = steps_source(trace)
    if marked == "added-ranges":
        beside = _beside_steps(trace)
        if beside and _were_captured(trace, beside):
            added = origins.added_ranges(trace) & origins.candidates_for_steps(trace)
            trace = trace.with_ranges(trace.recorded("ranges").take(~added))
            return _with_ranges(trace, beside, "step")
        beside += _before_steps(trace)
        return _with_ranges(trace, beside, "pass") if beside else trace
    may_be_parts = marked == "user-ranges" and _may_be_parts(trace)
    if not may_be_parts and (marked != "none" or _is_one_step(trace)):
        rollouts = _before_steps(trace) if marked == "user-ranges" else []
        return _with_ranges(trace, rollouts, "pass") if rollouts else trace
    processes = groups.different(operations(trace).process)
    passes = [found for process in processes if (found := _passes(trace, process))]
    if marked != "none":
        return _with_loops(trace, passes) if _parts_of(passes, steps(trace)) else trace
    return _with_loops(trace, passes)


def _with_loops(trace: Trace, passes: list[_Passes]) -> Trace:
    """The trace with the ranges of the loop of each process, and of the others beside it."""
    loops = list[list[_Passes]]()
    for loop in passes:
        rollouts = [*_before(trace, loop)]
        every = [*_by_size(trace, loop)]
        longest = max(every, key=partial(_time_ns, trace))
        every += [*_early(trace, loop, longest)] if not rollouts else []
        every += _behind(trace, loop, longest)
        every.sort(key=lambda each: -_time_ns(trace, each))
        for number, each in enumerate((every[0], *rollouts, *every[1:])):
            loops[number:] = loops[number:] or [[]]
            loops[number].append(each)
    for of_processes, name in zip(loops, _NAMES, strict=False):
        trace = _with_ranges(trace, of_processes, name)
    return trace


_NAMES = ("step", "pass", *(f"pass_{letter}" for letter in ascii_lowercase[1:]))
"""Names of loops, that with most time first; numbers in them would make them one series."""


def _before_steps(trace: Trace) -> list[_Passes]:
    """The rollouts before marked steps, of each process."""
    every, result = steps(trace), list[_Passes]()
    for process in groups.different(every.process).tolist():
        rows = np.flatnonzero(every.process == process)
        rows = rows[np.argsort(every.cpu_start_ns[rows], kind="stable")]
        marked = every.cpu_start_ns[rows], every.cpu_end_ns[rows]
        result += _before(trace, (process, int(every.thread[rows[0]]), *marked))
    return result


def _before(trace: Trace, loop: _Passes) -> Iterator[_Passes]:
    """The passes before and between those of a loop that run some of its kernels, and take longer.

    A program plays against itself, or in an environment, with the model that it then trains. Its
    start launches other kernels (random weights, copies), its warm-up all of the loop's.
    """
    process, _, begin, end = loop
    own, called_ns = _launches(trace)[process]
    name = _kernel_names(trace, own)
    inside = intervals.inside(intervals.union(begin, end), called_ns)
    early = ~inside & (called_ns < end[-1])
    of_loop, before = name[inside & (name >= 0)], name[early & (name >= 0)]
    if not len(of_loop) or np.isin(before, of_loop).sum() < _LEAST_ALIKE * max(len(before), 1):
        return
    trained = np.mean(~np.isin(of_loop, before)) >= _LEAST_TRAINED
    found = _passes_of(trace, process, own[early]) if trained and early.any() else None
    if found:
        _, thread, opens, until = found
        opens = np.maximum(opens, np.append(0, end)[np.searchsorted(end, until, side="right")])
        if (until - opens).sum() >= (end - begin).sum():
            yield process, thread, opens, until


_LEAST_ALIKE, _LEAST_TRAINED = 0.5, 0.2
"""Of the kernels before a loop, so many are its own in rollouts, and nearly none in a start. Of
those of the loop so many come with it, as the backward pass and the optimizer: of warm-up none."""


def _behind(trace: Trace, loop: _Passes, longest: _Passes) -> Iterator[_Passes]:
    """The passes of other loops behind one, unless they take next to nothing beside the longest."""
    process, _, _, end = loop
    own, called_ns = _launches(trace)[process]
    least_ns = _LEAST_BESIDE * _time_ns(trace, longest)
    yield from _stretches(trace, process, own[called_ns >= end[-1]], least_ns)


def _early(trace: Trace, loop: _Passes, longest: _Passes) -> Iterator[_Passes]:
    """The passes of other loops before one, where these are no part of the start."""
    process, _, begin, _ = loop
    (own, called_ns), ops = _launches(trace)[process], operations(trace)
    least_ns = _LEAST_EARLY * _time_ns(trace, longest)
    least_work_ns = _LEAST_EARLY * ops.duration_ns[_in_passes(trace, longest)[0]].sum()
    for each in _stretches(trace, process, own[called_ns < begin[0]], least_ns):
        if ops.duration_ns[_in_passes(trace, each)[0]].sum() >= least_work_ns:
            yield each


def _stretches(trace: Trace, process: int, rows: Array, least_ns: float) -> Iterator[_Passes]:
    """The loops that these launches of a process make, one after the other.

    The largest is looked for first, then what is before it and behind it. Few passes are no loop,
    nor are those that take less than `least_ns`.
    """
    ops, calls, parts = operations(trace), trace.recorded("api_calls"), [rows]
    for _ in range(_MOST_PARTS):
        parts = [part for part in parts if len(part) and _lasts(ops, part, least_ns)]
        if not parts:
            return
        rows = parts.pop(int(np.argmax([ops.duration_ns[part].sum() for part in parts])))
        found = _loop_in(trace, process, rows)
        if found is None:
            continue
        called_ns = calls["start_ns"][ops.call[rows]]
        parts += [rows[called_ns < found[2][0]], rows[called_ns >= found[3][-1]]]
        if len(found[2]) >= _LEAST_OTHERS and _time_ns(trace, found) >= least_ns:
            yield from _by_size(trace, found)


def _lasts(ops: Operations, rows: Array, least_ns: float) -> bool:
    return bool(ops.end_ns[rows].max() - ops.start_ns[rows].min() >= least_ns)


def _loop_in(trace: Trace, process: int, rows: Array) -> _Passes | None:
    """The passes of these launches, or of the stretch with most work that has some."""
    found = _passes_of(trace, process, rows, alone=False)
    if found is not None:
        return found
    parts = regular_stretches(_sized(trace, rows), operations(trace).duration_ns[rows])
    tried = (_passes_of(trace, process, rows[first:end], alone=False) for first, end in parts)
    return next((each for each in tried if each and len(each[2]) >= _LEAST_OTHERS), None)


def _longest_stretch(trace: Trace, process: int, rows: Array) -> _Passes | None:
    """The longest loop of launches of which no one loop stands out, if most work is in loops."""
    ops, loops = operations(trace), [*_stretches(trace, process, rows, 0.0)]
    inside = [_in_passes(trace, loop)[0] for loop in loops]
    work_ns = sum(int(ops.duration_ns[own].sum()) for own in inside)
    passes = sum(len(loop[2]) for loop in loops)
    if not loops or work_ns < _LEAST_COVERED * ops.duration_ns[rows].sum():
        return None
    alone = _end_a_start(trace, passes, np.concatenate(inside))
    return None if alone else max(loops, key=partial(_time_ns, trace))


def _in_passes(trace: Trace, loop: _Passes) -> tuple[Array, Integers]:
    """The operations that the passes of a loop launch, in the order of the calls, and the pass."""
    process, _, begin, end = loop
    own, called_ns = _launches(trace)[process]
    of_pass = np.searchsorted(begin, called_ns, side="right") - 1
    inside = (of_pass >= 0) & (called_ns < end[of_pass])
    return own[inside], of_pass[inside]


def _time_ns(trace: Trace, loop: _Passes) -> int:
    """The time that the passes of a loop take if none is cold: so many times the usual one."""
    (own, of_pass), ops = _in_passes(trace, loop), operations(trace)
    last_ns = np.zeros(len(loop[2]), np.int64)
    np.maximum.at(last_ns, of_pass, ops.end_ns[own])
    apart_ns = np.diff(np.maximum.accumulate(last_ns[last_ns > 0]))
    return int(median(apart_ns) * len(last_ns)) if len(apart_ns) else 0


def _by_size(trace: Trace, loop: _Passes) -> Iterator[_Passes]:
    """The passes of a loop apart where their kernels have other grids from some pass on.

    A benchmark calls the same code with one size after the other. Passes that change now and then,
    or come back to a size, are of one loop.
    """
    process, thread, begin, end = loop
    ops, calls = operations(trace), trace.recorded("api_calls")
    own, of_pass = _in_passes(trace, loop)
    runs = ops.kind[own] == Kind.KERNEL
    own, of_pass, kernels = own[runs], of_pass[runs], trace.recorded("kernels")
    grids = (kernels[f"grid_{axis}"][ops.row[own]].astype(float) for axis in "xyz")
    plateaus = _plateaus(np.bincount(of_pass, np.prod([*grids], axis=0), len(begin)))
    if len(plateaus) == 1:
        yield loop
        return
    begin, end, (firsts, lasts) = begin.copy(), end.copy(), np.array(plateaus).T
    if not (origins.program_ranges(trace) & (trace.recorded("ranges")["thread"] == thread)).any():
        # A pass reaches from the end of the one before it to its last launch, such as a copy behind
        # a pause: those at other sizes end and begin with their own kernels.
        begin[firsts[1:]] = calls["start_ns"][ops.call[own[np.searchsorted(of_pass, firsts[1:])]]]
        end[lasts[:-1] - 1] = calls["end_ns"][
            ops.call[own[np.searchsorted(of_pass, lasts[:-1]) - 1]]
        ]
    parts = [(process, thread, begin[first:last], end[first:last]) for first, last in plateaus]
    times_ns = [_time_ns(trace, part) for part in parts]
    yield from parts if min(times_ns) >= _LEAST_BESIDE * sum(times_ns) else [loop]


def _plateaus(amount: Array) -> list[tuple[int, int]]:
    """Begin and end of stretches of equal amounts that follow each other, else all as one."""
    whole = [(0, len(amount))]
    usual = amount[1:] == amount[:-1]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], usual.astype(np.int8), [0]])))
    flat = [(first, last + 1) for first, last in edges.reshape(-1, 2).tolist()]
    flat = [(first, last) for first, last in flat if last - first >= LEAST_STEPS]
    joined_up = list[tuple[int, int]]()
    for first, last in flat:
        if joined_up and _are_alike(amount[first], amount[joined_up[-1][0]]):
            joined_up[-1] = joined_up[-1][0], last
        else:
            joined_up.append((first, last))
    levels = np.sort([0.0, *(amount[first] for first, _ in joined_up)])
    inside = sum(last - first for first, last in joined_up)
    if len(joined_up) < 2 or inside < _EQUAL_PASSES * len(amount):
        return whole
    if any(_are_alike(*pair) for pair in pairwise(levels.tolist())):
        return whole
    # A pass between two sizes may have kernels of both.
    joined_up[0], joined_up[-1] = (0, joined_up[0][1]), (joined_up[-1][0], len(amount))
    return joined_up


def _are_alike(one: float, other: float) -> bool:
    return max(one, other) <= _ALIKE * min(one, other)


_LEAST_OTHERS = 10
"""Results that are read back layer by layer, or printed, are fewer passes."""
_LEAST_EARLY = 0.25
"""Of the time and the GPU work of the longest loop: what repeats before it and takes less is of the
start, such as random weights."""
_LEAST_COVERED = 0.5
"""Of the GPU's work: where less is in loops of which no one stands out, a program has none."""
_MOST_PARTS = 64
"""More loops than letters name are not told apart; behind each, a part without one is looked at."""


@fact
def _launches(trace: Trace) -> dict[int, tuple[Array, Integers]]:
    """The operations that each process launches outside of compilation, and when it calls."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    result = dict[int, tuple[Array, Integers]]()
    for process in range(len(trace.processes)):
        own = np.flatnonzero((ops.process == process) & ops.launched)
        own = own[np.argsort(calls["start_ns"][ops.call[own]], kind="stable")]
        called_ns = calls["start_ns"][ops.call[own]]
        kept = ~intervals.inside(compilation(trace).of(process), called_ns)
        result[process] = own[kept], called_ns[kept]
    return result


def _kernel_names(trace: Trace, own: Array) -> Integers:
    """The number of the name of the kernel of each operation; −1 for other operations."""
    ops, result = operations(trace), np.full(len(own), -1)
    is_kernel = ops.kind[own] == Kind.KERNEL
    result[is_kernel] = trace.recorded("kernels").texts("name").codes[ops.row[own[is_kernel]]]
    return result


def _beside_steps(trace: Trace) -> list[_Passes]:
    """The passes between and after added steps: evaluation, or replays of what was captured there.

    Launches before the first step set the program up. A pass begins behind the step before it.
    """
    ops, every = operations(trace), steps(trace)
    calls, outside = trace.recorded("api_calls"), step_of_operations(trace) < 0
    result = []
    for process in groups.different(every.process).tolist():
        rows = every.process == process
        ends = np.sort(every.cpu_end_ns[rows])
        own = np.flatnonzero((ops.process == process) & ops.launched & outside)
        called_ns = calls["start_ns"][ops.call[own]]
        own = own[called_ns >= every.cpu_start_ns[rows].min()]
        own = own[np.argsort(calls["start_ns"][ops.call[own]], kind="stable")]
        found = _passes_of(trace, process, own) if len(own) else None
        if found:
            _, thread, begin, until = found
            before = np.searchsorted(ends, until, side="right") - 1
            begin = np.maximum(begin, ends[before])
            steps_ns = int((every.cpu_end_ns - every.cpu_start_ns)[rows].sum())
            if (until - begin).sum() >= _LEAST_BESIDE * steps_ns:
                result.append((process, thread, begin, until))
    return result


_LEAST_BESIDE = 0.01
"""Of the time of the steps: passes that take less are no loop of the program. Six reads between the
epochs of a U-Net took 2.67 µs each beside 26 steps of 17.7 ms; evaluations take 5 to 60 %."""
_CAPTURED = 0.8
"""Of the kernel time of eager passes: so much is of kernels that the graph replays. A graph of the
forward pass alone, replayed after training, has half of them or fewer."""


def _were_captured(trace: Trace, passes: list[_Passes]) -> bool:
    """Whether the steps come before the passes, which replay their kernels: eager warm-up."""
    ops, kernels = operations(trace), trace.recorded("kernels")
    begin = min(int(each[2][0]) for each in passes)
    nodes = np.flatnonzero(cuda_graphs(trace).node)
    eager = np.flatnonzero((step_of_operations(trace) >= 0) & (ops.kind == Kind.KERNEL))
    if not len(nodes) or np.isin(nodes, eager).any() or steps(trace).cpu_end_ns.max() > begin:
        return False
    names, took_ns = kernels.texts("name").codes, ops.duration_ns[eager]
    again = np.isin(names[ops.row[eager]], names[ops.row[nodes[ops.kind[nodes] == Kind.KERNEL]]])
    return bool(took_ns[again].sum() >= _CAPTURED * max(took_ns.sum(), 1))


def _with_ranges(trace: Trace, passes: list[_Passes], name: str) -> Trace:
    """The trace with a range of this name for each pass, behind its own."""
    recorded, inferred = trace.recorded("ranges"), _as_ranges(passes, name)
    data: dict[str, Array | Texts] = {}
    for column in recorded.columns:
        if column.dtype == "text":
            first, second = (table.texts(column.name) for table in (recorded, inferred))
            # The values of the second stand behind those of the first.
            codes = np.concatenate([first.codes, second.codes + np.int32(len(first.values))])
            data[column.name] = Texts(codes, np.concatenate([first.values, second.values]))
        else:
            data[column.name] = joined([recorded[column.name], inferred[column.name]])
    return trace.with_ranges(Table(recorded.columns, data))


_Passes = tuple[int, int, Integers, Integers]
"""Process, thread, and start and end of each pass."""


def _is_one_step(trace: Trace) -> bool:
    """Whether the profiler marked a single step, which holds nearly all launches."""
    ranges, ops = trace.recorded("ranges"), operations(trace)
    row = origins.only_profiler_step(trace)
    if row is None or not ops.launched.any():
        return False
    called_ns = trace.recorded("api_calls")["start_ns"][ops.call[ops.launched]]
    inside = (called_ns >= ranges["start_ns"][row]) & (called_ns < ranges["end_ns"][row])
    inside &= ops.process[ops.launched] == ranges["process"][row]
    return bool(np.mean(inside) >= _MOST_OF_A_RANGE)


def _may_be_parts(trace: Trace) -> bool:
    """Whether the ranges taken for steps hold few of the launches, and are not named like steps."""
    ops = operations(trace)
    within = step_of_operations(trace)[ops.launched] >= 0
    if np.count_nonzero(within) >= _LEAST_OF_STEPS * len(within):
        return False
    names = (pattern_of(str(name)) for name in set(steps(trace).names.decode()))
    return not any(is_step(name) or is_epoch(name) for name in names)


def _parts_of(passes: list[_Passes], marked: Steps) -> bool:
    """Whether nearly all passes hold each marked range equally often, and more than once."""
    found = False
    for process, _, start, end in passes:
        rows = np.flatnonzero(marked.process == process)
        of_pass = np.searchsorted(start, marked.cpu_start_ns[rows], side="right") - 1
        inside = (of_pass >= 0) & (marked.cpu_start_ns[rows] < end[of_pass])
        if (marked.cpu_end_ns[rows] > end[of_pass])[inside].any():
            return False
        rows, of_pass = rows[inside], of_pass[inside]
        for series in groups.different(marked.series[rows]).tolist():
            times = np.bincount(of_pass[marked.series[rows] == series], minlength=len(start))
            usual = int(median(times))
            if usual < 2 or np.mean(times == usual) < _EQUAL_PASSES:
                return False
        found = found or len(rows) > 0
    return found


def _passes(trace: Trace, process: int) -> _Passes | None:
    """The passes of the loop that a process launches."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    rows = np.flatnonzero((ops.process == process) & ops.launched)
    rows = rows[np.argsort(calls["start_ns"][ops.call[rows]], kind="stable")]
    trials = xla_trials(trace, int(process))
    rows = rows[~intervals.inside(trials, calls["start_ns"][ops.call[rows]])]
    call = ops.call[rows]
    alone = unpaired(trace)
    lost = alone.launches & ~alone.late & (calls["process"] == process)
    # Where the work of most launches is missing, what is left repeats otherwise.
    if not len(rows) or np.count_nonzero(lost) > len(groups.different(call)):
        return None
    passes = _passes_of(trace, process, rows)
    if passes is None:
        windows = compilation(trace).of(process)
        later = ~intervals.inside(windows, calls["start_ns"][call])
        if 0 < np.count_nonzero(later) < len(rows):
            # Most launches can be trials of a compiler, which outnumber the passes after them.
            passes = _passes_of(trace, process, rows[later])
    if passes and (begin_ns := _compiled_behind(trace, passes)):
        passes = _passes_of(trace, process, rows[calls["start_ns"][call] >= begin_ns])
    if passes is None or _in_one_module(trace, passes, trials) or _in_one_call(trace, passes):
        return None
    return None if _first_calls(trace, passes, trials) else passes


def _first_calls(trace: Trace, passes: _Passes, trials: Intervals) -> bool:
    """Whether most passes are mostly pauses in which XLA compiled, as each program's first call is.

    The names of its kernels repeat from program to program. Where XLA itself or samples say what
    it compiles, a loop that compiles again is told from these.
    """
    _, _, begin, end = passes
    compiled_ns = intervals.overlap(trials, begin, end)
    most = np.mean(2 * compiled_ns > end - begin) > _LEAST_OF_STEPS
    return bool(most and only_by_pauses(trace, code.JAX))


def _compiled_behind(trace: Trace, passes: _Passes) -> int | None:
    """When compilation begins beside which the passes before it are next to nothing, if it does.

    So it is in a program that crops its images before it calls its model for the first time: the
    loop of the program comes after that, if the recording does not end before.
    """
    process, _, begin, end = passes
    windows = compilation(trace).of(process)
    later = windows.start >= end[-1]
    later_ns = int((windows.end - windows.start)[later].sum())
    small = end[-1] - begin[0] < NEXT_TO_NOTHING * later_ns
    return int(windows.start[later][0]) if small else None


def _in_one_module(trace: Trace, passes: _Passes, trials: Intervals) -> bool:
    """Whether XLA runs the passes in one call of a module, and then compiles for longer.

    So does a solver that makes the data: the loop of the program comes after that.
    """
    process, _, begin, end = passes
    later_ns = int((trials.end - trials.start)[trials.start >= end[-1]].sum())
    if later_ns <= end[-1] - begin[0]:
        return False
    ranges = trace.recorded("ranges")
    own = origins.range_name_forms(trace).matching(_MODULE)[ranges.texts("name").codes]
    own &= (ranges["process"] == process) & (ranges["start_ns"] < end[0])
    return bool((own & (ranges["end_ns"] >= begin[-1])).any())


def _in_one_call(trace: Trace, passes: _Passes) -> bool:
    """Whether the passes lie in one range around a forward or backward pass: its layers do."""
    process, _, begin, end = passes
    ranges = trace.recorded("ranges")
    own = ranges.texts("name").matching(CALL.fullmatch) & (ranges["process"] == process)
    around = own & (ranges["start_ns"] < end[0]) & (ranges["end_ns"] >= begin[-1])
    return bool(around.any())


def _passes_of(trace: Trace, process: int, rows: Array, *, alone: bool = True) -> _Passes | None:
    """The passes of these launches of a process, in the order of their calls.

    `alone` are those beside which no other loop is known.
    """
    ops, calls = operations(trace), trace.recorded("api_calls")
    call = ops.call[rows]
    start, end = calls["start_ns"][call], calls["end_ns"][call]
    pause = np.maximum(np.diff(start, prepend=start[:1]) - (end - start), 0)
    pause[1:] = np.maximum(start[1:] - end[:-1], 0)
    kind = _kinds(trace, ops, rows)
    marked = _marked(trace, ops, rows)
    optimizer = ops.kind[rows] == Kind.KERNEL
    optimizer[optimizer] = kernel_classes(trace)[ops.row[rows[optimizer]]] == KernelClass.OPTIMIZER
    of_model = framework(trace) in _OF_MODELS
    passes = find_repetition(kind, pause, optimizer, marked, of_model)
    if passes is not None and passes.lag < _SHORT:
        # A few kernels launched again at other sizes are a sweep and no loop.
        passes = find_repetition(_sized(trace, rows), pause, None, marked, of_model)
    passes = passes or _after_a_warm_up(kind, marked, start, end)
    if passes is None and alone:
        return _longest_stretch(trace, process, rows)
    if passes is None or not _hold_the_work(passes, ops, rows):
        return None
    if (
        alone
        and not optimizer.any()
        and _end_a_start(trace, len(passes.first), rows[passes.first[0] : passes.end])
    ):
        return None
    # A loop that covers most of the recorded range makes it an epoch. In a range that is a single
    # step, an optimizer's updates of its parameters repeat as well.
    covered = passes.end - int(passes.first[0])
    if "range" in trace.run and covered < _MOST_OF_A_RANGE * len(rows):
        return None
    if trace.recorder == TORCH_PROFILER:
        loose = unpaired(trace)
        is_cut = bool((loose.launches & loose.late & (calls["process"] == process)).any())
        if within_one_call(passes.first, passes.end, kind, marked, is_cut=is_cut):
            return None
    last = np.append(passes.first[1:], passes.end) - 1
    launching, main = calls["thread"][call], main_threads(trace)[process]
    thread = int(main if (launching == main).any() else np.argmax(np.bincount(launching)))
    until = np.maximum.accumulate(end[last])
    # Ranges of libraries around the only kind of launch are the calls that make a pass.
    of_one_kind = len(groups.different(kind[passes.first[0] : passes.end])) == 1
    ranges = trace.recorded("ranges")
    own = (ranges["thread"] == thread) & (ranges["end_ns"] != NULL)
    own &= origins.program_ranges(trace) | of_one_kind
    ranges, first = ranges.take(own), start[passes.first]
    opens, until = _around_ranges(ranges, first, until)
    begin = np.append(opens, until[:-1])
    if call_other_modules(trace, int(process), thread, begin, until):
        return None
    return int(process), thread, *_in_loops(ranges, first, begin, until)


def _after_a_warm_up(
    kind: Integers, marked: Mask, start: Integers, end: Integers
) -> Repetition | None:
    """Three passes of the same launches, nearly all there are, of which the first alone is long.

    The host sees something of each, so that they are no layers.
    """
    count = len(kind)
    for lag in range(count // 3, max(int(_LEAST_OF_ALL * count) // 3, _SHORT) - 1, -1):
        first = count - lag * np.array([3, 2, 1])
        again = slice(first[0] + lag, None), slice(first[0], count - lag)
        if kind[-1] != kind[-1 - lag] or (kind[again[0]] != kind[again[1]]).any():
            continue
        took = np.diff(np.append(start[first], end[-1]))
        alike = took[1:].max() < _ALIKE * took[1:].min()
        seen = np.logical_or.reduceat(marked, first).all()
        if alike and seen and took[0] >= _FIRST_LONGER * took[1:].max():
            return Repetition(first, count, lag)
    return None


_LEAST_OF_ALL, _ALIKE, _FIRST_LONGER = 0.8, 1.25, 2.0
"""Sizes that grow from pass to pass are a sweep. Where two steps follow a warm-up in shipped
recordings, that is 1.8 times as long at most, besides first uses."""


def _around_ranges(ranges: Table, first: Integers, until: Integers) -> tuple[int, Integers]:
    """The begin of the first pass and the ends of all, outside ranges that lie in one pass.

    `first` has the first launch of each pass, `until` the end of its last: a range around the
    forward pass ends a few µs later, and would lie across two steps.
    """
    start, end = ranges["start_ns"], ranges["end_ns"]
    around = (start <= first[0]) & (first[0] < end) & (end < first[1])
    # Before them: of equal ranges the later row is the inner one.
    opens = int(start[around].min()) - 1 if around.any() else int(first[0])
    of = np.searchsorted(np.append(opens, until[:-1]), start, side="right") - 1
    closed = (
        (of >= 0) & (start < until[of]) & (end < np.append(first[1:], end.max(initial=0) + 1)[of])
    )
    result = until.copy()
    np.maximum.at(result, of[closed], end[closed])
    # Nothing follows the last pass: it closes its ranges as late as the others do.
    result[-1] = min(result[-1], until[-1] + (result - until)[:-1].max(initial=0))
    return opens, result


def _in_loops(
    ranges: Table, first: Integers, begin: Integers, until: Integers
) -> tuple[Integers, Integers]:
    """Begin and end of passes that lie across no range around several, such as a timed loop.

    Where most passes are in such ranges, the others are none: a program warms up before what it
    measures. Otherwise the range marks a part of the loop.
    """
    from_pass = np.searchsorted(first, ranges["start_ns"])
    to_pass = np.searchsorted(until, ranges["end_ns"], side="right")
    loops = ((to_pass - from_pass > 1) & (to_pass - from_pass < len(first))).nonzero()[0]
    edges = np.append(ranges["start_ns"][loops], ranges["end_ns"][loops])
    edges = edges[edges <= first[-1]]
    begin = begin.copy()
    np.maximum.at(begin, np.searchsorted(first, edges), edges)
    inside = np.zeros(len(first), bool)
    for loop in loops.tolist():
        inside[from_pass[loop] : to_pass[loop]] = True
    kept = inside if 2 * inside.sum() > len(inside) else slice(None)
    return begin[kept], until[kept]


def _hold_the_work(passes: Repetition, ops: Operations, rows: Array) -> bool:
    """Whether the passes run kernels that take a relevant part of all kernel time.

    The passes of a program that loads its data may be copies of one array after the other, and next
    to no work in the whole recording is the start of a program.
    """
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    span_ns = int(end.max() - start.min())
    if len(rows) < FEW_OPERATIONS and (end - start).sum() < min(
        LEAST_NS, NEXT_TO_NOTHING * span_ns
    ):
        return False
    inside = np.zeros(len(rows), bool)
    inside[passes.first[0] : passes.end] = True
    runs = np.isin(ops.kind[rows], (Kind.KERNEL, Kind.GRAPH))
    time = np.where(runs, end - start, 0)
    enough = np.count_nonzero(runs & inside) >= len(passes.first)
    return bool(enough and time[inside].sum() >= _LEAST_OF_WORK * time.sum())


def _end_a_start(trace: Trace, passes: int, inside: Array) -> bool:
    """Whether few passes of few operations are next to nothing beside the rest of a recording."""
    ops = operations(trace)
    took_ns = int(ops.end_ns[inside].max() - ops.start_ns[inside].min())
    first, last = recorded_span(trace)
    few = passes < _FEW_PASSES and len(inside) < FEW_IN_ALL
    return few and took_ns < BESIDE_START * (last - first)


_FEW_PASSES, FEW_IN_ALL, BESIDE_START = 20, 100, 0.05
"""Four passes of a kernel of 32 ms after 3.5 s, and 13 of 32 µs after 20 ms, are what a start ends
in. Of the loops in less than this part of a shipped recording, the shortest has 1016 operations."""


def _kinds(trace: Trace, ops: Operations, rows: Array) -> Integers:
    """A number per operation, equal for one kernel name, for one copy direction, for memsets, …"""
    text = np.zeros(len(rows), np.int64)
    kind = ops.kind[rows]
    for number, table, column in (
        (Kind.KERNEL, "kernels", "name"),
        (Kind.COPY, "copies", "direction"),
    ):
        of_kind = kind == number
        text[of_kind] = trace.recorded(table).texts(column).codes[ops.row[rows[of_kind]]]
    return groups.group(kind, text).ids


def _sized(trace: Trace, rows: Array) -> Integers:
    """As `_kinds`, with kernels of different grids, and copies of twice the bytes, apart."""
    ops, sizes = operations(trace), np.zeros((3, len(rows)), np.int64)
    place = np.flatnonzero(ops.kind[rows] == Kind.KERNEL)
    for axis, size in zip("xyz", sizes, strict=True):
        size[place] = trace.recorded("kernels")[f"grid_{axis}"][ops.row[rows[place]]]
    place = np.flatnonzero(ops.kind[rows] == Kind.COPY)
    sizes[0, place] = np.frexp(trace.recorded("copies")["bytes"][ops.row[rows[place]]])[1]
    return groups.group(_kinds(trace, ops, rows), *sizes).ids


def _marked(trace: Trace, ops: Operations, rows: Array) -> Mask:
    """True for copies between host and GPU, CUDA graphs, and the first launch after a GPU wait.

    So is the first one after an event of a program that times its passes by them.
    """
    result = cuda_graphs(trace).whole[rows] | cuda_graphs(trace).node[rows]
    copies = np.flatnonzero(ops.kind[rows] == Kind.COPY)
    direction = trace.recorded("copies").texts("direction")
    result[copies] |= direction.isin(["H2D", "D2H"])[ops.row[rows[copies]]]
    start_ns = trace.recorded("api_calls")["start_ns"]
    every = waits(trace)
    waiting = np.isin(every.does, (CallKind.SYNCHRONIZE, CallKind.COPY))
    process = ops.process[rows[0]]
    waited = every.start_ns[waiting & (every.process == process)]
    waited = np.append(waited, _timed(trace, int(process)))
    after = np.searchsorted(start_ns[ops.call[rows]], waited)
    result[after[after < len(rows)]] = True
    return result


def _timed(trace: Trace, process: int) -> Integers:
    """When events were recorded, where no stream waits for any: the host reads their times."""
    calls = trace.recorded("api_calls")
    names, own = calls.texts("name"), calls["process"] == process
    if (own & names.matching(_STREAM_WAIT.match)).any():
        return np.zeros(0, np.int64)
    return calls["start_ns"][own & names.matching(_EVENT.match)]


_EVENT, _STREAM_WAIT = map(re.compile, (r"(cuda|cu|hip)EventRecord", r"(cuda|cu|hip)StreamWait"))


def _as_ranges(passes: list[_Passes], name: str) -> Table:
    process, thread, start, end = zip(*passes, strict=True)
    counts = list(map(len, start))
    numbers = np.concatenate([np.arange(count) for count in counts]).astype(np.int32)
    names = object_array([f"{name}_{number}" for number in range(max(counts))])
    threads, once = np.repeat(thread, counts).astype(np.int32), np.zeros(len(numbers), np.int32)
    data: dict[str, Array | Texts] = {
        "start_ns": np.concatenate(start),
        "end_ns": np.concatenate(end),
        "thread": threads,
        "process": np.repeat(process, counts).astype(np.int32),
        "end_thread": threads,
        "name": Texts(numbers, names),
        "domain": Texts(once, object_array([origins.INFERRED_DOMAIN])),
        "kind": Texts(once, object_array(["push-pop"])),
        "payload": np.full(len(numbers), NULL),
    }
    return Table(TABLES["ranges"].columns, data)
