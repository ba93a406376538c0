"""How the CUDA graphs of a trace were recorded: node by node, whole, or both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import Kind, operations
from traceview.tables import Mask
from traceview.trace import Trace, fact

AS_NODES = (
    "Record again with traceview record --graph-trace node SCRIPT, or nsys profile "
    "--trace=cuda,nvtx --cuda-graph-trace=node"
)
"""How to see inside of graphs."""
AS_WHOLE = (
    "Record with traceview record --graph-trace graph SCRIPT, or nsys profile "
    "--cuda-graph-trace=graph, to time graphs undisturbed."
)


@dataclass(frozen=True)
class Graphs:
    """True for the operations that are a node of a graph, and for those that are a whole graph.

    `node_launches` counts the launches that the nodes come from.
    """

    node: Mask
    whole: Mask
    node_launches: int


@fact
def cuda_graphs(trace: Trace) -> Graphs:
    """What of the operations came from graphs."""
    done = operations(trace)
    node = np.zeros(len(done), bool)
    for kind, name in ((Kind.KERNEL, "kernels"), (Kind.COPY, "copies"), (Kind.SET, "sets")):
        mine = np.flatnonzero(done.kind == kind)
        node[mine] = ~trace.recorded(name).is_null("graph_node_id")[done.row[mine]]
    launches = groups.different(done.call[node & done.launched])
    return Graphs(node, done.kind == Kind.GRAPH, len(launches))
