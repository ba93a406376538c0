"""Words for the reasons of slow steps, as templates over values and as a column of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.analyses.steps.parts import (
    BEFORE_WORK,
    COMPUTING,
    FOREIGN_WORK,
    IDLE,
    OTHER_WORK,
    WAITING,
)
from traceview.analyses.steps.reasons import Reason, StepReasons, reasons
from traceview.facts.steps.steps import steps
from traceview.findings import filled
from traceview.records import record
from traceview.tables import Array, Texts, TextsOneByOne, TextValues, object_array
from traceview.trace import Trace, fact
from traceview.units import Value

_WORDS = {
    OTHER_WORK: "GPU work from outside the steps",
    FOREIGN_WORK: "GPU work of other processes",
    BEFORE_WORK: "time before the first GPU work",
    WAITING: "CPU time in synchronizations",
    COMPUTING: "CPU time",
}


def reason_clause(listed: Sequence[Reason]) -> tuple[str, dict[str, Value]]:
    """Reasons as a template and its values: `7.00 ms more idle time (launch-late)`."""
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
    if not reason.part.startswith(IDLE) or reason.part == BEFORE_WORK:
        return _WORDS.get(reason.part, reason.part)
    cause = reason.part.removeprefix(IDLE)
    call = f" after {{call_{number}}}" if reason.call else ""
    within = f" in {{range_{number}}}" if reason.range_path else ""
    between = " while the CPU was between steps" if reason.between_steps else ""
    return f"idle time ({cause}{call}{within}){between}"


@fact
def reason_texts(trace: Trace) -> Texts:
    """The reasons of each warm-up step and outlier in words; absent for the others."""
    of_steps = reasons(trace)
    codes = np.full(len(steps(trace)), -1, np.int32)
    codes[of_steps.rows] = np.arange(len(of_steps.rows))
    return TextsOneByOne(codes, _ReasonTexts(of_steps))


@record
class _ReasonTexts:
    """Lazily formatted texts: a long trace has many steps, and shows few."""

    reasons: StepReasons

    def __len__(self) -> int:
        return len(self.reasons.rows)

    @property
    def every(self) -> TextValues:
        return self.some(np.arange(len(self)))

    def some(self, codes: Array) -> TextValues:
        """The texts of the steps with these codes."""
        of_steps = self.reasons.of(self.reasons.rows[codes])
        return object_array([filled(*reason_clause(found)) for found in of_steps])
