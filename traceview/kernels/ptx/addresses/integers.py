"""PTX integer instructions, evaluated for all threads at once as the GPU does."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
"""A register's value per thread, shape (threads,). Unused high bits are zero."""

_TYPE = re.compile(r"([subf])(8|16|32|64)$")
_MIX = 0x2545F4914F6CDD1D
_Binary = Callable[[Values, Values], Values]


def integer_result(opcode: str, inputs: Sequence[Values]) -> Values | None:
    """The result of an integer instruction; None for an opcode that is not implemented."""
    root, *words = opcode.split(".")
    kind, bits = _type_of(words[-1] if words else "")
    compute = _OPERATIONS.get(root)
    if kind == "f" or compute is None or len(inputs) not in _OPERANDS.get(root, (2,)):
        return None
    read = [_read(each, kind, bits) for each in inputs]
    if root == "mad" and "wide" in words:
        read[2:] = inputs[2:]
    result = compute(words, read)
    return None if result is None else _cut(result, _result_bits(root, words, bits))


def input_hash(start: Values, inputs: Iterable[Values | int]) -> Values:
    """A non-negative hash of the inputs, per thread."""
    state = start
    for each in inputs:
        state = (state ^ each) * _MIX
        state = state ^ ((state >> 29) & 0x7FFFFFFFF)
    return state & 0x7FFFFFFFFFFFFFFF


def _type_of(word: str) -> tuple[str, int]:
    type_ = _TYPE.match(word)
    if type_:
        return type_[1], int(type_[2])
    return ("b", 1) if word == "pred" else ("f", 0)


def _result_bits(root: str, words: Sequence[str], bits: int) -> int:
    if root == "setp":
        return 1
    if root == "cvt":
        return _type_of(words[-2])[1]
    return 2 * bits if "wide" in words else bits


def _read(value: Values, kind: str, bits: int) -> Values:
    cut = _cut(value, bits)
    if kind != "s" or bits >= 64:
        return cut
    sign = 1 << (bits - 1)
    return (cut ^ sign) - sign


def _cut(value: Values, bits: int) -> Values:
    return value if bits >= 64 else value & ((1 << bits) - 1)


def _binary(compute: _Binary) -> Callable[[Sequence[str], Sequence[Values]], Values]:
    def run(_: Sequence[str], inputs: Sequence[Values]) -> Values:
        return compute(inputs[0], inputs[1])

    return run


def _same(_: Sequence[str], inputs: Sequence[Values]) -> Values:
    return inputs[0]


def _convert(words: Sequence[str], inputs: Sequence[Values]) -> Values | None:
    known = len(words) > 1 and _type_of(words[-2])[0] != "f"
    return inputs[0] if known else None


def _multiply(words: Sequence[str], inputs: Sequence[Values]) -> Values | None:
    return None if "hi" in words else inputs[0] * inputs[1]


def _quotient(a: Values, b: Values) -> Values:
    """The quotient rounded towards zero, unlike Python's `//`."""
    by = np.where(b == 0, 1, b)
    result: Values = np.abs(a) // np.abs(by) * np.sign(a) * np.sign(by)
    return result


def _remainder(a: Values, b: Values) -> Values:
    return a - _quotient(a, b) * b


def _left(a: Values, by: Values) -> Values:
    return np.where(by > 63, 0, a << np.clip(by, 0, 63))


def _right(a: Values, by: Values) -> Values:
    return a >> np.clip(by, 0, 63)


def _field(words: Sequence[str], inputs: Sequence[Values]) -> Values:
    value, start, length = inputs
    bits = _right(value, start) & (_left(np.ones_like(length), length) - 1)
    if not words[-1].startswith("s"):
        return bits
    sign = _left(np.ones_like(length), length - 1)
    return (bits ^ sign) - sign


def _insert(_: Sequence[str], inputs: Sequence[Values]) -> Values:
    part, whole, start, length = inputs
    mask = _left(_left(np.ones_like(length), length) - 1, start)
    return (_left(part, start) & mask) | (whole & ~mask)


def _logic(_: Sequence[str], inputs: Sequence[Values]) -> Values:
    """lop3: the last operand is the truth table of the eight input cases."""
    result = np.zeros_like(inputs[0])
    for case in range(8):
        if int(inputs[3][0]) >> case & 1:
            signs = (case & 4, case & 2, case & 1)
            a, b, c = (v if sign else ~v for v, sign in zip(inputs, signs, strict=False))
            result |= a & b & c
    return result


_COMPARISONS: Mapping[str, Callable[[Values, Values], object]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
_JOINED: Mapping[str, _Binary] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _compare(words: Sequence[str], inputs: Sequence[Values]) -> Values | None:
    compare, join = _COMPARISONS.get(words[0]), _JOINED.get("".join(words[1:2]))
    if compare is None or len(inputs) != 2 + (join is not None):
        return None
    holds = np.asarray(compare(inputs[0], inputs[1])).astype(np.int64)
    return join(holds, inputs[2]) if join else holds


def _select(_: Sequence[str], inputs: Sequence[Values]) -> Values:
    return np.where(inputs[2] & 1, inputs[0], inputs[1])


_OPERATIONS: Mapping[str, Callable[[Sequence[str], Sequence[Values]], Values | None]] = {
    "mov": _same,
    "cvta": _same,
    "cvt": _convert,
    "add": _binary(operator.add),
    "sub": _binary(operator.sub),
    "mul": _multiply,
    "mad": lambda words, inputs: None if "hi" in words else inputs[0] * inputs[1] + inputs[2],
    "div": _binary(_quotient),
    "rem": _binary(_remainder),
    "shl": _binary(_left),
    "shr": _binary(_right),
    **{name: _binary(compute) for name, compute in _JOINED.items()},
    "not": lambda _, inputs: ~inputs[0],
    "neg": lambda _, inputs: -inputs[0],
    "abs": lambda _, inputs: np.abs(inputs[0]),
    "min": _binary(np.minimum),
    "max": _binary(np.maximum),
    "bfe": _field,
    "bfi": _insert,
    "lop3": _logic,
    "setp": _compare,
    "selp": _select,
}
# The number of source operands, where it is not two.
_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("mov", "cvta", "cvt", "not", "neg", "abs"), (1,)),
    **dict.fromkeys(("mad", "bfe", "selp"), (3,)),
    **dict.fromkeys(("bfi", "lop3"), (4,)),
    "setp": (2, 3),
}
