"""Accesses that are narrower or wider in SASS than in the PTX they were made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from traceview.inspect.kernel_report import Difference
from traceview.ptx.model import Access, Function, Kind, Level, SourceLine

Place = tuple[SourceLine | None, Kind, str]
_COMPARED: tuple[Kind, ...] = ("load", "store", "async-copy")
_SPACES = ("global", "shared")


def place_of(access: Access) -> Place:
    """The source line, kind and memory space of an access, by which PTX and SASS are compared."""
    # An atomic whose result nobody reads is a reduction in SASS.
    kind = "atomic" if access.kind == "reduction" else access.kind
    return access.source, kind, access.space


def by_place(accesses: Iterable[Access], level: Level) -> dict[Place, list[Access]]:
    """The accesses of one level by place, in program order."""
    places: dict[Place, list[Access]] = defaultdict(list)
    for access in accesses:
        if access.level == level:
            places[place_of(access)].append(access)
    return dict(places)


def differences(
    accesses: Iterable[Access], ignored: Collection[Place] = ()
) -> tuple[Difference, ...]:
    """Places where the widest access in SASS is not as wide as the widest in PTX.

    Counts alone do not matter: ptxas unrolls loops. Places that only one level has are left out,
    as line information is not exact, and so are `ignored` ones, where SASS moves data for what is
    not an access in PTX.
    """
    listed = list(accesses)
    written, running = by_place(listed, "ptx"), by_place(listed, "sass")
    both = (place for place in written if place in running and place not in ignored)
    compared = (_difference(place, written[place], running[place]) for place in both)
    return tuple(difference for difference in compared if difference)


def stores_of_tensor_maps(function: Function) -> set[Place]:
    """Places where PTX fills in a tensor map in shared memory, for which SASS has plain stores."""
    return {
        (instruction.source, "store", "shared")
        for instruction in function.instructions
        if instruction.opcode.startswith("tensormap.replace") and ".shared" in instruction.opcode
    }


def widths(accesses: Sequence[Access]) -> Mapping[int, int]:
    """The number of instructions by width in bits, the widest first."""
    counts: dict[int, int] = defaultdict(int)
    for access in accesses:
        if access.width_bits:
            counts[access.width_bits] += access.count
    return dict(sorted(counts.items(), reverse=True))


def widths_text(counts: Mapping[int, int]) -> str:
    """Widths as text: `2 × 128 bits + 1 × 32 bits`."""
    return " + ".join(f"{count} × {width} bits" for width, count in counts.items())


def _difference(
    place: Place, written: Sequence[Access], running: Sequence[Access]
) -> Difference | None:
    source, kind, space = place
    ptx, sass = widths(written), widths(running)
    # Without source lines all accesses share one place, and none can be matched.
    if source is None or kind not in _COMPARED or space not in _SPACES or not (ptx and sass):
        return None
    change = _change(ptx, sass)
    return (
        Difference(source, kind, space, change, widths_text(ptx), widths_text(sass))
        if change
        else None
    )


def _change(
    ptx: Mapping[int, int], sass: Mapping[int, int]
) -> Literal["narrowed", "split", "widened"] | None:
    if max(sass) == max(ptx):
        return None
    if max(sass) > max(ptx):
        return "widened"
    return "narrowed" if _bits(sass) < _bits(ptx) else "split"


def _bits(counts: Mapping[int, int]) -> int:
    return sum(width * count for width, count in counts.items())
