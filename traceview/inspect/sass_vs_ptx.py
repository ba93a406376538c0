"""Where SASS, which runs, is not what PTX, which is written, led to expect."""

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
    """What is held side by side between the levels: the accesses of one line, kind and space."""
    # An atomic whose result nobody reads is a reduction in SASS.
    kind = "atomic" if access.kind == "reduction" else access.kind
    return access.source, kind, access.space


def by_place(accesses: Iterable[Access], level: Level) -> dict[Place, list[Access]]:
    """The accesses of one level by place, in the order in which they come."""
    places: dict[Place, list[Access]] = defaultdict(list)
    for access in accesses:
        if access.level == level:
            places[place_of(access)].append(access)
    return dict(places)


def differences(
    accesses: Iterable[Access], besides: Collection[Place] = ()
) -> tuple[Difference, ...]:
    """The places where the widest access of SASS is not as wide as that of PTX.

    Counts alone are no difference: ptxas unrolls loops. A place that one level does not have is
    none either: line information is not kept to the letter. Nor is one of `besides`, where SASS
    moves what PTX does not count as an access.
    """
    listed = list(accesses)
    written, running = by_place(listed, "ptx"), by_place(listed, "sass")
    both = (place for place in written if place in running and place not in besides)
    found = (_difference(place, written[place], running[place]) for place in both)
    return tuple(difference for difference in found if difference)


def stores_of_tensor_maps(function: Function) -> set[Place]:
    """Where PTX fills in a tensor map in shared memory, which SASS does with plain stores."""
    return {
        (instruction.source, "store", "shared")
        for instruction in function.instructions
        if instruction.opcode.startswith("tensormap.replace") and ".shared" in instruction.opcode
    }


def widths(accesses: Sequence[Access]) -> Mapping[int, int]:
    """How many instructions there are of each width in bits, the widest first."""
    counts: dict[int, int] = defaultdict(int)
    for access in accesses:
        if access.width_bits:
            counts[access.width_bits] += access.count
    return dict(sorted(counts.items(), reverse=True))


def said(counts: Mapping[int, int]) -> str:
    """Widths in words: `2 × 128 bits`."""
    return " + ".join(f"{count} × {width} bits" for width, count in counts.items())


def _difference(
    place: Place, written: Sequence[Access], running: Sequence[Access]
) -> Difference | None:
    source, kind, space = place
    ptx, sass = widths(written), widths(running)
    # Without a source line everything falls into one place, and nothing can be told apart.
    if source is None or kind not in _COMPARED or space not in _SPACES or not (ptx and sass):
        return None
    change = _change(ptx, sass)
    return Difference(source, kind, space, change, said(ptx), said(sass)) if change else None


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
