"""Loads that the deepest loop waits for, its products, and pipeline buffers, by TTGIR.

A load that Triton pipelines becomes a copy to shared memory that starts iterations ahead; one that
it does not pipeline stays a load, whose value the same iteration uses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Literal

from traceview.base.records import record
from traceview.kernels.ptx.loops import reached
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.ttgir.axis_info import axis_infos, element_bytes
from traceview.kernels.ptx.ttgir.operations import LOOPS, loop_depths_of
from traceview.kernels.ptx.ttgir.parser import IrModule, IrOperation, shape_of
from traceview.kernels.ptx.ttgir.vector_limit import pointer_type, vector_limits

Why = Literal["if", "result", "narrow", "while", "indirect", "unknown"]
_DOTS = ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma")
_COPIES = ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local")
# What moves an operand without a change of its values.
_MOVED = (
    "ttg.local_alloc",
    "ttg.local_load",
    "ttg.convert_layout",
    "ttg.memdesc_trans",
    "tt.trans",
)
_FROM_HALF = re.compile(r"x(b?f16)[,>].* to tensor<[\dx]+xf32")
_CARRIED_FLOATS = re.compile(r"-> \(.*tensor<[\dx]+x(?:f|bf)\d")
# An asynchronous copy (cp.async) moves 4, 8 or 16 bytes.
LEAST_COPY_BITS = 32


@record
class WaitingLoad:
    """A load of a tensor, or copy by TMA, that is not pipelined, and why.

    `feeds_dot`: its value is an operand of a matrix product. `why` is an `if` around it, one that
    tests a result of the loop's products, elements that move in less than an asynchronous copy
    takes, a `while`, an address that the loop loads, or not known. `width_bits` is what a thread
    moves in one instruction, None where that is not known.
    """

    source: SourceLine | None
    feeds_dot: bool
    why: Why
    width_bits: int | None


@record
class DeepestLoop:
    """The deepest loop: what it waits for, if it has products, and if copies run ahead of it.

    `is_recurrence` is whether each iteration stores, and hands a tensor of floats to the next.
    `stored_bytes` are those of the tiles that an iteration stores.
    """

    source: SourceLine | None
    loads: tuple[WaitingLoad, ...]
    has_dot: bool
    has_copies: bool
    is_recurrence: bool
    stored_bytes: int


def deepest_loop(module: IrModule, *, with_dot: bool = False) -> DeepestLoop | None:
    """The deepest loop of a module, or several loops that are as deep; None without a loop.

    `with_dot`: the deepest one with a product.
    """
    inside = list(module.nested())
    counted = (a for op, a in inside if op.opcode in _DOTS or not with_dot)
    most = max((sum(r.opcode in LOOPS for r in around) for around in counted), default=0)
    if not most:
        return None
    here = [pair for pair in inside if sum(r.opcode in LOOPS for r in pair[1]) == most]
    widths = {(each.line, each.kind): each.width_bits for each in vector_limits(module)}
    outer = {id(region) for op, around in inside if op.opcode in LOOPS for region in around}
    loads = tuple(
        _waiting(op, around, module, widths, is_outer=id(around[-1]) in outer)
        for op, around in here
        if (op.opcode == "tt.load" and op.shape and not _runs_ahead(op, around, module))
        or _filled(op, module)
    )
    loop = next(region for region in reversed(here[0][1]) if region.opcode in LOOPS)
    opcodes = {op.opcode for op, _ in here if not _filled(op, module)}
    return DeepestLoop(
        loop.line,
        loads,
        bool(opcodes & {*_DOTS}),
        bool(opcodes & {*_COPIES, "ttg.async_wait"}),
        "tt.store" in opcodes and bool(_CARRIED_FLOATS.search(loop.rest)),
        sum(tile_bytes(op, module) for op, _ in here if op.opcode == "tt.store"),
    )


def _filled(op: IrOperation, module: IrModule) -> str:
    """The tile that a copy by TMA fills and the same iteration allocates; empty for all else.

    One that runs ahead fills one of several buffers.
    """
    for value in op.inputs if op.opcode == _COPIES[1] else ():
        maker = module.makers.get(value)
        type_ = _MEMDESC.search(maker.type) if maker and maker.opcode == "ttg.local_alloc" else None
        if type_ and maker and maker.depth == op.depth and type_["bits"] != _BARRIER_BITS:
            return value
    return ""


def tile_bytes(op: IrOperation, module: IrModule) -> int:
    """The bytes of the tile, or of the value, that an access of global memory moves at most."""
    pointers = pointer_type(op.inputs[0], op, module)
    return prod(shape_of(pointers)) * element_bytes(pointers)


def _runs_ahead(op: IrOperation, around: list[IrOperation], module: IrModule) -> bool:
    """Whether a loop only hands a loaded value to its next iteration, as a prefetch by hand."""
    waiting, last = list(op.results), set[tuple[str, int]]()
    while waiting:
        for user in module.users.get(waiting.pop(), ()):
            waiting += user.results if user.opcode in _MOVED else ()
            last |= set() if user.opcode in _MOVED else {(user.opcode, user.depth)}
    return around[-1].opcode in LOOPS and last == {("scf.yield", op.depth)}


@record
class RepeatedLoad:
    """A load of the deepest loop that loads each element `times` times, as offsets repeat."""

    source: SourceLine | None
    times: int


# Of what an iteration loads: less is not worth an unpacking by hand.
_LEAST_OF_LOADED = 0.25


def repeated_loads(module: IrModule) -> list[RepeatedLoad]:
    """The loads of a deepest loop with products that repeat elements along an axis of a tile."""
    depths = loop_depths_of(module)
    deepest = max(depths, default=0)
    inside = [op for op, n in zip(module.operations, depths, strict=True) if 0 < n == deepest]
    if not any(op.opcode in _DOTS for op in inside):
        return []
    infos, sizes, found = axis_infos(module), list[int](), dict[SourceLine | None, RepeatedLoad]()
    loads = [op for op in inside if op.opcode in ("tt.load", _COPIES[0]) and op.inputs]
    for op in loads:
        shape = shape_of(pointer_type(op.inputs[0], op, module))
        info = infos.get(op.inputs[0])
        times = prod(map(min, info.constancy, shape)) if info and len(shape) > 1 else 1
        sizes.append(tile_bytes(op, module))
        if times > 1:
            found[op.line] = RepeatedLoad(op.line, times)
    of_lines = Counter[SourceLine | None]()
    for op, size in zip(loads, sizes, strict=True):
        of_lines[op.line] += size
    least = _LEAST_OF_LOADED * sum(sizes)
    return [each for each in found.values() if of_lines[each.source] >= least]


def dot_rows(module: IrModule) -> int | None:
    """The fewest rows of a product's result; None without a product of two axes."""
    shapes = [op.shape or shape_of(op.rest) for op in module.operations if op.opcode in _DOTS]
    return min((shape[0] for shape in shapes if len(shape) == 2), default=None)


