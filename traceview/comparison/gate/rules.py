"""Rules of a gate and the decisions on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from traceview import display
from traceview.comparison.figures import RunFigures
from traceview.records import record

Outcome = Literal["passed", "regressed", "undecided"]
Kind = Literal["max_increase", "max_decrease", "max", "min", "equals"]


@record
class GateCondition:
    """One condition of a rule.

    `limit` is in the unit of the figure, or percent of the baseline if `is_relative`. `at_least` is
    the difference, in the unit of the figure, that an increase or decrease must have as well.
    """

    kind: Kind
    limit: float
    is_relative: bool = False
    at_least: float = 0.0

    @property
    def compares(self) -> bool:
        """Whether the difference from the baseline counts, not the value itself."""
        return self.kind in ("max_increase", "max_decrease")


@record
class Rule:
    """The conditions on a figure, all of which must hold, each with `certainty` (0.5 to 1)."""

    figure: str
    conditions: tuple[GateCondition, ...]
    certainty: float


@record
class Decision:
    """The outcome of one condition.

    `before` and `after` are means over the runs, None where no run has the figure. `low` and `high`
    bound the difference, or the value itself under `max` and `min`, each with the certainty of the
    rule; None where too few runs prove any bound. `limit` is what is compared with them.
    `runs_needed` is the number of runs per side that would probably decide. `place` is the source
    line or range that changed most, empty where unknown.
    """

    figure: str
    condition: GateCondition
    outcome: Outcome
    certainty: float
    before: float | None
    after: float | None
    limit: float | None = None
    low: float | None = None
    high: float | None = None
    is_exact: bool = False
    runs_needed: int | None = None
    reason: str = ""
    place: str = ""


@dataclass(frozen=True, repr=False)
class GateReport(display.Described):
    """The answer of `traceview gate`; `outcome` is the worst of all decisions."""

    baseline: tuple[RunFigures, ...]
    candidate: tuple[RunFigures, ...]
    decisions: tuple[Decision, ...]
    headline: str

    @property
    def outcome(self) -> Outcome:
        """The worst of the outcomes: regressed, else undecided, else passed."""
        outcomes = {decision.outcome for decision in self.decisions}
        if "regressed" in outcomes:
            return "regressed"
        return "undecided" if "undecided" in outcomes else "passed"

    @property
    def exit_status(self) -> int:
        """0 passed, 1 regressed, 2 undecided."""
        return {"passed": 0, "regressed": 1, "undecided": 2}[self.outcome]
