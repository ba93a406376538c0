"""Counts of instructions by class: of a function, per source line, and per loop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from traceview.ptx.loops import loop_nest
from traceview.ptx.mix.classes import CLASSES, class_of
from traceview.ptx.model import Function, Instruction, Level, SourceLine
from traceview.records import record

_WORK = frozenset(CLASSES[:13]) - {"integer"}
"""Classes of useful work: a loop without any only polls (for a barrier, free memory)."""
_LOCK = {"atomic", "shared load", "shared store"}
"""The classes of a loop that polls for a lock: Triton hands the atomic's result to all threads."""


@record
class ClassCounts:
    """Instructions by class, in the order of CLASSES; classes without any are left out."""

    by_class: Mapping[str, int]

    @classmethod
    def of(cls, classes: Iterable[str]) -> ClassCounts:
        """Count a sequence of class names, one per instruction."""
        counts = Counter(classes)
        return cls({name: counts[name] for name in CLASSES if counts[name]})

    @property
    def total(self) -> int:
        """The number of instructions of all classes."""
        return sum(self.by_class.values())


@record
class LoopMix:
    """The instructions of a loop, those of inner loops included.

    `source` is the line of its back edge, normally the `for`; `depth` counts from 1; `header` is
    the index of its first instruction.
    """

    header: int
    source: SourceLine | None
    depth: int
    counts: ClassCounts
    instructions: frozenset[int]


@record
class LineMix:
    """The instructions of a source line. `loop_depth` is that of its deepest instruction.

    `in_hottest_loop` is the number of its instructions that are in the hottest loop.
    """

    source: SourceLine | None
    loop_depth: int
    counts: ClassCounts
    in_hottest_loop: int


@record
class InstructionMix:
    """The instructions of a kernel by class, for all of it and for its parts.

    `loops` are in program order, without those that only poll for a barrier or a lock; `lines` are
    by file and line.
    """

    level: Level
    counts: ClassCounts
    loops: tuple[LoopMix, ...]
    lines: tuple[LineMix, ...]

    @cached_property
    def hottest_loop(self) -> LoopMix | None:
        """The loop that likely takes the time; None without a loop."""
        return hottest(self.loops)


def hottest(loops: Sequence[LoopMix]) -> LoopMix | None:
    """The most deeply nested loop; among equals one with matrix products, then the largest.

    The code does not contain trip counts, so nesting stands in for them.
    """
    return max(loops, key=_heat, default=None)


def _heat(loop: LoopMix) -> tuple[int, bool, int]:
    return loop.depth, "MMA" in loop.counts.by_class, loop.counts.total


def instruction_mix(function: Function) -> InstructionMix:
    """The mix of a PTX or SASS function."""
    code = function.instructions
    classes = [class_of(instruction, function.level) for instruction in code]
    loops = tuple(_loops(function, classes))
    lines = tuple(_lines(code, classes, hottest(loops)))
    return InstructionMix(function.level, ClassCounts.of(classes), loops, lines)


def _loops(function: Function, classes: Sequence[str]) -> Iterator[LoopMix]:
    nest = loop_nest(len(classes), function.jumps)
    for header in sorted(nest.outer):
        inside = nest.within(header)
        counts = ClassCounts.of(classes[at] for at in inside)
        if _WORK.intersection(counts.by_class) not in (set(), _LOCK):
            source = _source(function, header, inside)
            yield LoopMix(header, source, nest.depth(header), counts, frozenset(inside))


def _source(function: Function, header: int, inside: Sequence[int]) -> SourceLine | None:
    """The line of the jump back to the header; the first line of the loop if it has none."""
    body = set(inside)
    back = [
        function.instructions[jump.at].source
        for jump in function.jumps
        if header in jump.targets and jump.at in body
    ]
    known = Counter(source for source in back if source)
    if known:
        return known.most_common(1)[0][0]
    lines = [source for at in inside if (source := function.instructions[at].source)]
    return min(lines, key=lambda source: (source.file, source.line), default=None)


def _lines(
    code: Sequence[Instruction], classes: Sequence[str], hot: LoopMix | None
) -> Iterator[LineMix]:
    places: dict[SourceLine | None, list[int]] = defaultdict(list)
    for at, instruction in enumerate(code):
        places[instruction.source].append(at)
    inside = hot.instructions if hot else frozenset()
    for source in sorted(places, key=_order):
        at_line = places[source]
        yield LineMix(
            source,
            max(code[at].loop_depth for at in at_line),
            ClassCounts.of(classes[at] for at in at_line),
            len(inside.intersection(at_line)),
        )


def _order(source: SourceLine | None) -> tuple[bool, str, int]:
    return (source is None, *((source.file, source.line) if source else ("", 0)))
