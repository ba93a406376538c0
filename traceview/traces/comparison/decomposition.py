"""The difference of two sides, split into parts that sum to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from traceview.base import statistics, units
from traceview.traces.comparison import comparison, environment, matching, programs, wording
from traceview.traces.comparison.figures import RunFigures, longest, step_mean_ns, total

# The certainty of a difference of step times: the run is the sampling unit, not the step.

LEVEL = 0.95


def step_time_certainty(
    before: Sequence[RunFigures], after: Sequence[RunFigures]
) -> comparison.Certainty:
    """The certainty of the difference of the mean step times of two sides.

    With one run on both sides the interval is that of their steps, which differ less than runs do:
    a lower bound of the noise. From 95 % and runs on both sides no interval exists below 4 and 4
    (or 3 and 5, 2 and 8, 1 and 39).
    """
    is_of_steps = len(before) == len(after) == 1
    if is_of_steps:
        times: list[Sequence[float]] = [before[0].step_ns, after[0].step_ns]
    else:
        times = [[run.window_ns / run.steps for run in side] for side in (before, after)]
    low, high = statistics.difference_bounds(times[0], times[1], (1 - LEVEL) / 2)
    return comparison.Certainty(
        basis=("none" if low is None else "steps") if is_of_steps else "runs",
        runs_before=len(before),
        runs_after=len(after),
        level=LEVEL,
        low_ns=low,
        high_ns=high,
        p_value=None if is_of_steps else statistics.mann_whitney(*times),
    )


UNLIKE_STEPS = 1.5
"""A note says that steps differ where kernels run this many times as often on one side."""
_BY_ONE_FACTOR = 0.8
"""Of the kernel time that both sides have, for the note of UNLIKE_STEPS."""


def compare_runs(
    before: Sequence[RunFigures], after: Sequence[RunFigures], force: bool = False
) -> comparison.RunComparison:
    """Compare two sides, each of one or more runs of a program.

    Where some of the runs have no steps, the steady windows of all are compared. Raises
    ComparisonRefusedError where the comparison makes no sense; `force` permits most of it.
    """
    environment.check_comparable(before, after, force=force)
    notes: tuple[str, ...] = ()
    stepping = [run.has_steps for run in (*before, *after)]
    if not all(stepping):
        which = "Some runs have no" if any(stepping) else "The runs have no"
        notes = (f"{which} steps: the steady window of each is compared whole.",)
        before, after = (
            tuple(replace(run, has_steps=False, step_ns=(run.window_ns,)) for run in side)
            for side in (before, after)
        )
    parts = _differences(before, after)
    shares = programs.shared_kernels(before, after, parts)
    unlike = [share < Fraction(programs.ALIKE_PROGRAMS) for share in shares or ()]
    others = bool(unlike) and all(unlike) and not force
    if others:
        parts = _differences(*programs.by_class(before, after))
    if shares and any(unlike):
        what = _BY_CLASS if others else "they may be different programs"
        notes = (
            *notes,
            f"Kernels that both sides run take {wording.kernel_shares(*shares)}: {what}.",
        )
    if not others:
        notes = (*notes, *_unlike_steps(parts))
    if all(stepping):
        notes = (*notes, *_other_loops(before, after))
    return comparison.RunComparison(
        before=tuple(before),
        after=tuple(after),
        before_ns=step_mean_ns(before),
        after_ns=step_mean_ns(after),
        certainty=step_time_certainty(before, after),
        parts=parts,
        counts=tuple(_counts(before, after)),
        environment=environment.environment_differences(before, after),
        notes=notes,
    )


def _other_loops(before: Sequence[RunFigures], after: Sequence[RunFigures]) -> Iterator[str]:
    """Notes on the loops that are compared, such as decodes, and on those that are not."""
    sides = (before, after)
    compared = [sorted({next(iter(run.loops), "") for run in side}) for side in sides]
    if max(len(run.loops) for side in sides for run in side) < 2:
        return
    if compared[0] != compared[1]:
        names = " and ".join(", ".join(each) for each in compared)
        yield (
            f"Steps of different loops are compared: {names}. Select the same on both sides: "
            "--before GLOB --after GLOB."
        )
    shared = [
        name
        for name in before[0].loops
        if name not in compared[0] and all(name in run.loops for side in sides for run in side)
    ]
    for name in shared:
        times = [total(Fraction(run.loops[name][1]) for run in side) / len(side) for side in sides]
        was, now = (units.duration(round(each)) for each in times)
        yield f"Of another loop, {name}, a step takes {was} before and {now} after (medians)."


_BY_CLASS = "they are different programs, compared by class of kernel, and by ranges of one name"


def _differences(
    before: Sequence[RunFigures], after: Sequence[RunFigures]
) -> tuple[comparison.PartDifference, ...]:
    """The parts of both sides, those that differ most first."""
    differences = [_difference(match) for match in matching.match_runs(before, after)]
    names = Counter(map(_name_and_place, differences))
    told_apart = (
        replace(part, variant=_variant(part)) if names[_name_and_place(part)] > 1 else part
        for part in differences
    )
    return tuple(sorted(told_apart, key=lambda part: -abs(part.delta_ns)))


def _name_and_place(part: comparison.PartDifference) -> tuple[str, ...]:
    return part.kind, part.group, part.name, part.place


def _variant(part: comparison.PartDifference) -> str:
    """The grid of a kernel's launches; empty where the sides have different ones, or none."""
    shapes = [side.shape for side in (part.before, part.after) if side and side.shape]
    grids = {dict(wording.shape_values(shape))["grid"] for shape in shapes}
    return f"grid {grids.pop()}" if len(grids) == 1 else ""


