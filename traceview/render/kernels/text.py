"""Kernels in a terminal, and the choice between text, JSON and a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.tables import Table, TableSpec
from traceview.kernels.inspect.comparison import Diff
from traceview.kernels.inspect.kernel_report import Excerpt, KernelReport, excerpts
from traceview.kernels.inspect.recompilations import widths, widths_text
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.accesses import access_finder
from traceview.kernels.ptx.model import Access, Function, Instruction, SourceLine
from traceview.kernels.ptx.stages import STAGES, stage_lines
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import (
    SENTENCE,
    SEVERITY_STYLES,
    Prose,
    cells,
    drawn,
    fitting,
    grid,
    heading,
    note_block,
    note_blocks,
)
from traceview.render.kernels import summary, tables
from traceview.render.kernels.diff import render_diff_text
from traceview.render.kernels.names import (
    Shared,
    SourceNames,
    action_of,
    message_of,
    shared_findings,
)

_LEAST_TEXT = 12
# Of the variants that have a finding, too.
_MOST_OTHERS = 4
# Long enough for a command with the signature of a kernel with fifty arguments.
_LONGEST_NOTE = 4 * SENTENCE


def render_ptx_text(
    report: PtxReport, *, width: int = 80, color: bool = False, details: bool = False
) -> str:
    """All kernels in lines of at most `width` cells; with `color`, ANSI styles.

    With `details` the tables that are left out by default are shown, too.
    """
    names, shown = SourceNames.of(report.kernels), set[tuple[str, str]]()
    shared = shared_findings(report.kernels)
    blocks = [
        block
        for kernel in report.kernels
        for block in _kernel(kernel, report, names, width, details, shared, shown)
    ]
    return drawn(blocks, width, color)


def title(kernel: KernelReport, report: PtxReport) -> RenderableType:
    """The heading of a kernel, and how it was compiled."""
    return Group(
        heading(visible(summary.shown_name(kernel, report.kernels)), kernel.compiled.arch),
        Prose(visible(summary.circumstances(kernel, report.kernels), SENTENCE)),
    )


def _kernel(
    kernel: KernelReport,
    report: PtxReport,
    names: SourceNames,
    width: int,
    details: bool,
    shared: Sequence[Shared],
    shown: set[tuple[str, str]],
) -> Iterator[RenderableType]:
    """A kernel, without the findings and the notes that another variant has `shown` already."""
    yield Group(
        title(kernel, report),
        Prose(_figures(kernel)),
        *(note_block(f"{lead}: ", text, "dim") for lead, text in summary.made_of(kernel)),
    )
    yield _accesses(kernel, names, width)
    if kernel.differences:
        lines = (note_block("", line) for line in summary.differences(kernel, names))
        yield Group(Text("PTX and SASS differ", "bold"), *lines)
    if kernel.warp_stalls:
        yield _detail(tables.STALLS, tables.stall_table(kernel.warp_stalls, names), width)
    if kernel.what_if:
        yield _detail(*tables.what_if_table(kernel), width)
    if details:
        yield from (_detail(*each, width) for each in tables.detail_tables(kernel, names))
    yield _findings(kernel, report, shared)
    notes = (*kernel.compiled.notes, *kernel.notes)
    fresh = [note for note in notes if (kernel.family, note) not in shown]
    shown.update((kernel.family, note) for note in notes)
    yield from note_blocks("Note: ", fresh, _LONGEST_NOTE)


def _figures(kernel: KernelReport) -> str:
    limits = f" ({summary.limited(kernel)})" if kernel.occupancy else ""
    return " · ".join(
        f"{name} {value}{limits if name == 'occupancy' else ''}"
        for name, value in summary.figures(kernel)
    )


def _accesses(kernel: KernelReport, names: SourceNames, width: int) -> RenderableType:
    table = tables.access_table(kernel, names)
    if not len(table):
        return Text("no memory accesses")
    return cells(fitting(tables.ACCESSES, table, width, _LEAST_TEXT))


def _detail(spec: TableSpec, table: Table, width: int) -> RenderableType:
    lead = Text.assemble((units.stem(spec.name), "bold"), (f"  {visible(spec.meaning)}", "dim"))
    return Group(lead, cells(fitting(spec, table, width, _LEAST_TEXT)))


def _findings(kernel: KernelReport, report: PtxReport, shared: Sequence[Shared]) -> RenderableType:
    """The findings that no variant before has, with those behind that have them, too."""
    fresh, above = list[tuple[Text, Text]](), list[str]()
    for variants in shared:
        kernels, findings = zip(*variants, strict=True)
        severity = findings[0].severity
        if kernel is kernels[0]:
            text = Text(visible(message_of(findings), SENTENCE))
            text.append("\n→ ", "bold").append(visible(action_of(findings), SENTENCE))
            others = [summary.variant(other, report.kernels) for other in kernels[1:]]
            also = [f"also: {units.first(others, _MOST_OTHERS, '; ')}"] if others else []
            for line in (findings[0].evidence.basis, *also):
                text.append(f"\n{visible(line, SENTENCE)}", "dim")
            fresh.append((Text(severity, SEVERITY_STYLES[severity]), text))
        elif any(kernel is other for other in kernels):
            above.append(severity)
    rows = grid("", "")
    if above:
        count = units.counted(len(above), "finding")
        rows.add_row(Text(above[0], SEVERITY_STYLES[above[0]]), Text(f"{count} as above"))
    for row in fresh:
        rows.add_row(*row)
    return rows if rows.row_count else Text("No findings.")


_WIDE_BITS = 128
_ORDER = {"load": "ld", "store": "st", "async-copy": "cp", "atomic": "atom", "reduction": "red"}
_INDENT = 2
_MARGIN_SHARE = 0.45


def render_views(
    report: PtxReport, views: Sequence[str], *, width: int = 80, color: bool = False
) -> str:
    """The views of all kernels, in lines of at most `width` cells.

    Views are `source`, `ttir`, `ttgir`, `llir`, `ptx` and `sass`.
    """
    names = SourceNames.of(report.kernels)
    blocks = [b for k in report.kernels for b in _views(k, report, views, names, width)]
    return drawn(blocks, width, color)


def _views(
    kernel: KernelReport, report: PtxReport, views: Sequence[str], names: SourceNames, width: int
) -> Iterator[RenderableType]:
    yield title(kernel, report)
    if "source" in views:
        yield from _source(kernel, width)
    for stage in STAGES:
        if stage in views:
            yield _stage(kernel, stage, names, width)
    if "ptx" in views:
        yield _listing(kernel.ptx, "PTX", names, width)
    if "sass" in views:
        yield _listing(kernel.sass, "SASS", names, width)
    yield from (note_block("Note: ", note, "dim") for note in kernel.notes)


def _source(kernel: KernelReport, width: int) -> Iterator[RenderableType]:
    by_line = accesses_by_line(kernel)
    if not by_line:
        yield Text("The code has no line information.")
    for excerpt in excerpts(by_line, kernel.compiled.texts):
        yield _excerpt(excerpt, by_line, width)


def accesses_by_line(kernel: KernelReport) -> dict[SourceLine, list[Access]]:
    """The PTX and SASS accesses of each line of the user's source."""
    by_line: dict[SourceLine, list[Access]] = defaultdict(list)
    for access in kernel.accesses:
        if access.source:
            by_line[access.source].append(access)
    return dict(by_line)


