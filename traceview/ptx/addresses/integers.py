"""Integer instructions of PTX, computed for all threads at once as the GPU does."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
"""A register's content for each thread. Of less than 64 bits the higher ones are zero."""

_TYPE = re.compile(r"([subf])(8|16|32|64)$")
_MIX = 0x2545F4914F6CDD1D
_Binary = Callable[[Values, Values], Values]


def computed(opcode: str, inputs: Sequence[Values]) -> Values | None:
    """The result of an integer instruction; None for one that is not known here."""
    root, *words = opcode.split(".")
    kind, bits = _type_of(words[-1] if words else "")
    compute = _OPERATIONS.get(root)
    if kind == "f" or compute is None or len(inputs) not in _OPERANDS.get(root, (2,)):
        return None
    read = [_read(each, kind, bits) for each in inputs]
    if root == "mad" and "wide" in words:
        read[2:] = inputs[2:]
    found = compute(words, read)
    return None if found is None else _cut(found, _result_bits(root, words, bits))


def mixed(start: Values, inputs: Iterable[Values | int]) -> Values:
    """Some number that depends on all of the inputs, from 0 up."""
    found = start
    for each in inputs:
        found = (found ^ each) * _MIX
        found = found ^ ((found >> 29) & 0x7FFFFFFFF)
    return found & 0x7FFFFFFFFFFFFFFF


def _type_of(word: str) -> tuple[str, int]:
    found = _TYPE.match(word)
    if found:
        return found[1], int(found[2])
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
    """Rounded towards zero, unlike Python's."""
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
    found = _right(value, start) & (_left(np.ones_like(length), length) - 1)
    if not words[-1].startswith("s"):
        return found
    sign = _left(np.ones_like(length), length - 1)
    return (found ^ sign) - sign


def _insert(_: Sequence[str], inputs: Sequence[Values]) -> Values:
    part, whole, start, length = inputs
    mask = _left(_left(np.ones_like(length), length) - 1, start)
    return (_left(part, start) & mask) | (whole & ~mask)


def _logic(_: Sequence[str], inputs: Sequence[Values]) -> Values:
    """lop3: its last operand is the table of the result for each of eight cases."""
    found = np.zeros_like(inputs[0])
    for case in range(8):
        if int(inputs[3][0]) >> case & 1:
            signs = (case & 4, case & 2, case & 1)
            a, b, c = (v if sign else ~v for v, sign in zip(inputs, signs, strict=False))
            found |= a & b & c
    return found


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
_JOINED: Mapping[str, _Binary] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _compare(words: Sequence[str], inputs: Sequence[Values]) -> Values | None:
    compare, join = _COMPARISONS.get(words[0]), _JOINED.get("".join(words[1:2]))
    if compare is None or len(inputs) != 2 + (join is not None):
        return None
    found = np.asarray(compare(inputs[0], inputs[1])).astype(np.int64)
    return join(found, inputs[2]) if join else found


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
# How many operands each of them has besides its result, where these are not two.
_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("mov", "cvta", "cvt", "not", "neg", "abs"), (1,)),
    **dict.fromkeys(("mad", "bfe", "selp"), (3,)),
    **dict.fromkeys(("bfi", "lop3"), (4,)),
    "setp": (2, 3),
}
