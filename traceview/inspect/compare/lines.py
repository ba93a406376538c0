"""Memory accesses of several versions of a kernel, side by side by source line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from traceview.inspect.compare.matching import Matched, MatchRule, match
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.sass_vs_ptx import Place, place_of, widths
from traceview.inspect.source_text import excerpts
from traceview.ptx.model import Access, Function, Kind, Level, SourceLine
from traceview.records import record

LEVELS: tuple[Level, ...] = ("ptx", "sass")


@record
class LevelAccesses:
    """The accesses of one place at one level, counted by width in bits.

    `unsized` counts those of unknown width.
    """

    widths: Mapping[int, int]
    unsized: int = 0

    @property
    def count(self) -> int:
        """The number of instructions, those of unknown width included."""
        return sum(self.widths.values()) + self.unsized


@record
class PlaceAccesses:
    """The accesses of one source line in each version.

    `levels` has the accesses in PTX and in SASS, None for a version without code at that level. A
    level without an access in any version is left out.
    """

    kind: Kind
    space: str
    sources: tuple[SourceLine | None, ...]
    levels: Mapping[Level, tuple[LevelAccesses | None, ...]]

    def differs(self, level: Level) -> bool:
        """Whether the accesses differ between the versions."""
        first, *others = self.levels[level]
        return any(other != first for other in others)


def compared_lines(kernels: Sequence[KernelReport]) -> tuple[PlaceAccesses, ...]:
    """The accesses of all versions, matched by source line.

    Lines match if they are the same line of one file; else if they have the same text; else by
    their order among the loads (stores, …) of a memory space, if each version has as many.
    """
    places = [_places(kernel.accesses) for kernel in kernels]
    known = [_levels(kernel) for kernel in kernels]
    known_texts = {file: text for kernel in kernels for file, text in kernel.compiled.texts.items()}
    texts = _texts((place for each in places for place in each), known_texts)

    def by_text(place: Place) -> Hashable:
        # A line of unknown text matches no other.
        text = texts.get(place[0]) if place[0] else None
        return (text, *place[1:]) if text else place

    rules = (
        MatchRule[Place](lambda place: place, in_order=True),
        MatchRule[Place](by_text, in_order=True),
        MatchRule[Place](lambda place: place[1:], in_order=True),
    )
    joined = match([list(each) for each in places], rules)
    return tuple(_moves(same, places, known) for same in joined)


def _levels(kernel: KernelReport) -> set[Level]:
    """The levels at which a kernel's code is known."""
    functions: dict[Level, Function | None] = {"ptx": kernel.ptx, "sass": kernel.sass}
    known = {level for level, function in functions.items() if function}
    return known | {access.level for access in kernel.accesses}


def _places(accesses: Sequence[Access]) -> dict[Place, list[Access]]:
    places: dict[Place, list[Access]] = defaultdict(list)
    for access in accesses:
        places[place_of(access)].append(access)
    return dict(places)


def _texts(places: Iterable[Place], known: Mapping[str, str]) -> dict[SourceLine, str]:
    """The text of these lines, as far as their files are known or can be read."""
    sources = [source for source, _, _ in places if source]
    return {
        SourceLine(excerpt.file, number): text.strip()
        for excerpt in excerpts(sources, known)
        for number, text in excerpt.lines
    }


def _moves(
    same: Matched[Place],
    versions: Sequence[Mapping[Place, Sequence[Access]]],
    known: Sequence[set[Level]],
) -> PlaceAccesses:
    _, kind, space = next(place for place in same if place)
    each = [
        by_place[place] if place else () for place, by_place in zip(same, versions, strict=True)
    ]
    levels: dict[Level, tuple[LevelAccesses | None, ...]] = {
        level: tuple(
            _moved(accesses, level) if level in levels else None
            for accesses, levels in zip(each, known, strict=True)
        )
        for level in LEVELS
        if any(access.level == level for accesses in each for access in accesses)
    }
    return PlaceAccesses(kind, space, tuple(place[0] if place else None for place in same), levels)


def _moved(accesses: Sequence[Access], level: Level) -> LevelAccesses:
    at_level = [access for access in accesses if access.level == level]
    return LevelAccesses(widths(at_level), sum(a.count for a in at_level if not a.width_bits))
