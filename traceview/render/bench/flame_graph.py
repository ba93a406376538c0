"""Render a flame graph of operators and kernels as one SVG without scripts or external resources.

The outermost operators are at the top; the width of each is its share of the time. Frames below a
thousandth are omitted, and the graph states their total. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from traceview import units
from traceview.bench.profiling import Frame, Profile
from traceview.records import record
from traceview.render.base.safe_text import shortened, visible

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
