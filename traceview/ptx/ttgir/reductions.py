"""Reductions in a TTGIR module: those across warps in loops, and those of a whole tile.

Within a warp a reduction takes shuffles; between warps each warp writes its result to shared
memory, waits at a barrier, and reads the results of the other warps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from traceview.ptx.model import SourceLine
from traceview.ptx.ttgir import layout_conversions, layouts
from traceview.ptx.ttgir.linear_layouts import bases_of
from traceview.ptx.ttgir.parser import IrModule, IrOperation, shape_of
from traceview.records import record

Purpose = Literal["pick", "accumulation", "other"]

_AXIS = re.compile(r"axis = (\d+)")
_ACCUMULATING = re.compile(r"arith\.(add|max|min|mul)\w*$|arith\.(and|or|xor)i$")
_PASSING = re.compile(
    r"tt\.(splat|broadcast|expand_dims|reshape|trans)|ttg\.convert_layout"
    r"|arith\.(ext\w+|trunc\w+|\w+tofp|index_cast|bitcast)"
)


@record
class WarpReduction:
    """A reduction in the deepest loop whose axis is spread over several warps.

    A `pick` sums a block in which all but one loaded element are masked away; the result of an
    `accumulation` only adds to what the loop carries.
    """

    source: SourceLine | None
    purpose: Purpose
    is_scalar: bool


def warp_reductions(module: IrModule) -> Iterator[WarpReduction]:
    """The reductions across warps in the deepest loop, in program order."""
    depths = layout_conversions.loop_depths_of(module)
    deepest = max(depths, default=0)
    users = module.users
    for op, depth in zip(module.operations, depths, strict=True):
        if op.opcode == "tt.reduce" and 0 < depth == deepest and _crosses_warps(op, module):
            yield WarpReduction(op.line, _purpose(op, module, users), not op.shape)


def scalar_reduction_lines(module: IrModule) -> frozenset[SourceLine | None]:
    """The lines of reductions to a scalar, for which each warp exchanges one partial result."""
    reductions = (op for op in module.operations if op.opcode == "tt.reduce")
    return frozenset(op.line for op in reductions if not op.shape)


@record
class TileReduction:
    """A reduction of `size` elements along an axis, outside loops, whose result is stored.

    `masked`: the elements were loaded under a mask, so that a larger tile has the same result.
    """

    size: int
    masked: bool


def tile_reductions(module: IrModule) -> Iterator[TileReduction]:
    """The reductions of loaded tiles whose results are stored, in program order."""
    depths, users = layout_conversions.loop_depths_of(module), module.users
    for op, depth in zip(module.operations, depths, strict=True):
        axis, shape = _AXIS.search(op.rest), shape_of(op.type_of_inputs)
        if op.opcode == "tt.reduce" and not depth and axis and int(axis[1]) < len(shape):
            # The tensor loads that a reduction's input comes from, up to any earlier reduction.
            seen, waiting, loads = set[str](), list(op.inputs), list[IrOperation]()
            while waiting:
                value = waiting.pop()
                maker = None if value in seen else module.makers.get(value)
                seen.add(value)
                if maker and maker.opcode == "tt.load" and maker.shape:
                    loads.append(maker)
                elif maker and maker.opcode != "tt.reduce":
                    waiting += maker.inputs
            if loads and _is_stored(op, users):
                yield TileReduction(shape[int(axis[1])], all(len(x.inputs) > 1 for x in loads))


def _is_stored(op: IrOperation, users: Mapping[str, Sequence[IrOperation]]) -> bool:
    """Whether tt.store writes a value computed from the result; atomics do not count.

    They combine the partial results of several programs.
    """
    seen, waiting = set[str](), list(op.results)
    while waiting:
        value = waiting.pop()
        for user in users.get(value, ()) if value not in seen else ():
            if user.opcode == "tt.store":
                return True
            waiting += user.results
        seen.add(value)
    return False


def _crosses_warps(op: IrOperation, module: IrModule) -> bool:
    operands, axis = op.type_of_inputs, _AXIS.search(op.rest)
    shape = shape_of(operands)
    bases = bases_of(layouts.layout_of(operands, module.layouts), shape) if shape else None
    return bool(bases and axis and any(basis[int(axis[1])] for basis in bases.warp))


def _purpose(
    op: IrOperation, module: IrModule, users: Mapping[str, Sequence[IrOperation]]
) -> Purpose:
    if len(op.inputs) == 1 and _picks(op, module):
        return "pick"
    return "accumulation" if _accumulates(op.results, users) else "other"


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


def _accumulates(results: Sequence[str], users: Mapping[str, Sequence[IrOperation]]) -> bool:
    """Whether results reach only the next iteration, directly or after one accumulation."""
    using = [user for result in results for user in users.get(result, ())]
    sums = [user for user in using if _ACCUMULATING.match(user.opcode)]
    after = [user for each in sums for result in each.results for user in users.get(result, ())]
    last = [user for user in using if user not in sums] + after
    return bool(last) and all(user.opcode == "scf.yield" for user in last)
