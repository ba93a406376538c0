"""Matching the parts of two sides: the same work before and after, under whatever name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from traceview.comparison.comparison import Change
from traceview.comparison.figures import StepPart
from traceview.comparison.sides import PartKey, SidePart, configuration, part_key


@dataclass(frozen=True)
class MatchedParts:
    """Parts that are the same work on both sides; several where they only match together."""

    change: Change
    before: tuple[SidePart, ...]
    after: tuple[SidePart, ...]


_Key = Callable[[StepPart], PartKey | None]


def _other_configuration(part: StepPart) -> PartKey | None:
    return ("kernel", part.symbol, part.place) if part.kind == "kernel" else None


def _other_place(part: StepPart) -> PartKey | None:
    if part.kind == "idle":
        return None
    return (part.kind, part.group, part.symbol or part.name, configuration(part.shape))


def _same_kernel(part: StepPart) -> PartKey | None:
    return ("kernel", part.symbol) if part.kind == "kernel" else None


def _same_label(part: StepPart) -> PartKey | None:
    return None if part.kind == "idle" else (part.kind, part.group, part.name)


_LEVELS: tuple[tuple[Change, _Key], ...] = (
    ("same", part_key),
    ("reconfigured", _other_configuration),
    ("same", _other_place),
    ("reconfigured", _same_kernel),
    ("same", _same_label),
)
"""From the whole identity of a part to less and less of it; what is left over goes on."""


def match_parts(before: Sequence[SidePart], after: Sequence[SidePart]) -> Iterator[MatchedParts]:
    """Every part of both sides in exactly one match."""
    left, right = list(before), list(after)
    for change, key in _LEVELS:
        ours, theirs = _by_key(left, key), _by_key(right, key)
        shared = [each for each in ours if each in theirs]
        for each in shared:
            yield MatchedParts(change, tuple(ours[each]), tuple(theirs[each]))
        left = [side for side in left if key(side.part) not in theirs]
        right = [side for side in right if key(side.part) not in ours]
    yield from (MatchedParts("vanished", (each,), ()) for each in left)
    yield from (MatchedParts("appeared", (), (each,)) for each in right)


def _by_key(parts: Iterable[SidePart], key: _Key) -> dict[PartKey, list[SidePart]]:
    found: defaultdict[PartKey, list[SidePart]] = defaultdict(list)
    for each in parts:
        if (name := key(each.part)) is not None:
            found[name].append(each)
    return dict(found)


def longest(parts: Sequence[SidePart]) -> StepPart | None:
    """The part with most time; None without any."""
    return max(parts, key=lambda each: each.time_ns).part if parts else None


def total(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))
