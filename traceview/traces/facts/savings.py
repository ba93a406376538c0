"""What remedies win, replayed: the gain of edits of the run over its steady time, with an error.

A replay is of the steps of the model. What they gain per call that is edited, or per time that the
edit takes from the work in them, holds for all steady calls and work that it edits, up to the share
of the steady time that it is of a step. Where the model has no such work, or the recording has not
the calls that launched it, the gain is at most the time of the work itself, no two at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, RowNumbers, row_numbers
from traceview.traces.facts.copies import downloads, uploads
from traceview.traces.facts.dependencies.replay import Changed, Edit, UsualTimes, on_last
from traceview.traces.facts.forecast import Model, model
from traceview.traces.facts.idle.gaps import steady_span_ns, steady_spans_ns
from traceview.traces.facts.launches import between, waits
from traceview.traces.facts.operations import CallKind, Kind, api_calls, operations
from traceview.traces.facts.steps.steps import steady_operations
from traceview.traces.trace import Trace

_LITTLE = 0.1


@record
class Effect:
    """How a remedy changes operations; each takes `less_ns` less, by default all of its time.

    "faster" ones are launched as before. Of "merged" ones each `group` becomes one operation of the
    program: those left without time are not launched, and the thread's time between them and the
    others of their group goes, too. "gone" are all, with their launches. Of the time of launches
    `launches_part` goes; the rest is what the remedy costs the CPU. With `around` goes what the
    thread does right before and behind a run of them, beyond its usual pause, and as much time
    again between the other launches. Of the time between launches goes what is usual, with
    `prepares` all: it prepares them.
    """

    becomes: Literal["faster", "merged", "gone"]
    less_ns: Integers | None = None
    group: Integers | None = None
    launches_part: float = 1.0
    around: bool = False
    prepares: bool = False


GONE = Effect("gone")


def faster(less_ns: Integers) -> Effect:
    """Operations that take so much less each."""
    return Effect("faster", less_ns)


def merged(
    group: Integers, less_ns: Integers, launches_part: float = 1.0, *, prepares: bool = False
) -> Effect:
    """Groups of operations of which those stay that are left with time."""
    return Effect("merged", less_ns, group, launches_part, prepares=prepares)


def become_one(group: Integers, duration_ns: Integers, left_ns: Integers) -> Effect:
    """Groups of operations that each become their last one, which takes what is left of all."""
    return merged(group, duration_ns - on_last(group, left_ns))


@record
class Gain:
    """Time over the steady time of the recording: `own_ns` less work, `saved_ns` less run time.

    `error_ns` is that of `saved_ns` (±), None where that is no replay but an upper bound; `edit`
    is None there.
    """

    own_ns: int
    saved_ns: int
    error_ns: int | None = None
    edit: Edit | None = None

    def at_most(self, most_ns: int) -> Gain:
        """The same gain of work of which so much can be saved at most."""
        return Gain(
            min(self.own_ns, most_ns), min(self.saved_ns, most_ns), self.error_ns, self.edit
        )


def of_waits(trace: Trace, calls: Array, copies: Array = groups.NO_ROWS) -> Gain | None:
    """The gain if these API calls wait for nothing; None where the model has none of them.

    The `copies` (rows of operations) that they wait for are not made.

    The waits of their threads before and behind them without a launch in between wait for nothing
    either: they are for the same work, and would wait in their place. Uploads still do, and large
    reads unless some of the calls read: what they move is needed, and their remedy is another.
    """
    item = _items(trace, _same_waits(trace, calls))
    copied = model(trace).item_of_operation[copies]
    copied = copied[copied >= 0]

    def edit(changed: Changed) -> None:
        changed.wait_for_nothing(item)
        if len(copied):
            changed.remove_launches(copied, copied, np.zeros(len(copied), np.int64))

    return _gain_of_calls(trace, edit, calls)


def of_calls(trace: Trace, calls: Array) -> Gain | None:
    """The gain if these API calls are not made; None where the model has none of them."""
    item = _items(trace, calls)

    def edit(changed: Changed) -> None:
        changed.remove_calls(item)

    return _gain_of_calls(trace, edit, calls)


def _same_waits(trace: Trace, chosen: Array) -> Array:
    """These waits, and the others between the same launches of their threads, as API calls."""
    every, ops = waits(trace), operations(trace)
    sent, read = (np.flatnonzero(moved(trace) & ops.launched) for moved in (uploads, downloads))
    if groups.isin(chosen, ops.call[sent]).all():
        return chosen
    others = every.call[np.isin(every.does, FOR_THE_GPU) & ~groups.isin(every.call, ops.call[sent])]
    if not groups.isin(chosen, ops.call[read]).any():
        large = trace.recorded("copies")["bytes"][ops.row[read]] > _A_RESULT
        others = others[~groups.isin(others, ops.call[read[large]])]
    own, of_others = between(trace, api_calls(trace).does == CallKind.LAUNCH, chosen, others)
    return groups.different(np.concatenate([chosen, others[groups.isin(of_others, own)]]))


_A_RESULT = 1 << 16
"""Bytes that take no time to speak of beside the wait for them."""
FOR_THE_GPU = (CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC)


def _items(trace: Trace, calls: Array) -> RowNumbers:
    return model(trace).calls(calls) if len(api_calls(trace)) else row_numbers(groups.NO_ROWS)


def _gain_of_calls(trace: Trace, edit: Edit, calls: Array) -> Gain | None:
    """The gain of an edit of these calls, all of which are after warm-up."""
    if not len(calls) or not len(api_calls(trace)):
        return None
    replayed = model(trace)
    inside = _in_steps(replayed, calls)
    if not inside:
        return None
    own_ns = int(api_calls(trace).duration_ns[calls].sum())
    gain = _scaled(trace, edit, own_ns, max(len(replayed.follows), 1) * len(calls) / inside)
    return replace(gain, saved_ns=min(gain.saved_ns, steady_span_ns(trace)))


def _in_steps(replayed: Model, calls: Array) -> int:
    """How many of these calls were made while the model's steps ran."""
    graph = replayed.graph
    item = graph.item_of_call[calls]
    item = item[item >= 0]
    if not len(replayed.follows) or not len(item):
        return len(item)
    begin = graph.start_ns[replayed.last].min()
    end = graph.end_ns[replayed.last].max()
    # A call before the first work of the steps may be the one that launches it.
    launched = graph.start_ns[item] < end
    return int((launched & (graph.end_ns[item] + graph.latency_ns >= begin)).sum())


