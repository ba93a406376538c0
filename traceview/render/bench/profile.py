"""A profile: its tables for a terminal, a flame graph in SVG, and a profile for speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.profiling import Frame, Profile
from traceview.records import record
from traceview.render.base.columns import fitting, table_of
from traceview.render.base.json_text import clean
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text_blocks import cells, drawn, heading
from traceview.tables import Column, Table

_MOST_ROWS = 20
OPERATORS = TableSpec(
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
KERNELS = TableSpec(
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
    operators = _first_rows(OPERATORS, operator_table(profile), width)
    blocks = [Group(heading("Operators", visible(subtitle)), operators)]
    if profile.kernels:
        kernels = _first_rows(KERNELS, kernel_table(profile), width)
        blocks.append(Group(heading("Kernels by operator"), kernels))
    return drawn(blocks, width, color)


def operator_table(profile: Profile) -> Table:
    """A row per operator, with its share of the time."""
    total = profile.tree.total_ns(profile.on_gpu)
    return table_of(
        OPERATORS,
        profile.operators,
        gpu_ns=lambda row: row.gpu_ns if profile.on_gpu else None,
        share_pct=lambda row: _pct(row.gpu_ns if profile.on_gpu else row.cpu_ns, total),
    )


def kernel_table(profile: Profile) -> Table:
    """A row per kernel and operator, with its share of GPU time."""
    total = profile.tree.total_ns(gpu=True)
    return table_of(
        KERNELS,
        profile.kernels,
        mean_ns=lambda row: row.total_ns / row.calls,
        share_pct=lambda row: _pct(row.total_ns, total),
    )


def _pct(part: int, total: int) -> float:
    return 100 * part / total if total else 0.0


def _first_rows(spec: TableSpec, table: Table, width: int) -> RenderableType:
    if not len(table):
        return Text("no torch operator ran")
    hidden = len(table) - _MOST_ROWS
    rest = [Text(f"and {units.count(hidden)} more in the JSON", "dim")] if hidden > 0 else []
    head = table.take(np.arange(min(len(table), _MOST_ROWS)))
    return Group(cells(fitting(spec, head, width)), *rest)


# The flame graph: the outermost operators are at the top; the width of each is its share of the
# time. Frames below a thousandth are omitted, and the graph states their total.
WIDTH, _ROW, _TOP, _MARGIN = 1200, 19, 44, 10
_LETTER, _LEAST_SHARE, _DEEPEST = 6.6, 0.001, 60
_COLORS = {"root": "#d8dee6", "operator": "#f2b872", "kernel": "#5b9bd5"}
_STYLE = (
    "svg{background:#fff}text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24}"
    ".title{font:600 15px system-ui,sans-serif}.note{font:12px system-ui,sans-serif;fill:#57606a}"
    "rect{stroke:#fff;stroke-width:1}"
)


@record
class _Box:
    frame: Frame
    start_ns: int
    length_ns: int
    depth: int


def render_flame(profile: Profile, title: str) -> str:
    """The SVG. Widths are GPU time if a GPU was used, else CPU time."""
    gpu, total = profile.on_gpu, profile.tree.total_ns(profile.on_gpu)
    boxes = list(_boxes(profile.tree, 0, 0, gpu, total)) if total else []
    shown = sum(_own(box.frame, gpu) for box in boxes)
    depth = max((box.depth for box in boxes), default=0)
    height = _TOP + (depth + 1) * _ROW + 2 * _MARGIN
    subtitle = f"{'GPU' if gpu else 'CPU'} time by operator, {units.counted(profile.calls, 'call')}"
    thin = 100 * (total - shown) / total if total else 0.0
    rest = f"; {units.percent(thin)} in frames too thin to show" if thin else ""
    rest = rest if total else "; no torch operator ran"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{_safe(title)}</title><style>{_STYLE}</style>",
            f'<text class="title" x="{_MARGIN}" y="20">{_safe(title)}</text>',
            f'<text class="note" x="{_MARGIN}" y="37">{_safe(subtitle + rest)}</text>',
            *(_drawn(box, total) for box in boxes),
            "</svg>\n",
        )
    )


def _own(frame: Frame, gpu: bool) -> int:
    return frame.gpu_ns if gpu else frame.cpu_ns


def _boxes(frame: Frame, start: int, depth: int, gpu: bool, total: int) -> Iterator[_Box]:
    length = frame.total_ns(gpu)
    if length < _LEAST_SHARE * total or depth > _DEEPEST:
        return
    yield _Box(frame, start, length, depth)
    for child in sorted(frame.children.values(), key=lambda c: (-c.total_ns(gpu), c.name)):
        yield from _boxes(child, start, depth + 1, gpu, total)
        start += child.total_ns(gpu)


def _drawn(box: _Box, total: int) -> str:
    scale = (WIDTH - 2 * _MARGIN) / total
    x, width = _MARGIN + box.start_ns * scale, box.length_ns * scale
    y = _TOP + box.depth * _ROW
    calls = f", {units.counted(box.frame.calls, 'call')}" if box.frame.calls else ""
    share = units.percent(100 * box.length_ns / total)
    tip = f"{visible(box.frame.name)}: {units.duration(box.length_ns)}, {share}{calls}"
    letters = int((width - 6) / _LETTER)
    name = shortened(visible(box.frame.name), letters) if letters > 1 else ""
    return (
        f'<g><title>{escape(tip)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" '
        f'height="{_ROW - 1}" fill="{_COLORS[box.frame.kind]}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 13}">{escape(name)}</text></g>'
    )


def _safe(text: str) -> str:
    return escape(visible(text))


_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render_speedscope(profile: Profile, title: str, version: str) -> str:
    """One sampled profile for CPU time, and one for GPU time if there is any.

    A sample is one place in the tree of operators; its weight is the exclusive time there.
    """
    frames: dict[str, int] = {}
    kinds = (*(("GPU",) if profile.on_gpu else ()), "CPU")
    document = {
        "$schema": _SCHEMA,
        "exporter": f"traceview {version}",
        "name": title,
        "activeProfileIndex": 0,
        "profiles": [_sampled(profile.tree, kind, frames) for kind in kinds],
        "shared": {"frames": [{"name": name} for name in frames]},
    }
    return json.dumps(clean(document), indent=1, allow_nan=False) + "\n"


def _sampled(tree: Frame, kind: str, frames: dict[str, int]) -> dict[str, Any]:
    samples, weights = [], []
    for path, frame in tree.walk():
        own = frame.gpu_ns if kind == "GPU" else frame.cpu_ns
        if own:
            samples.append([frames.setdefault(name, len(frames)) for name in path])
            weights.append(own)
    return {
        "type": "sampled",
        "name": f"{kind} time by operator",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
