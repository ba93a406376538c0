"""Render a profile for a terminal: time per operator, and the kernels each launched."""

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
    "one row per operator",
    (
        Column("operator", "text", "name"),
        Column("calls", "int64", "over all profiled calls"),
        Column("cpu_ns", "int64", "exclusive CPU time, without the operators it calls"),
        Column("gpu_ns", "int64", "GPU time of the kernels it launched", nullable=True),
        Column("share_pct", "float64", "share of GPU time, without a GPU of CPU time"),
    ),
    ("operator", "share_pct", "gpu_ns", "cpu_ns", "calls"),
)
_KERNELS = TableSpec(
    "kernels",
    "one row per kernel and operator",
    (
        Column("operator", "text", "operator that launched it"),
        Column("kernel", "text", "name"),
        Column("calls", "int64", "over all profiled calls"),
        Column("total_ns", "int64", "GPU time"),
        Column("mean_ns", "float64", "GPU time per call"),
        Column("share_pct", "float64", "share of GPU time"),
    ),
    ("operator", "kernel", "share_pct", "total_ns", "calls"),
)


def render_profile(profile: Profile, title: str, *, width: int = 80, color: bool = False) -> str:
    """Operators and kernels in lines of at most `width` cells; with `color`, ANSI styles."""
    subtitle = f"{title}: {units.counted(profile.calls, 'call')} profiled"
    operators = _rendered(_OPERATORS, operator_rows(profile), width)
    blocks = [Group(heading("Operators", visible(subtitle)), operators)]
    if profile.kernels:
        kernels = _rendered(_KERNELS, kernel_rows(profile), width)
        blocks.append(Group(heading("Kernels by operator"), kernels))
    return drawn(blocks, width, color)


def operator_rows(profile: Profile) -> list[dict[str, Cell]]:
    """One mapping per operator, with its share of the time."""
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
    """One mapping per kernel and operator, with its share of GPU time."""
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


def _rendered(spec: TableSpec, rows: list[dict[str, Cell]], width: int) -> RenderableType:
    if not rows:
        return Text("no torch operator ran")
    table = Table.from_rows(spec.columns, rows[:_MOST_ROWS])
    hidden = len(rows) - _MOST_ROWS
    rest = [Text(f"and {units.count(hidden)} more in the JSON", "dim")] if hidden > 0 else []
    return Group(cells(fitting(spec, table, width)), *rest)
