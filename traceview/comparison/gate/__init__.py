"""Rules that a candidate must hold, and whether it does: passed, regressed or undecided."""

from traceview.comparison.gate.config import read_config
from traceview.comparison.gate.decision import decide
from traceview.comparison.gate.rules import Decision, GateCondition, GateReport, Outcome, Rule

__all__ = ["Decision", "GateCondition", "GateReport", "Outcome", "Rule", "decide", "read_config"]
