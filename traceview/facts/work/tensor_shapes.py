"""FLOP and bytes of GEMMs from the tensor shapes that torch writes into its NVTX ranges.

`nsys profile --pytorch=autograd-shapes-nvtx`, as torch.autograd.profiler.emit_nvtx(record_shapes=
True), opens a range for every operator:

    aten::mm, seq = 12, op_id = 34, sizes = [[4096, 2048], [2048, 1024]], input_op_ids = [[3,0]]

An argument that is not a tensor has the size []. Convolutions are left out: stride and padding are
no tensors, so the size of the result is unknown. So is attention, which may be causal or not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from traceview.records import record
from traceview.vocabulary.amounts import NAME_CHARACTERS

_SIZES = re.compile(
    r"(aten::\w+)(?:, \w+ = \d+)*, sizes = (\[[\[\]\d, -]*\])(?:, input_op_ids = .*)?"
)
_ONE = re.compile(r"\[([\d, -]*)\]")
_MOST_SIDE = 1 << 40
_MOST_FLOP = 10**24

Shape = tuple[int, ...]
Sides = tuple[int, int, int, int]
"""Of a GEMM: batch, m, k, n."""


@record
class Gemm:
    """A batched GEMM of an m × k by a k × n matrix, and its least work."""

    operator: str
    batch: int
    m: int
    k: int
    n: int

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def elements(self) -> int:
        """Elements read, each once, and written."""
        return self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)


def has_sizes(text: str) -> bool:
    """Whether the text of a range has the shapes of an operator's arguments."""
    return ", sizes = [" in text[:NAME_CHARACTERS]


def parse_gemm(text: str) -> Gemm | None:
    """The GEMM of a range; None if its operator is none, or the text malformed."""
    match = _SIZES.fullmatch(text) if len(text) <= NAME_CHARACTERS else None
    form = _OPERATORS.get(match[1]) if match else None
    if match is None or form is None:
        return None
    sizes = [_shape(each) for each in _ONE.findall(match[2][1:-1])]
    known = [size for size in sizes if size is not None]
    sides = form(known) if len(known) == len(sizes) else None
    gemm = Gemm(match[1], *sides) if sides else None
    return gemm if gemm and gemm.flop < _MOST_FLOP else None


def _shape(text: str) -> Shape | None:
    try:
        sides = tuple(int(side) for side in text.split(",") if side.strip())
    except ValueError:
        return None
    return sides if all(0 <= side < _MOST_SIDE for side in sides) else None


def _two(first: int) -> Callable[[Sequence[Shape]], Sides | None]:
    """Parser of two matrices, or two batches of them, that begin at argument `first`."""

    def sides(sizes: Sequence[Shape]) -> Sides | None:
        if len(sizes) < first + 2:
            return None
        a, b = sizes[first], sizes[first + 1]
        fits = len(a) == len(b) and len(a) in (2, 3) and a[-1] == b[-2] and a[:-2] == b[:-2]
        return (math.prod(a[:-2]), a[-2], a[-1], b[-1]) if fits else None

    return sides


def _linear(sizes: Sequence[Shape]) -> Sides | None:
    """Any number of rows times a weight stored as (out, in)."""
    if len(sizes) < 2 or not sizes[0] or len(sizes[1]) != 2 or sizes[0][-1] != sizes[1][1]:
        return None
    return 1, math.prod(sizes[0][:-1]), sizes[0][-1], sizes[1][0]


_OPERATORS: Mapping[str, Callable[[Sequence[Shape]], Sides | None]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul"), _two(0)),
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::_addmm_activation"), _two(1)),
    **dict.fromkeys(("aten::baddbmm", "aten::baddbmm_"), _two(1)),
    "aten::linear": _linear,
}