@record
class UpcastProduct:
    """A matrix product of fp32 operands, converted from one 16-bit type.

    Not `both` where one of them is an exponential, as attention multiplies with its values.
    """

    source: SourceLine | None
    type: str
    in_deepest_loop: bool
    both: bool = True


def upcast_products(module: IrModule) -> Iterator[UpcastProduct]:
    """The products with an operand that reaches them converted, not computed, from 16 bits."""
    depths = loop_depths_of(module)
    deepest = max(depths, default=0)
    for op, depth in zip(module.operations, depths, strict=True):
        types = [_half_before(value, module) for value in op.inputs[:2] if op.opcode in _DOTS]
        halves = {each for each in types if each}
        others = [v for v, type_ in zip(op.inputs[:2], types, strict=False) if not type_]
        if len(halves) == 1 and all(_is_exponential(value, module) for value in others):
            yield UpcastProduct(op.line, halves.pop(), 0 < depth == deepest, not others)


def _is_exponential(value: str, module: IrModule) -> bool:
    """Whether a value is an exponential, perhaps masked or scaled."""
    waiting, seen = [value], 0
    while waiting and seen < _MOST_MAKERS:
        maker, seen = module.makers.get(waiting.pop(0)), seen + 1
        if maker and maker.opcode in ("math.exp", "math.exp2"):
            return True
        if maker and maker.opcode in (*_MOVED, *_SCALED):
            waiting += maker.inputs
    return False


_SCALED = ("arith.select", "arith.mulf", "arith.divf")
_MOST_MAKERS = 16


def _half_before(value: str, module: IrModule) -> str | None:
    """The 16-bit type of which an operand is a conversion to fp32; None if it is no such."""
    maker = module.makers.get(value)
    while maker and maker.opcode in _MOVED and maker.inputs:
        maker = module.makers.get(maker.inputs[0])
    converted = _FROM_HALF.search(maker.rest) if maker and maker.opcode == "arith.extf" else None
    return converted[1] if converted else None


