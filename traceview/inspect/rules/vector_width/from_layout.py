"""The reason for a narrow access, from Triton's layouts and axis analysis in the TTGIR."""

from __future__ import annotations

import math
from functools import lru_cache

from traceview import units
from traceview.inspect.kernel_report import line_name
from traceview.inspect.rules.vector_width.causes import (
    Narrow,
    NarrowReason,
    not_known_divisible,
    specialized,
)
from traceview.ptx.model import Compiled
from traceview.ptx.ttgir.parser import parse_ttgir
from traceview.ptx.ttgir.vector_limit import VECTOR_BYTES, Culprit, VectorLimit, vector_limits
from traceview.vocabulary.amounts import WARP_THREADS

_MADE = {
    "arith.divsi": "a quotient",
    "arith.divui": "a quotient",
    "arith.remsi": "a remainder",
    "arith.remui": "a remainder",
    "arith.muli": "a product",
    "arith.shli": "a product",
    "arith.shrsi": "a quotient",
    "arith.shrui": "a quotient",
    "arith.select": "a choice by tl.where",
    "arith.minsi": "a minimum",
    "arith.minui": "a minimum",
    "arith.maxsi": "a maximum",
    "arith.maxui": "a maximum",
    "arith.andi": "a bitwise result",
    "arith.ori": "a bitwise result",
    "arith.xori": "a bitwise result",
    "arith.subi": "a difference",
    "scf.if": "a value set under an if",
    "tt.load": "loaded",
    "tt.reduce": "the result of a reduction",
    "tt.scan": "the result of a scan",
    "tt.get_program_id": "the program id",
    "loop": "a value advanced by the loop",
}
_SIGNS = {"arith.divsi": "//", "arith.divui": "//", "arith.remsi": "%", "arith.remui": "%"}
_FEWER = "Use fewer warps (num_warps) or a larger block, so that a thread moves 16 bytes"
_LARGER = "Use a larger block, or give each block more work, so that a thread moves 16 bytes"
_MORE = "Give each block more work, such as several rows, so that a thread has more of the tile"
_PER_GROUP = (
    "Let a block or an inner loop stay within one group, so that the quotient is a scalar: load "
    "one value per group and broadcast it"
)
_NO_WRAP = (
    "Mask the elements beyond the end instead of wrapping around, or declare runs: "
    "tl.max_contiguous(tl.multiple_of(offsets, 16), 16)"
)
_SHORT_RUNS = (
    "Order the data or the tile so that a thread's elements run along a longer axis: runs end "
    "after {0} elements"
)
_BOUND = ". The mask limits it, too: its bound has to be such a multiple"
_OTHER_BLOCKS = (
    f"Let blocks start a multiple of {VECTOR_BYTES} bytes apart: another tile, or several of them "
    "per block"
)
_MULTIPLE = "If {0} is a multiple of 16, declare it: tl.multiple_of({0}, 16)"
_RUNS = (
    "Where it consists of contiguous runs, declare that: "
    "tl.max_contiguous(tl.multiple_of(value, 16), 16)"
)


def from_layout(narrow: Narrow, compiled: Compiled) -> NarrowReason | None:
    """The reason, if Triton's analysis gives the width that the access has; else None."""
    limit = _limit_of(narrow, compiled)
    if limit is None:
        return None
    of_layout = limit.limit == "layout"
    clause, remedy = _of_layout(limit, compiled) if of_layout else _of_values(limit, compiled)
    remedy += _BOUND * (limit.limit == "alignment" and limit.mask == limit.elements)
    return NarrowReason(clause, remedy, _basis(limit), proven=True) if clause else None


def _limit_of(narrow: Narrow, compiled: Compiled) -> VectorLimit | None:
    text, (source, kind, _) = compiled.stages.get("ttgir"), narrow.place
    same = (
        limit
        for limit in (_limits(text) if text else ())
        if (limit.line, limit.kind) == (source, kind)
        and (not narrow.array or not limit.arrays or limit.arrays & narrow.array)
    )
    return next((limit for limit in same if max(limit.width_bits, 8) == narrow.width), None)


@lru_cache(maxsize=2)
def _limits(ttgir: str) -> tuple[VectorLimit, ...]:
    module = parse_ttgir(ttgir)
    return (*vector_limits(module), *vector_limits(module, aligned_remainders=False))


