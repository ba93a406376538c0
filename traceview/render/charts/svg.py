"""Charts as SVG that stands inside an HTML page.

Text stays text and colours are CSS variables of the page, so that a chart follows its fonts and
its light or dark scheme. The same data give the same bytes.
"""

from __future__ import annotations

import io
import re

from markupsafe import escape
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from traceview.render.base.safe_text import visible
from traceview.render.charts import figure
from traceview.render.charts.bars import MOST_SERIES
from traceview.render.charts.layout import Layout
from traceview.render.charts.palette import Palette

# Matplotlib knows no CSS variables: it draws in stand-in colours that are then replaced.
_STAND_INS = Palette(
    ink="#010101",
    quiet="#020202",
    grid="#030303",
    series=tuple(f"#0101{n:02x}" for n in range(16, 16 + MOST_SERIES)),
)
_CSS = {
    _STAND_INS.ink: "var(--ink)",
    _STAND_INS.quiet: "var(--quiet)",
    _STAND_INS.grid: "var(--rule)",
    **{color: f"var(--series-{n})" for n, color in enumerate(_STAND_INS.series, 1)},
}


def draw(chart: Layout, title: str, key: str) -> str:
    """A chart as an `<svg>` element.

    `key` is unique on the page: it sets the ids of this chart apart from those of others.
    """
    with figure.settings(_STAND_INS):
        return _inlined(_svg(figure.draw(chart, _STAND_INS)), title, key)


def _svg(drawn: Figure) -> str:
    FigureCanvasSVG(drawn)
    written = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawn.savefig(written, format="svg", metadata=no_metadata, transparent=True)
    return written.getvalue()


def _inlined(svg: str, title: str, key: str) -> str:
    """The element alone, fit for HTML: no namespaces, ids of its own, an accessible name."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<style.*?</style>", "", element, count=1, flags=re.DOTALL)
    # Tags only: the text between them may be a name that looks like an attribute.
    element = re.sub("<[^>]*>", lambda tag: _in_page(tag[0], key), element)
    name = escape(visible(title))
    opening, closing, rest = element.partition(">")
    return f'{opening} role="img" aria-label="{name}"{closing}\n <title>{name}</title>{rest}'


def _in_page(tag: str, key: str) -> str:
    tag = re.sub(r' xmlns(:\w+)?="[^"]*"| id="[\w.]+_\d+"', "", tag).replace("xlink:href", "href")
    tag = re.sub(r'( id="| href="#|url\(#)', rf"\1{key}-", tag)
    for color, css in _CSS.items():
        tag = tag.replace(color, css)
    return tag
