"""The sweep of a program, for a terminal: its times, and the line through them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.machine import Peaks
from traceview.bench.program import ProgramSweep
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import cells, drawn, grid, heading, noted
from traceview.render.bench.text import machine_facts
from traceview.tables import Column, Table

_LEAST_TEXT = 18
_SPEC = TableSpec(
    "values",
    "one row a value",
    (
        Column("value", "int64", "what the option was"),
        Column("time", "text", "median"),
        Column("p10_to_p90", "text", "spread"),
        Column("outliers", "int64", "runs far off"),
        Column("last_line", "text", "that the program printed", nullable=True, prose=True),
    ),
    ("value", "time", "p10_to_p90", "last_line", "outliers"),
)


def render_program(found: ProgramSweep, *, width: int = 80, color: bool = False) -> str:
    """The sweep in lines of at most `width` cells; with `color`, ANSI styles."""
    shape = fitting(_SPEC, _table(found), width, _LEAST_TEXT)
    said = Text(visible(str(found.sweep)), "bold")
    return drawn([_header(found), Group(_how(found), cells(shape)), said], width, color)


def _header(found: ProgramSweep) -> RenderableType:
    rows = grid("", "")
    for name, value in machine_facts(found.machine, Peaks()):
        rows.add_row(Text(name, "dim"), Text(visible(value)))
    words = " ".join(found.arguments)
    command = f"{found.path} --{found.sweep.over} N {words}".rstrip()
    return Group(heading(f"Time over {visible(found.sweep.over)}", visible(command)), rows)


def _how(found: ProgramSweep) -> RenderableType:
    trials = min(timing.trials for _, timing in found.sweep.points)
    said = (
        f"median of {units.counted(trials, 'run')} by perf_counter, from the first line of the "
        "program until the GPU is done; what it imports is loaded before"
    )
    return noted("", said, "dim")


def _table(found: ProgramSweep) -> Table:
    rows = [
        {
            "value": value,
            "time": units.duration(timing.median_ns),
            "p10_to_p90": f"{units.duration(timing.p10_ns)} – {units.duration(timing.p90_ns)}",
            "outliers": timing.outliers,
            "last_line": said or None,
        }
        for (value, timing), said in zip(found.sweep.points, found.said, strict=True)
    ]
    return Table.from_rows(_SPEC.columns, rows)
