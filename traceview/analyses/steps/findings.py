"""Findings of steps: loops whose outliers cost time that a longer run would lose again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import intervals
from traceview.analyses.lost_time import lost_in
from traceview.analyses.steps.reasons import LEAST_FRACTION, reason_clause, reasons
from traceview.facts.idle.gaps import gaps, steady_span_ns
from traceview.facts.idle.step_parts import step_parts
from traceview.facts.idle.unknown_idle import unknown_idle
from traceview.facts.operations.operations import operations
from traceview.facts.steps.names import loop_names, selects_alone, step_names, steps_source
from traceview.facts.steps.steps import pace, step_of_operations, steps
from traceview.findings import LONGEST_NAME, LostTime, Subject, severity_of
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.tables import Integers, Mask
from traceview.trace import Trace


def _slow_steps(trace: Trace, chosen: Mask) -> Iterator[TimeClaim]:
    """One claim per loop whose outliers cost time, without idle time that comes only once.

    Processes that wait for each other have their slow steps at the same time: the one that loses
    most speaks for them. Where work was lost, no step is known to be slow.
    """
    if unknown_idle(trace):
        return
    timed, span_ns = pace(trace), steady_span_ns(trace)
    repeating_ns = timed.duration_ns - step_parts(trace).once_ns
    late = np.flatnonzero(timed.outlier & (repeating_ns > timed.limit_ns) & chosen)
    over_ns = repeating_ns - timed.median_ns
    loops = np.split(late, np.flatnonzero(np.diff(timed.loop[late])) + 1)
    worst: list[int] = []
    for rows in sorted(loops, key=lambda rows: -int(over_ns[rows].sum())):
        if not len(rows) or not severity_of(int(over_ns[rows].sum()), span_ns):
            continue
        longest = int(rows[np.argmax(over_ns[rows])])
        if not any(_at_once(trace, longest, each) for each in worst):
            worst.append(longest)
            yield _claim(trace, rows, over_ns[rows])


def _at_once(trace: Trace, step: int, other: int) -> bool:
    """Whether most of a step passed during the step `other` of another process."""
    timed, process = pace(trace), steps(trace).process
    begin_ns = max(int(timed.begin_ns[step]), int(timed.begin_ns[other]))
    end_ns = min(int(timed.end_ns[step]), int(timed.end_ns[other]))
    most = 2 * (end_ns - begin_ns) > int(timed.duration_ns[step])
    return bool(process[step] != process[other]) and most


def _claim(trace: Trace, rows: Integers, excess_ns: Integers) -> TimeClaim:
    timed, lost_ns = pace(trace), int(excess_ns.sum())
    once_ns = step_parts(trace).once_ns
    # A first use of some µs is nothing to set aside.
    once_ns = np.where(
        once_ns >= LEAST_FRACTION * (timed.duration_ns - timed.median_ns), once_ns, 0
    )
    worst = int(rows[np.argmax(excess_ns)])
    label, loop = step_names(trace)[worst] or "", int(timed.loop[worst])
    why, why_values = reason_clause(reasons(trace).of(np.array([worst]))[0])
    argument = _range_argument(trace, worst, label)
    passed = intervals.union(timed.begin_ns[rows], timed.end_ns[rows])
    return TimeClaim(
        Subject("range", label),
        {
            "step": label,
            "series": loop_names(trace)[worst],
            "duration_ns": int(timed.duration_ns[worst]),
            "median_ns": int(timed.median_ns[worst]),
            "outliers": len(rows),
            "steps": int(np.count_nonzero(timed.loop == loop)),
            "lost_ns": lost_ns,
            "once_ns": int(once_ns[worst]),
            **why_values,
            **({"range_argument": argument} if argument else {}),
        },
        "steps",
        {"step": label, "cpu_start_ns": int(steps(trace).cpu_start_ns[worst])},
        lost_ns,
        span_ns=steady_span_ns(trace),
        window=(int(timed.begin_ns[worst]), int(timed.end_ns[worst])),
        lost=_idle_in(trace, rows, lost_ns),
        work=LostTime(_device(trace, worst), passed),
        words={
            "which": _SEVERAL if len(rows) > 1 else "{step}",
            "of_series": "" if steps_source(trace) == "repetition" else " of {series}",
            "aside": ", warm-up and first uses aside" if once_ns[rows].any() else "",
            "why": why,
        },
    )


_SEVERAL = (
    "{outliers} of {steps:step}{of_series} are outliers, {lost_ns} over the median in total{aside}."
    " The longest, {step},"
)


def slow_steps(chosen: Mask) -> FindingRule:
    """The rule on the chosen steps of a trace that is not restricted to a selection."""
    return FindingRule(
        lambda trace: _slow_steps(trace, chosen),
        "{which} took {duration_ns} (median {median_ns}), with {why}.[ {once_ns} of it was idle "
        "time in warm-up or first uses.]",
        "Look at what {step} does that the others do not[: --range {range_argument}].",
        general=True,
    )


def _device(trace: Trace, step: int) -> int:
    """The device of the first operation of a step, −1 where it launched none."""
    launched = np.flatnonzero(step_of_operations(trace) == step)[:1]
    return int(operations(trace).device[launched].max(initial=-1))


def _idle_in(trace: Trace, rows: Integers, excess_ns: int) -> LostTime | None:
    """The steady idle time in these steps, if it is at least half of `excess_ns`; else None."""
    timed, every = pace(trace), gaps(trace)
    within = intervals.union(timed.begin_ns[rows], timed.end_ns[rows])
    lost = lost_in(every, ~every.one_time & intervals.inside(within, every.start_ns))
    return lost if lost and 2 * lost.time.total() > excess_ns else None


def _range_argument(trace: Trace, step: int, label: str) -> str | None:
    """The argument of --range that selects this step alone, quoted for a shell.

    None where no text does, where it cannot be shown whole, or where it is selected already.
    """
    if trace.selection.include == (label,):
        return None
    quoted = "'" + label.replace("'", "'\"'\"'") + "'"
    if len(quoted) > LONGEST_NAME or not label.isprintable():
        return None
    return quoted if selects_alone(trace, step, label) else None