def of_operations(
    trace: Trace, rows: Array, effect: Effect = GONE, own_ns: int | None = None
) -> Gain:
    """The gain of a remedy of operations; with one that goes goes the call that launched no other.

    Operations outside of the selection and of warm-up are left as they are. `own_ns` is the time
    that they take less where other work hides some of it, by default no two at once.
    """
    ops, counted = operations(trace), steady_operations(trace)[rows]
    duration_ns, every = ops.duration_ns[rows], rows
    less = duration_ns if effect.less_ns is None else np.minimum(effect.less_ns, duration_ns)
    counted &= less != 0
    gone = (less >= duration_ns)[counted] & (effect.becomes != "faster")
    rows, less = rows[counted], less[counted]
    if own_ns is None:
        covered_ns = intervals.covered(ops, rows).total()
        own_ns = min(int(less.sum()), covered_ns)
    if not ops.launched[rows].any():
        return Gain(own_ns, own_ns)
    replayed = model(trace)
    item, beside = replayed.item_of_operation[rows], replayed.item_of_operation[every]
    known, there = item >= 0, beside >= 0
    group = np.zeros(len(every), np.int64) if effect.group is None else effect.group
    elsewhere, elsewhere_ns = _elsewhere(trace, rows, less)
    removed = item[known & gone]
    shorter = np.concatenate([item[known & ~gone], elsewhere])
    shorter_ns = np.concatenate([less[known & ~gone], elsewhere_ns])
    # The calls of copies may take long for their own sake: they wait, and move pageable memory.
    usual_ns: UsualTimes = replayed.usual_ns if (ops.kind[rows] == Kind.KERNEL).all() else None
    if usual_ns and effect.prepares:
        usual_ns = usual_ns[0], None

    def edit(changed: Changed) -> None:
        changed.shorten(shorter, shorter_ns)
        changed.remove_launches(
            *(removed, beside[there], group[there], usual_ns, effect.launches_part),
            around=effect.around,
        )

    inside_ns = int(abs(less[known][replayed.timed[item[known]]]).sum())
    return _gain(trace, edit, own_ns, (int(abs(less).sum()), inside_ns))


