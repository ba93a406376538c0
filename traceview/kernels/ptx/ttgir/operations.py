"""Costly operations of TTGIR: layout conversions, reductions, and fp32 products."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Literal

import numpy as np

from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.loops import reached
from traceview.kernels.ptx.model import Function, SourceLine
from traceview.kernels.ptx.ttgir import layouts
from traceview.kernels.ptx.ttgir.axis_info import axis_infos, carried_values
from traceview.kernels.ptx.ttgir.layouts import bases_of, elements, layout_of
from traceview.kernels.ptx.ttgir.parser import IrModule, IrOperation, shape_of

# Layout conversions in TTGIR: from which layout to which, how, and the bytes that they move.
#
# A conversion that keeps elements in their threads costs nothing or a few register moves. Within
# a warp it takes shuffles or shared memory, as Triton judges; between warps always shared memory:
# each program writes the tensor, waits at a barrier, and reads it back.

Path = Literal["registers", "shuffles", "shared memory"]
Reach = Literal["thread", "warp", "block"]

_ELEMENT = re.compile(r"(?:\d+x)*(?P<pointer>!tt\.ptr)?(?:bf|f|i|u)?(?P<bits>\d{1,3})?")
_TYPES = re.compile(r" : \(?(.*?)\)? -> ")
_USES_SHARED = frozenset(
    {"tt.reduce", "tt.scan", "tt.histogram", "tt.gather", "ttg.local_load", "ttg.local_store"}
)
LOOPS = ("scf.for", "scf.while")
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
    return tuple(sum(r.opcode in LOOPS for r in regions) for _, regions in module.nested())


# A loop of one turn is no loop: nothing can run ahead of it, or be moved out of it.

_FOLDED: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divsi": lambda a, b: int(a / b) if b else 0,
    "arith.minsi": min,
    "arith.maxsi": max,
}
_RESIZED = ("arith.extsi", "arith.trunci", "arith.index_cast")
_FEW_TURNS = 2
_NUMBER_IN = re.compile(r"\s*(-?\d+) :")


def without_few_turns(module: IrModule, integers: Mapping[str, int]) -> IrModule:
    """The module with each `for` that the arguments give two turns or fewer as `scf.for.few`.

    What such a loop repeats, or does not load ahead, is as much before and after it.
    """

    parameters = {each.name for each in module.parameters}

    def value(of: str) -> int | None:
        maker = module.makers.get(of)
        if maker is None:
            return integers.get(of.lstrip("%")) if of in parameters else None
        if maker.opcode == "arith.constant":
            number = _NUMBER_IN.match(maker.rest)
            return int(number[1]) if number else None
        if maker.opcode in _RESIZED:
            return value(maker.inputs[0])
        fold = _FOLDED.get(maker.opcode)
        known = [value(each) for each in maker.inputs] if fold else []
        numbers = [each for each in known if each is not None]
        return fold(*numbers) if fold and len(numbers) == len(known) else None

    def counted(op: IrOperation) -> IrOperation:
        bounds = [value(each) for each in carried_values(op)[0][1:]]
        if not bounds or None in bounds:
            return op
        start, end, step = (each or 0 for each in bounds)
        return replace(op, opcode="scf.for.few") if end - start <= _FEW_TURNS * step else op

    return replace(module, operations=tuple(map(counted, module.operations)))


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


# Reductions in a TTGIR module: those across warps in loops, and those of a whole tile.
#
# Within a warp a reduction takes shuffles; between warps each warp writes its result to shared
# memory, waits at a barrier, and reads the results of the other warps.

Purpose = Literal["pick", "accumulation", "result", "other"]

_AXIS = re.compile(r"axis = (\d+)")
# Of a thread: a vector of 16 bytes in fp32.
_FEW_ELEMENTS = 4
_FLOAT = re.compile(r"(?:^|[(x, ])b?f\d")
_ACCUMULATING = re.compile(r"arith\.(add|max|min|mul)\w*$|arith\.(and|or|xor)i$")
_PASSING = re.compile(
    r"tt\.(splat|broadcast|expand_dims|reshape|trans)|ttg\.convert_layout"
    r"|arith\.(ext\w+|trunc\w+|\w+tofp|index_cast|bitcast)"
)


@record
class WarpReduction:
    """A reduction in the deepest loop whose axis is spread over several warps.

    A `pick` sums a block in which all but one loaded element are masked away; the result of an
    `accumulation` only adds to what the loop carries, and nothing else there reads. Each iteration
    stores its own `result`, which no other one reads.
    """

    source: SourceLine | None
    purpose: Purpose
    is_scalar: bool


def warp_reductions(module: IrModule) -> Iterator[WarpReduction]:
    """The reductions across warps in the deepest loop, in program order."""
    depths = loop_depths_of(module)
    deepest = max(depths, default=0)
    for op, depth in zip(module.operations, depths, strict=True):
        if op.opcode == "tt.reduce" and 0 < depth == deepest and _crosses_warps(op, module):
            yield WarpReduction(op.line, _purpose(op, module), not op.shape)


@record
class TileReduction:
    """A reduction of `size` elements along an axis, outside loops, whose result is stored.

    `is_group`: a larger tile has other results, as the elements were loaded without a mask, or the
    data are divided into tiles of this size, each with a result of its own.
    """

    size: int
    is_group: bool


def tile_reductions(module: IrModule) -> Iterator[TileReduction]:
    """The reductions of loaded tiles whose results are stored, in program order."""
    depths, users = loop_depths_of(module), module.users
    for op, depth in zip(module.operations, depths, strict=True):
        axis, shape = _AXIS.search(op.rest), shape_of(op.type_of_inputs)
        if op.opcode == "tt.reduce" and not depth and axis and int(axis[1]) < len(shape):
            # The tensor loads that a reduction's input comes from, up to any earlier reduction.
            origins = module.origins(op.inputs, "tt.load", "tt.reduce")
            loads = [each for each in origins if each.opcode == "tt.load" and each.shape]
            if loads and _is_stored(op, users):
                size = shape[int(axis[1])]
                free = all(len(x.inputs) > 1 and not _advances(x, size, module) for x in loads)
                yield TileReduction(size, not free)


def _advances(load: IrOperation, size: int, module: IrModule) -> bool:
    """Whether the address of a load advances by the size of its tile: `g * size + range`."""
    infos = axis_infos(module)
    for op in module.origins(load.inputs[:1], "tt.load"):
        constants = [infos[v].constant for v in op.inputs if v in infos]
        added = op.opcode == "arith.addi" and any(c and c % size == 0 for c in constants)
        if added or (op.opcode == "arith.muli" and size in constants):
            return True
    return False


def _is_stored(op: IrOperation, users: Mapping[str, Sequence[IrOperation]]) -> bool:
    """Whether tt.store writes a value computed from the result; atomics do not count.

    They combine the partial results of several programs.
    """

    def following(value: str) -> list[str]:
        return [result for user in users.get(value, ()) for result in user.results]

    values = reached(op.results, following)
    return any(user.opcode == "tt.store" for value in values for user in users.get(value, ()))


def _crosses_warps(op: IrOperation, module: IrModule) -> bool:
    operands, axis = op.type_of_inputs, _AXIS.search(op.rest)
    shape = shape_of(operands)
    bases = bases_of(layouts.layout_of(operands, module.layouts), shape) if shape else None
    return bool(bases and axis and any(basis[int(axis[1])] for basis in bases.warp))


def _purpose(op: IrOperation, module: IrModule) -> Purpose:
    if len(op.inputs) == 1 and _picks(op, module):
        return "pick"
    if _accumulates(op, module):
        return "accumulation"
    return "result" if _is_of_iteration(op, module) else "other"


def _is_of_iteration(op: IrOperation, module: IrModule) -> bool:
    """Whether a loop stores one value per iteration, computed from that, and carries no float.

    Where threads reduce many elements each, what warps exchange is little beside that.
    """
    around = next((regions for each, regions in module.nested() if each is op), [])
    loop = around[-1] if around and around[-1].opcode == "scf.for" else None
    own = prod(shape_of(op.type_of_inputs)) // (WARP_THREADS * (module.num_warps or 1))
    if op.shape or loop is None or own > _FEW_ELEMENTS:
        return False

    def following(value: str) -> list[str]:
        """The scalars computed from one: a tile that it scales needs it in its own iteration."""
        users = module.users.get(value, ())
        return [result for user in users if not user.shape for result in user.results]

    values = reached(op.results, following)
    users = ((user, value) for value in values for user in module.users.get(value, ()))
    if not any(user.opcode == "tt.store" and value in user.inputs[1:2] for user, value in users):
        return False
    return not _FLOAT.search(loop.rest.rpartition(" -> ")[2] if " -> " in loop.rest else "")


def _picks(op: IrOperation, module: IrModule) -> bool:
    """Whether the operand is `where(range == index, loaded, 0)`, or a product with such a mask."""
    masked = _maker(op.inputs[0], module)
    if masked is None or masked.opcode not in ("arith.select", "arith.mulf", "arith.muli"):
        return False
    makers = [maker for value in masked.inputs if (maker := _maker(value, module))]
    return any(maker.opcode == "tt.load" for maker in makers) and any(
        _is_index(maker, module) for maker in makers
    )


def _is_index(op: IrOperation, module: IrModule) -> bool:
    """Whether an operation compares each element's index with one value."""
    if op.opcode != "arith.cmpi" or not op.rest.lstrip().startswith("eq"):
        return False
    makers = [_maker(value, module) for value in op.inputs]
    return any(maker is not None and maker.opcode == "tt.make_range" for maker in makers)


