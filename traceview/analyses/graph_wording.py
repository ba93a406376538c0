"""Remedies for recordings of CUDA graphs, shared by several analyses."""

from __future__ import annotations

AS_NODES = (
    "Record again with traceview record --graph-trace node SCRIPT, or nsys profile "
    "--trace=cuda,nvtx --cuda-graph-trace=node"
)
"""Remedy that shows the kernels inside graphs."""
AS_WHOLE = (
    "Record with traceview record --graph-trace graph SCRIPT, or nsys profile "
    "--cuda-graph-trace=graph, to time graphs undisturbed."
)
"""Remedy that times graphs without the cost of recording each node."""
