"""Work of kernels by NVTX ranges: declared by the program, or from torch's tensor shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.origins import range_name_forms
from traceview.facts.ranges.ranges import attributed_operations, pattern_of, range_tree
from traceview.facts.work.declarations import DeclaredWork, may_declare, parse_declaration
from traceview.facts.work.estimate import KINDS, WorkEstimate
from traceview.facts.work.tensor_shapes import Gemm, has_sizes, parse_gemm
from traceview.records import record
from traceview.tables import NULL, Integers, Mask, Texts, constant, object_array, picked
from traceview.trace import Trace, fact
from traceview.vocabulary.libraries import number_type

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
        type_ = number_type(str(names.values[name]))
        if type_ is not None:
            same = names.codes[shaped.rows] == name
            estimate.bytes[shaped.rows[same]] = elements[same] * type_[0]
            estimate.kind[shaped.rows[same]] = KINDS.index(type_[1])
    return estimate


def _innermost(
    trace: Trace,
    parse: Callable[[str, int | None], Parsed | None],
    relevant: Mask,
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