def _maker(value: str, module: IrModule) -> IrOperation | None:
    """The operation that computes a value, before any changes of its type and shape."""
    maker = module.makers.get(value)
    while maker and _PASSING.fullmatch(maker.opcode) and maker.inputs:
        maker = module.makers.get(maker.inputs[0])
    return maker


def _accumulates(op: IrOperation, module: IrModule) -> bool:
    """Whether results only add to values that nothing else in the loop reads, but to scale them."""
    users, carried = module.users, _carried(module)

    def of(values: Sequence[str]) -> list[IrOperation]:
        return [user for value in values for user in users.get(value, ())]

    sums = of(op.results)
    for each in sums:
        kept = [name for name, value in carried.items() if value in each.results]
        scaled = [
            user for user in of(kept) if user is not each and not user.opcode.startswith("scf.for")
        ]
        if not kept or any(user.opcode != "scf.yield" for user in of(each.results)):
            return False
        if any(user is not each for scale in scaled for user in of(scale.results)):
            return False
    return bool(sums) and all(_ACCUMULATING.match(each.opcode) for each in sums)


def _carried(module: IrModule) -> dict[str, str]:
    """What loops carry: the value that each name has in the next iteration."""
    carried: dict[str, str] = {}
    for op, regions in module.nested():
        if op.opcode == "scf.yield" and regions:
            names = [name for name, _ in carried_values(regions[-1])[1]]
            carried |= dict(zip(names, op.inputs, strict=False))
    return carried


