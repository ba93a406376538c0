"""Where in the program something is, by its ranges."""

from __future__ import annotations

from traceview.facts.steps.names import loop_names
from traceview.facts.steps.sources import steps_source
from traceview.trace import Trace


def inside(trace: Trace, path: str | None, name: str) -> str:
    """` in {name}`, to put behind a phrase; `name` is the evidence value that holds the path.

    Steps that the program does not mark have no name that it knows. Outside any range is only said
    where the program has ranges.
    """
    inferred = steps_source(trace) == "repetition"
    if path is None:
        where = " outside the steps" if inferred else " outside any range"
        return where if len(trace.recorded("ranges")) else ""
    if inferred and path in loop_names(trace).values:
        return " in each step"
    return f" in {{{name}}}"
