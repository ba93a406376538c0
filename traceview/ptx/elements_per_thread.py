"""Elements per thread, from the widths of a kernel's accesses.

**Elements per thread**: take the source line whose global loads move the most bits per iteration
(its global stores, if nothing is loaded). Sum the widths of the instructions of that line that a
thread executes in one pass of its innermost loop, and divide by the element size and by the number
of arrays that the line reads. Asynchronous copies count as loads. The element size is that of the
pointer's type; where that is not known, of the type in the opcode, which counts two fp16 in a b32
as one.
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
    """The element size of a pointer argument (`*fp32`: 32) in bits; None if it is not a pointer."""
    if not argument.type.startswith("*"):
        return None
    name = argument.type.lstrip("*").removeprefix("k").partition(":")[0]
    if name.startswith("fp8") or name == "i1":
        return 8
    bits = re.search(r"(\d+)$", name)
    return int(bits[1]) if bits else None


def bits_at_deepest(accesses: Iterable[Access]) -> int:
    """The bits that the accesses at the greatest loop depth move, over all their instructions."""
    accesses = list(accesses)
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
    bits: Callable[[Sequence[Access]], int] = bits_at_deepest,
) -> int | None:
    """Elements of global memory per thread, as defined above; None without global accesses.

    `element_bits` gives the element size of an access, None where it is not known; `arrays` the
    number of arrays that accesses touch, and `bits` what a thread moves by them in one pass.
    """
    listed = [a for a in accesses if a.space == "global" and a.width_bits]
    for kinds in (_LOADS, _STORES):
        lines = _by_line(access for access in listed if access.kind in kinds)
        if lines:
            most = max(lines, key=bits)
            size = (element_bits(most[0]) or _opcode_bits(most)) * arrays(most)
            return bits(most) // size or None
    return None


def _by_line(accesses: Iterable[Access]) -> list[list[Access]]:
    lines: dict[SourceLine | None, list[Access]] = defaultdict(list)
    for access in accesses:
        lines[access.source].append(access)
    return list(lines.values())


def _opcode_bits(accesses: Sequence[Access]) -> int:
    """The size of the smallest type in the opcodes; 32 for a copy, whose opcode has none."""
    types = [_OPCODE_BITS.search(access.opcode) for access in accesses]
    return min((int(each[1]) for each in types if each), default=32)