def _waiting(
    op: IrOperation,
    around: list[IrOperation],
    module: IrModule,
    widths: Mapping[tuple[SourceLine | None, str], int],
    *,
    is_outer: bool,
) -> WaitingLoad:
    """A load of a loop; one `is_outer` that has another loop in it, and is never pipelined."""
    width = widths.get((op.line, "load"))
    within = next(n for n, r in enumerate(reversed(around)) if r.opcode in LOOPS)
    why: Why = "unknown"
    if within:
        # The condition of the innermost one.
        made = {each.opcode for each in module.origins(around[-1].inputs[:1])}
        why = "result" if made.intersection(_DOTS) else "if"
    elif around[-1].opcode == "scf.while" and not is_outer:
        why = "while"
    elif width is not None and width < LEAST_COPY_BITS:
        why = "narrow"
    elif any(o.opcode == "tt.load" and o.depth == op.depth for o in module.origins(op.inputs)):
        why = "indirect"
    return WaitingLoad(op.line, _feeds_dot(op, module), why, width)


def _feeds_dot(op: IrOperation, module: IrModule) -> bool:
    """Whether a tile reaches a product within the loop, through memory of the block or not.

    A row or column that others are scaled by is no operand.
    """
    if 1 in op.shape:
        return False

    def following(value: str) -> Iterator[str]:
        for user in module.users.get(value, ()):
            if user.opcode not in _DOTS:
                yield from user.inputs[1:2] if user.opcode == "ttg.local_store" else user.results

    # The operands of tt.dot_scaled: a, its scale, b, its scale.
    return any(
        user.opcode in _DOTS and value in user.inputs[: 4 if user.opcode == "tt.dot_scaled" else 2]
        for value in reached([*op.results, *filter(None, [_filled(op, module)])], following)
        for user in module.users.get(value, ())
    )


# Tiles with several buffers, which copies fill ahead of the loop.

_MEMDESC = re.compile(r"!ttg\.memdesc<((?:\d{1,9}x)+)(?P<type>bf|f|i)(?P<bits>\d{1,3})")
_BARRIER_BITS = "64"


@record
class PipelineBuffer:
    """A tile with several buffers, used in turn: `count` of them, of `size_bytes` in all."""

    source: SourceLine | None
    variable: str | None
    count: int
    size_bytes: int


def pipeline_buffers(module: IrModule) -> tuple[PipelineBuffer, ...]:
    """The tiles in shared memory that are indexed by stage; barriers are left out."""
    indexed = {op.inputs[0] for op in module.operations if op.opcode == "ttg.memdesc_index"}
    buffers = []
    for op in module.operations:
        type_ = _MEMDESC.search(op.type)
        is_buffer = op.opcode == "ttg.local_alloc" and not op.inputs and indexed & {*op.results}
        if not is_buffer or not type_ or (type_["type"], type_["bits"]) == ("i", _BARRIER_BITS):
            continue
        count, *tile = (int(size) for size in type_[1].rstrip("x").split("x"))
        size = count * prod(tile) * int(type_["bits"]) // 8
        buffers.append(PipelineBuffer(op.line, op.name, count, size))
    return tuple(buffers)


@record
class BufferedProduct:
    """The only wgmma product of a loop, both operands of which copies bring to `buffers` in turn.

    Its result has `rows` and `columns`, of which it adds up `terms`, in elements of `bits`.
    """

    source: SourceLine | None
    rows: int
    columns: int
    terms: int
    bits: int
    buffers: int


def buffered_products(module: IrModule) -> Iterator[BufferedProduct]:
    """The products of loops that have no other and do nothing but copy its operands ahead."""
    of_loops: dict[int, list[IrOperation]] = {}
    for op, around in module.nested():
        if op.opcode in _DOTS and around and around[-1].opcode in LOOPS:
            of_loops.setdefault(id(around[-1]), []).append(op)
    for op in (dots[0] for dots in of_loops.values() if len(dots) == 1):
        sides = list(_MEMDESC.finditer(op.rest))[:2]
        buffers = [_buffers(value, module) for value in op.inputs[:2]]
        if op.opcode == "ttng.warp_group_dot" and len(op.shape) == 2 and all(buffers):
            terms = int(sides[0][1].rstrip("x").split("x")[-1])
            bits = int(sides[0]["bits"])
            yield BufferedProduct(op.line, *op.shape, terms, bits, min(buffers))


def _buffers(value: str, module: IrModule) -> int:
    """The buffers in turn of which an operand is one; 0 if it is none."""
    maker = module.makers.get(value)
    while maker and maker.opcode == "ttg.memdesc_trans":
        maker = module.makers.get(maker.inputs[0])
    if maker is None or maker.opcode != "ttg.memdesc_index":
        return 0
    tile = _MEMDESC.search(maker.rest)
    return int(tile[1].split("x")[0]) if tile else 0
