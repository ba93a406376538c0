"""Why a step took longer than the others of its loop, and findings on loops with such steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals
from traceview.base.findings import LONGEST_NAME, LostTime, Subject, filled, severity_of
from traceview.base.records import record
from traceview.base.tables import Texts, TextsOneByOne
from traceview.base.tables.arrays import Array, Integers, Mask, TextValues, object_array
from traceview.base.units import Value
from traceview.base.vocabulary.causes import CAUSE_NAMES, CAUSES, SYNC_DRAIN
from traceview.traces.analyses.wording import lost_in
from traceview.traces.facts import launches, operations
from traceview.traces.facts.idle import gaps, step_parts
from traceview.traces.facts.ranges.ranges import attribute, range_tree
from traceview.traces.facts.steps import steps
from traceview.traces.rules import FindingRule, TimeClaim
from traceview.traces.trace import Trace, fact

MOST_REASONS, LEAST_FRACTION = 2, 0.25
"""The most parts given as reasons, and the fraction of the excess that each has to explain."""
_IS_IDLE = np.array([name.startswith(step_parts.IDLE) for name in step_parts.PARTS])
_DRAINED = step_parts.PARTS.index(f"{step_parts.IDLE}{CAUSE_NAMES[SYNC_DRAIN]}")


@record
class Reason:
    """A part of a step that took `more_ns` more than the median of its loop.

    `part` is one of PARTS, None where no single part explains the excess. `between_steps` is True
    for idle time that passed while the CPU was between the step before and this one. Idle time
    after a synchronization has the `call` that waited, and the `range_path` around it.
    """

    part: str | None
    more_ns: float
    between_steps: bool = False
    call: str | None = None
    range_path: str | None = None


@record
class StepReasons:
    """The reasons of the steps `rows`, compared with the `usual` steps of their loops."""

    trace: Trace
    rows: Integers
    usual: Integers

    def of(self, rows: Integers) -> list[tuple[Reason, ...]]:
        """The reasons of steps that are among `rows`."""
        timed = steps.pace(self.trace)
        parts, between = self._medians
        more = step_parts.step_parts(self.trace).part_ns[rows] - parts[timed.loop[rows]]
        # Offset parts that grew by parts that shrank, for work and for idle time, in place.
        # Idle time of one cause may replace that of another.
        for columns in (np.flatnonzero(~_IS_IDLE), np.flatnonzero(_IS_IDLE)):
            grown = np.clip(more[:, columns], 0.0, None)
            total, net = grown.sum(axis=1), np.maximum(more[:, columns].sum(axis=1), 0.0)
            fraction = np.divide(net, total, out=np.zeros(len(total)), where=total > 0)
            more[:, columns] = grown * fraction[:, np.newaxis]
        excess = (timed.duration_ns - timed.median_ns)[rows].tolist()
        apart = step_parts.step_parts(self.trace).between_ns[rows] - between[timed.loop[rows]]
        drains = _drains_in(self.trace, rows[more[:, _DRAINED] > 0])
        return [
            step_reasons(row_more, row_excess, row_apart, drains.get(row))
            for row, row_more, row_excess, row_apart in zip(
                rows.tolist(), more, excess, apart.tolist(), strict=True
            )
        ]

    @cached_property
    def _medians(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Medians of the parts of the usual steps of each loop, and of `between_ns`."""
        loop, parts = steps.pace(self.trace).loop, step_parts.step_parts(self.trace)
        of, loops = loop[self.usual], int(loop.max(initial=-1)) + 1
        medians = np.zeros((loops, len(step_parts.PARTS)), order="F")
        for place in np.flatnonzero(parts.part_ns.any(axis=0)):
            medians[:, place] = groups.medians(of, loops, parts.part_ns[self.usual, place])
        return medians, groups.medians(of, loops, parts.between_ns[self.usual])


@fact
def reasons(trace: Trace) -> StepReasons:
    """The reasons of the warm-up steps and outliers of loops that have usual steps as well."""
    timed = steps.pace(trace)
    unusual = timed.warm_up | timed.outlier
    usual = np.flatnonzero(timed.timed & ~unusual)
    comparable = np.zeros(int(timed.loop.max(initial=-1)) + 1, bool)
    comparable[timed.loop[usual]] = True
    return StepReasons(trace, np.flatnonzero(unusual & comparable[timed.loop]), usual)


