"""Why Triton moves so few elements per instruction in an access: layout, address, or mask.

The number is the least of four: a thread's adjacent elements by the layout, those that are adjacent
in memory, those that the alignment of the address allows, and those with one common mask. The cause
of the smallest is traced back to the operation or the argument that it comes from.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.loops import reached
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.ttgir.axis_info import AxisInfo, axis_infos, element_bytes, unknown
from traceview.kernels.ptx.ttgir.layouts import ThreadShare, layout_of, thread_share
from traceview.kernels.ptx.ttgir.parser import IrModule, IrOperation, shape_of

VECTOR_BYTES = 16
Property = Literal["contiguity", "divisibility", "constancy"]
Limit = Literal["layout", "contiguity", "alignment", "mask"]
ACCESSES = {
    "tt.load": "load",
    "tt.store": "store",
    "ttg.async_copy_global_to_local": "async-copy",
    "tt.atomic_rmw": "atomic",
}
"""Operations that access global memory, with the kind of access."""
_PASSING = frozenset(
    {
        "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi", "arith.extui", "arith.trunci",
        "ttg.convert_layout", "tt.bitcast", "tt.trans", "arith.index_cast", "tt.reshape",
    }
)  # fmt: skip


_EXTREMES = ("arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui")


@record
class Culprit:
    """What keeps a vector narrow: an operation, a parameter, a constant, or a loop.

    `operands` are the user's names of the variables that the operation combines. `need` is what the
    `wanted` property of its result would have to be, in elements. `is_added`: a constant that
    nothing scales, a shift and no pitch.
    """

    opcode: str
    name: str | None = None
    line: SourceLine | None = None
    operands: tuple[str, ...] = ()
    constant: int | None = None
    need: int = 1
    wanted: Property = "divisibility"
    is_added: bool = False


@record
class VectorLimit:
    """The elements that one instruction of an access moves, and what limits them.

    `limit` is what widens the access if it alone changes, `culprit` where that comes from. `beside`
    has the culprits of the other limits below `widest`, the worst first. `gathered`: each element's
    address depends on a value that was loaded for it. `packed`: each element takes its own bits of
    the loaded value.
    """

    line: SourceLine | None
    kind: str
    arrays: frozenset[str]
    element_bytes: int
    shape: tuple[int, ...]
    share: ThreadShare
    contiguity: int
    alignment: int
    mask: int | None
    limit: Limit
    culprit: Culprit | None
    vector_bytes: int = VECTOR_BYTES
    beside: tuple[Culprit, ...] = ()
    gathered: bool = False
    packed: bool = False

    @property
    def widest(self) -> int:
        """The most elements that one instruction can move."""
        return max(1, self.vector_bytes // self.element_bytes)

    @property
    def elements(self) -> int:
        """The elements per instruction."""
        wide = self.widest
        common = wide if self.mask is None else self.mask
        return min(wide, self.share.adjacent, self.contiguity, self.alignment, common)

    @property
    def width_bits(self) -> int:
        """The width of one instruction."""
        return 8 * self.element_bytes * self.elements


def vector_limits(
    module: IrModule, vector_bytes: int = VECTOR_BYTES, *, aligned_remainders: bool = True
) -> Iterator[VectorLimit]:
    """The limit of each access of global memory whose layout is understood, in program order.

    `vector_bytes` is the most that a load or a store moves; a copy to shared memory moves up to 16.
    `aligned_remainders` is as in `axis_infos`.
    """
    infos = axis_infos(module, aligned_remainders=aligned_remainders)
    for op in module.operations:
        if op.opcode in ACCESSES and op.inputs:
            most = vector_bytes if op.opcode in ("tt.load", "tt.store") else VECTOR_BYTES
            limit = _limit(op, module, infos, most)
            if limit:
                yield limit


def _limit(
    op: IrOperation, module: IrModule, infos: Mapping[str, AxisInfo], vector_bytes: int
) -> VectorLimit | None:
    pointer = op.inputs[0]
    type_ = pointer_type(pointer, op, module)
    shape = shape_of(type_)
    share = thread_share(layout_of(type_, module.layouts), shape)
    if share is None:
        return None
    size, axis = element_bytes(type_), share.axis
    address = infos.get(pointer, unknown(shape))
    # The mask is the second operand of a load, the third of others.
    mask = next(iter(op.inputs[1 if op.opcode == "tt.load" else 2 :]), None)
    common = infos.get(mask, unknown(shape)).constancy[axis] if mask else None
    contiguity = _at_most(address.contiguity[axis])
    alignment = max(1, _at_most(address.divisibility[axis]) // size)
    trace = _Trace(module, infos, axis)
    arrays = frozenset(name.lstrip("%") for name in trace.pointers(pointer))
    by_layout = VectorLimit(
        op.line, ACCESSES[op.opcode], arrays, size, shape, share, contiguity, alignment, common,
        "layout", None, vector_bytes, gathered=trace.is_gathered(pointer),
        packed=_is_packed(op, module),
    )  # fmt: skip
    return _blamed(by_layout, trace, pointer, mask, module.num_warps)


def _is_packed(load: IrOperation, module: IrModule) -> bool:
    """Whether a loaded value is shifted right, by a number of bits that differs by element."""
    waiting = list(load.results) if load.opcode == "tt.load" else []
    while waiting:
        value = waiting.pop()
        for user in module.users.get(value, ()):
            if user.opcode.startswith("arith.shr") and user.inputs[0] == value:
                by = module.makers.get(user.inputs[1])
                return by is None or by.opcode != "arith.constant"
            waiting += user.results if user.opcode in _RETYPED else ()
    return False


_RETYPED = ("ttg.convert_layout", "arith.extsi", "arith.extui", "arith.trunci", "tt.broadcast")


def _blamed(
    by_layout: VectorLimit, trace: _Trace, pointer: str, mask: str | None, warps: int | None
) -> VectorLimit:
    """The limit with its culprits.

    Triton gives a thread as many adjacent elements as its address allows and the tile has for it,
    so that the layout widens with the address unless the tile is too small for the threads.
    """
    wide, common = by_layout.widest, by_layout.mask
    found: dict[Limit, int] = {
        "contiguity": by_layout.contiguity,
        "alignment": by_layout.alignment,
        "mask": wide if common is None else common,
    }
    least = min(wide, *found.values())
    room = math.prod(by_layout.shape) // (WARP_THREADS * warps) if warps else wide
    # A larger tile of elements that are not adjacent only moves more of them one by one.
    room = 2 if by_layout.contiguity == least else room
    # Along an axis of one element nothing is adjacent.
    is_along = by_layout.shape[by_layout.share.axis] > 1
    by_address = is_along and least < min(wide, max(by_layout.share.adjacent, room))
    short = sorted((each for each in found if found[each] < wide), key=lambda each: found[each])
    culprits: dict[Limit, Callable[[], Culprit | None]] = {
        "contiguity": lambda: trace.culprit(pointer, "contiguity", wide),
        "alignment": lambda: trace.culprit(pointer, "divisibility", wide * by_layout.element_bytes),
        "mask": lambda: trace.culprit(mask or "", "constancy", wide),
    }
    if not by_address:
        # What holds along the whole side of the tile ends with the tile.
        side = by_layout.shape[by_layout.share.axis]
        short = [limit for limit in short if found[limit] < side]
    blamed = [culprits[limit]() for limit in short] if is_along else []
    if not by_address:
        return replace(by_layout, beside=tuple(filter(None, blamed)))
    beside = tuple(each for each in blamed[1:] if each and each != blamed[0])
    return replace(by_layout, limit=short[0], culprit=blamed[0], beside=beside)


def _at_most(value: int) -> int:
    return min(value, 1 << 10)


def pointer_type(pointer: str, op: IrOperation, module: IrModule) -> str:
    """The type of the address of an access."""
    maker = module.makers.get(pointer)
    if maker and "!tt.ptr" in maker.type:
        return maker.type
    types = op.rest.rpartition(" : ")[2]
    return types.partition(" ->")[0]


@record
class _Trace:
    """Follows a value of a module backwards along one axis of an access."""

    module: IrModule
    infos: Mapping[str, AxisInfo]
    axis: int

    def pointers(self, value: str) -> set[str]:
        """The pointer parameters that an address starts from."""
        parameters = {p.name for p in self.module.parameters if "!tt.ptr" in p.type}

        def following(name: str) -> Sequence[str]:
            maker = self.module.makers.get(name)
            if maker is None:
                return () if name in parameters else self._starts(name)
            if maker.opcode in ("tt.addptr", *_PASSING):
                return maker.inputs[:1]
            joins = maker.opcode.startswith(("scf.for", "scf.if", "arith.select"))
            return maker.inputs if joins else ()

        names: set[str] = set(reached([value], following))
        return parameters & names

    def is_gathered(self, pointer: str) -> bool:
        """Whether an address is computed from a tensor that was loaded."""
        loads = ("tt.load", "ttg.local_load")
        return any(op.opcode in loads and op.shape for op in self.module.origins([pointer], *loads))

    def culprit(self, value: str, wanted: Property, need: int) -> Culprit | None:
        """The operation that keeps a property of a value below `need`; None if it is not found."""
        axis, is_added = self.axis, True
        for _ in range(200):
            maker = self.module.makers.get(value)
            if maker is None:
                parameter = next((p for p in self.module.parameters if p.name == value), None)
                if parameter:
                    name = value.lstrip("%")
                    return Culprit("parameter", name, need=need, wanted=wanted)
                starts = self._starts(value)
                worse = self._worst(starts, wanted, axis, need)
                if worse is None:
                    loop = self._loop(value)
                    if loop is None:
                        return None
                    own = self._step_of(loop, value)
                    return Culprit("loop", line=loop.line, constant=own, need=need, wanted=wanted)
                value = worse
                continue
            if maker.opcode == "arith.constant":
                constant = self._constant(value)
                number = Culprit(maker.opcode, constant=constant, need=need, wanted=wanted)
                return replace(number, is_added=is_added)
            is_added &= maker.opcode not in ("arith.muli", "arith.shli", "arith.cmpi")
            step = self._step(maker, wanted, axis, need)
            if step is None:
                names = [self._variable(value) for value in maker.inputs]
                constants = [self._constant(value) for value in maker.inputs]
                constant = next((c for c in constants if c is not None), None)
                operands = tuple(dict.fromkeys(name for name in names if name))
                made = maker.opcode, maker.name, maker.line, operands, constant
                return Culprit(*made, need, wanted)
            value, wanted, need, axis = step
        return None

    def _step(
        self, maker: IrOperation, wanted: Property, axis: int, need: int
    ) -> tuple[str, Property, int, int] | None:
        """The operand to follow, with its property, need and axis; None to blame the operation."""
        inputs = [value for value in maker.inputs if value.startswith("%")]
        opcode = maker.opcode
        if opcode in _PASSING and inputs:
            inner = self.infos.get(inputs[0])
            rank = len(inner.contiguity) if inner else 1
            if opcode in ("tt.trans", "tt.reshape") and rank > 1:
                return None
            return inputs[0], wanted, need, min(axis, rank - 1)
        if opcode in ("tt.addptr", "arith.addi", "arith.subi"):
            return self._of_sum(maker, inputs, wanted, axis, need)
        if opcode in ("arith.muli", "arith.shli") and wanted == "divisibility":
            # One multiple among the factors suffices: that which is easiest to change.
            # A shift counts by what is shifted.
            factors = inputs[:1] if opcode == "arith.shli" else inputs
            factor = min(factors, key=self._hardness, default=None)
            return (factor, wanted, need, axis) if factor else None
        if opcode == "arith.cmpi":
            return self._of_comparison(inputs, axis, need)
        if opcode in ("arith.andi", "arith.ori", "arith.xori") and wanted == "constancy":
            return self._worse(inputs, wanted, axis, need)
        if opcode in _EXTREMES and wanted == "divisibility":
            return self._worse(inputs, wanted, axis, need)
        if opcode == "arith.select" and wanted == "divisibility" and len(inputs) == 3:
            return self._worse(inputs[1:], wanted, axis, need)
        return None

    def _of_sum(
        self, maker: IrOperation, inputs: list[str], wanted: Property, axis: int, need: int
    ) -> tuple[str, Property, int, int] | None:
        if wanted == "divisibility" and maker.opcode == "tt.addptr":
            size = element_bytes(maker.type)
            if self._value(inputs[0], wanted, axis) >= need:
                return inputs[1], wanted, max(1, need // size), axis
            return inputs[0], wanted, need, axis
        if wanted != "contiguity":
            return self._worse(inputs, wanted, axis, need)
        # One operand runs along the axis; the other must stay constant.
        runs = sorted(inputs[:2], key=lambda value: self._value(value, "contiguity", axis))
        if self._value(runs[1], "contiguity", axis) >= need:
            return runs[0], "constancy", need, axis
        flat = [value for value in inputs[:2] if self._value(value, "constancy", axis) < need]
        if flat:
            return flat[-1], "contiguity", need, axis
        # All are constant over a vector: that which changes is followed.
        changes = min(inputs[:2], key=lambda value: self._value(value, "constancy", axis))
        return changes, "contiguity", need, axis

    def _of_comparison(
        self, inputs: list[str], axis: int, need: int
    ) -> tuple[str, Property, int, int] | None:
        runs = sorted(inputs[:2], key=lambda value: self._value(value, "contiguity", axis))
        if len(runs) < 2 or self._value(runs[1], "contiguity", axis) < need:
            return self._worse(runs, "constancy", axis, need)
        if self._value(runs[0], "constancy", axis) < need:
            return runs[0], "constancy", need, axis
        return self._worse(runs, "divisibility", axis, need)

    def _worse(
        self, values: list[str], wanted: Property, axis: int, need: int
    ) -> tuple[str, Property, int, int] | None:
        worst = self._worst(values, wanted, axis, need)
        return (worst, wanted, need, axis) if worst else None

    def _worst(self, values: list[str], wanted: Property, axis: int, need: int) -> str | None:
        short = [value for value in values if self._value(value, wanted, axis) < need]
        return min(
            short,
            key=lambda value: (self._value(value, wanted, axis), self._hardness(value)),
            default=None,
        )

    def _hardness(self, value: str) -> int:
        """How hard a value is to align: a parameter, a constant, another value, the program id."""
        if self._constant(value) is not None:
            return 1
        maker = self.module.makers.get(value)
        while maker and maker.opcode in _PASSING and maker.inputs:
            value = maker.inputs[0]
            maker = self.module.makers.get(value)
        if maker is None:
            return 0 if any(each.name == value for each in self.module.parameters) else 2
        return 3 if maker.opcode == "tt.get_program_id" else 2

    def _value(self, value: str, wanted: Property, axis: int) -> int:
        info = self.infos.get(value, unknown(()))
        numbers: tuple[int, ...] = getattr(info, wanted)
        scalar = len(numbers) <= axis
        if scalar and wanted == "constancy":
            return 1 << 10
        return numbers[min(axis, len(numbers) - 1)]

    def _constant(self, value: str) -> int | None:
        info = self.infos.get(value)
        return info.constant if info else None

    def _starts(self, value: str) -> list[str]:
        """The value of a loop-carried variable before the loop, in a list; empty for others."""
        loop = self._loop(value)
        head = loop.rest.partition(f"{value} = ")[2] if loop else ""
        return [head.split(",")[0].split(" ")[0].rstrip(")")] if head.startswith("%") else []

    def _loop(self, value: str) -> IrOperation | None:
        loops = (op for op in self.module.operations if op.opcode.startswith("scf.for"))
        return next((loop for loop in loops if f"{value} = " in loop.rest), None)

    def _step_of(self, loop: IrOperation, value: str) -> int | None:
        """The constant step of a loop's own variable; None for values that it carries."""
        own = re.match(r"\s*(%[\w.]+) = %[\w#.]+ to %[\w#.]+ step (%[\w#.]+)", loop.rest)
        return self._constant(own[2]) if own and own[1] == value else None

    def _variable(self, value: str) -> str | None:
        """The user's name of a value: a parameter's, or that of the variable it was assigned to."""
        for _ in range(8):
            if any(parameter.name == value for parameter in self.module.parameters):
                return value.lstrip("%")
            maker = self.module.makers.get(value)
            if maker is None or maker.opcode not in _PASSING or not maker.inputs:
                return maker.name if maker and maker.opcode != "arith.constant" else None
            value = maker.inputs[0]
        return None


# Accesses of one value per program in TTGIR, whatever its address is computed from.


def scalar_accesses(module: IrModule) -> frozenset[tuple[SourceLine, str]]:
    """The lines and kinds of access of global memory that only move scalars."""
    scalar: dict[tuple[SourceLine, str], bool] = defaultdict(lambda: True)
    for op in module.operations:
        if op.opcode in ACCESSES and op.inputs and op.line:
            place = op.line, ACCESSES[op.opcode]
            scalar[place] &= not shape_of(pointer_type(op.inputs[0], op, module))
    return frozenset(place for place, is_scalar in scalar.items() if is_scalar)
