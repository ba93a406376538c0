"""Memory accesses of several versions of a kernel, side by side by source line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from traceview.inspect.compare.matching import MatchRule, match
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.sass_vs_ptx import Place, place_of, widths
from traceview.inspect.source_text import excerpts
from traceview.ptx.model import Access, Kind, Level, SourceLine
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
    versions: list[dict[Place, list[Access]]] = []
    for kernel in kernels:
        places: dict[Place, list[Access]] = defaultdict(list)
        for access in kernel.accesses:
            places[place_of(access)].append(access)
        versions.append(dict(places))
    stored = {file: text for kernel in kernels for file, text in kernel.compiled.texts.items()}
    sources = [source for places in versions for source, _, _ in places if source]
    texts = {
        SourceLine(excerpt.file, number): text.strip()
        for excerpt in excerpts(sources, stored)
        for number, text in excerpt.lines
    }

    def by_text(place: Place) -> Hashable:
        # A line of unknown text matches no other.
        text = texts.get(place[0]) if place[0] else None
        return (text, *place[1:]) if text else place

    rules = (
        MatchRule[Place](lambda place: place, in_order=True),
        MatchRule[Place](by_text, in_order=True),
        MatchRule[Place](lambda place: place[1:], in_order=True),
    )
    compared = []
    for same in match([list(places) for places in versions], rules):
        _, kind, space = next(place for place in same if place)
        accesses = [
            places[place] if place else [] for place, places in zip(same, versions, strict=True)
        ]
        levels = {
            level: tuple(_at_level(*side, level) for side in zip(kernels, accesses, strict=True))
            for level in LEVELS
            if any(access.level == level for listed in accesses for access in listed)
        }
        lines = tuple(place[0] if place else None for place in same)
        compared.append(PlaceAccesses(kind, space, lines, levels))
    return tuple(compared)


def _at_level(kernel: KernelReport, accesses: list[Access], level: Level) -> LevelAccesses | None:
    """The accesses of one place at a level; None if the kernel's code at that level is unknown."""
    code = kernel.ptx if level == "ptx" else kernel.sass
    if not code and all(access.level != level for access in kernel.accesses):
        return None
    listed = [access for access in accesses if access.level == level]
    return LevelAccesses(widths(listed), sum(a.count for a in listed if not a.width_bits))
