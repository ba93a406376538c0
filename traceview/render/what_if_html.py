"""What edits would win, as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

from markupsafe import Markup

from traceview.base import units
from traceview.base.records import record
from traceview.render.base.page import STYLES, Style, rendered
from traceview.render.what_if import AS_RECORDED, what_if_document
from traceview.traces.edits import wording
from traceview.traces.edits.answer import WhatIfReport

_WIDTH, _HEIGHT = 100, 12
_STYLE = (*STYLES, "comparison.css", "what_if.css")


@record
class ReplayRow:
    """A row of the table of edits: the edit, what it touches, its bar and its times."""

    title: str
    detail: str
    bar: Markup
    time: str
    difference: str
    direction: str = ""


def render_html(answer: WhatIfReport, version: str) -> str:
    """The page of an answer."""
    return rendered("what_if.html", Style(_STYLE), version=version, **_content(answer))


def snippet(answer: WhatIfReport) -> str:
    """The answer as one HTML element, for a notebook."""
    style = Style((*_STYLE, "snippet.css"), within=".traceview")
    return rendered("what_if_snippet.html", style, **_content(answer))


def _content(answer: WhatIfReport) -> dict[str, object]:
    of = what_if_document(answer)
    most = max(answer.recorded_ns, *(each.forecast.replayed_ns for each in answer.edits), 1)
    rows = [
        ReplayRow(
            AS_RECORDED,
            "",
            _bar(answer.recorded_ns, 0, most),
            units.duration(answer.recorded_ns),
            "",
        )
    ]
    for each in answer.edits:
        bar = _bar(each.forecast.replayed_ns, each.forecast.error_ns, most)
        direction = "faster" if each.saved_ns > 0 else "slower" if each.saved_ns < 0 else ""
        rows.append(
            ReplayRow(
                wording.label(each.applied),
                wording.touches(each.applied, answer),
                bar,
                wording.replayed(each),
                wording.difference(each),
                direction,
            )
        )
    return {"document": of, "rows": rows, "title": f"what if · {of.title}"}


def _bar(time_ns: int, error_ns: int, most_ns: int) -> Markup:
    """The time as a bar, with its error as a line across the end."""
    width = _WIDTH * max(time_ns, 0) / most_ns
    low, high = (max(min(width + s * _WIDTH * error_ns / most_ns, _WIDTH), 0) for s in (-1, 1))
    middle = _HEIGHT / 2
    return Markup(  # noqa: S704 - numbers
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="c-other" x="0" y="1" width="{width:.2f}" height="{_HEIGHT - 2}"/>'
        f'<line class="error" x1="{low:.2f}" y1="{middle}" x2="{high:.2f}" y2="{middle}"/></svg>'
    )