def _of_layout(limit: VectorLimit, compiled: Compiled) -> tuple[str, str]:
    elements, each = math.prod(limit.shape), limit.share.adjacent
    threads = WARP_THREADS * (compiled.num_warps or 1)
    is_small = elements <= WARP_THREADS * each
    fewer = _LARGER if compiled.num_warps == 1 or is_small else _FEWER
    adjacent = f"{each} adjacent element{'' if each == 1 else 's'}"
    tile = " × ".join(f"{size:,}" for size in limit.shape)
    if compiled.is_gluon:
        wide = VECTOR_BYTES // limit.element_bytes
        remedy = f"Give each thread {wide} adjacent elements in the layout (size_per_thread)"
        return f"the layout gives each thread {adjacent} of a tile of {tile}", remedy
    if "slice" in limit.share.kind:
        return f"the layout is that of a larger tile and gives each thread {adjacent}", _MORE
    if elements * limit.element_bytes < VECTOR_BYTES * threads:
        return f"a tile of {tile} elements is too small for {threads:,} threads", fewer
    return f"the layout gives each thread {adjacent} of a tile of {tile}", fewer


def _of_values(limit: VectorLimit, compiled: Compiled) -> tuple[str, str]:
    culprit = limit.culprit
    if culprit is None:
        return "", ""
    if culprit.opcode == "parameter":
        name = culprit.name or ""
        if limit.limit == "contiguity":
            return "", ""
        seen = specialized([a for a in compiled.arguments if a.name == name])
        return not_known_divisible([name]), f"Pad or align {name} to a multiple of 16{seen}"
    what = _described(culprit)
    if not what:
        return "", ""
    if limit.limit == "alignment" and culprit.opcode == "tt.get_program_id":
        where, multiple = what.removeprefix("the program id"), limit.alignment * limit.element_bytes
        start = f"multiples of {units.counted(multiple, 'byte')}, not of {VECTOR_BYTES}"
        return f"blocks start at {start}{where}", _OTHER_BLOCKS
    if limit.limit == "mask":
        return f"the mask depends on {what}", _multiple(culprit)
    if limit.limit == "alignment":
        return f"the address depends on {what}, whose alignment is not known", _multiple(culprit)
    if what.startswith("a quotient"):
        return f"the offset is {what}, so its elements are not known to be adjacent", _PER_GROUP
    if what.startswith("a remainder"):
        run = _run(culprit, compiled)
        remedy = _SHORT_RUNS.format(run) if run else _NO_WRAP
        return f"the offset is {what}, so its elements are not known to be adjacent", remedy
    return f"the offset depends on {what}, so its elements are not known to be adjacent", _RUNS


def _run(remainder: Culprit, compiled: Compiled) -> str:
    """The length of the runs that a remainder makes, such as `KW=11`, if no vector fits them."""
    values = {a.name: a.value for a in compiled.arguments}
    name = remainder.operands[-1] if remainder.operands else ""
    length = values.get(name) if remainder.constant is None else remainder.constant
    if not isinstance(length, int) or length % 2 == 0:
        return ""
    return f"{name}={length}" if remainder.constant is None else str(length)


def _multiple(culprit: Culprit) -> str:
    """The remedy for a value that may be a multiple of 16, by its name if the source has one."""
    name = culprit.name if (culprit.name or "").isidentifier() else None
    return _MULTIPLE.format(name or "the value").replace("(the value", "(value")


def _described(culprit: Culprit) -> str:
    """A culprit in words: `a quotient (offsets // group, gn.py:89)`; empty for an unknown kind."""
    kind = _MADE.get(culprit.opcode, "")
    if not kind:
        return ""
    name, sign = culprit.name, _SIGNS.get(culprit.opcode)
    terms = [*culprit.operands, *([str(culprit.constant)] if culprit.constant is not None else [])]
    shown = f" {sign} ".join(terms) if sign and len(terms) == 2 else (name or "")
    if culprit.opcode == "loop":
        return (
            f"{kind} at {line_name(culprit.line)}" if culprit.line else "a value advanced by a loop"
        )
    inside = ", ".join(filter(None, (shown, line_name(culprit.line) if culprit.line else "")))
    what = f"{kind} value" if culprit.opcode in ("tt.load",) else kind
    what = f"a {what}" if culprit.opcode == "tt.load" else what
    return f"{what} ({inside})" if inside else what


def _basis(limit: VectorLimit) -> str:
    wide = VECTOR_BYTES // limit.element_bytes
    parts = [
        f"{limit.share.adjacent} adjacent per thread by the layout",
        f"{limit.contiguity} contiguous in memory",
        f"aligned to {limit.alignment}",
        *([] if limit.mask is None else [f"{limit.mask} under one mask"]),
    ]
    return f"Triton's analysis, in elements of {wide} per vector: {', '.join(parts)}"
