"""Render the sweep of a program for a terminal: its times and their fit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.bench.machine import Peaks
from traceview.bench.program import ProgramSweep
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import cells, drawn, grid, heading, note_block
from traceview.render.bench.text import machine_facts
from traceview.tables import Column, Table

_LEAST_TEXT = 18
_SPEC = TableSpec(
    "values",
    "one row per value",
    (
        Column("value", "int64", "value of the option"),
        Column("time", "text", "median time per run"),
        Column("p10_to_p90", "text", "10th to 90th percentile"),
        Column("outliers", "int64", "outlier runs"),
        Column(
            "last_line", "text", "last line that the program printed", nullable=True, prose=True
        ),
    ),
    ("value", "time", "p10_to_p90", "last_line", "outliers"),
)


def render_program(program: ProgramSweep, *, width: int = 80, color: bool = False) -> str:
    """The sweep in lines of at most `width` cells; with `color`, ANSI styles."""
    shape = fitting(_SPEC, _table(program), width, _LEAST_TEXT)
    fit = Text(visible(str(program.sweep)), "bold")
    return drawn([_header(program), Group(_method(program), cells(shape)), fit], width, color)


def _header(program: ProgramSweep) -> RenderableType:
    rows = grid("", "")
    for name, value in machine_facts(program.machine, Peaks()):
        rows.add_row(Text(name, "dim"), Text(visible(value)))
    words = " ".join(program.arguments)
    command = f"{program.path} --{program.sweep.over} N {words}".rstrip()
    return Group(heading(f"Time over {visible(program.sweep.over)}", visible(command)), rows)


def _method(program: ProgramSweep) -> RenderableType:
    trials = min(timing.trials for _, timing in program.sweep.points)
    method = (
        f"median of {units.counted(trials, 'run')} (perf_counter), from the program's first line "
        "until the GPU is done; imports are loaded beforehand"
    )
    return note_block("", method, "dim")


def _table(program: ProgramSweep) -> Table:
    rows = [
        {
            "value": value,
            "time": units.duration(timing.median_ns),
            "p10_to_p90": f"{units.duration(timing.p10_ns)} – {units.duration(timing.p90_ns)}",
            "outliers": timing.outliers,
            "last_line": line or None,
        }
        for (value, timing), line in zip(program.sweep.points, program.last_lines, strict=True)
    ]
    return Table.from_rows(_SPEC.columns, rows)
