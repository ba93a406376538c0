"""The comparison of two sides of runs, split into parts that sum to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal

from traceview.base import display
from traceview.base.records import record
from traceview.traces.comparison.figures import PartKind, RunFigures, StepPart
from traceview.traces.trace import Trace

Change = Literal["same", "appeared", "vanished", "renamed", "reconfigured"]


@record
class PartDifference:
    """One part of the step on both sides; times are per step, means over the runs of a side.

    The `delta_ns` of all parts sum to that of the comparison exactly. `calls_ns` and `each_ns`
    split it: the calls more or fewer at the time they took before, and the time per call more or
    less of the calls after. `before` and `after` are the matched parts of the median runs; None
    where the part is on one side only.
    """

    kind: PartKind
    group: str
    name: str
    place: str
    change: Change
    before_ns: Fraction
    after_ns: Fraction
    calls_before: Fraction
    calls_after: Fraction
    before: StepPart | None
    after: StepPart | None
    variant: str = ""

    @property
    def delta_ns(self) -> Fraction:
        return self.after_ns - self.before_ns

    @property
    def calls_ns(self) -> Fraction:
        """The part of the difference from the change in the number of calls."""
        each = self.before_ns / self.calls_before if self.calls_before else Fraction(0)
        if not self.calls_before and self.calls_after:
            return self.delta_ns
        return (self.calls_after - self.calls_before) * each

    @property
    def each_ns(self) -> Fraction:
        """The part of the difference from the change in the time per call."""
        return self.delta_ns - self.calls_ns


@record
class Certainty:
    """The certainty of the difference of the step time.

    `low_ns` to `high_ns` is the interval at `level` (0.95) for the difference of the means, None
    with too few runs to tell. `p_value` is that of the Mann-Whitney U test over runs. `basis` says
    what the sample is: `runs`; `steps`, which gives a lower bound of the noise only; or `none`.
    """

    basis: Literal["runs", "steps", "none"]
    runs_before: int
    runs_after: int
    level: float
    low_ns: float | None
    high_ns: float | None
    p_value: float | None

    @property
    def is_certain(self) -> bool:
        """Whether the interval over runs excludes zero."""
        if self.basis != "runs" or self.low_ns is None or self.high_ns is None:
            return False
        return self.low_ns > 0 or self.high_ns < 0


@record
class CountDifference:
    """A count per step on both sides, exact; every run of a side has the same unless `varies`."""

    name: str
    before: Fraction
    after: Fraction
    varies: bool


@record
class EnvironmentDifference:
    """A property of machine or software that differs and may explain the difference in time.

    `refuses` is True where it makes the comparison senseless (another GPU or number of devices).
    """

    name: str
    before: str
    after: str
    refuses: bool


@dataclass(frozen=True, repr=False)
class RunComparison(display.Written):
    """The answer of `traceview compare`.

    `recordings` are, per side, the recording with the median step, or its file, for the timelines
    of the page; None for a baseline.
    """

    before: tuple[RunFigures, ...]
    after: tuple[RunFigures, ...]
    before_ns: Fraction
    after_ns: Fraction
    certainty: Certainty
    parts: tuple[PartDifference, ...]
    counts: tuple[CountDifference, ...]
    environment: tuple[EnvironmentDifference, ...]
    notes: tuple[str, ...] = ()
    recordings: tuple[Path | Trace | None, Path | Trace | None] = field(
        default=(None, None), compare=False
    )

    @property
    def delta_ns(self) -> Fraction:
        """Time per step, after less before; the sum of the parts' `delta_ns`."""
        return self.after_ns - self.before_ns
