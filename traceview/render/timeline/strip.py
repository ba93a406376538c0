"""The timeline without scripts: how busy each GPU was over time, and the phases below."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup, escape

from traceview import intervals, units
from traceview.facts.idle.gaps import busy
from traceview.intervals import Intervals
from traceview.render.base.colors import color_class
from traceview.render.base.safe_text import visible
from traceview.tables import Integers
from traceview.timeline.stream_lanes import device_title
from traceview.timeline.timeline import Timeline
from traceview.timeline.tracks import Lane
from traceview.trace import Trace

_WIDTH, _SLOTS = 1000, 500
_ROW, _PHASE, _TITLE, _GAP = 40, 12, 15, 6
_LEAST_PHASE = 2


def strip(trace: Trace, timeline: Timeline) -> Markup:
    """The strip as an SVG as wide as the page."""
    edges = np.linspace(timeline.start_ns, timeline.end_ns, _SLOTS + 1).astype(np.int64)
    parts, y = [], 0
    for device, covered in busy(trace).items():
        parts += [_title(device_title(trace, device), y), _busy_path(covered, edges, y + _TITLE)]
        y += _TITLE + _ROW + _GAP
    for lane in (lane for lane in timeline.lanes if lane.kind == "phases"):
        parts += [_title(lane.title, y), *_phases(lane, timeline, y + _TITLE)]
        y += _TITLE + _PHASE + _GAP
    length = units.duration(timeline.end_ns - timeline.start_ns)
    return Markup(  # noqa: S704 - numbers of ours, and escaped text
        f'<svg viewBox="0 0 {_WIDTH} {max(y, 1)}" role="img" '
        f'aria-label="GPU busy share over {length}">{"".join(parts)}</svg>'
    )


def _title(text: str, y: int) -> str:
    shown = escape(visible(text, 120))
    return f'<text x="0" y="{y + 11}" font-size="11" fill="currentColor">{shown}</text>'


def _busy_path(covered: Intervals, edges: Integers, y: int) -> str:
    """SVG path of the covered fraction of each time slot, a filled step line."""
    share = intervals.overlap(covered, edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
    tops = (y + _ROW - share * (_ROW - 1)).round(1).tolist()
    step = _WIDTH / _SLOTS
    line = "".join(f"V{top:g}h{step:g}" for top in tops)
    ground = f'<rect x="0" y="{y + _ROW - 1}" width="{_WIDTH}" height="1" fill="currentColor"/>'
    return f'{ground}<path class="c-gpu-work" d="M0 {y + _ROW}{line}V{y + _ROW}Z"/>'


def _phases(lane: Lane, timeline: Timeline, y: int) -> Iterator[str]:
    scale = _WIDTH / max(timeline.end_ns - timeline.start_ns, 1)
    for track in lane.tracks:
        rows = zip(track.start_ns.tolist(), track.end_ns.tolist(), track.name.tolist(), strict=True)
        for start, end, name in rows:
            left, width = (start - timeline.start_ns) * scale, (end - start) * scale
            if width < _LEAST_PHASE:
                continue
            text = timeline.names.text(name)
            yield (
                f'<rect class="{color_class(text) or ""}" x="{left:.1f}" y="{y}" '
                f'width="{width:.1f}" height="{_PHASE}">'
                f"<title>{escape(text)}, {units.duration(end - start)}</title></rect>"
            )
