"""The axes of the grid that values of a TTGIR module depend on, through loops and shared memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from traceview.base.records import record
from traceview.kernels.ptx.loops import reached
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.ttgir.axis_info import axis_infos, carried_values
from traceview.kernels.ptx.ttgir.operations import LOOPS
from traceview.kernels.ptx.ttgir.parser import IrModule, IrOperation

_PROGRAM_ID, _AXES = "tt.get_program_id", "xyz"
_COPIES = ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local")
_LOADS, _WRITES = ("tt.load", *_COPIES), ("ttg.local_store", *_COPIES)
_STORES = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas")
_UNKNOWN = ("tt.atomic", "tt.call", "tt.elementwise_inline_asm", "scf.while")


@record
class RepeatedReduction:
    """A reduction in a loop, of a loaded tile, that does not depend on `axes` of the grid."""

    source: SourceLine | None
    axes: tuple[int, ...]


def repeated_reductions(module: IrModule) -> Iterator[RepeatedReduction]:
    """The reductions in loops that every block along an axis of the grid computes again."""
    sources = _sources(module)
    parameters = {each.name for each in module.parameters}

    def behind(values: Iterable[str]) -> set[str]:
        return {*reached(values, lambda value: sources[value])}

    stores = [op for op in module.operations if op.opcode in _STORES]
    stored = behind(op.inputs[0] for op in stores) & parameters
    used = {_axis(op) for op in module.operations if op.opcode == _PROGRAM_ID}
    for op, around in module.nested():
        if op.opcode != "tt.reduce" or not any(each.opcode in LOOPS for each in around):
            continue
        # A vector, such as the lengths of sequences, is too little.
        if not any(len(module.makers[v].shape) > 1 for v in op.inputs if v in module.makers):
            continue
        # An `if` has its condition, a loop its bounds and step.
        times = (carried_values(r)[0][1:] or r.inputs[:1] for r in around)
        values = behind([*op.inputs, *chain.from_iterable(times)])
        makers = [module.makers[value] for value in values if value in module.makers]
        axes = used - {_axis(each) for each in makers if each.opcode == _PROGRAM_ID}
        known = all(v in module.makers or sources[v] or v in parameters for v in values)
        # Blocks may load what others of them store, and atomics count them.
        apart = values & stored or any(each.opcode.startswith(_UNKNOWN) for each in makers)
        if axes and known and not apart and any(each.opcode in _LOADS for each in makers):
            yield RepeatedReduction(op.line, tuple(sorted(axes)))


def _axis(op: IrOperation) -> int:
    return _AXES.find(op.rest.split()[0])


def _sources(module: IrModule) -> dict[str, list[str]]:
    """The values that each value is computed from; memory is what is ever copied into it."""
    sources: dict[str, list[str]] = defaultdict(list)
    for op, regions in module.nested():
        counted, carried = carried_values(op)
        for name, start in (*((counted[0], each) for each in counted[1:]), *carried):
            sources[name].append(start)
        if op.opcode == "scf.yield" and regions:
            inside = [name for name, _ in carried_values(regions[-1])[1]]
            for names in (inside, regions[-1].results):
                for name, value in zip(names, op.inputs, strict=False):
                    sources[name].append(value)
        for name in () if counted else op.results:
            sources[name] += op.inputs
        for value in op.inputs if op.opcode in _WRITES else ():
            if buffer := _buffer(value, module):
                sources[buffer] += [each for each in op.inputs if each != value]
    return sources


def _buffer(value: str, module: IrModule) -> str:
    """The allocation of shared memory that a value is a part of; empty if it is none."""
    maker = module.makers.get(value)
    while maker and maker.opcode.startswith("ttg.memdesc"):
        value = maker.inputs[0]
        maker = module.makers.get(value)
    return value if maker and maker.opcode == "ttg.local_alloc" else ""


@record
class SplitLoop:
    """A loop that blocks along an `axis` share, `parts` of them, a `tile` of each `step` per block.

    They add up their sums at `atomics`, whatever the loop did. `bound` is its parameter.
    """

    source: SourceLine | None
    axis: int
    bound: str
    tile: int
    step: int
    atomics: tuple[SourceLine | None, ...]

    @property
    def parts(self) -> int:
        """The blocks that share the loop."""
        return self.step // self.tile


def split_loops(module: IrModule) -> Iterator[SplitLoop]:
    """The loops from 0 to a parameter whose iterations load a tile per block, under its mask."""
    infos, parameters = axis_infos(module), {each.name for each in module.parameters}
    nested = list(module.nested())
    sums = [op.line for op, around in nested if op.opcode == "tt.atomic_rmw" and not around]

    def constant(value: str) -> int | None:
        return infos[value].constant if value in infos else None

    def inputs(value: str) -> Iterable[str]:
        return module.makers[value].inputs if value in module.makers else ()

    for loop in (op for op, _ in nested if sums and op.opcode == "scf.for"):
        _, *bounds = carried_values(loop)[0] or ("", "", "", "")
        start, end, step = bounds[0], bounds[1], constant(bounds[2])
        inside = [op for op, around in nested if around and around[-1] is loop]
        loads = [op for op in inside if op.opcode in _LOADS[:2] and len(op.inputs) > 1]
        if constant(start) != 0 or end not in parameters or not step or not loads:
            continue
        starts = {
            (_axis(number), tile)
            for load in loads
            for op in module.origins(load.inputs)
            if op.opcode == "arith.muli"
            for one, other in (op.inputs[:2], op.inputs[1::-1])
            if (number := module.makers.get(one)) and number.opcode == _PROGRAM_ID
            if (tile := constant(other)) and step % tile == 0 and step > tile
        }
        masked = all(end in reached(load.inputs[1:], inputs) for load in loads)
        if masked and len(starts) == 1:
            ((axis, tile),) = starts
            lines = tuple(dict.fromkeys(sums))
            yield SplitLoop(loop.line, axis, end.lstrip("%"), tile, step, lines)