def _unlike_steps(parts: Sequence[comparison.PartDifference]) -> Iterator[str]:
    """A note where nearly all kernels that both sides have run more often, and all by one factor.

    Then a step means something else on each side, such as a batch, and an optimizer step of two
    batches.
    """
    shared = [
        (part.calls_after / part.calls_before, part.before_ns)
        for part in parts
        if part.kind == "kernel" and part.calls_before and part.calls_after
    ]
    if not shared:
        return
    usual = sorted(shared)[len(shared) // 2][0]
    alike_ns = total(time for factor, time in shared if abs(factor - usual) <= usual / 20)
    factor, all_ns = max(usual, 1 / usual), total(time for _, time in shared)
    if factor >= UNLIKE_STEPS and alike_ns >= _BY_ONE_FACTOR * all_ns:
        more, less = ("after", "before") if usual > 1 else ("before", "after")
        yield (
            f"A step {more} runs its kernels {units.count(float(factor))} times as often as one "
            f"{less}: they may not be the same steps."
        )


def _difference(match: matching.MatchedParts) -> comparison.PartDifference:
    before, after = longest(match.before), longest(match.after)
    shown = after or before
    assert shown is not None
    return comparison.PartDifference(
        kind=shown.kind,
        group=shown.group,
        name=shown.name,
        place=shown.place,
        change=match.change,
        before_ns=total(side.time_ns for side in match.before),
        after_ns=total(side.time_ns for side in match.after),
        calls_before=total(side.calls for side in match.before),
        calls_after=total(side.calls for side in match.after),
        before=before,
        after=after,
    )


def _counts(
    before: Sequence[RunFigures], after: Sequence[RunFigures]
) -> Iterator[comparison.CountDifference]:
    """Every count per step; names of either side."""
    names = dict.fromkeys(name for run in (*before, *after) for name in run.counts)
    for name in names:
        before_rates, after_rates = (
            [Fraction(run.counts.get(name, 0), run.steps) for run in side]
            for side in (before, after)
        )
        yield comparison.CountDifference(
            name,
            total(before_rates) / len(before),
            total(after_rates) / len(after),
            varies=len(set(before_rates)) > 1 or len(set(after_rates)) > 1,
        )
