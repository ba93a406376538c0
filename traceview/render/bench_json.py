"""A bench report as JSON, version 1, and its profile: tables and a flame graph."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.base.tables import Table, TableSpec, column_list
from traceview.render.base import json_text
from traceview.render.base.json_text import JsonKey, JsonShape, Keys, Schema, row
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import cells, drawn, fitting, heading, table_of
from traceview.trials.bench.comparison import BenchReport, VersionResult
from traceview.trials.bench.growth import Fit, one_of
from traceview.trials.bench.history import BenchDifference
from traceview.trials.bench.measurement import Timing
from traceview.trials.bench.profiling import Frame, Profile
from traceview.trials.bench.program import ProgramSweep

_MOST_ROWS = 20
OPERATORS = TableSpec(
    "operators",
    "one row per operator",
    column_list("""
        operator text: name
        calls int64: over all profiled calls
        cpu_ns int64: exclusive CPU time, without the operators it calls
        gpu_ns int64?: GPU time of the kernels it launched
        share_pct float64: share of GPU time, without a GPU of CPU time
    """),
    "operator share_pct gpu_ns cpu_ns calls",
)
KERNELS = TableSpec(
    "kernels",
    "one row per kernel and operator",
    column_list("""
        operator text: operator that launched it
        kernel text: name
        calls int64: over all profiled calls
        total_ns int64: GPU time
        mean_ns float64: GPU time per call
        share_pct float64: share of GPU time
    """),
    "operator kernel share_pct total_ns calls",
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
WIDTH, _ROW_PX, _TOP, _MARGIN = 1200, 19, 44, 10
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
    shown = sum(box.frame.gpu_ns if gpu else box.frame.cpu_ns for box in boxes)
    depth = max((box.depth for box in boxes), default=0)
    height = _TOP + (depth + 1) * _ROW_PX + 2 * _MARGIN
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
    y = _TOP + box.depth * _ROW_PX
    calls = f", {units.counted(box.frame.calls, 'call')}" if box.frame.calls else ""
    share = units.percent(100 * box.length_ns / total)
    tip = f"{visible(box.frame.name)}: {units.duration(box.length_ns)}, {share}{calls}"
    letters = int((width - 6) / _LETTER)
    name = shortened(visible(box.frame.name), letters) if letters > 1 else ""
    return (
        f'<g><title>{escape(tip)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" '
        f'height="{_ROW_PX - 1}" fill="{_COLORS[box.frame.kind]}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 13}">{escape(name)}</text></g>'
    )


def _safe(text: str) -> str:
    return escape(visible(text))


@record
class BenchDocument:
    """What one JSON document of an operation holds."""

    report: BenchReport
    profiled: tuple[VersionResult, Profile] | None = None
    comparison: BenchDifference | None = None


def _timing(path: str) -> str:
    """All keys of the timing at a path; null values if it was not timed."""
    names = (
        "clock cache trials calls_per_trial median_ns p10_ns p90_ns mad_ns outliers host_ns "
        "floor_ns exposed_trials elsewhere_ns is_launch_bound"
    )
    return " ".join(f"{name}={path}.{name}" for name in names.split())


def _samples(row: Any, _: Any) -> list[float]:
    return list(row.timing.samples_ns) if row.timing else []


def _remarks(row: Any, _: Any) -> list[str]:
    return list(row.timing.remarks) if row.timing else []


_LISTS = (JsonKey("samples_ns", list[float], _samples), JsonKey("remarks", list[str], _remarks))
_ROW = JsonShape(
    VersionResult,
    "size value dtype version",
    JsonKey("note", str | None, lambda row, of: of.report.operation.version(row.version).note),
    "status why bytes=bytes_moved flop",
    _timing("timing"),
    *_LISTS,
    "bytes_per_s flop_per_s peak_pct bound",
    JsonKey("times_as_fast_as_first", float, lambda row, of: of.report.speedup(row)),
    "relative_error=error tolerance checked_size load_width=width",
)


@record
class _Fitted:
    """The growth of the time of one version."""

    dtype: str
    version: str
    fit: Fit
    sentence: str


def _fits(of: BenchDocument, _: Any) -> list[_Fitted]:
    report = of.report
    return [
        _Fitted(dtype, version, fit, fit.sentence(report.unit, report.over))
        for (dtype, version), fit in report.fits.items()
    ]


def _rows(columns: Any) -> Any:
    def schema() -> Schema:
        return {"type": "array", "items": row(columns)}

    return schema


_FIT = Keys(JsonShape(Fit, "*"), lambda fitted, _: fitted.fit)
_PROFILE = JsonShape(
    tuple,
    Keys(JsonShape(VersionResult, "size value dtype version"), lambda pair, _: pair[0]),
    Keys(JsonShape(Profile, "calls on_gpu"), lambda pair, _: pair[1]),
    JsonKey("operators", _rows(OPERATORS.columns), lambda pair, _: operator_table(pair[1])),
    JsonKey("kernels", _rows(KERNELS.columns), lambda pair, _: kernel_table(pair[1])),
)
_PEAKS = "memory_bytes_per_s=report.peaks.memory_bytes_per_s flop_per_s=report.peaks.flop_per_s"
BENCH = JsonShape(
    BenchDocument,
    "operation=report.operation.name title=report.operation.title",
    "size_means=report.operation.size_means over=report.over machine=report.machine",
    JsonKey(
        "peaks", JsonShape(BenchDocument, _PEAKS, "source=report.peaks.source"), lambda of, _: of
    ),
    json_text.items_of("rows=report.rows", _ROW),
    JsonKey("fits", [JsonShape(_Fitted, "dtype version", _FIT, "sentence")], _fits),
    "notes=report.notes",
    JsonKey("profile", _PROFILE, lambda of, _: of.profiled, optional=True),
    JsonKey("comparison", BenchDifference, lambda of, _: of.comparison, optional=True),
    context=lambda of, _: of,
)


@record
class _Point:
    value: int
    timing: Timing
    last_line: str


def _points(program: ProgramSweep, _: Any) -> list[_Point]:
    lines = zip(program.sweep.points, program.last_lines, strict=True)
    return [_Point(*point, line) for point, line in lines]


def _sentence(fit: Fit, program: ProgramSweep) -> str:
    return fit.sentence(one_of(program.sweep.over), program.sweep.over)


_FIT_OF_PROGRAM = JsonShape(Fit, "*", JsonKey("sentence", str, _sentence))
PROGRAM = JsonShape(
    ProgramSweep,
    "program=path arguments machine over=sweep.over",
    JsonKey(
        "points", [JsonShape(_Point, "value", _timing("timing"), *_LISTS, "last_line")], _points
    ),
    JsonKey("fit", _FIT_OF_PROGRAM, lambda program, _: program.sweep.fit),
    context=lambda program, _: program,
)
