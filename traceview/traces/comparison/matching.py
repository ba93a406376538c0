"""Matching the parts of two sides: the same work before and after, under whatever name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from traceview.base.records import record
from traceview.traces.comparison import comparison, figures, renames

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

    def numbers(name: str) -> tuple[list[int], str]:
        return [int(number) for number in _NUMBER.findall(name)], name

    return {
        name: (rest, place, len(same))
        for rest, same in alike.items()
        for place, name in enumerate(sorted(same, key=numbers))
    }


@record
class MatchedParts:
    """Parts that are the same work on both sides; several where they match only as a group."""

    change: comparison.Change
    before: tuple[figures.SidePart, ...]
    after: tuple[figures.SidePart, ...]


_Key = Callable[[figures.StepPart], figures.PartKey | None]


def _other_place(part: figures.StepPart) -> figures.PartKey | None:
    if part.kind == "idle":
        return None
    return (part.kind, part.group, part.symbol or part.name, figures.configuration(part.shape))


def _by_fields(kind: figures.PartKind, *names: str) -> _Key:
    """The key of parts of one kind by these fields; None for others, and without a symbol."""

    def key(part: figures.StepPart) -> figures.PartKey | None:
        values = tuple(getattr(part, name) for name in names)
        without_code = kind == "idle" and "symbol" in names and not part.symbol
        return None if part.kind != kind or without_code else (kind, *values)

    return key


_LEVELS: tuple[tuple[comparison.Change, _Key], ...] = (
    ("same", figures.part_key),
    # Idle time by the code at its line, as the line may have moved.
    ("same", _by_fields("idle", "name", "symbol")),
    ("reconfigured", _by_fields("kernel", "symbol", "place")),
    ("same", _other_place),
    ("reconfigured", _by_fields("kernel", "symbol")),
    ("same", lambda part: None if part.kind == "idle" else (part.kind, part.group, part.name)),
    # Copies by direction, whatever the kind of host memory.
    ("reconfigured", _by_fields("copy", "group")),
)
"""From the whole identity of a part to less and less of it; what is left over goes on."""


def match_runs(
    before: Sequence[figures.RunFigures], after: Sequence[figures.RunFigures]
) -> list[MatchedParts]:
    """The parts of both sides, matched; their times add up to the mean step of each side."""
    matches = match_parts(figures.side_parts(before), figures.side_parts(after))
    return _with_renames(matches, renames.StepSequence.of(before), renames.StepSequence.of(after))


def match_parts(
    before: Sequence[figures.SidePart], after: Sequence[figures.SidePart]
) -> list[MatchedParts]:
    """Every part of both sides in exactly one match, by name."""
    left, right, matches = list(before), list(after), []
    levels = list(_LEVELS)
    if len({any(side.part.place for side in of) for of in (before, after)}) > 1:
        # If only one side has places, idle time matches by its cause at last.
        levels.append(("same", _by_fields("idle", "name")))
    for change, key in levels:
        shared, left, right = _shared(left, right, change, (key, key))
        matches += shared
    shared, left, right = _shared(left, right, "same", (_in_order(left), _in_order(right)))
    matches += shared
    matches += [MatchedParts("vanished", (side,), ()) for side in left]
    matches += [MatchedParts("appeared", (), (side,)) for side in right]
    return matches


def _shared(
    before: list[figures.SidePart],
    after: list[figures.SidePart],
    change: comparison.Change,
    keys: tuple[_Key, _Key],
) -> tuple[list[MatchedParts], list[figures.SidePart], list[figures.SidePart]]:
    """The matches of parts with equal keys, and the parts of each side that are left over."""
    ours, theirs = _by_key(before, keys[0]), _by_key(after, keys[1])
    matches = [
        MatchedParts(change, tuple(parts), tuple(theirs[key]))
        for key, parts in ours.items()
        if key in theirs
    ]
    left = [side for side in before if keys[0](side.part) not in theirs]
    return matches, left, [side for side in after if keys[1](side.part) not in ours]


def _in_order(side: Sequence[figures.SidePart]) -> _Key:
    """The key of kernels whose names hold a compiler's counters, such as lines, without these.

    Kernels of equal names match by rank, if both sides have equally many.
    """
    places = places_in_order(one.part.name for one in side if one.part.kind == "kernel")

    def key(part: figures.StepPart) -> figures.PartKey | None:
        if part.kind != "kernel" or part.name not in places:
            return None
        rest, place, number = places[part.name]
        return ("kernel", part.group, rest, f"{place} of {number}")

    return key


def _by_key(
    parts: Iterable[figures.SidePart], key: _Key
) -> dict[figures.PartKey, list[figures.SidePart]]:
    by_key: defaultdict[figures.PartKey, list[figures.SidePart]] = defaultdict(list)
    for side in parts:
        if (name := key(side.part)) is not None:
            by_key[name].append(side)
    return dict(by_key)


def _with_renames(
    matches: list[MatchedParts], before: renames.StepSequence, after: renames.StepSequence
) -> list[MatchedParts]:
    """The matches, with calls of kernels on one side only matched to those they replaced."""
    left = frozenset(
        figures.part_key(side.part)
        for match in matches
        if not (match.before and match.after)
        for side in (*match.before, *match.after)
        if side.part.kind in renames.RENAMED_KINDS
    )
    if not left:
        return matches
    matched = {
        figures.part_key(side.part): number
        for number, match in enumerate(matches)
        if match.before and match.after
        for side in (*match.before, *match.after)
    }
    wholes = (
        {figures.part_key(side.part): side for match in matches for side in match.before},
        {figures.part_key(side.part): side for match in matches for side in match.after},
    )
    rests = tuple(dict(whole) for whole in wholes)
    renamed = []
    for rename in renames.find_renames(before, after, matched, left):
        sides = (
            (before, rename.before, rename.before_ns, wholes[0], rests[0]),
            (after, rename.after, rename.after_ns, wholes[1], rests[1]),
        )
        parts = []
        for sequence, key, time_ns, whole, rest in sides:
            part = renames.portion(whole[key], sequence, rename.calls, time_ns)
            rest[key] = replace(
                rest[key],
                time_ns=rest[key].time_ns - part.time_ns,
                calls=rest[key].calls - part.calls,
            )
            parts.append(part)
        renamed.append(MatchedParts("renamed", (parts[0],), (parts[1],)))
    kept = (
        replace(
            match,
            before=tuple(rests[0].get(figures.part_key(side.part), side) for side in match.before),
            after=tuple(rests[1].get(figures.part_key(side.part), side) for side in match.after),
        )
        for match in matches
    )
    return [
        *renamed,
        *(m for m in kept if any(side.time_ns or side.calls for side in (*m.before, *m.after))),
    ]
