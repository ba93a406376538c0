"""Where in the program something is, by its ranges."""

from __future__ import annotations

from traceview.facts.steps.names import loop_names
from traceview.facts.steps.sources import steps_source
from traceview.trace import Trace


def inside(trace: Trace, path: str | None, name: str) -> str:
    """` in {name}`, to put behind a phrase; `name` is the evidence value that holds the path.

    Inferred steps are not named, as the program does not know their names. Without a path the text
    says that it is outside any range, if the trace has ranges.
    """
    inferred = steps_source(trace) == "repetition"
    if path is None:
        where = " outside the steps" if inferred else " outside any range"
        return where if len(trace.recorded("ranges")) else ""
    if inferred and path in loop_names(trace).values:
        return " in each step"
    return f" in {{{name}}}"
