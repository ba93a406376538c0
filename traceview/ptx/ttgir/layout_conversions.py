"""Layout conversions in TTGIR: from which layout to which, how, and the bytes that they move.

A conversion that keeps elements in their threads costs nothing or a few register moves. Within a
warp it takes shuffles or shared memory, as Triton judges; between warps always shared memory: each
program writes the tensor, waits at a barrier, and reads it back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Literal

import numpy as np

from traceview.ptx.model import Function, SourceLine
from traceview.ptx.ttgir import layouts
from traceview.ptx.ttgir.layouts import layout_of
from traceview.ptx.ttgir.linear_layouts import bases_of, elements
from traceview.ptx.ttgir.parser import IrModule, IrOperation, shape_of
from traceview.records import record

Path = Literal["registers", "shuffles", "shared memory"]
Reach = Literal["thread", "warp", "block"]

_ELEMENT = re.compile(r"(?:\d+x)*(?P<pointer>!tt\.ptr)?(?:bf|f|i|u)?(?P<bits>\d{1,3})?")
_TYPES = re.compile(r" : \(?(.*?)\)? -> ")
_USES_SHARED = frozenset(
    {"tt.reduce", "tt.scan", "tt.histogram", "tt.gather", "ttg.local_load", "ttg.local_store"}
)
_LOOPS = ("scf.for", "scf.while")
_MOST_ELEMENTS = 1 << 25
_NUMBER = re.compile(r"(\w+) = (\d+)")


@record
class LayoutConversion:
    """The conversion of a tensor from one layout to another.

    `path` is how the elements move, None where that is not known. `size_bytes` is the size of the
    tensor, written once and read once per program if it goes through shared memory. `variable` is
    the name in the source, if there is one. `in_deepest_loop` is also False if there is no loop.
    `feeds_mma` is True for an operand of a matrix product.
    """

    source: SourceLine | None
    variable: str | None
    operation: str
    from_layout: str
    to_layout: str
    size_bytes: int
    loop_depth: int
    in_deepest_loop: bool
    path: Path | None
    feeds_mma: bool


def layout_conversions(module: IrModule, ptx: Function | None) -> tuple[LayoutConversion, ...]:
    """The conversions of a kernel in program order; `ptx` tells shuffles from shared memory."""
    return tuple(_conversions(module, _Evidence.of(module, ptx)))


def loop_depths_of(module: IrModule) -> tuple[int, ...]:
    """The number of loops around each operation."""
    regions: list[IrOperation] = []
    depths = []
    for op in module.operations:
        while regions and op.depth <= regions[-1].depth:
            regions.pop()
        depths.append(sum(region.opcode in _LOOPS for region in regions))
        if op.opcode.startswith("scf."):
            regions.append(op)
    return tuple(depths)


def reach_of(before: str, after: str, shape: tuple[int, ...]) -> Reach | None:
    """How far elements move between two layouts; None if a layout is not understood."""
    if prod(shape) > _MOST_ELEMENTS:
        return None
    first, second = bases_of(before, shape), bases_of(after, shape)
    if first is None or second is None:
        return None
    source, target = elements(first, shape), elements(second, shape)
    warps, lanes, _ = source.shape
    if target.shape[:2] != source.shape[:2] or warps * lanes * prod(shape) > _MOST_ELEMENTS:
        return None
    held = np.zeros((warps, lanes, prod(shape)), bool)
    np.put_along_axis(held, source, True, axis=2)
    if np.take_along_axis(held, target, axis=2).all():
        return "thread"
    by_warp = held.any(axis=1, keepdims=True)
    wanted = target.reshape(warps, 1, -1)
    return "warp" if np.take_along_axis(by_warp, wanted, axis=2).all() else "block"


@record
class _Evidence:
    """Shared stores and shuffles in the PTX per source line.

    On `ambiguous` lines another operation may have made them.
    """

    stores: Mapping[SourceLine | None, int]
    shuffles: Mapping[SourceLine | None, int]
    ambiguous: frozenset[SourceLine | None]
    known: bool

    @classmethod
    def of(cls, module: IrModule, ptx: Function | None) -> _Evidence:
        stores, shuffles = Counter[SourceLine | None](), Counter[SourceLine | None]()
        for instruction in ptx.instructions if ptx else ():
            words = instruction.opcode.split(".")
            stores[instruction.source] += words[0] in ("st", "stmatrix") and "shared" in (
                word.partition("::")[0] for word in words
            )
            shuffles[instruction.source] += words[0] == "shfl"
        ambiguous = {op.line for op in module.operations if op.opcode in _USES_SHARED}
        return cls(stores, shuffles, frozenset(ambiguous), ptx is not None)

    def path(self, line: SourceLine | None, reach: Reach | None) -> Path | None:
        if reach == "thread":
            return "registers"
        if reach == "block":
            return "shared memory"
        if not self.known or line is None:
            return None
        if not self.stores[line]:
            return "shuffles" if self.shuffles[line] or reach == "warp" else "registers"
        return None if line in self.ambiguous else "shared memory"


def _conversions(module: IrModule, evidence: _Evidence) -> Iterator[LayoutConversion]:
    users, depths = module.users, loop_depths_of(module)
    deepest = max(depths, default=0)
    for op, depth in zip(module.operations, depths, strict=True):
        types = _TYPES.search(op.rest)
        if op.opcode == "ttg.convert_layout" and types:
            before, after = (layout_of(type_, module.layouts) for type_ in (types[1], op.type))
            path = evidence.path(op.line, reach_of(before, after, op.shape))
            feeds = "dot_op" in after
        elif op.opcode == "ttg.local_alloc" and types and op.inputs and shape_of(types[1]):
            before, after, feeds = _stored(op, users, module, types[1])
            path = "shared memory"
        else:
            continue
        yield LayoutConversion(
            op.line,
            op.name,
            op.opcode.partition(".")[2],
            described(before),
            described(after),
            size_bytes(types[1]),
            depth,
            0 < depth == deepest,
            path,
            feeds,
        )


def _stored(
    op: IrOperation, users: Mapping[str, Sequence[IrOperation]], module: IrModule, type_: str
) -> tuple[str, str, bool]:
    """The layouts in which a tensor is stored to shared memory and read, and if it feeds an MMA."""
    using = [user for result in op.results for user in users.get(result, ())]
    loads = [layout_of(u.type, module.layouts) for u in using if u.opcode == "ttg.local_load"]
    feeds = any("dot" in user.opcode or "mma" in user.opcode for user in using)
    after = loads[0] if loads else "shared"
    return layout_of(type_, module.layouts), after, feeds or "dot_op" in after or not loads


def size_bytes(type_: str) -> int:
    """The size of a tensor type in bytes; an i1 element takes one byte."""
    match = _ELEMENT.match(type_.partition("tensor<")[2])
    bits = 64 if match and match["pointer"] else int((match and match["bits"]) or 32)
    return prod(shape_of(type_)) * max(8, bits) // 8


def described(layout: str) -> str:
    """A layout in a few words: `blocked 1×8`, `MMA v3`, `dot operand 0`, `slice 1 of MMA v2`."""
    sliced = layouts.SLICE.search(layout)
    if sliced:
        return f"slice {sliced[1]} of {described(sliced[2])}"
    kind, numbers = layouts.kind_of(layout), dict(_NUMBER.findall(layout))
    if kind == "blocked":
        return f"blocked {'×'.join(map(str, layouts.lists_of(layout).get('sizePerThread', ())))}"
    if kind == "dot_op":
        return f"dot operand {numbers.get('opIdx', '?')}"
    return f"MMA v{numbers.get('versionMajor', '?')}" if kind == "nvidia_mma" else kind or "unknown"