def _elsewhere(trace: Trace, rows: Array, less_ns: Integers) -> tuple[Array, Array]:
    """Items of kernels of the same names on other GPUs, and the time that they take less.

    What one GPU runs faster the others do, too: in proportion, as all kernels of the name.
    """
    if len(steady_spans_ns(trace)) < 2:
        return groups.NO_ROWS, groups.NO_ROWS
    ops, replayed = operations(trace), model(trace)
    own = groups.different(ops.device[rows])
    kernel = np.flatnonzero(steady_operations(trace) & (ops.kind == Kind.KERNEL))
    names, kernels = trace.recorded("kernels").texts("name"), rows[ops.kind[rows] == Kind.KERNEL]
    count = len(names.values) + 1
    here = kernel[np.isin(ops.device[kernel], own)]
    of_name = np.bincount(names.codes[ops.row[here]] + 1, ops.duration_ns[here], count)
    less = less_ns[ops.kind[rows] == Kind.KERNEL]
    less_of_name = np.bincount(names.codes[ops.row[kernels]] + 1, less, count)
    there = kernel[~np.isin(ops.device[kernel], own)]
    there = there[replayed.item_of_operation[there] >= 0]
    fraction = (less_of_name / np.maximum(of_name, 1))[names.codes[ops.row[there]] + 1]
    there, fraction = there[fraction > 0], fraction[fraction > 0]
    less_there: Integers = np.round(ops.duration_ns[there] * fraction).astype(np.int64)
    return replayed.item_of_operation[there], less_there


def gpu_limited_ns(trace: Trace) -> int:
    """The steady time in which GPU work is on the critical path: a tenth less saves a tenth of it.

    Without any GPU work the program may gain less than that, as another path is soon as long.
    """
    replayed, span_ns = model(trace), steady_span_ns(trace)

    def edit(changed: Changed) -> None:
        changed.scale(np.arange(replayed.graph.calls, len(replayed.graph)), 1 - _LITTLE)

    saved_ns = replayed.saved_ns(edit) / _LITTLE
    if not len(replayed.follows):
        return min(round(saved_ns), span_ns)
    return round(span_ns * saved_ns / max(float(replayed.recorded.mean()), 1.0))


def _gain(trace: Trace, edit: Edit, own_ns: int, work_ns: tuple[int, int]) -> Gain:
    """The gain of an edit; `work_ns` is all work that it edits, and that in the model's steps."""
    all_ns, inside_ns = work_ns
    if not inside_ns:
        return Gain(own_ns, own_ns)
    return _scaled(trace, edit, own_ns, len(model(trace).recorded) * all_ns / inside_ns)


def _scaled(trace: Trace, edit: Edit, own_ns: int, times: float) -> Gain:
    """So many times what a step of the model gains; no more than the same share of all steps."""
    forecast = model(trace).forecast(edit)
    if forecast.steps:
        times = min(times, steady_span_ns(trace) / max(forecast.recorded_ns, 1))
    saved_ns = round(max(forecast.saved_ns, 0) * times)
    return Gain(own_ns, saved_ns, round(forecast.error_ns * times), edit)