def step_reasons(
    more_ns: npt.NDArray[np.float64],
    excess_ns: float,
    between_ns: float,
    drain: tuple[str, str | None] | None = None,
) -> tuple[Reason, ...]:
    """The reasons of one step, from what each of PARTS took more than its median.

    `between_ns` is how much longer the GPU was idle while the CPU was between the step before and
    this one, `drain` the call and range of a synchronization that left the GPU idle.
    """
    largest = np.argsort(-more_ns, kind="stable")[:MOST_REASONS]
    result = []
    for part in largest.tolist():
        more = float(more_ns[part])
        if more < LEAST_FRACTION * excess_ns:
            continue
        call, range_path = drain or (None, None) if part == _DRAINED else (None, None)
        between = bool(_IS_IDLE[part]) and part != _DRAINED and between_ns >= more / 2
        result.append(Reason(step_parts.PARTS[part], more, between, call, range_path))
    return tuple(result) or (Reason(None, excess_ns),)


def _drains_in(trace: Trace, rows: Integers) -> dict[int, tuple[str, str | None]]:
    """The call and range behind the longest idle time after a synchronization in these steps."""
    timed, drains = steps.pace(trace), _drains(trace)
    if not len(drains.row):
        return {}
    first = np.searchsorted(drains.reach_ns, timed.begin_ns[rows], side="right")
    last = np.searchsorted(drains.start_ns, timed.end_ns[rows], side="left")
    longest = {
        row: drains.longest(slice(*within), begin)
        for row, begin, *within in np.stack((rows, timed.begin_ns[rows], first, last), 1).tolist()
    }
    waits_of = {row: wait for row, wait in longest.items() if wait >= 0}
    calls = _calls(trace, np.array(list(waits_of.values()), np.int64))
    return dict(zip(waits_of, calls, strict=True))


@record
class _Drains:
    """Gaps caused by a synchronization, in order of start; `reach_ns` is the latest end so far."""

    row: Integers
    start_ns: Integers
    end_ns: Integers
    reach_ns: Integers
    wait: Integers

    def longest(self, within: slice, begin_ns: int) -> int:
        """The wait of the longest gap in `within` that ends after `begin_ns`; −1 if none does."""
        late = np.flatnonzero(self.end_ns[within] > begin_ns)
        if not len(late):
            return -1
        length = (self.end_ns[within] - self.start_ns[within])[late]
        longest = late[length == length.max()]
        return int(self.wait[within][longest[np.argmin(self.row[within][longest])]])


@fact
def _drains(trace: Trace) -> _Drains:
    gap = gaps.gaps(trace)
    rows = np.flatnonzero((gap.wait >= 0) & (gap.cause == SYNC_DRAIN))
    rows = rows[np.argsort(gap.start_ns[rows], kind="stable")]
    start, end = gap.start_ns[rows], gap.end_ns[rows]
    return _Drains(rows, start, end, np.maximum.accumulate(end), gap.wait[rows])


def _calls(trace: Trace, wait: Integers) -> list[tuple[str, str | None]]:
    """The call of each wait, and the range that it was made in."""
    blocking, tree = launches.waits(trace), range_tree(trace)
    api = trace.api_calls.texts("name").take(blocking.call[wait]).decode()
    ranges = attribute(
        trace, blocking.thread[wait], blocking.process[wait], blocking.start_ns[wait]
    )
    return [
        (str(name), str(tree.paths[path]) if path >= 0 else None)
        for name, path in zip(api, ranges.path(tree).tolist(), strict=True)
    ]


_WORDS = {
    step_parts.OTHER_WORK: "GPU work from outside the steps",
    step_parts.FOREIGN_WORK: "GPU work of other processes",
    step_parts.BEFORE_WORK: "time before the first GPU work",
    step_parts.WAITING: "CPU time in synchronizations",
    step_parts.COMPUTING: "CPU time",
}


def reason_clause(listed: Sequence[Reason]) -> tuple[str, dict[str, Value]]:
    """Reasons as a template and its values: `7.00 ms more idle time after cudaMemcpy`."""
    clauses, values = [], dict[str, Value]()
    for number, reason in enumerate(listed, 1):
        values[f"more_{number}_ns"] = reason.more_ns
        clause = f"{{more_{number}_ns}} more {_part(reason, number)}"
        values |= {f"part_{number}": reason.part} if reason.part else {}
        values |= {f"call_{number}": reason.call} if reason.call else {}
        values |= {f"range_{number}": reason.range_path} if reason.range_path else {}
        clauses.append(clause)
    return " and ".join(clauses), values


def _part(reason: Reason, number: int) -> str:
    if reason.part is None:
        return "in no single part"
    if not reason.part.startswith(step_parts.IDLE) or reason.part == step_parts.BEFORE_WORK:
        return _WORDS.get(reason.part, reason.part)
    name = reason.part.removeprefix(step_parts.IDLE)
    why = f"after {{call_{number}}}" if reason.call else CAUSES[CAUSE_NAMES.index(name)].lost
    within = f" in {{range_{number}}}" if reason.range_path else ""
    between = " while the CPU was between steps" if reason.between_steps else ""
    return f"idle time{f' {why}' if why else ''}{within}{between}"


