"""Render the difference of bench runs for a terminal: a row per version, size and data type."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.history import BenchDifference, VersionDifference
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import cells, drawn, heading, note_block
from traceview.tables import Column, Table

_LEAST_TEXT = 14
_ROWS = TableSpec(
    "differences",
    "one row per version, size and data type",
    (
        Column("version", "text", "name"),
        Column("size", "int64", "size"),
        Column("value", "int64", "swept value", nullable=True),
        Column("dtype", "text", "data type"),
        Column("before", "text", "median per call", nullable=True),
        Column("after", "text", "median per call", nullable=True),
        Column("difference", "text", "relative to before", nullable=True),
        Column("interval", "text", "95 % interval of the difference", nullable=True),
        Column("verdict", "text", "whether it exceeds the noise"),
    ),
    ("version", "size", "value", "before", "after", "difference", "verdict", "interval", "dtype"),
)
_ONE_RUN = (
    "One run per side: its trials scatter less than runs do, so no difference is certain. Compare "
    "at least four runs per side with traceview.compare_benchmarks."
)
_FEW = "Fewer than four runs per side prove no difference."
_WORDS = {
    "unclear": "within noise",
    "untimed": "not compared",
    "appeared": "new",
    "vanished": "not measured",
}
_FEWEST = 4


def render_difference(difference: BenchDifference, *, width: int = 80, color: bool = False) -> str:
    """The differences in lines of at most `width` cells; with `color`, ANSI styles."""
    names = [column.name for column in _ROWS.columns]
    values = [_cells(row) for row in difference.rows]
    table = Table(_ROWS.columns, {name: [each[name] for each in values] for name in names})
    runs = (difference.runs_before, difference.runs_after)
    blocks: list[RenderableType] = [heading("Compared with before")]
    blocks += [note_block("Differs: ", note) for note in difference.notes]
    blocks += [cells(fitting(_ROWS, table, width, _LEAST_TEXT))]
    blocks += [Text(visible(line)) for row in difference.rows for line in _exact(row)]
    if runs == (1, 1):
        blocks.append(note_block("Note: ", _ONE_RUN, "dim"))
    elif min(runs) < _FEWEST and not any(row.is_certain for row in difference.rows):
        blocks.append(note_block("Note: ", _FEW, "dim"))
    return drawn(blocks, width, color)


def _cells(row: VersionDifference) -> dict[str, object]:
    bounds = row.low_ns is not None and row.high_ns is not None
    return {
        "version": row.version,
        "size": row.size,
        "value": row.value,
        "dtype": row.dtype,
        "before": None if row.before_ns is None else units.duration(row.before_ns),
        "after": None if row.after_ns is None else units.duration(row.after_ns),
        "difference": None
        if row.delta_pct is None
        else f"{row.delta_pct:+.1f} %".replace("-", "−"),
        "interval": f"{_signed(row.low_ns)} to {_signed(row.high_ns)}" if bounds else None,
        "verdict": _WORDS.get(row.change, row.change),
    }


def _signed(value: float | None) -> str:
    value = value or 0.0
    return f"{'−' if value < 0 else '+'}{units.duration(abs(value))}"


def _exact(row: VersionDifference) -> list[str]:
    """The changes that need no statistics: in the check's result and in the load width."""
    if row.change in ("appeared", "vanished"):
        return []
    swept = "" if row.value is None else f", {row.value:,}"
    where = f"{row.version}, size {row.size:,}{swept}, {row.dtype}"
    lines = []
    if row.status_before != row.status_after:
        lines.append(f"{where}: {row.status_after}, was {row.status_before}")
    if row.load_bits_before != row.load_bits_after:
        widths = [units.count(bits) if bits else "unknown" for bits in
                  (row.load_bits_after, row.load_bits_before)]  # fmt: skip
        lines.append(f"{where}: load width {widths[0]}, was {widths[1]} bits per thread")
    return lines
