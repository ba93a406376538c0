"""The code of a kernel on a page: source, Triton's stages, PTX and SASS, linked line by line.

It works without scripts: links jump, and style rules highlight all code from the source line under
the pointer or jumped to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from traceview.base.records import record
from traceview.kernels.inspect.kernel_report import Excerpt, KernelReport, excerpts
from traceview.kernels.ptx.accesses import access_finder
from traceview.kernels.ptx.model import Access, Function, Instruction, SourceLine
from traceview.kernels.ptx.stages import StageLine, stage_lines
from traceview.render.base.code import CodeBlock, CodeLine, CodeLink
from traceview.render.base.safe_text import visible
from traceview.render.kernels.names import SourceNames
from traceview.render.kernels.text import (
    accesses_by_line,
    instruction_row,
    is_narrow,
    margin,
)

MOST_LINES = 4_000
"""Most lines of a listing on the page; the terminal shows all."""

_MOST_STAGE_LINES = 2_000
_STAGE_LINE = 240

_MOST_RULES = 250
_LINE = 1_000


@record
class CodeView:
    """All code of a kernel. `lines` has the ids of the source lines shown on the page."""

    sources: tuple[CodeBlock, ...]
    listings: tuple[CodeBlock, ...]
    lines: Mapping[SourceLine, str]
    marks: tuple[str, ...]


def code_view(
    kernel: KernelReport, key: str, names: SourceNames, stages: Sequence[str] = ()
) -> CodeView:
    """The code of a kernel; ids begin with `key`, which is unique on the page.

    `stages` are the Triton stages to show, such as ttgir.
    """
    return _Drawing(kernel, key, names, stages).code()


def ptx_block(function: Function, most: int = MOST_LINES) -> CodeBlock:
    """A listing on its own: each instruction with its source line and access width."""
    names, find = SourceNames({}), access_finder(function)
    lines = []
    for each in function.instructions[:most]:
        link = (CodeLink(names.of_line(each.source), ""),) if each.source else ()
        lines.append(_instruction_line(each, find(each), names, links=link))
    left_out = len(function.instructions) - len(lines)
    return CodeBlock("PTX", tuple(lines), left_out=left_out)


def rules(key: str, code: CodeView) -> Iterator[str]:
    """Style rules that highlight a source line together with all code from it."""
    for mark in code.marks:
        yield (
            f"#{key}:has(.{mark}:hover) .{mark},#{key}:has(.{mark}:target) .{mark}"
            "{background:var(--lit)}"
        )


@record
class _Drawing:
    kernel: KernelReport
    key: str
    names: SourceNames
    shown_stages: Sequence[str]

    def code(self) -> CodeView:
        return CodeView(
            sources=tuple(self._source(excerpt) for excerpt in self._excerpts),
            listings=(
                *(self._stage(stage, lines) for stage, lines in self._stages.items()),
                *(self._listing(level, f) for level, f in self._functions.items()),
            ),
            lines=self._ids,
            marks=tuple(self._marks.values())[:_MOST_RULES],
        )

    @cached_property
    def _functions(self) -> dict[str, Function]:
        listings = {"PTX": self.kernel.ptx, "SASS": self.kernel.sass}
        return {level: function for level, function in listings.items() if function}

    @cached_property
    def _stages(self) -> dict[str, tuple[StageLine, ...]]:
        texts = self.kernel.compiled.stages
        return {
            stage.upper(): stage_lines(stage, texts[stage])
            for stage in self.shown_stages
            if stage in texts
        }

    @cached_property
    def _accesses(self) -> dict[SourceLine, list[Access]]:
        return accesses_by_line(self.kernel)

    @cached_property
    def _excerpts(self) -> list[Excerpt]:
        return excerpts(self._marks, self.kernel.compiled.texts)

    @cached_property
    def _marks(self) -> dict[SourceLine, str]:
        """A CSS class for each source line that code or accesses come from."""
        listed = (f.instructions[:MOST_LINES] for f in self._functions.values())
        stages = (lines[:_MOST_STAGE_LINES] for lines in self._stages.values())
        sources = dict.fromkeys(
            [
                *self._accesses,
                *(i.source for each in listed for i in each),
                *(line.source for each in stages for line in each),
            ]
        )
        return {source: f"s{number}" for number, source in enumerate(filter(None, sources))}

    @cached_property
    def _ids(self) -> dict[SourceLine, str]:
        shown = (SourceLine(e.file, number) for e in self._excerpts for number, _ in e.lines)
        return {line: f"{self.key}-{self._marks[line]}" for line in shown if line in self._marks}

    @cached_property
    def _jumps(self) -> dict[str, dict[SourceLine, int]]:
        """By listing and source line, the row to jump to: the first access, else the first."""
        jumps = {
            stage: _first(enumerate(lines[:_MOST_STAGE_LINES]))
            for stage, lines in self._stages.items()
        }
        for level, function in self._functions.items():
            find, places = access_finder(function), list(enumerate(function.instructions))
            places = places[:MOST_LINES]
            jumps[level] = _first([*((at, i) for at, i in places if find(i)), *places])
        return jumps

    def _place(self, level: str, place: int) -> str:
        return f"{self.key}-{level.lower()}{place}"

    def _source(self, excerpt: Excerpt) -> CodeBlock:
        title = self.names.of_line(SourceLine(excerpt.file, 1)).rpartition(":")[0]
        numbers = [number for number, _ in excerpt.lines]
        gaps = {second for before, second in pairwise(numbers) if second > before + 1}
        lines = (
            self._source_line(SourceLine(excerpt.file, number), text, number in gaps)
            for number, text in excerpt.lines
        )
        return CodeBlock(title, tuple(lines), excerpt.missing or "")

    def _source_line(self, source: SourceLine, text: str, after_gap: bool) -> CodeLine:
        accesses = self._accesses.get(source, [])
        links = (
            CodeLink(level, self._place(level, places[source]))
            for level, places in self._jumps.items()
            if source in places
        )
        return CodeLine(
            text=visible(text.expandtabs(4), _LINE),
            margin=margin(accesses),
            narrow=is_narrow(accesses),
            id=self._ids.get(source),
            mark=self._marks.get(source),
            links=tuple(links),
            number=source.line,
            after_gap=after_gap,
        )

    def _stage(self, stage: str, lines: tuple[StageLine, ...]) -> CodeBlock:
        jumped_to = set(self._jumps[stage].values())
        shown = (
            CodeLine(
                text=visible(line.text, _STAGE_LINE),
                margin="",
                narrow=False,
                id=self._place(stage, at) if at in jumped_to else None,
                mark=self._marks.get(line.source) if line.source else None,
                links=self._link(line.source),
            )
            for at, line in enumerate(lines[:_MOST_STAGE_LINES])
        )
        left_out = max(0, len(lines) - _MOST_STAGE_LINES)
        return CodeBlock(stage, tuple(shown), left_out=left_out, unit="lines")

    def _link(self, source: SourceLine | None) -> tuple[CodeLink, ...]:
        if source is None:
            return ()
        return (CodeLink(self.names.of_line(source), self._ids.get(source, "")),)

    def _listing(self, level: str, function: Function) -> CodeBlock:
        shown = function.instructions[:MOST_LINES]
        find, jumped_to = access_finder(function), set(self._jumps[level].values())
        lines = (
            _instruction_line(
                each,
                find(each),
                self.names,
                id=self._place(level, at) if at in jumped_to else None,
                mark=self._marks.get(each.source) if each.source else None,
                links=self._link(each.source),
            )
            for at, each in enumerate(shown)
        )
        return CodeBlock(level, tuple(lines), left_out=len(function.instructions) - len(shown))


def _instruction_line(
    instruction: Instruction, access: Access | None, names: SourceNames, **linked: Any
) -> CodeLine:
    text, note, wide = instruction_row(instruction, access, names)
    where = names.of_line(instruction.source) if instruction.source else ""
    return CodeLine(text, note.removeprefix(where).strip(), not wide, **linked)


def _first(places: Iterable[tuple[int, StageLine | Instruction]]) -> dict[SourceLine, int]:
    first: dict[SourceLine, int] = {}
    for place, line in places:
        if line.source:
            first.setdefault(line.source, place)
    return first
