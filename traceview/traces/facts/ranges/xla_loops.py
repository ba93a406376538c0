"""Work inside of loops that XLA runs as often as the program says, such as those of lax.scan.

XLA opens a range around each operation that it runs: `Thunk:#hlo_op=while.41,…#` around a loop, and
`Thunk:#name=jit(step)/…/while/body,hlo_op=…#` in it. A loop that ends by a condition, as that of
lax.while_loop, copies it to the CPU before each iteration.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups
from traceview.base.tables import Mask
from traceview.traces.facts import kernel_classes, operations
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree
from traceview.traces.trace import Trace, fact

_IN_LOOP = re.compile(r"\bhlo_op=while\b|/while/body\b")


@fact
def in_xla_loops(trace: Trace) -> Mask:
    """True for the operations in loops of XLA; all False if a loop ends by a condition."""
    result = np.zeros(len(operations.operations(trace)), bool)
    if kernel_classes.framework(trace) != "jax":
        return result
    tree = range_tree(trace)
    pattern = tree.pattern_of_paths(attributed_operations(trace).path(tree))
    for number in groups.different(pattern[pattern >= 0]).tolist():
        if _IN_LOOP.search(tree.patterns[number]):
            result |= pattern == number
    copies = result & (operations.operations(trace).kind == operations.Kind.COPY)
    to_cpu = trace.copies.texts("direction").isin(["D2H"])[operations.operations(trace).row[copies]]
    return np.zeros_like(result) if to_cpu.any() else result