@fact
def reason_texts(trace: Trace) -> Texts:
    """The reasons of each warm-up step and outlier in words; absent for the others."""
    of_steps = reasons(trace)
    codes = np.full(len(steps.steps(trace)), -1, np.int32)
    codes[of_steps.rows] = np.arange(len(of_steps.rows))

    # Built on demand: a long trace has many steps, and shows few.
    def texts(codes: Array) -> TextValues:
        every = of_steps.of(of_steps.rows[codes])
        return object_array([filled(*reason_clause(each)) for each in every])

    return TextsOneByOne(codes, len(of_steps.rows), texts)


def _slow_steps(trace: Trace, chosen: Mask) -> Iterator[TimeClaim]:
    """One claim per loop whose outliers cost time, without idle time that comes only once.

    Processes that wait for each other have their slow steps at the same time: the one that loses
    most speaks for them. Where work was lost, no step is known to be slow.
    """
    if gaps.unknown_idle(trace):
        return
    timed, span_ns = steps.pace(trace), gaps.steady_span_ns(trace)
    repeating_ns = timed.duration_ns - step_parts.step_parts(trace).once_ns
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
    timed, process = steps.pace(trace), steps.steps(trace).process
    begin_ns = max(int(timed.begin_ns[step]), int(timed.begin_ns[other]))
    end_ns = min(int(timed.end_ns[step]), int(timed.end_ns[other]))
    most = 2 * (end_ns - begin_ns) > int(timed.duration_ns[step])
    return bool(process[step] != process[other]) and most


def _claim(trace: Trace, rows: Integers, excess_ns: Integers) -> TimeClaim:
    timed, lost_ns = steps.pace(trace), int(excess_ns.sum())
    once_ns = step_parts.step_parts(trace).once_ns
    # A first use of some µs is nothing to set aside.
    once_ns = np.where(
        once_ns >= LEAST_FRACTION * (timed.duration_ns - timed.median_ns), once_ns, 0
    )
    # What makes a step of first uses long does not come again: it shows nothing of the others.
    apart = 2 * once_ns[rows] > (timed.duration_ns - timed.median_ns)[rows]
    apart &= not apart.all()
    worst = int(rows[np.argmax(np.where(apart, -1, excess_ns))])
    label, loop = steps.step_names(trace)[worst] or "", int(timed.loop[worst])
    why, why_values = reason_clause(reasons(trace).of(np.array([worst]))[0])
    argument = _range_argument(trace, worst, label)
    passed = intervals.union(timed.begin_ns[rows], timed.end_ns[rows])
    launched = np.flatnonzero(steps.step_of_operations(trace) == worst)[:1]
    device = int(operations.operations(trace).device[launched].max(initial=-1))
    return TimeClaim(
        Subject("range", label),
        {
            "step": label,
            "series": steps.loop_names(trace)[worst],
            "duration_ns": int(timed.duration_ns[worst]),
            "median_ns": int(timed.median_ns[worst]),
            "outliers": len(rows),
            "steps": int(np.count_nonzero((timed.loop == loop) & ~timed.warm_up)),
            "lost_ns": lost_ns,
            "once_ns": int(once_ns[worst]),
            **why_values,
            **({"range_argument": argument} if argument else {}),
        },
        "steps",
        {"step": label, "cpu_start_ns": int(steps.steps(trace).cpu_start_ns[worst])},
        lost_ns,
        span_ns=gaps.steady_span_ns(trace),
        window=(int(timed.begin_ns[worst]), int(timed.end_ns[worst])),
        lost=_idle_in(trace, rows, lost_ns),
        work=LostTime(device, passed),
        words={
            "which": _SEVERAL if len(rows) > 1 else "{step}",
            "of_series": "" if steps.steps_source(trace) == "repetition" else " of {series}",
            "aside": ", warm-up and first uses aside" if once_ns[rows].any() else "",
            "longest": "longest without these" if apart.any() else "longest",
            "why": why,
        },
    )


_SEVERAL = (
    "{outliers} of {steps:step}{of_series} are outliers, {lost_ns} over the median in total{aside}."
    " The {longest}, {step},"
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


def _idle_in(trace: Trace, rows: Integers, excess_ns: int) -> LostTime | None:
    """The steady idle time in these steps, if it is at least half of `excess_ns`; else None."""
    timed, every = steps.pace(trace), gaps.gaps(trace)
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
    return quoted if steps.selects_alone(trace, step, label) else None
