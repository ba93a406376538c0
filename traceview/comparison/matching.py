"""Matching the parts of two sides: the same work before and after, under whatever name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from traceview.comparison.comparison import Change
from traceview.comparison.figures import RunFigures, StepPart
from traceview.comparison.renames import RENAMED_KINDS, Rename, StepSequence, find_renames, portion
from traceview.comparison.sides import PartKey, SidePart, configuration, part_key, side_parts
from traceview.records import record

# Names that compilers give kernels, without the lines, counters and hashes that edits change.

_FORMS = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        # nvc: nvkernel_solve_F1L204_2, main_42_gpu
        (r"_F\d+L\d+(_\d+)?$", "_#"),
        (r"_\d+(_gpu(__\w+)?)$", r"_#\1"),
        # clang: __omp_offloading_31_18a8104__Z5triadllll_l41
        (r"^(__omp_offloading)_[0-9a-f]+_[0-9a-f]+(_.*?)(_l\d+)?$", r"\1_#\2_#"),
        # nvcc: _ZN50_GLOBAL__N__2530b397_17_RangeFactories_cu_4cc9e74429elementwise_kernel…
        (r"(_GLOBAL__N__)[0-9a-f]+", r"\1#"),
        (r"(#_\w+?_cu_)[0-9a-f]{8}", r"\1#"),
        # Inductor and XLA: Inductor pointwise to_copy_t_3, loop_add_fusion_3, wrapped_add_1
        (r"^(Inductor .*)_\d+$", r"\1_#"),
        (r"^(\w*fusion|wrapped_\w+?)(_\d+)+$", r"\1_#"),
        # Warp: advance_5f0b8c1d_cuda_kernel_forward; Julia: julia_axpy_1342
        (r"_[0-9a-f]{8}(_cuda_kernel_(forward|backward))$", r"_#\1"),
        (r"^(julia_\w+?)_\d+$", r"\1_#"),
    )
)
_NUMBER = re.compile(r"\d+")


def without_counters(name: str) -> str:
    """The name with `#` for each line number, counter or hash that its compiler put in."""
    for form, put in _FORMS:
        name = form.sub(put, name)
    return name


def places_in_order(names: Iterable[str]) -> Mapping[str, tuple[str, int, int]]:
    """For each name with a counter: the name without it, its rank among equal ones, their number.

    An edit changes lines and counters but keeps their order.
    """
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        if (rest := without_counters(name)) != name:
            alike[rest].add(name)
    return {
        name: (rest, place, len(own))
        for rest, own in alike.items()
        for place, name in enumerate(sorted(own, key=_numbers))
    }


def _numbers(name: str) -> tuple[list[int], str]:
    return [int(number) for number in _NUMBER.findall(name)], name


@record
class MatchedParts:
    """Parts that are the same work on both sides; several where they match only as a group."""

    change: Change
    before: tuple[SidePart, ...]
    after: tuple[SidePart, ...]


_Key = Callable[[StepPart], PartKey | None]


def _same_code(part: StepPart) -> PartKey | None:
    """The key of idle time by the code at its line, as the line may have moved."""
    return ("idle", part.name, part.symbol) if part.kind == "idle" and part.symbol else None


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


def _same_direction(part: StepPart) -> PartKey | None:
    """The key of copies by direction, whatever the kind of host memory."""
    return ("copy", part.group) if part.kind == "copy" else None


_LEVELS: tuple[tuple[Change, _Key], ...] = (
    ("same", part_key),
    ("same", _same_code),
    ("reconfigured", _other_configuration),
    ("same", _other_place),
    ("reconfigured", _same_kernel),
    ("same", _same_label),
    ("reconfigured", _same_direction),
)
"""From the whole identity of a part to less and less of it; what is left over goes on."""


def match_runs(before: Sequence[RunFigures], after: Sequence[RunFigures]) -> list[MatchedParts]:
    """The parts of both sides, matched; their times add up to the mean step of each side."""
    matches = match_parts(side_parts(before), side_parts(after))
    return _with_renames(matches, StepSequence.of(before), StepSequence.of(after))


def match_parts(before: Sequence[SidePart], after: Sequence[SidePart]) -> list[MatchedParts]:
    """Every part of both sides in exactly one match, by name."""
    left, right, matches = list(before), list(after), []
    for change, key in _levels(before, after):
        shared, left, right = _shared(left, right, change, (key, key))
        matches += shared
    shared, left, right = _shared(left, right, "same", (_in_order(left), _in_order(right)))
    matches += shared
    matches += [MatchedParts("vanished", (each,), ()) for each in left]
    matches += [MatchedParts("appeared", (), (each,)) for each in right]
    return matches


def _shared(
    before: list[SidePart], after: list[SidePart], change: Change, keys: tuple[_Key, _Key]
) -> tuple[list[MatchedParts], list[SidePart], list[SidePart]]:
    """The matches of parts with equal keys, and the parts of each side that are left over."""
    ours, theirs = _by_key(before, keys[0]), _by_key(after, keys[1])
    matches = [
        MatchedParts(change, tuple(parts), tuple(theirs[key]))
        for key, parts in ours.items()
        if key in theirs
    ]
    left = [side for side in before if keys[0](side.part) not in theirs]
    return matches, left, [side for side in after if keys[1](side.part) not in ours]


def _in_order(side: Sequence[SidePart]) -> _Key:
    """The key of kernels whose names hold a compiler's counters, such as lines, without these.

    Kernels of equal names match by rank, if both sides have equally many.
    """
    places = places_in_order(each.part.name for each in side if each.part.kind == "kernel")

    def key(part: StepPart) -> PartKey | None:
        if part.kind != "kernel" or part.name not in places:
            return None
        rest, place, number = places[part.name]
        return ("kernel", part.group, rest, f"{place} of {number}")

    return key


def _levels(
    before: Sequence[SidePart], after: Sequence[SidePart]
) -> tuple[tuple[Change, _Key], ...]:
    """The levels of matching; if only one side has places, the last one is idle time by cause."""
    placed = [any(each.part.place for each in side) for side in (before, after)]
    if all(placed) or not any(placed):
        return _LEVELS
    return (*_LEVELS, ("same", lambda part: ("idle", part.name) if part.kind == "idle" else None))


def _by_key(parts: Iterable[SidePart], key: _Key) -> dict[PartKey, list[SidePart]]:
    by_key: defaultdict[PartKey, list[SidePart]] = defaultdict(list)
    for each in parts:
        if (name := key(each.part)) is not None:
            by_key[name].append(each)
    return dict(by_key)


def _with_renames(
    matches: list[MatchedParts], before: StepSequence, after: StepSequence
) -> list[MatchedParts]:
    """The matches, with calls of kernels on one side only matched to those they replaced."""
    left = frozenset(
        part_key(each.part)
        for match in matches
        if not (match.before and match.after)
        for each in (*match.before, *match.after)
        if each.part.kind in RENAMED_KINDS
    )
    if not left:
        return matches
    matched = {
        part_key(each.part): number
        for number, match in enumerate(matches)
        if match.before and match.after
        for each in (*match.before, *match.after)
    }
    taken: list[MatchedParts] = []
    sides = [_by_identity(matches, which) for which in ("before", "after")]
    rest = [dict(side) for side in sides]
    for each in find_renames(before, after, matched, left):
        taken.append(_renamed(each, (before, after), sides, rest))
    kept = [
        replace(
            match,
            before=tuple(rest[0].get(part_key(s.part), s) for s in match.before),
            after=tuple(rest[1].get(part_key(s.part), s) for s in match.after),
        )
        for match in matches
    ]
    return [*taken, *(match for match in kept if _is_there(match))]


def _by_identity(matches: Iterable[MatchedParts], which: str) -> dict[PartKey, SidePart]:
    return {part_key(s.part): s for match in matches for s in getattr(match, which)}


def _renamed(
    rename: Rename,
    sequences: tuple[StepSequence, StepSequence],
    whole: Sequence[dict[PartKey, SidePart]],
    rest: Sequence[dict[PartKey, SidePart]],
) -> MatchedParts:
    """The match of the calls of a rename; takes these calls out of their parts in `rest`."""
    taken = []
    for number, (key, time_ns) in enumerate(
        ((rename.before, rename.before_ns), (rename.after, rename.after_ns))
    ):
        part = portion(whole[number][key], sequences[number], rename.calls, time_ns)
        left = rest[number][key]
        rest[number][key] = replace(
            left, time_ns=left.time_ns - part.time_ns, calls=left.calls - part.calls
        )
        taken.append(part)
    return MatchedParts("renamed", (taken[0],), (taken[1],))


def _is_there(match: MatchedParts) -> bool:
    """Whether anything of a match is left after its renamed calls were taken out."""
    return any(each.time_ns or each.calls for each in (*match.before, *match.after))
