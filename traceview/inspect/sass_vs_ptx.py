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
    running = by_place(listed, "sass")
    found = []
    for place, written in by_place(listed, "ptx").items():
        source, kind, space = place
        # Without source lines all accesses share one place, and none can be matched.
        if source is None or kind not in _COMPARED or space not in _SPACES or place in ignored:
            continue
        ptx, sass = widths(written), widths(running.get(place, ()))
        if not (ptx and sass) or max(sass) == max(ptx):
            continue
        bits = [sum(width * count for width, count in side.items()) for side in (ptx, sass)]
        change: Literal["narrowed", "split", "widened"] = "widened"
        if max(sass) < max(ptx):
            change = "narrowed" if bits[1] < bits[0] else "split"
        texts = widths_text(ptx), widths_text(sass)
        found.append(Difference(source, kind, space, change, *texts))
    return tuple(found)


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