def _excerpt(
    excerpt: Excerpt, by_line: Mapping[SourceLine, Sequence[Access]], width: int
) -> RenderableType:
    if excerpt.missing:
        return note_block("", f"{excerpt.file}: {excerpt.missing}")
    margins = {n: margin(by_line.get(SourceLine(excerpt.file, n), ())) for n, _ in excerpt.lines}
    room = min(max(map(len, margins.values()), default=0), int(_MARGIN_SHARE * width))
    digits = len(str(excerpt.lines[-1][0]))
    lines = [Text(visible(excerpt.file), "bold")]
    gaps = {second for first, second in pairwise(n for n, _ in excerpt.lines) if second > first + 1}
    for number, code in excerpt.lines:
        lines += [Text("…", "dim")] if number in gaps else []
        narrow = is_narrow(by_line.get(SourceLine(excerpt.file, number), ()))
        line = Text(
            f"{shortened(margins[number], room):>{room}}", "bold yellow" if narrow else "green"
        )
        line.append(f"  {number:>{digits}}  ", "dim")
        lines.append(line.append(_cut(visible(code.expandtabs(4)), width - room - digits - 4)))
    return Group(*lines)


def margin(accesses: Sequence[Access]) -> str:
    """The accesses of a line, such as `ld 2 × 128 bits`, with the SASS ones if they differ."""
    parts = []
    kinds = dict.fromkeys((a.kind, a.space) for a in accesses if a.kind in _ORDER and a.width_bits)
    for kind, space in kinds:
        same = [a for a in accesses if (a.kind, a.space) == (kind, space)]
        ptx = widths([access for access in same if access.level == "ptx"])
        sass = widths([access for access in same if access.level == "sass"])
        differ = ptx and sass and max(ptx) != max(sass)
        shown = f"{widths_text(ptx)} → {widths_text(sass)}" if differ else widths_text(ptx or sass)
        where = "" if space == "global" else f" {space}"
        parts.append(f"{_ORDER[kind]}{where} {shown}")
    return ", ".join(parts)


