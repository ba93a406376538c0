"""The kernels of a target in a terminal: what each is, its accesses by source line, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.ptx.kernel_report import Finding, KernelReport
from traceview.ptx.levels import Place, by_place
from traceview.ptx.model import Access, How
from traceview.ptx.report import PtxReport
from traceview.render.blocks import SENTENCE, SEVERITY_STYLES, cells, drawn, grid, heading, noted
from traceview.render.columns import fitting
from traceview.render.names import visible
from traceview.render.ptx_names import SourceNames
from traceview.tables import Cell, Column, Table

_LEAST_TEXT = 12
_MOST_MIX = 8
_HOW: dict[How, str] = {
    "launched": "as launched",
    "declared": "as declared",
    "guessed": "as guessed: no launch and no signature were given",
    "given": "as given",
}
ACCESSES = TableSpec(
    "accesses",
    "One row an opcode of a source line",
    (
        Column("source", "text", "the user's line"),
        Column("ptx", "text", "opcode in PTX", nullable=True),
        Column("width_bits", "int64", "what a thread moves in one instruction", nullable=True),
        Column("count", "int64", "instructions", nullable=True),
        Column("loop", "int64", "loops around it", nullable=True),
        Column("sass", "text", "what the same line became in SASS", nullable=True),
        Column("kind", "text", "load, store, …"),
        Column("space", "text", "which memory"),
        Column("masked", "bool", "under a predicate"),
    ),
    brief=("source", "ptx", "width_bits", "count", "loop", "sass"),
)


def render_ptx_text(report: PtxReport, *, width: int = 80, color: bool = False) -> str:
    """All kernels in lines of at most `width` cells; with `color`, ANSI styles."""
    names = SourceNames.of(report.kernels)
    blocks = [block for kernel in report.kernels for block in _kernel(kernel, names, width)]
    return drawn(blocks, width, color)


def title(kernel: KernelReport) -> RenderableType:
    """The heading of a kernel, and how it came to be compiled."""
    return Group(heading(visible(kernel.name), kernel.compiled.arch), Text(_circumstances(kernel)))


def _kernel(kernel: KernelReport, names: SourceNames, width: int) -> Iterator[RenderableType]:
    yield Group(title(kernel), Text(_figures(kernel)), *_mix(kernel))
    yield _accesses(kernel, names, width)
    differences = [
        noted("", f"{names.of_line(d.source)}: {d.kind} {d.change}, PTX {d.ptx}, SASS {d.sass}")
        for d in kernel.differences
    ]
    if differences:
        yield Group(Text("PTX and SASS disagree", "bold"), *differences)
    yield _findings(kernel.findings)
    notes = [noted("Note: ", n, "dim") for n in (*kernel.compiled.notes, *kernel.notes)]
    if notes:
        yield Group(*notes)


def _circumstances(kernel: KernelReport) -> str:
    compiled = kernel.compiled
    said = [_HOW[compiled.how]]
    if compiled.launches:
        said.append(units.counted(compiled.launches, "launch", "launches"))
    if compiled.grid:
        said.append("grid " + " × ".join(f"{size:,}" for size in compiled.grid))
    if compiled.num_warps:
        said.append(units.counted(compiled.num_warps, "warp"))
    if compiled.num_stages:
        said.append(units.counted(compiled.num_stages, "stage"))
    said += [f"{a.name}={a.value}" for a in compiled.arguments if a.type == "constexpr"]
    return visible(" · ".join(said), SENTENCE)


def _figures(kernel: KernelReport) -> str:
    said = [
        f"registers {units.count(kernel.registers)}",
        f"spills {units.size(kernel.spill_bytes)}",
        f"shared {units.size(kernel.shared_memory_bytes)}",
        *_occupancy(kernel),
        f"elements a thread {units.count(kernel.elements_per_thread)}",
    ]
    if kernel.waves is not None:
        said.append(f"waves {kernel.waves:.2f}")
    return " · ".join(said)


def _occupancy(kernel: KernelReport) -> list[str]:
    found = kernel.occupancy
    if not found:
        return []
    blocks = units.counted(found.blocks_per_sm, "block")
    limiters = " and ".join(found.limiters)
    percent = units.percent(found.theoretical_occupancy_pct)
    return [f"occupancy {percent} ({blocks} per SM, limited by {limiters})"]


def _mix(kernel: KernelReport) -> list[RenderableType]:
    most = sorted(kernel.instruction_mix.items(), key=lambda item: -item[1])
    said = [f"{name} {units.count(number)}" for name, number in most[:_MOST_MIX]]
    rest = sum(number for _, number in most[_MOST_MIX:])
    said += [f"more {units.count(rest)}"] if rest else []
    lines = [noted("instructions: ", " · ".join(said), "dim")] if said else []
    tensor = [
        " ".join((f"{units.count(op.count)} × {op.operation}", op.shape or "", *op.types))
        for op in kernel.tensor_ops
    ]
    if tensor:
        lines.append(noted("tensor cores: ", " · ".join(tensor), "dim"))
    steps = [(kernel.barriers, "barrier"), (kernel.shuffles, "shuffle")]
    counted = [units.counted(number, name) for number, name in steps if number]
    return lines + ([noted("between threads: ", " · ".join(counted), "dim")] if counted else [])


def _accesses(kernel: KernelReport, names: SourceNames, width: int) -> RenderableType:
    rows = list(access_rows(kernel, names))
    if not rows:
        return Text("no memory accesses")
    return cells(fitting(ACCESSES, Table.from_rows(ACCESSES.columns, rows), width, _LEAST_TEXT))


def access_rows(kernel: KernelReport, names: SourceNames) -> Iterator[dict[str, Cell]]:
    """A row for each PTX opcode of a source line, beside it what the line became in SASS.

    Where there is no PTX for a line, a row tells of the SASS alone.
    """
    written, running = by_place(kernel.accesses, "ptx"), by_place(kernel.accesses, "sass")
    for place in sorted({*written, *running}, key=_place_order):
        ptx, sass = _merged(written.get(place, ())), _merged(running.get(place, ()))
        if not ptx:
            yield from (_row(access, names) | {"sass": access.opcode} for access in sass)
            continue
        said = _folded([f"{access.count} × {access.opcode}" for access in sass], len(ptx))
        for access, text in zip_longest(ptx, said):
            yield _row(access, names) | {"ptx": access.opcode, "sass": text}


def _merged(accesses: Iterable[Access]) -> list[Access]:
    """Accesses that differ in their predicate alone as one, masked if one of them is."""
    merged: dict[tuple[str, int], Access] = {}
    for access in accesses:
        key = (access.opcode, access.loop_depth)
        same = merged.get(key)
        masked = access.predicated or (same is not None and same.predicated)
        count = access.count + (same.count if same else 0)
        merged[key] = replace(access, predicated=masked, count=count)
    return list(merged.values())


def _folded(texts: Sequence[str], rows: int) -> list[str]:
    """Texts for so many rows: one each, and in the last row all that is left."""
    return [*texts[: rows - 1], " + ".join(texts[rows - 1 :])][:rows] if texts else []


def _row(access: Access, names: SourceNames) -> dict[str, Cell]:
    return {
        "source": names.of_line(access.source),
        "ptx": None,
        "sass": None,
        "width_bits": access.width_bits,
        "count": access.count,
        "loop": access.loop_depth,
        "kind": access.kind,
        "space": access.space,
        "masked": access.predicated,
    }


def _place_order(place: Place) -> tuple[bool, str, int, str, str]:
    source, kind, space = place
    line = (source.file, source.line) if source else ("", 0)
    return (source is None, *line, kind, space)


def _findings(findings: Iterable[Finding]) -> RenderableType:
    rows = grid("", "")
    for finding in findings:
        said = Text(visible(finding.message, SENTENCE))
        said.append("\n→ ", "bold").append(visible(finding.action, SENTENCE))
        said.append(f"\n{visible(finding.evidence, SENTENCE)}", "dim")
        rows.add_row(Text(finding.severity, SEVERITY_STYLES[finding.severity]), said)
    return rows if rows.row_count else Text("Nothing found to change.")
