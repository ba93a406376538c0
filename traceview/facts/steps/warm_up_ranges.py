"""Ranges in which a program says that it warms up."""

from __future__ import annotations

import re

from traceview.facts.operations.operations import operations
from traceview.facts.ranges.origins import range_name_forms
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.ranges.selection import issued_ns, selected_operations, windows_of, within
from traceview.intervals import Intervals
from traceview.tables import picked
from traceview.trace import Trace, fact

# Alone, before a payload, or one of the fields of a name: model|warmup|forward.
_WARM_UP = re.compile(
    r"(?:.*[|/:] ?)?warm[-_ ]?up(?: ?\{.*\}| ?[|/:].*)?", re.IGNORECASE | re.DOTALL
)
_NEAR = re.compile("warm.*", re.IGNORECASE)


@fact
def warm_up_range_windows(trace: Trace) -> dict[int, Intervals]:
    """Windows in which a range named warm_up is open, by process.

    Empty where all selected work lies in such ranges: then it is the subject, not warm-up.
    """
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name")
    is_warm_up = range_name_forms(trace).meeting(_WARM_UP.fullmatch, _NEAR)
    if not is_warm_up.any() or not len(tree.row):
        return {}
    windows = windows_of(tree, is_warm_up[picked(names.codes, tree.of_table)])
    ops, chosen = operations(trace), selected_operations(trace)
    inside = within(windows, ops.process[chosen], issued_ns(trace)[chosen])
    return {} if inside.all() else windows
