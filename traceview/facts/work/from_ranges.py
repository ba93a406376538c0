"""Work that NVTX ranges tell: declared by the program, or from the shapes that torch writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.ranges import attributed_operations, pattern_of, range_tree
from traceview.facts.work.declared import Declared, declared
from traceview.facts.work.estimate import KINDS, Part
from traceview.facts.work.tensor_shapes import Product, has_sizes, number_type, product
from traceview.tables import NULL, Integers, Mask, Texts, constant, object_array
from traceview.trace import Trace, fact

Said = TypeVar("Said")
_MOST_VERSIONS = 16
_PRODUCT = re.compile(r"(?i)gemm|nvjet|cutlass|xmma|gemv|matmul|splitk")


@dataclass(frozen=True)
class Passages:
    """Passages through declaring ranges in which several kernels ran: what all of them did.

    `of` is the passage of each kernel, −1 for none; `name` is an entry a passage.
    """

    of: Integers
    name: tuple[str, ...]
    part: Part


def from_declared(trace: Trace) -> tuple[Part, Passages] | None:
    """What the innermost declaring range says of each kernel; None where no range declares.

    The figures are of the whole passage: where one kernel ran in it, of that kernel.
    """
    said = _declaring(trace)
    if said is None:
        return None
    of, code, told = said
    found = groups.group(of)
    count = np.bincount(found.ids, minlength=found.size)[found.ids] if len(of) else of
    by_itself = np.where((of >= 0) & (count == 1), code, -1)
    return _declared_part(by_itself, told), _passages(np.where(count > 1, of, -1), code, told)


@fact
def _declaring(trace: Trace) -> tuple[Integers, Integers, dict[int, Declared]] | None:
    return _said(trace, declared, lambda text: declared(text, 0) is not None)


def declared_in(trace: Trace) -> Texts:
    """The name of the innermost declaring range around each kernel's call; absent without one.

    One name may stand for versions of a kernel. Where more than a few names differ in numbers
    alone, these count steps, and are #.
    """
    said = _declaring(trace)
    if said is None:
        nowhere = constant(-1, len(trace.recorded("kernels")), np.int32)
        return Texts(nowhere, object_array([]))
    _, code, told = said
    names = [told[number].name if number in told else None for number in range(max(told) + 1)]
    kinds = Counter(pattern_of(name) for name in {*names} - {None} if name)
    named = [
        pattern_of(name) if name and kinds[pattern_of(name)] > _MOST_VERSIONS else name
        for name in names
    ]
    return Texts(code.astype(np.int32), object_array(names)).map(named)


def _declared_part(code: Integers, told: Mapping[int, Declared]) -> Part:
    """Work of each entry by the code of its text, −1 for none."""
    part = Part.unknown(len(code))
    for number, said in told.items():
        mine = code == number
        part.bytes[mine] = np.nan if said.bytes is None else said.bytes
        part.flop[mine] = np.nan if said.flop is None else said.flop
        part.kind[mine] = KINDS.index(said.kind) if said.kind else -1
    return part


def _passages(of: Integers, code: Integers, told: Mapping[int, Declared]) -> Passages:
    listed, first = np.unique(of, return_index=True)
    inside = listed >= 0
    listed, codes = listed[inside], code[first[inside]]
    numbered = np.where(of >= 0, np.searchsorted(listed, of), -1)
    names = tuple(told[number].name for number in codes.tolist())
    return Passages(numbered, names, _declared_part(codes, told))


@dataclass(frozen=True)
class Products:
    """Kernels (`rows`) that compute the product of an operator, and which of `told` (`of`)."""

    rows: Integers
    of: Integers
    told: tuple[Product, ...]


@fact
def products(trace: Trace) -> Products | None:
    """What the shapes of the innermost operator say of each kernel; None without shapes.

    Of several kernels of one operator, the product is that which is named as one.
    """
    said = _said(trace, lambda text, _: product(text), has_sizes)
    if said is None:
        return None
    passage, code, told = said
    names = trace.recorded("kernels").texts("name")
    named = np.array([bool(_PRODUCT.search(str(name))) for name in names.values], bool)
    multiplies = named[names.codes] if len(named) else np.zeros(len(passage), bool)
    rows = _alone(passage, multiplies)
    # Texts that differ in an operator's number alone tell the same product.
    different = {each: at for at, each in enumerate(dict.fromkeys(told.values()))}
    of = np.full(int(code.max(initial=0)) + 2, -1)
    for text, each in told.items():
        of[text] = different[each]
    known = of[code[rows]]
    return Products(rows[known >= 0], known[known >= 0], tuple(different))


def from_shapes(trace: Trace) -> Part | None:
    """Work of kernels that compute a product; None without shapes."""
    found = products(trace)
    if found is None:
        return None
    names = trace.recorded("kernels").texts("name")
    part = Part.unknown(len(names.codes))
    part.flop[found.rows] = np.array([each.flop for each in found.told], float)[found.of]
    elements = np.array([each.elements for each in found.told], float)[found.of]
    for name in groups.different(names.codes[found.rows]).tolist():
        type_ = number_type(str(names.values[name]))
        if type_ is not None:
            mine = names.codes[found.rows] == name
            part.bytes[found.rows[mine]] = elements[mine] * type_[0]
            part.kind[found.rows[mine]] = KINDS.index(type_[1])
    return part


def _alone(of: Integers, multiplies: Mask) -> Integers:
    """Rows that are the only product of their range, or its only kernel."""
    known = np.flatnonzero(of >= 0)
    found = groups.group(of[known])
    kernels = np.bincount(found.ids, minlength=found.size)
    products = np.bincount(found.ids, multiplies[known], minlength=found.size)
    only: Mask = (kernels == 1)[found.ids] | ((products == 1)[found.ids] & multiplies[known])
    alone: Integers = known[only]
    return alone


def _said(
    trace: Trace, read: Callable[[str, int | None], Said | None], speaks: Callable[[str], bool]
) -> tuple[Integers, Integers, dict[int, Said]] | None:
    """For each kernel the innermost range around its call that speaks, and a code of what it says.

    Either is −1 where there is none. The last is what texts and payloads say, by these codes.
    """
    tree, ranges = range_tree(trace), trace.recorded("ranges")
    names = ranges.texts("name")
    telling = np.array([speaks(str(name)) for name in names.values], bool)
    if not telling.any() or not len(tree.row):
        return None
    text = names.codes[tree.row]
    nearest = tree.up(np.where(telling[text], np.arange(len(text)), -1))
    inner = attributed_operations(trace).range[kernel_operations(trace)]
    of = np.where(inner >= 0, nearest[inner], -1)
    used = groups.different(of[of >= 0])
    payload = ranges["payload"][tree.row[used]]
    alike = groups.group(text[used], payload)
    code = np.where(of >= 0, _at(used, alike.ids, of), -1)
    told = {
        number: said
        for number, row in enumerate(alike.first.tolist())
        if (said := read(str(names.values[text[used[row]]]), _number(payload[row]))) is not None
    }
    return of, code, told


def _at(keys: Integers, values: Integers, wanted: Integers) -> Integers:
    """The value of each wanted key; anything for a key that is not there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    found: Integers = values[np.searchsorted(keys, wanted).clip(0, len(keys) - 1)]
    return found


def _number(cell: int) -> int | None:
    return None if cell == NULL else int(cell)