_OPERANDS = re.compile(r" : tensor<[\dx]+x(\w+), .*> \* tensor<[\dx]+x(\w+), ")
_PRECISION = re.compile(r"inputPrecision = (\w+)")


@record
class CudaCoreProduct:
    """A `tl.dot` without tensor cores: its line, the types of its operands, its precision.

    `is_recurrent`: its result is an operand of it in a later iteration: rounding errors multiply.
    """

    source: SourceLine | None
    operands: tuple[str, str]
    precision: str
    in_deepest_loop: bool
    is_recurrent: bool = False


def cuda_core_products(module: IrModule) -> Iterator[CudaCoreProduct]:
    """The products whose result has no layout of tensor cores."""
    depths = loop_depths_of(module)
    deepest = max(depths, default=0)
    for op, depth in zip(module.operations, depths, strict=True):
        types = _OPERANDS.search(op.rest)
        if op.opcode == "tt.dot" and types and "mma" not in layout_of(op.type, module.layouts):
            precision = _PRECISION.search(op.rest)
            yield CudaCoreProduct(
                op.line,
                (types[1], types[2]),
                precision[1] if precision else "ieee",
                0 < depth == deepest,
                _is_recurrent(op, module),
            )


def _is_recurrent(product: IrOperation, module: IrModule) -> bool:
    """Whether the operands of a product are computed from its own result."""
    yielded = _carried(module)

    def following(value: str) -> Sequence[str]:
        maker = module.makers.get(value)
        if maker is None:
            return [yielded[value]] if value in yielded else ()
        return () if maker.opcode == "tt.load" else maker.inputs

    found: set[str] = set(reached(product.inputs[:2], following))
    return not found.isdisjoint(product.results)
