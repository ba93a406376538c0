"""Charts, drawn from their declaration as SVG that stands inside an HTML page.

Matplotlib is imported here and in the other `_figure` modules alone, so that only a page with
charts pays for it. Texts stay text and colours are CSS variables of the page: a chart follows its
fonts and its light or dark scheme. The same data give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from markupsafe import escape
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Transform

from traceview import units
from traceview.render.base.safe_text import visible
from traceview.render.charts.columns_svg import draw_columns
from traceview.render.charts.layout import MOST_SERIES, Drawing
from traceview.render.charts.roofline import Roofline
from traceview.render.charts.roofline_svg import draw_roofline
from traceview.render.charts.stairs import Stairs
from traceview.render.charts.stairs_svg import draw_stairs

# Matplotlib knows no CSS variables: it draws in stand-in colours that are then replaced.
_INK, _QUIET, _GRID = "#010101", "#020202", "#030303"
_SERIES = tuple(f"#0101{n:02x}" for n in range(16, 16 + MOST_SERIES))
_CSS = {
    _INK: "var(--ink)",
    _QUIET: "var(--quiet)",
    _GRID: "var(--rule)",
    **{color: f"var(--series-{n})" for n, color in enumerate(_SERIES, 1)},
}
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "traceview",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "text.color": _INK,
    "xtick.color": _QUIET,
    "path.simplify": False,
}
_WIDTH_IN = 9.5
_ROW_IN = 0.27
_MARGIN_IN = 0.4
_LABEL_IN = 2.75
_RIGHT_IN = 0.95
_UPRIGHT_IN = 2.9


def draw(drawing: Drawing | Stairs | Roofline, title: str, key: str) -> str:
    """A chart as an `<svg>` element.

    `key` is unique on the page: it sets the ids of this chart apart from those of others.
    """
    with _own_settings():
        return _inlined(_svg(_figure(drawing)), title, key)


def _figure(drawing: Drawing | Stairs | Roofline) -> Figure:
    if isinstance(drawing, Roofline):
        figure, axes = draw_roofline(drawing, _SERIES[0], _QUIET, _INK)
        _undress(axes, "both")
        return figure
    if isinstance(drawing, Stairs):
        return _stairs(drawing)
    if drawing.upright:
        return _upright(drawing)
    legend_in = 0.3 if drawing.series else 0.0
    row_in = _ROW_IN * (1.5 if any(bar.lower for bar in drawing.bars) else 1)
    height = row_in * len(drawing.labels) + _MARGIN_IN + legend_in
    figure = Figure(figsize=(_WIDTH_IN, height), facecolor="none")
    top = 1 - (0.06 + legend_in) / height
    bottom = (_MARGIN_IN - 0.06) / height
    right = 1 - (_RIGHT_IN if drawing.row_texts else 0.2) / _WIDTH_IN
    left = _LABEL_IN / _WIDTH_IN
    axes = figure.add_axes((left, bottom, right - left, top - bottom))
    _draw_bars(axes, drawing)
    _dress(axes, drawing)
    return figure


def _upright(drawing: Drawing) -> Figure:
    figure = Figure(figsize=(_WIDTH_IN, _UPRIGHT_IN), facecolor="none")
    legend_in = 0.5 if drawing.series else 0.25
    bottom, left = 0.3 / _UPRIGHT_IN, 0.8 / _WIDTH_IN
    top = 1 - legend_in / _UPRIGHT_IN
    axes = figure.add_axes((left, bottom, 1 - left - 0.2 / _WIDTH_IN, top - bottom))
    draw_columns(axes, drawing, _SERIES, _QUIET)
    _undress(axes, "y")
    if drawing.series:
        _legend(axes, drawing.series, 0.2 / (_UPRIGHT_IN - legend_in))
    return figure


def _stairs(drawing: Stairs) -> Figure:
    figure, panels = draw_stairs(drawing, _SERIES[0], _QUIET, _INK)
    for axes in panels:
        _undress(axes, "y")
    return figure


def _draw_bars(axes: Axes, drawing: Drawing) -> None:
    reach = max(bar.start + bar.length for bar in drawing.bars)
    divisor, unit = units.axis(drawing.column, reach)
    paired = any(bar.lower for bar in drawing.bars)
    for bar in drawing.bars:
        place = bar.row + (0.2 if bar.lower else -0.2) if paired else bar.row
        color = _SERIES[drawing.series.index(bar.series)] if drawing.series else _SERIES[0]
        axes.barh(
            place,
            bar.length / divisor,
            left=bar.start / divisor,
            height=0.36 if paired else 0.66,
            color=color,
        )
    axes.set_xlim(0, reach / divisor * (1.0 if drawing.row_texts else 1.01))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g} {unit}".rstrip()))
    _write_rows(axes, drawing, divisor)


def _write_rows(axes: Axes, drawing: Drawing, divisor: float) -> None:
    for row, label in enumerate(drawing.labels):
        _text(axes, -5, row, label, "right", _INK, axes.get_yaxis_transform(), 0.0)
    ends = [0.0] * len(drawing.labels)
    for bar in drawing.bars:
        ends[bar.row] = max(ends[bar.row], (bar.start + bar.length) / divisor)
    for row, text in enumerate(drawing.row_texts):
        _text(axes, 5, row, text, "left", _QUIET, axes.transData, ends[row])


def _text(
    axes: Axes, offset: int, row: int, text: str, align: str, color: str, place: Transform, x: float
) -> None:
    axes.annotate(
        text,
        (x, row),
        xytext=(offset, 0),
        xycoords=place,
        textcoords="offset points",
        ha=align,
        va="center_baseline",
        color=color,
        annotation_clip=False,
        parse_math=False,
    )


def _dress(axes: Axes, drawing: Drawing) -> None:
    axes.set_ylim(len(drawing.labels) - 0.4, -0.6)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    _undress(axes, "x")
    if drawing.series:
        _legend(axes, drawing.series)


def _undress(axes: Axes, measured: Literal["x", "y", "both"]) -> None:
    """Nothing but the data and a quiet grid across the axis on which it is measured."""
    axes.set_facecolor("none")
    axes.tick_params(length=0, colors=_QUIET)
    axes.grid(axis=measured, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def _legend(axes: Axes, series: Sequence[str], above: float = 0.0) -> None:
    handles = [Patch(color=_SERIES[i], label=name) for i, name in enumerate(series)]
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1 + above),
        ncols=len(series),
        frameon=False,
        borderpad=0,
        borderaxespad=0.3,
        handlelength=1,
        handleheight=1,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


@contextmanager
def _own_settings() -> Iterator[None]:
    """Matplotlib as it comes, whatever the user's matplotlibrc says, and then as set here."""
    with rc_context(), warnings.catch_warnings():
        # A name may hold signs that the measuring font lacks; the browser has its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        rcdefaults()
        rcParams.update(_SETTINGS)
        yield


def _svg(figure: Figure) -> str:
    FigureCanvasSVG(figure)
    written = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(written, format="svg", metadata=nothing, transparent=True)
    return written.getvalue()


def _inlined(svg: str, title: str, key: str) -> str:
    """The element alone, fit for HTML: no namespaces, ids of its own, a name to read out."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<style.*?</style>", "", element, count=1, flags=re.DOTALL)
    # Tags only: what stands between them may be a name that looks like an attribute.
    return _named(re.sub("<[^>]*>", lambda tag: _in_page(tag[0], key), element), title)


def _in_page(tag: str, key: str) -> str:
    tag = re.sub(r' xmlns(:\w+)?="[^"]*"| id="[\w.]+_\d+"', "", tag).replace("xlink:href", "href")
    tag = re.sub(r'( id="| href="#|url\(#)', rf"\1{key}-", tag)
    for color, css in _CSS.items():
        tag = tag.replace(color, css)
    return tag


def _named(element: str, title: str) -> str:
    said = escape(visible(title))
    opening, closing, rest = element.partition(">")
    return f'{opening} role="img" aria-label="{said}"{closing}\n <title>{said}</title>{rest}'
