"""Contiguity, divisibility and constancy of the values of a TTGIR module, per axis.

The rules are those by which Triton decides how many elements one instruction moves (its analysis
AxisInfo): `contiguity` elements ascend by one, the first of each such run is a multiple of
`divisibility` (bytes for pointers), and `constancy` elements are equal. What is not known is 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from traceview.base.records import record
from traceview.kernels.ptx.ttgir.parser import IrModule, IrOperation, shape_of

_MOST = 1 << 30
_DENSE = re.compile(r"dense<(-?\d+|true|false)>|^\s*(-?\d+|true|false)\b")
_RANGE = re.compile(r"end = (\d+) : i32, start = (\d+)")
_AXIS = re.compile(r"axis = (\d+)")
_ORDER = re.compile(r"order = array<i32: ([\d, ]+)>")
_HINT = re.compile(r"tt\.(contiguity|divisibility|constancy) = dense<\[?([\d, ]+)\]?>")
_BITS = re.compile(r"(\d+)(?:E\w+)?>*$")
_FOR = re.compile(
    r"(%[\w.]+) = (%[\w.#-]+) to (%[\w.#-]+) step (%[\w.#-]+)(?:\s*iter_args\((.*?)\))?"
)
_CARRIED = re.compile(r"(%[\w.]+) = (%[\w.#-]+)")
_REMAINDERS = ("arith.remsi", "arith.remui")
_SAME = frozenset(
    {
        "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "tt.bitcast",
        "ttg.convert_layout", "arith.bitcast", "tt.int_to_ptr", "tt.ptr_to_int",
    }
)  # fmt: skip


@record
class AxisInfo:
    """What is known of a value along each axis; scalars have one axis of length one."""

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None


def axis_infos(module: IrModule, *, aligned_remainders: bool = True) -> Mapping[str, AxisInfo]:
    """The AxisInfo of every value, repeated until the values that loops carry settle.

    `aligned_remainders` False gives the analysis before Triton 3.9, which assumes nothing about a
    scalar `a % b`.
    """
    analysis = _Analysis(module, aligned_remainders)
    for _ in range(8):
        before = dict(analysis.known)
        analysis.run()
        if analysis.known == before:
            break
    return analysis.known


def carried_values(loop: IrOperation) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
    """What a `for` defines inside: its variable with its bounds and step, and names with starts."""
    match = _FOR.search(loop.rest) if loop.opcode.startswith("scf.for") else None
    return (match.groups()[:4], _CARRIED.findall(match[5] or "")) if match else ((), ())


def unknown(shape: Sequence[int]) -> AxisInfo:
    """The AxisInfo of a value of which nothing is known."""
    ones = (1,) * max(1, len(shape))
    return AxisInfo(ones, ones, ones)


class _Analysis:
    """The AxisInfo of each value so far; each `run` is one pass over the operations."""

    def __init__(self, module: IrModule, aligned_remainders: bool) -> None:
        self.module = module
        self.aligned_remainders = aligned_remainders
        self.known: dict[str, AxisInfo] = {}
        for each in module.parameters:
            hint = each.hints
            self.known[each.name] = AxisInfo(
                (hint.get("contiguity", 1),),
                (hint.get("divisibility", 1),),
                (hint.get("constancy", 1),),
            )

    def run(self) -> None:
        for op, regions in self.module.nested():
            if op.opcode == "scf.yield" and regions:
                inside = [name for name, _ in carried_values(regions[-1])[1]]
                for at, value in enumerate(op.inputs):
                    for names in (inside, regions[-1].results):
                        if at < len(names):
                            self._join(names[at], self.of(value))
            elif op.opcode.startswith(("scf.for", "scf.if", "scf.while")):
                self._entered(op)
            elif op.results:
                info = self._hinted(op, self._result(op))
                self.known.update(dict.fromkeys(op.results, info))

    def _entered(self, op: IrOperation) -> None:
        counted, carried = carried_values(op)
        if not counted:
            return
        low, step = self.of(counted[1]), self.of(counted[3])
        divisibility = math.gcd(low.divisibility[0], step.divisibility[0])
        self.known[counted[0]] = AxisInfo((1,), (divisibility,), (1,))
        for at, (inside, start) in enumerate(carried):
            self._join(inside, self.of(start))
            if at < len(op.results):
                self._join(op.results[at], self.of(start))

    def _join(self, name: str, info: AxisInfo) -> None:
        old = self.known.get(name)
        self.known[name] = info if old is None else _both(old, info)

    def of(self, value: str) -> AxisInfo:
        maker = self.module.makers.get(value)
        return self.known.get(value) or unknown(maker.shape if maker else ())

    def _hinted(self, op: IrOperation, info: AxisInfo) -> AxisInfo:
        hints = {
            name: tuple(int(n) for n in numbers.split(","))
            for name, numbers in _HINT.findall(op.rest)
        }
        if not hints:
            return info
        # Equal numbers of all axes are written once: dense<16> for [16, 16].
        each = {
            name: hint * _rank(info) if len(hint) == 1 else hint for name, hint in hints.items()
        }
        parts = {
            name: tuple(map(max, getattr(info, name), hint))
            for name, hint in each.items()
            if len(hint) == _rank(info)
        }
        return AxisInfo(**{**info.__dict__, **parts})

    def _result(self, op: IrOperation) -> AxisInfo:
        compute = _RULES.get(op.opcode)
        inputs = [self.of(value) for value in op.inputs]
        if op.opcode in _ELEMENTWISE:
            rank = max(1, len(op.shape))
            inputs = [info if _rank(info) == rank else unknown(op.shape) for info in inputs]
        if op.opcode in _SAME and inputs:
            return inputs[0]
        if op.opcode in _REMAINDERS and not op.shape and not self.aligned_remainders:
            return unknown(op.shape)
        result = (
            compute(op, inputs) if compute and len(inputs) >= _LEAST.get(op.opcode, 1) else None
        )
        return result if result and _rank(result) == max(1, len(op.shape)) else unknown(op.shape)


def _rank(info: AxisInfo) -> int:
    return len(info.contiguity)


def _common(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(math.gcd, a, b))


def _greater(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(max, a, b))


def _both(a: AxisInfo, b: AxisInfo) -> AxisInfo:
    return AxisInfo(
        _common(a.contiguity, b.contiguity),
        _common(a.divisibility, b.divisibility),
        _common(a.constancy, b.constancy),
        a.constant if a.constant == b.constant else None,
    )


def _power_of_two(value: int) -> int:
    return value & -value if value else _MOST


def _constant(op: IrOperation, _: Sequence[AxisInfo]) -> AxisInfo | None:
    match = _DENSE.search(op.rest)
    if not match:
        return None
    text = match[1] or match[2]
    value = {"true": 1, "false": 0}.get(text) if text in ("true", "false") else int(text)
    shape = op.shape or (1,)
    ones = (1,) * len(shape)
    return AxisInfo(ones, (_power_of_two(value or 0),) * len(shape), shape, value)


def _range(op: IrOperation, _: Sequence[AxisInfo]) -> AxisInfo | None:
    match = _RANGE.search(op.rest)
    if not match:
        return None
    end, start = int(match[1]), int(match[2])
    return AxisInfo((end - start,), (_power_of_two(start),), (1,))


def _splat(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    ones = (1,) * len(op.shape)
    value = inputs[0]
    return AxisInfo(ones, (value.divisibility[0],) * len(ones), op.shape, value.constant)


def _expand(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo | None:
    match, value = _AXIS.search(op.rest), inputs[0]
    if not match:
        return None
    at = int(match[1])

    def with_axis(values: tuple[int, ...], new: int) -> tuple[int, ...]:
        return (*values[:at], new, *values[at:])

    of_all = (
        1 if run > 1 and value.constant is None else divisibility
        for run, divisibility in zip(value.contiguity, value.divisibility, strict=True)
    )
    return AxisInfo(
        with_axis(value.contiguity, 1),
        # The divisibility of a run holds for its first element alone.
        with_axis(value.divisibility, math.gcd(*of_all)),
        with_axis(value.constancy, 1),
        value.constant,
    )


def _broadcast(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo | None:
    # The type of the operand stands before the arrow.
    before = shape_of(op.rest.partition("->")[0].rpartition(" : ")[2])
    value = inputs[0]
    if len(before) != len(op.shape):
        return None
    grown = [old == 1 < new for old, new in zip(before, op.shape, strict=True)]
    contiguity = tuple(1 if g else c for g, c in zip(grown, value.contiguity, strict=True))
    constancy = tuple(
        new if g else c for g, c, new in zip(grown, value.constancy, op.shape, strict=True)
    )
    return AxisInfo(contiguity, value.divisibility, constancy, value.constant)


def _transposed(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo | None:
    match, value = _ORDER.search(op.rest), inputs[0]
    if not match:
        return None
    order = [int(n) for n in match[1].split(",")]
    return AxisInfo(
        tuple(value.contiguity[a] for a in order),
        tuple(value.divisibility[a] for a in order),
        tuple(value.constancy[a] for a in order),
        value.constant,
    )


def _sum(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    a, b = inputs[0], inputs[1]
    runs = _common(a.contiguity, b.constancy)
    if op.opcode != "arith.subi":
        runs = _greater(runs, _common(a.constancy, b.contiguity))
    size = element_bytes(op.type) if op.opcode == "tt.addptr" else 1
    divisibility = tuple(
        math.gcd(x, y * size) for x, y in zip(a.divisibility, b.divisibility, strict=True)
    )
    sign = -1 if op.opcode == "arith.subi" else 1
    known = a.constant is not None and b.constant is not None
    constant = (a.constant or 0) + sign * (b.constant or 0) if known else None
    return AxisInfo(runs, divisibility, _common(a.constancy, b.constancy), constant)


def _product(_: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    a, b = inputs[0], inputs[1]
    runs = tuple(
        x if b.constant == 1 else y if a.constant == 1 else 1
        for x, y in zip(a.contiguity, b.contiguity, strict=True)
    )
    divisibility = tuple(
        min(_MOST, _of_elements(a, at, b) * _of_elements(b, at, a)) for at in range(len(runs))
    )
    known = a.constant is not None and b.constant is not None
    constant = (a.constant or 0) * (b.constant or 0) if known else None
    return AxisInfo(runs, divisibility, _common(a.constancy, b.constancy), constant)


def _of_elements(a: AxisInfo, at: int, other: AxisInfo) -> int:
    """The divisibility of every element: that of a run holds for its first element only."""
    return 1 if a.contiguity[at] > 1 and other.constant != 1 else a.divisibility[at]


def _quotient(_: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    a, b = inputs[0], inputs[1]
    if b.constant == 1:
        return a
    # Runs of consecutive numbers have equal quotients within multiples of the divisor.
    stepped = _common(a.contiguity, _common(a.divisibility, b.divisibility))
    constancy = _greater(_common(a.constancy, b.constancy), stepped)
    ones = (1,) * len(constancy)
    divisor = b.constant or 0
    divisibility = tuple(
        max(1, d // divisor) if divisor and divisor & (divisor - 1) == 0 and c == 1 else 1
        for d, c in zip(a.divisibility, a.contiguity, strict=True)
    )
    return AxisInfo(ones, divisibility, constancy)


def _remainder(_: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    a, b = inputs[0], inputs[1]
    both = _common(a.divisibility, b.divisibility)
    runs = _common(a.contiguity, both)
    return AxisInfo(runs, both, _common(a.constancy, b.constancy))


def _shifted(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo | None:
    a, by = inputs[0], inputs[1].constant
    if by is None or not 0 <= by < 31:
        return None
    one = AxisInfo(inputs[1].contiguity, inputs[1].divisibility, inputs[1].constancy, 1 << by)
    if op.opcode != "arith.shli":
        return _quotient(op, [a, one])
    factor = AxisInfo(one.contiguity, (1 << by,) * len(one.contiguity), one.constancy, 1 << by)
    return _product(op, [a, factor])


def _logic(_: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    constancy = _common(inputs[0].constancy, inputs[1].constancy)
    ones = (1,) * len(constancy)
    return AxisInfo(ones, ones, constancy)


def _comparison(_: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo:
    a, b = inputs[0], inputs[1]
    shared = _common(a.divisibility, b.divisibility)
    constancy = _common(a.constancy, b.constancy)
    # Along a run, the comparison with a constant changes at multiples of what both divide.
    for run, flat in ((a.contiguity, b.constancy), (b.contiguity, a.constancy)):
        constancy = _greater(constancy, _common(_common(run, flat), shared))
    ones = (1,) * len(constancy)
    return AxisInfo(ones, ones, constancy)


def _selected(op: IrOperation, inputs: Sequence[AxisInfo]) -> AxisInfo | None:
    if len(inputs) != 3:
        return None
    flag, a, b = inputs
    either = _both(a, b)
    if not op.shape or len(flag.constancy) != len(either.constancy):
        return either
    return AxisInfo(
        _common(either.contiguity, flag.constancy),
        either.divisibility,
        _common(either.constancy, flag.constancy),
    )


def element_bytes(type_: str) -> int:
    """The size in bytes of the elements that pointers of a type point to."""
    pointed = type_.rpartition("!tt.ptr<")[2].partition(">")[0].partition(",")[0]
    if pointed.startswith("f8") or pointed == "i1":
        return 1
    bits = _BITS.search(pointed)
    return max(1, int(bits[1]) // 8) if bits else 1


_RULES: Mapping[str, Callable[[IrOperation, Sequence[AxisInfo]], AxisInfo | None]] = {
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.splat": _splat,
    "tt.expand_dims": _expand,
    "tt.broadcast": _broadcast,
    "tt.trans": _transposed,
    **dict.fromkeys(("arith.addi", "arith.subi", "tt.addptr"), _sum),
    "arith.muli": _product,
    "arith.divsi": _quotient,
    "arith.divui": _quotient,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    **dict.fromkeys(("arith.shli", "arith.shrsi", "arith.shrui"), _shifted),
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.xori"), _logic),
    **dict.fromkeys(
        ("arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui"), lambda _, i: _both(*i[:2])
    ),
    "arith.cmpi": _comparison,
    "arith.select": _selected,
}
_ELEMENTWISE = _SAME | {name for name in _RULES if name.startswith("arith.")} | {"tt.addptr"}
_LEAST = {
    "arith.constant": 0,
    "tt.make_range": 0,
    **{name: 2 for name in _ELEMENTWISE - _SAME if name not in ("arith.constant", "arith.select")},
}
