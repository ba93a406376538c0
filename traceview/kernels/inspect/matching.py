"""Matching across versions: kernels by configuration, lines, findings, accesses side by side.

A rule gives an item a key; items with the same key in different versions match. Rules are tried
from the strictest to the loosest, and each leaves alone the items that earlier rules matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from traceview.base.records import record
from traceview.kernels.inspect.kernel_report import KernelReport, excerpts
from traceview.kernels.inspect.recompilations import Place, place_of, widths
from traceview.kernels.ptx.model import Access, Function, Kind, Level, SourceLine

T = TypeVar("T")
_Position = tuple[int, int]
"""The number of a version, and of an item in it."""
Matched = tuple[T | None, ...]


@record
class MatchRule(Generic[T]):
    """A key for an item, unique in each version.

    With `in_order` several items of one key, as many in each version, match in their order.
    """

    key: Callable[[T], Hashable]
    in_order: bool = False


def match(versions: Sequence[Sequence[T]], rules: Iterable[MatchRule[T]]) -> list[Matched[T]]:
    """Tuples of matching items, one item or None per version, in order of first appearance.

    An item without a counterpart in any other version is alone in its tuple.
    """
    rules = tuple(rules)
    places: dict[_Position, _Position] = {}
    count = len(versions)
    # Keys that every version has come first: of three, two must not be matched too early.
    for least in range(count, 1, -1):
        for rule in rules:
            _join(versions, rule, least, places)
    joined: dict[_Position, list[T | None]] = {}
    for version, items in enumerate(versions):
        for index, item in enumerate(items):
            first = places.get((version, index), (version, index))
            joined.setdefault(first, [None] * count)[version] = item
    return [tuple(items) for items in joined.values()]


def _join(
    versions: Sequence[Sequence[T]],
    rule: MatchRule[T],
    least: int,
    places: dict[_Position, _Position],
) -> None:
    """Match the items that have the same key by one rule in at least `least` versions.

    Without `in_order` matched items still count as items of their key: the last two left over need
    not be alike.
    """
    keyed = [_by_key(items, rule) for items in versions]
    for key in dict.fromkeys(key for each in keyed for key in each):
        positions = [[(v, i) for i in each.get(key, ())] for v, each in enumerate(keyed)]
        if rule.in_order:
            positions = [[place for place in each if place not in places] for each in positions]
        positions = [each for each in positions if each]
        counts = {len(each) for each in positions}
        if len(positions) < least or len(counts) > 1 or not (rule.in_order or counts == {1}):
            continue
        for same in zip(*positions, strict=True):
            if not any(place in places for place in same):
                places.update(dict.fromkeys(same, same[0]))


def _by_key(items: Sequence[T], rule: MatchRule[T]) -> dict[Hashable, list[int]]:
    by_key: dict[Hashable, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        by_key[rule.key(item)].append(index)
    return by_key


def match_kernels(
    versions: Sequence[Sequence[KernelReport]], varied: frozenset[str] = frozenset()
) -> list[Matched[KernelReport]]:
    """The kernels of several versions, matched by name and configuration.

    `varied` are the constexprs, or `num_warps` and `num_stages`, that differ on purpose. Where
    every version has kernels of one name only, the names need not be equal. A configuration that
    no other version has stays alone.
    """
    named = not all(len({kernel.name for kernel in kernels}) == 1 for kernels in versions)

    def rule(
        parts: Callable[[KernelReport], Hashable], in_order: bool = False
    ) -> MatchRule[KernelReport]:
        return MatchRule(lambda k: (named and k.name, parts(k)), in_order)

    return match(
        versions,
        (
            rule(lambda k: (_block(k, varied), _types(k), _constexprs(k, varied)), in_order=True),
            rule(lambda k: (_types(k), _constexprs(k, varied))),
            rule(_types),
            rule(lambda _: None),
        ),
    )


def _block(kernel: KernelReport, varied: frozenset[str]) -> Hashable:
    compiled = kernel.compiled
    each = {"num_warps": compiled.num_warps, "num_stages": compiled.num_stages}
    return tuple(value for name, value in each.items() if name not in varied)


def _types(kernel: KernelReport) -> Hashable:
    """The types of the run-time arguments, and whether they are divisible by 16."""
    return tuple(
        (argument.type, argument.divisible_by_16)
        for argument in kernel.compiled.arguments
        if argument.type != "constexpr"
    )


def _constexprs(kernel: KernelReport, varied: frozenset[str]) -> Hashable:
    return frozenset(
        (argument.name, repr(argument.value))
        for argument in kernel.compiled.arguments
        if argument.type == "constexpr" and argument.name not in varied
    )


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
