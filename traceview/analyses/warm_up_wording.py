"""Words for warm-up that several analyses share."""

from __future__ import annotations

from traceview import units
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import operations_in_warm_up_ranges
from traceview.trace import Trace

OF_WARM_UP = "of warm-up (before the first steady step, or in ranges named warm_up)"


def warm_up_notes(trace: Trace) -> tuple[str, ...]:
    """A note on the operations that count as warm-up by their range's name; none without any."""
    warm = operations_in_warm_up_ranges(trace)
    many = int((warm & selected_operations(trace)).sum()) if warm is not None else 0
    if not many:
        return ()
    launched = units.counted(many, "operation")
    return (f"{launched} launched in ranges named warm_up count as warm-up.",)
