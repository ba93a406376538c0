"""How many elements a thread moves, from the widths of a kernel's accesses.

**Elements per thread**: of all lines of the user's program, take the one whose global loads move
most bits in one pass; where nothing is loaded, the one whose stores do. Count the bits that a
thread moves there (width × count, summed over the instructions of that line at its greatest loop
depth) and divide by the bits of an element and by the number of arrays that the line reads.
Asynchronous copies count as loads. An element is what the pointer of the access points to; where
that is not known, the type in the opcode, by which two fp16 in a b32 count as one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from traceview.ptx.model import Access, Argument, Kind, SourceLine

_OPCODE_BITS = re.compile(r"\.[a-z]+(\d+)$")
_LOADS: tuple[Kind, ...] = ("load", "async-copy")
_STORES: tuple[Kind, ...] = ("store",)


def pointee_bits(argument: Argument) -> int | None:
    """The bits of what a pointer argument (`*fp32`) points to; None if it is no pointer."""
    if not argument.type.startswith("*"):
        return None
    name = argument.type.lstrip("*").removeprefix("k").partition(":")[0]
    if name.startswith("fp8") or name == "i1":
        return 8
    found = re.search(r"(\d+)$", name)
    return int(found[1]) if found else None


def bits_per_pass(accesses: Sequence[Access]) -> int:
    """The bits that a thread moves in one pass of the innermost loop over these accesses."""
    deepest = max((access.loop_depth for access in accesses), default=0)
    return sum(
        (access.width_bits or 0) * access.count
        for access in accesses
        if access.loop_depth == deepest
    )


def elements_per_thread(
    accesses: Iterable[Access],
    element_bits: Callable[[Access], int | None] = lambda _: None,
    arrays: Callable[[Sequence[Access]], int] = lambda _: 1,
) -> int | None:
    """The elements of global memory that a thread moves, as defined above; None without any.

    `element_bits` tells the bits of an element of an access, where that is known, and `arrays`
    how many arrays accesses touch.
    """
    listed = [a for a in accesses if a.space == "global" and a.width_bits]
    for kinds in (_LOADS, _STORES):
        lines = _by_line(access for access in listed if access.kind in kinds)
        if lines:
            most = max(lines, key=bits_per_pass)
            size = (element_bits(most[0]) or _opcode_bits(most)) * arrays(most)
            return bits_per_pass(most) // size or None
    return None


def _by_line(accesses: Iterable[Access]) -> list[list[Access]]:
    lines: dict[SourceLine | None, list[Access]] = defaultdict(list)
    for access in accesses:
        lines[access.source].append(access)
    return list(lines.values())


def _opcode_bits(accesses: Sequence[Access]) -> int:
    """The bits of the opcode's type; 32 for a copy, whose opcode has none."""
    found = [_OPCODE_BITS.search(access.opcode) for access in accesses]
    return min((int(match[1]) for match in found if match), default=32)
