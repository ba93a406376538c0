"""Work of kernels by NVTX ranges: declared by the program, or from torch's tensor shapes."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from traceview.base import groups
from traceview.base.hardware.rates import FLOP_KINDS
from traceview.base.records import record
from traceview.base.tables import NULL, Integers, Mask, Texts, constant, object_array, picked
from traceview.base.vocabulary import amounts, libraries
from traceview.traces.facts.operations import kernel_operations
from traceview.traces.facts.ranges.origins import range_name_forms
from traceview.traces.facts.ranges.ranges import attributed_operations, pattern_of, range_tree
from traceview.traces.facts.work.peaks import KINDS, WorkEstimate
from traceview.traces.trace import Trace, fact

# Declarations of work: NVTX ranges whose text states bytes and FLOP.
#
#     gelu {"bytes": 2147483648, "flop": 3489660928, "kind": "fp32"}
#
# A name and a JSON object with any of: `bytes` moved to and from device memory, `flop` (a
# multiply-add counts two), `flop_per_byte` in place of `flop`, and `kind`, the unit that computes
# (see hardware.FLOP_KINDS). `"payload"` in place of a number stands for the integer NVTX payload
# of the range, so that the text can stay the same while the size changes:
#
#     with nvtx.annotate('gelu {"bytes": "payload", "flop_per_byte": 1.6}', payload=2 * x.nbytes):
#
# The figures are those of one pass through the range. Only this module knows the format:
# `declaration` writes it, `parse_declaration` reads it.

_FORM = re.compile(r"(?P<name>[^{]*?)\s*(?P<json>\{[^{}]*\})\s*", re.DOTALL)
PAYLOAD = "payload"
_LONGEST = 1000
_MOST = 1e24


@record
class DeclaredWork:
    """The work declared by a range; None for what its text leaves out."""

    name: str
    bytes: float | None
    flop: float | None
    kind: str | None


def declaration(
    name: str,
    *,
    bytes: float | None = None,  # noqa: A002 - the quantity is a number of bytes
    flop: float | None = None,
    kind: str | None = None,
) -> str:
    """The text of a range that declares this work; None is left out."""
    work = {"bytes": bytes, "flop": flop, "kind": kind}
    return f"{name} {json.dumps({key: value for key, value in work.items() if value is not None})}"


def may_declare(range_text: str) -> bool:
    """Whether a range's text may declare work; asked of every range."""
    short = len(range_text) <= _LONGEST
    return short and '"' in range_text and range_text.rstrip().endswith("}")


def parse_declaration(range_text: str, payload: int | None = None) -> DeclaredWork | None:
    """The work that a range's text declares; None without a valid declaration."""
    if not may_declare(range_text):
        return None
    match = _FORM.fullmatch(range_text)
    if not match:
        return None
    try:
        fields = json.loads(match["json"])
    except (ValueError, RecursionError):
        return None
    size, flop, each = (
        _amount(payload if fields.get(key) == PAYLOAD else fields.get(key))
        for key in ("bytes", "flop", "flop_per_byte")
    )
    if flop is None and size is not None and each is not None:
        flop = _amount(size * each)
    kind = fields.get("kind")
    known = kind if isinstance(kind, str) and kind in FLOP_KINDS else None
    result = DeclaredWork(match["name"] or "(unnamed)", size, flop, known)
    return result if (result.bytes, result.flop) != (None, None) else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number < _MOST else None


# FLOP and bytes of GEMMs from the tensor shapes that torch writes into its NVTX ranges.
#
# `nsys profile --pytorch=autograd-shapes-nvtx`, as
# torch.autograd.profiler.emit_nvtx(record_shapes= True), opens a range for every operator:
#
#     aten::mm, seq = 12, op_id = 34, sizes = [[4096, 2048], [2048, 1024]], input_op_ids = [[3,0]]
#
# An argument that is not a tensor has the size []. Convolutions are left out: stride and padding
# are no tensors, so the size of the result is unknown. So is attention, which may be causal or
# not.

