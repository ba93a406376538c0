"""What the program gains if calls return at once, or are not made.

The model replays steps. What they gain per edited call holds for all edited calls after warm-up, up
to the share of the steady time that it is of a step.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.dependencies.forecast import Model, model
from traceview.facts.dependencies.replay import Changed, Edit
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.copies import uploads
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.facts.operations.operations import operations
from traceview.records import record
from traceview.tables import Array, RowNumbers, row_numbers
from traceview.trace import Trace


@record
class CallSaving:
    """What an edit wins of the steady time, ± `error_ns`."""

    edit: Edit
    saved_ns: int
    error_ns: int


def of_waits(trace: Trace, calls: Array) -> CallSaving | None:
    """The gain if these API calls wait for nothing; None where the model has none of them.

    The waits of their threads before and behind them without a launch in between wait for nothing
    either: they are for the same work, and would wait in their place. Uploads still do: what they
    move is needed, and their remedy is another.
    """
    item = _items(trace, _same_waits(trace, calls))

    def edit(changed: Changed) -> None:
        changed.wait_for_nothing(item)

    return _saving(trace, edit, calls)


def of_calls(trace: Trace, calls: Array) -> CallSaving | None:
    """The gain if these API calls are not made; None where the model has none of them."""
    item = _items(trace, calls)

    def edit(changed: Changed) -> None:
        changed.remove_calls(item)

    return _saving(trace, edit, calls)


def _same_waits(trace: Trace, chosen: Array) -> Array:
    """These waits, and the others between the same launches of their threads, as API calls."""
    calls, every = api_calls(trace), waits(trace)
    uploading = np.zeros(len(calls), bool)
    uploading[operations(trace).call[uploads(trace) & operations(trace).launched]] = True
    blocking = every.call[np.isin(every.does, _FOR_THE_GPU) & ~uploading[every.call]]
    result = [chosen]
    for thread, rows in groups.rows_of(calls.thread[chosen]).items():
        launched = (calls.does == CallKind.LAUNCH) & (calls.thread == thread)
        launches = np.sort(calls.start_ns[launched])
        own = blocking[calls.thread[blocking] == thread]
        between, of_chosen = (
            np.searchsorted(launches, calls.start_ns[of]) for of in (own, chosen[rows])
        )
        result.append(own[np.isin(between, of_chosen)])
    return groups.different(np.concatenate(result))


_FOR_THE_GPU = (CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC)


def _items(trace: Trace, calls: Array) -> RowNumbers:
    return model(trace).calls(calls) if len(api_calls(trace)) else row_numbers(groups.NO_ROWS)


def _saving(trace: Trace, edit: Edit, calls: Array) -> CallSaving | None:
    """The gain of an edit of these calls, all of which are after warm-up."""
    if not len(calls) or not len(api_calls(trace)):
        return None
    replayed = model(trace)
    inside = _in_steps(replayed, calls)
    if not inside:
        return None
    forecast = replayed.forecast(edit)
    times = max(len(replayed.follows), 1) * len(calls) / inside
    if forecast.recorded_ns and forecast.steps:
        times = min(times, steady_span_ns(trace) / forecast.recorded_ns)
    saved_ns = min(max(forecast.saved_ns, 0) * times, steady_span_ns(trace))
    return CallSaving(edit, round(saved_ns), round(forecast.error_ns * times))


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
