"""A profile for a terminal: which operators took the time, and which kernels each launched."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.profiling import Profile
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import cells, drawn, heading
from traceview.tables import Cell, Column, Table

_MOST_ROWS = 20
_OPERATORS = TableSpec(
    "operators",
    "one row an operator",
    (
        Column("operator", "text", "its name"),
        Column("calls", "int64", "of all that was profiled"),
        Column("cpu_ns", "int64", "its own, without the operators that it calls"),
        Column("gpu_ns", "int64", "of the kernels that it launched", nullable=True),
        Column("share_pct", "float64", "of the GPU's time, or else of the CPU's"),
    ),
    ("operator", "share_pct", "gpu_ns", "cpu_ns", "calls"),
)
_KERNELS = TableSpec(
    "kernels",
    "one row a kernel of an operator",
    (
        Column("operator", "text", "that launched it"),
        Column("kernel", "text", "its name"),
        Column("calls", "int64", "of all that was profiled"),
        Column("total_ns", "int64", "on the GPU"),
        Column("mean_ns", "float64", "of a call"),
        Column("share_pct", "float64", "of the GPU's time"),
    ),
    ("operator", "kernel", "share_pct", "total_ns", "calls"),
)


def render_profile(profile: Profile, title: str, *, width: int = 80, color: bool = False) -> str:
    """Operators and kernels in lines of at most `width` cells; with `color`, ANSI styles."""
    said = f"{title}: {units.counted(profile.calls, 'call')} profiled"
    operators = _shown(_OPERATORS, operator_rows(profile), width)
    blocks = [Group(heading("Operators", visible(said)), operators)]
    if profile.kernels:
        kernels = _shown(_KERNELS, kernel_rows(profile), width)
        blocks.append(Group(heading("Kernels by operator"), kernels))
    return drawn(blocks, width, color)


def operator_rows(profile: Profile) -> list[dict[str, Cell]]:
    """One mapping an operator, with its share of the time."""
    total = profile.tree.total_ns(profile.on_gpu)
    return [
        {
            "operator": each.operator,
            "calls": each.calls,
            "cpu_ns": each.cpu_ns,
            "gpu_ns": each.gpu_ns if profile.on_gpu else None,
            "share_pct": _pct(each.gpu_ns if profile.on_gpu else each.cpu_ns, total),
        }
        for each in profile.operators
    ]


def kernel_rows(profile: Profile) -> list[dict[str, Cell]]:
    """One mapping a kernel of an operator, with its share of the GPU's time."""
    total = profile.tree.total_ns(gpu=True)
    return [
        {
            "operator": each.operator,
            "kernel": each.kernel,
            "calls": each.calls,
            "total_ns": each.total_ns,
            "mean_ns": each.total_ns / each.calls,
            "share_pct": _pct(each.total_ns, total),
        }
        for each in profile.kernels
    ]


def _pct(part: int, total: int) -> float:
    return 100 * part / total if total else 0.0


def _shown(spec: TableSpec, rows: list[dict[str, Cell]], width: int) -> RenderableType:
    if not rows:
        return Text("no operator of torch ran")
    table = Table.from_rows(spec.columns, rows[:_MOST_ROWS])
    hidden = len(rows) - _MOST_ROWS
    rest = [Text(f"and {units.count(hidden)} more, in the JSON", "dim")] if hidden > 0 else []
    return Group(cells(fitting(spec, table, width)), *rest)
