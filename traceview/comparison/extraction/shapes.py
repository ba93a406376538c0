"""Launch configurations of the parts of a run."""

from __future__ import annotations

from traceview.comparison.extraction.work import window_work
from traceview.comparison.figures import KernelShape
from traceview.facts.operations.operations import Kind, operations
from traceview.groups import Groups
from traceview.tables import Table
from traceview.trace import Trace


def shapes_of(trace: Trace, by: Groups) -> list[KernelShape | None]:
    """The launch configuration of each part; None for what is no kernel."""
    work, ops, kernels = window_work(trace), operations(trace), trace.recorded("kernels")
    operation = work.rows[by.first]
    rows = ops.row[operation]
    return [
        _shape(kernels, row) if kind == Kind.KERNEL else None
        for row, kind in zip(rows.tolist(), ops.kind[operation].tolist(), strict=True)
    ]


def _shape(kernels: Table, row: int) -> KernelShape:
    grid, block = (_sides(kernels, what, row) for what in ("grid", "block"))
    shared = sum(int(kernels[f"{kind}_shared_memory_bytes"][row]) for kind in ("static", "dynamic"))
    return KernelShape(grid, block, int(kernels["registers_per_thread"][row]), shared)


def _sides(kernels: Table, what: str, row: int) -> tuple[int, int, int]:
    x, y, z = (int(kernels[f"{what}_{axis}"][row]) for axis in "xyz")
    return x, y, z
