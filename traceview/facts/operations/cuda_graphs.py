"""Operations of CUDA graphs, recorded node by node or as whole graphs."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import Kind, operations
from traceview.records import record
from traceview.tables import Mask, picked
from traceview.trace import Trace, fact_without_ranges


@record
class Graphs:
    """Masks over the operations: nodes of graphs, and graphs recorded as a whole.

    `node_launches` is the number of graph launches that the nodes belong to.
    """

    node: Mask
    whole: Mask
    node_launches: int


@fact_without_ranges
def cuda_graphs(trace: Trace) -> Graphs:
    """The operations that came from CUDA graphs."""
    ops = operations(trace)
    node = np.zeros(len(ops), bool)
    for kind, name in ((Kind.KERNEL, "kernels"), (Kind.COPY, "copies"), (Kind.SET, "sets")):
        rows = np.flatnonzero(ops.kind == kind)
        node[rows] = ~trace.recorded(name).is_null("graph_node_id")[picked(ops.row, rows)]
    launches = groups.different(ops.call[node & ops.launched])
    return Graphs(node, ops.kind == Kind.GRAPH, len(launches))