_SHAPES = re.compile(
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
    return ", sizes = [" in text[: amounts.NAME_CHARACTERS]


def parse_gemm(text: str) -> Gemm | None:
    """The GEMM of a range; None if its operator is none, or the text malformed."""
    match = _SHAPES.fullmatch(text) if len(text) <= amounts.NAME_CHARACTERS else None
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


Parsed = TypeVar("Parsed")
_MOST_VERSIONS = 16
_GEMM = re.compile(r"(?i)gemm|nvjet|cutlass|xmma|gemv|matmul|splitk")


@record
class Passages:
    """Passes through declaring ranges in which several kernels ran, and their work together.

    `of` is the pass of each kernel, -1 for none; `name` and `estimate` have one entry per pass.
    """

    of: Integers
    name: tuple[str, ...]
    estimate: WorkEstimate


def from_declared(trace: Trace) -> tuple[WorkEstimate, Passages] | None:
    """The work of each kernel by its innermost declaring range; None without declarations.

    Figures are of a whole pass through the range: they are a kernel's own where it ran alone in it.
    """
    declaring = _declaring(trace)
    if declaring is None:
        return None
    of, code, works = declaring
    by_pass = groups.group(of)
    count = groups.count(by_pass)[by_pass.ids]
    alone = np.where((of >= 0) & (count == 1), code, -1)
    several = np.where(count > 1, of, -1)
    listed, first = np.unique(several, return_index=True)
    listed, codes = listed[listed >= 0], code[first[listed >= 0]]
    number = np.where(several >= 0, np.searchsorted(listed, several), -1)
    names = tuple(works[declared].name for declared in codes.tolist())
    return _estimate(alone, works), Passages(number, names, _estimate(codes, works))


# What may_declare and has_sizes look for.
_QUOTED, _SIZES = re.compile('".*'), re.compile(r", sizes = \[.*")


@fact
def _declaring(trace: Trace) -> tuple[Integers, Integers, dict[int, DeclaredWork]] | None:
    relevant = range_name_forms(trace).meeting(may_declare, _QUOTED)[:-1]
    names = trace.recorded("ranges").texts("name")
    for code in np.flatnonzero(relevant).tolist():
        relevant[code] = parse_declaration(names.value(code), 0) is not None
    return _innermost(trace, parse_declaration, relevant)


def declared_in(trace: Trace) -> Texts:
    """The name of the innermost declaring range around each kernel's launch; absent without one.

    Names may number the versions of a kernel. Where more than _MOST_VERSIONS names differ in
    numbers alone, the numbers are taken to count steps and become #.
    """
    declaring = _declaring(trace)
    if declaring is None:
        nowhere = constant(-1, len(trace.recorded("kernels")), np.int32)
        return Texts(nowhere, object_array([]))
    _, code, works = declaring
    numbers = range(int(code.max(initial=-1)) + 1)
    names = [works[number].name if number in works else None for number in numbers]
    versions = Counter(pattern_of(name) for name in {*names} - {None} if name)
    patterns = [
        pattern_of(name) if name and versions[pattern_of(name)] > _MOST_VERSIONS else name
        for name in names
    ]
    return Texts(code.astype(np.int32), object_array(names)).map(patterns)


def _estimate(code: Integers, works: Mapping[int, DeclaredWork]) -> WorkEstimate:
    """The work of each entry by the code of its declaration, -1 for none."""
    estimate = WorkEstimate.unknown(len(code))
    for number, work in works.items():
        declared = code == number
        estimate.bytes[declared] = np.nan if work.bytes is None else work.bytes
        estimate.flop[declared] = np.nan if work.flop is None else work.flop
        estimate.kind[declared] = KINDS.index(work.kind) if work.kind else -1
    return estimate


@record
class ShapedGemms:
    """Kernels (`rows`) that compute a GEMM of known shape, and which of `gemms` each one is."""

    rows: Integers
    of: Integers
    gemms: tuple[Gemm, ...]


@fact
def shaped_gemms(trace: Trace) -> ShapedGemms | None:
    """The GEMM of each kernel by the shapes of the innermost operator; None without shapes.

    Of several kernels of one operator, the one that is named as a GEMM computes it.
    """
    operators = _innermost(
        trace,
        lambda text, _: parse_gemm(text),
        range_name_forms(trace).meeting(has_sizes, _SIZES)[:-1],
    )
    if operators is None:
        return None
    of_range, code, gemm_of = operators
    multiplies = trace.recorded("kernels").texts("name").matching(_GEMM.search)
    known = np.flatnonzero(of_range >= 0)
    by_range = groups.group(of_range[known])
    # The only kernel of its range, or its only GEMM.
    only = (groups.count(by_range) == 1)[by_range.ids]
    single = groups.count(by_range, multiplies[known]) == 1
    rows = known[only | (single[by_range.ids] & multiplies[known])]
    # Texts that differ in an operator's number alone mean the same GEMM.
    different = {gemm: number for number, gemm in enumerate(dict.fromkeys(gemm_of.values()))}
    of = np.full(int(code.max(initial=0)) + 2, -1)
    for text, gemm in gemm_of.items():
        of[text] = different[gemm]
    number = of[code[rows]]
    return ShapedGemms(rows[number >= 0], number[number >= 0], tuple(different))


def from_shapes(trace: Trace) -> WorkEstimate | None:
    """The work of kernels that compute a GEMM of known shape; None without shapes."""
    shaped = shaped_gemms(trace)
    if shaped is None:
        return None
    names = trace.recorded("kernels").texts("name")
    estimate = WorkEstimate.unknown(len(names.codes))
    estimate.flop[shaped.rows] = np.array([gemm.flop for gemm in shaped.gemms], float)[shaped.of]
    elements = np.array([gemm.elements for gemm in shaped.gemms], float)[shaped.of]
    for name in groups.different(names.codes[shaped.rows]).tolist():
        type_ = libraries.number_type(str(names.values[name]))
        if type_ is not None:
            same = names.codes[shaped.rows] == name
            estimate.bytes[shaped.rows[same]] = elements[same] * type_[0]
            estimate.kind[shaped.rows[same]] = KINDS.index(type_[1])
    return estimate


def _innermost(
    trace: Trace, parse: Callable[[str, int | None], Parsed | None], relevant: Mask
) -> tuple[Integers, Integers, dict[int, Parsed]] | None:
    """For each kernel the innermost relevant range around its launch, and a code of its content.

    Both are -1 for a kernel without such a range. The dict has, by code, what `parse` makes of text
    and payload. `relevant` has one value per distinct name.
    """
    tree, ranges = range_tree(trace), trace.recorded("ranges")
    names = ranges.texts("name")
    if not relevant.any() or not len(tree.row):
        return None
    text = picked(names.codes, tree.of_table)
    every = np.arange(len(text), dtype=np.int32)
    nearest = tree.own_or_inherited(np.where(relevant[text], every, np.int32(-1)))
    inner = attributed_operations(trace).range[kernel_operations(trace)]
    of = np.where(inner >= 0, nearest[inner], -1)
    used = groups.different(of[of >= 0])
    payload = ranges["payload"][tree.row[used]]
    alike = groups.group(text[used], payload)
    # The last is for kernels without such a range.
    code_of = np.full(len(text) + 1, -1, np.int32)
    code_of[used] = alike.ids
    code = picked(code_of, of)
    content = {}
    for number, row in enumerate(alike.first.tolist()):
        value = None if payload[row] == NULL else int(payload[row])
        parsed = parse(names.value(int(text[used[row]])), value)
        if parsed is not None:
            content[number] = parsed
    return of, code, content
