"""The loops of a trace: for each series of steps its steady time, and that of a usual step."""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals
from traceview.analyses.steps.parts import step_parts
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.selection import selected
from traceview.facts.steps.names import loop_names
from traceview.facts.steps.steps import pace, step_of_operations, steps, warm_up_end_ns
from traceview.findings import UNEVEN, LoopTime
from traceview.records import record
from traceview.tables import Integers
from traceview.trace import Trace


@record
class MainLoop:
    """The series of steps that takes most of the time: its steps, and how long steady ones take.

    `mean_ns` is that of which savings are stated where the steps are uneven.
    """

    steps: int
    median_ns: int | None
    mean_ns: int | None = None

    @property
    def is_uneven(self) -> bool:
        """Whether a step takes much longer on average than a usual one does."""
        return (self.mean_ns or 0) > UNEVEN * (self.median_ns or 0)


def main_loop(trace: Trace) -> MainLoop:
    """The series of selected steps that takes most of the time; no steps where there is none."""
    series = _series(trace)
    if not series:
        return MainLoop(0, None)
    steady = _steady(trace, series[0])
    lossy = _after_warm_up(trace, steady)
    mean_ns = round(_total_ns(trace, lossy) / len(lossy))
    return MainLoop(len(series[0]), _median(_usual_ns(trace, steady)), mean_ns)


def loop_times(trace: Trace) -> tuple[LoopTime, ...]:
    """The steady steps of each series, that with most time first."""
    steady = [_steady(trace, rows) for rows in _series(trace)]
    lossy = [_after_warm_up(trace, rows) for rows in steady]
    # The devices that run work of the steps of each loop: one pass over the operations. The last
    # entry is of operations outside all steps.
    loop = np.full(len(steps(trace)) + 1, -1)
    for number, rows in enumerate(lossy):
        loop[rows] = number
    of_operations = loop[step_of_operations(trace)]
    inside = np.flatnonzero(of_operations >= 0)
    of_operations, device = of_operations[inside], operations(trace).device[inside]
    first = groups.group(of_operations, device).first
    used = groups.rows_of(of_operations[first])
    timed, result = pace(trace), []
    for number, rows in enumerate(lossy):
        total_ns = _total_ns(trace, rows)
        result.append(
            LoopTime(
                intervals.union(timed.begin_ns[rows], timed.end_ns[rows]),
                total_ns,
                _median(_usual_ns(trace, steady[number])),
                frozenset(device[first[used.get(number, groups.NO_ROWS)]].tolist()),
                loop_names(trace)[rows[0]] or "",
                round(total_ns / len(rows)),
            )
        )
    return tuple(result)


def _after_warm_up(trace: Trace, rows: Integers) -> Integers:
    # No time is lost in the first step, which is warm-up in any case.
    later = rows[steps(trace).cpu_start_ns[rows] >= warm_up_end_ns(trace)]
    return later if len(later) else rows


def _total_ns(trace: Trace, rows: Integers) -> int:
    """The time of steps, without first uses and compilation."""
    return int((pace(trace).duration_ns[rows] - step_parts(trace).once_ns[rows]).sum())


def _series(trace: Trace) -> list[Integers]:
    """The selected steps of each series, in the order of the time that they take."""
    all_steps, timed = steps(trace), pace(trace)
    rows = np.flatnonzero(timed.timed & selected(trace, all_steps.process, all_steps.cpu_start_ns))
    total_ns = np.bincount(all_steps.series[rows], timed.duration_ns[rows])
    there = groups.different(all_steps.series[rows])
    order = np.argsort(-total_ns[there], kind="stable")
    return [rows[all_steps.series[rows] == series] for series in there[order].tolist()]


def _steady(trace: Trace, rows: Integers) -> Integers:
    """The steps after warm-up; all of them where none is."""
    steady = rows[~pace(trace).warm_up[rows]]
    return steady if len(steady) else rows


def _usual_ns(trace: Trace, rows: Integers) -> Integers:
    """Durations of steps; without first uses and compilation where these are most of a step."""
    duration_ns, once_ns = pace(trace).duration_ns[rows], step_parts(trace).once_ns[rows]
    mostly_once = 2 * _median(once_ns) > _median(duration_ns)
    result: Integers = duration_ns - once_ns if mostly_once else duration_ns
    return result


def _median(values: Integers) -> int:
    return round(float(np.median(values)))