def is_narrow(accesses: Iterable[Access]) -> bool:
    """Whether a global load or store is narrower than 128 bits."""
    moved = [a for a in accesses if a.space == "global" and a.kind in ("load", "store")]
    return any(a.width_bits and a.width_bits < _WIDE_BITS for a in moved)


def _listing(
    function: Function | None, level: str, names: SourceNames, width: int
) -> RenderableType:
    if function is None:
        return Text(f"No {level} available.")
    find = access_finder(function)
    rows = [instruction_row(i, find(i), names) for i in function.instructions]
    room = max((len(row[1]) for row in rows), default=0)
    lines = [Text(level, "bold")]
    for text, margin, wide in rows:
        line = Text(f"{margin:<{room}}", "green" if wide else "bold yellow")
        lines.append(line.append(_cut(f"  {text}", width - room)))
    return Group(*lines)


def _stage(kernel: KernelReport, stage: str, names: SourceNames, width: int) -> RenderableType:
    """The code of a stage, with the source line in front of each line."""
    text = kernel.compiled.stages.get(stage)
    if text is None:
        return Text(f"No {stage.upper()} available: it is Triton's, of a kernel compiled here.")
    rows = [
        (names.of_line(line.source) if line.source else "", visible(line.text))
        for line in stage_lines(stage, text)
    ]
    room = max((len(place) for place, _ in rows), default=0)
    lines = [Text(stage.upper(), "bold")]
    for place, code in rows:
        lines.append(Text(f"{place:<{room}}", "dim").append(_cut(f"  {code}", width - room)))
    return Group(*lines)


def instruction_row(
    instruction: Instruction, access: Access | None, names: SourceNames
) -> tuple[str, str, bool]:
    """The text of an instruction, its margin, and False if it is a narrow access."""
    guard = f"@{instruction.predicate.lstrip('@')} " if instruction.predicate else ""
    indent = " " * (_INDENT * instruction.loop_depth)
    operands = " ".join(instruction.operands.split())
    text = visible(f"{indent}{guard}{instruction.opcode} {operands}".rstrip())
    place = names.of_line(instruction.source) if instruction.source else ""
    if access is None:
        return text, place, True
    bits = f"{access.width_bits} bits" if access.width_bits else ""
    return text, f"{place} {access.space} {bits}".strip(), not is_narrow([access])


def _cut(text: str, width: int) -> Text:
    return Text(shortened(text, max(width, 1)), no_wrap=True)


def text(
    made: PtxReport | Diff, views: Sequence[str], *, width: int, color: bool, details: bool = False
) -> str:
    """Render as text in lines of at most `width` cells; with `views`, a target's code instead.

    With `details`, the text of one target has all its tables.
    """
    if isinstance(made, Diff):
        return render_diff_text(made, width=width, color=color)
    if views:
        return render_views(made, views, width=width, color=color)
    return render_ptx_text(made, width=width, color=color, details=details)
