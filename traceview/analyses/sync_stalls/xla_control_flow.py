"""Waits in which XLA reads on the CPU whether a loop goes on, or which branch a cond takes.

XLA opens a range around each operation that it runs, such as `Thunk:#hlo_op=while.41,…#`. A while
loop whose number of iterations is not known when it is compiled waits for its condition before
every iteration; lax.scan, and lax.fori_loop with constant bounds, have a known one. Inferred steps
may begin within such a range.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.facts.ranges.ranges import range_tree
from traceview.tables import Integers
from traceview.trace import Trace

_REMEDIES = {
    "while": "Give the loop a fixed number of iterations (lax.scan, or lax.fori_loop with constant "
    "bounds), or do more in each (vmap, larger batches). XLA reads its condition on the CPU before "
    "every iteration.",
    "cond": "Compute both branches and choose with jnp.where, where they are cheap. XLA reads on "
    "the CPU which branch a lax.cond takes.",
}
_OPERATION = re.compile(
    r"\bThunk:#.*\bhlo_op=(while|cond)[^,/]*,unique_hlo_op_id=[^,/]*(?:/step_#)?$"
)


def remedy(trace: Trace, pattern: Integers, idle_ns: Integers) -> str | None:
    """The remedy, if control flow took half of the idle time of these waits; else None.

    `pattern` is the row of each wait in the patterns of the range tree, −1 without a range.
    """
    patterns, lost = range_tree(trace).patterns, dict.fromkeys(_REMEDIES, 0)
    each = groups.group(pattern)
    for row, own_ns in zip(pattern[each.first].tolist(), groups.sums(each, idle_ns), strict=True):
        match = _OPERATION.search(patterns[row]) if row >= 0 else None
        if match:
            lost[match[1]] += int(own_ns)
    kind = max(lost, key=lambda kind: lost[kind])
    return _REMEDIES[kind] if 0 < np.sum(idle_ns) <= 2 * lost[kind] else None
