"""The reason for a narrow global access, inferred from its PTX or from Triton's layouts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from traceview import units
from traceview.inspect.kernel_report import line_name
from traceview.inspect.rules.vector_width.causes import (
    WIDE_BITS,
    Narrow,
    NarrowReason,
    in_words,
    not_declared_divisible,
    not_known_divisible,
    specialized,
    unseen_one,
)
from traceview.ptx.addresses.request_costs import SECTOR_BYTES
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


# Operand types that wgmma takes with K contiguous only.
_K_MAJOR = re.compile(r"wgmma\.mma_async\S*\.(tf32\.tf32|[es]\d\w*\.[es]\d\w*|[su]8\.[su]8)")
_MOST_PARTS = 16


def inferred_reason(narrow: Narrow, compiled: Compiled, *, tried: bool) -> NarrowReason:
    """The likely reason. `tried`: no recompilation that could prove a reason is left."""
    return (
        _seen(narrow, compiled)
        or from_layout(narrow, compiled)
        or _likely(narrow, compiled, tried=tried)
    )


def _seen(narrow: Narrow, compiled: Compiled) -> NarrowReason | None:
    """Reasons visible in the addresses alone: elements that are not adjacent fit into no vector."""
    if _is_transposed(narrow, compiled):
        return _transposed(narrow)
    if narrow.layout.scattered:
        return _strided(narrow, cuda=narrow.is_cuda(compiled))
    return None


def _likely(narrow: Narrow, compiled: Compiled, *, tried: bool) -> NarrowReason:
    cuda, layout = narrow.is_cuda(compiled), narrow.layout
    if narrow.address.gathered and not layout.consecutive:
        return replace(_GATHER, remedy=_SORT if cuda else _declare_runs(narrow))
    undeclared = not_declared_divisible(narrow.suspects)
    names = [argument.name for argument in undeclared]
    if names and not tried:
        return NarrowReason(
            not_known_divisible(names),
            f"Pad or align {in_words(names)} to a multiple of 16{specialized(undeclared)}",
            ("the address or the mask depends on it, and the compiler does not know its alignment"),
        )
    if narrow.moved < WIDE_BITS and not tried:
        return _too_few(narrow.moved, cuda)
    if layout.consecutive:
        return _in_the_source(narrow) if cuda else _of_adjacent(narrow) or _UNKNOWN
    return _UNKNOWN


def _of_adjacent(narrow: Narrow) -> NarrowReason | None:
    """Why adjacent elements are moved one by one although all sizes are multiples of 16."""
    layout = narrow.layout
    if not layout.starts_wide and narrow.address.loaded:
        return _loaded_start(_loaded_from(narrow), masked=layout.masks_differ)
    if layout.masks_differ:
        return _masked(stores=narrow.place[1] != "load")
    if not layout.starts_wide:
        return _UNALIGNED
    if narrow.moved < WIDE_BITS and narrow.count == 1:
        return replace(_too_few(narrow.moved, cuda=False), remedy=MORE_ROWS)
    return None


def _strided(narrow: Narrow, *, cuda: bool) -> NarrowReason:
    step, stride = narrow.layout.step, narrow.layout.apart
    same = _SAME if narrow.place[1] != "store" else replace(_SAME, remedy=_STORE_ONCE)
    if step is None or step.of == 0:
        return same
    size = f"{8 * narrow.layout.element_bytes}-bit"
    if step.parameter:
        name, value = step.parameter.name, step.parameter.value
        if value == 0:
            return replace(same, cause=f"{name}=0, so a thread accesses one element repeatedly")
        if value == 1 and stride == 1:
            return NarrowReason(*unseen_one(name), "the stride in PTX is a register", proven=True)
        written = f"{name}={value}" if isinstance(value, int) else name
        far = written if stride == 1 else f"{stride} × {written}"
        basis = f"in PTX, consecutive {size} elements are {abs(step.of)} × {name} bytes apart"
        return _apart(far, _CONTIGUOUS, basis, narrow)
    way = "before" if step.of < 0 else "after"
    basis = f"in PTX, each {size} element is {abs(step.of)} bytes {way} the previous one"
    if stride == -1:
        cause = "a thread's elements are moved in reverse order"
        return NarrowReason(cause, _reversed(narrow, cuda), basis, proven=True)
    return _apart(str(stride), _interleaved(narrow, cuda), basis, narrow)


def _apart(far: str, remedy: str, basis: str, narrow: Narrow) -> NarrowReason:
    """The reason for elements that are apart; a loop may step through those between them."""
    cause, layout = f"a thread's elements are {far} apart", narrow.layout
    if not layout.walked:
        return NarrowReason(cause, remedy, basis, proven=True)
    turns = units.counted(SECTOR_BYTES // abs(layout.loop_step or 1), "iteration")
    return NarrowReason(
        f"{cause}: the loop walks along the contiguous axis",
        f"Store {_names(narrow) or 'the array'} {_TRANSPOSED}",
        f"{basis}, and {abs(layout.loop_step or 0)} from one iteration to the next: a sector "
        f"serves {turns}",
        proven=True,
    )


def _interleaved(narrow: Narrow, cuda: bool) -> str:
    """The remedy where only every k-th element is moved."""
    parts = abs(narrow.layout.apart)
    if not 1 < parts <= _MOST_PARTS:
        return _CONTIGUOUS
    if cuda or parts & (parts - 1) or narrow.place[1] == "atomic":
        return f"Store each of the {parts} parts as an array of its own, or move whole runs"
    if narrow.place[1] == "store":
        return "Join the parts (tl.join, then tl.reshape) and store the whole run at once"
    return "Load the whole run at once, then split it (tl.reshape, then tl.split)"


def _reversed(narrow: Narrow, cuda: bool) -> str:
    """The remedy for reversed elements: tl.flip along the last axis needs no shared memory."""
    run = WIDE_BITS // (8 * narrow.layout.element_bytes)
    if cuda:
        return f"Move runs of {run} forwards, and reverse each in registers"
    return (
        f"Move runs of {run} forwards, and reverse each in registers: a tile of "
        f"[BLOCK // {run}, {run}], and tl.flip(tile, 1)"
    )


_CONTIGUOUS = (
    "Let each thread's elements run along the axis that is contiguous in memory: choose another "
    "tile, or transpose the data first"
)

_TRANSPOSED = (
    "transposed, so that what one iteration needs is adjacent. The cache hides a part of the cost: "
    "each sector serves the next iterations, too"
)

_SAME = NarrowReason(
    "a thread accesses the same element repeatedly",
    "Load each value once and broadcast it: a smaller tensor along the repeated axis, or one "
    "scalar per block",
    "the addresses are equal in PTX",
    proven=True,
)

_STORE_ONCE = "Store each value once, from a tensor without the repeated axis or from a scalar"

_GATHER = NarrowReason(
    "this is a gather: the compiler cannot know whether loaded addresses are contiguous",
    "",
    "the address is computed from loaded values",
)
_SORT = "Sort or group the indices, or gather runs of elements and move each as a float4"


def _declare_runs(narrow: Narrow) -> str:
    return (
        f"Where the index loaded{_loaded_from(narrow)} comes in aligned runs, declare that: "
        "tl.max_contiguous(tl.multiple_of(…, 4), 4) around it; else sort or group the indices"
    )


def _loaded_from(narrow: Narrow) -> str:
    """The integer arrays that an address is loaded from: ` from index`; empty if unknown."""
    integers = [a.name for a in narrow.suspects.loaded_from if a.type.startswith(("*i", "*u"))]
    return f" from {in_words(integers)}" if integers else ""


def _masked(*, stores: bool) -> NarrowReason:
    remedy = (
        "If the rest may be overwritten, store under a mask whose bound is a multiple of 16, and "
        "select the values with tl.where"
        if stores
        else "Load under a mask with the array's own bound, a multiple of 16, and apply the rest "
        "of the condition with tl.where"
    )
    return NarrowReason(
        "the mask differs from element to element",
        remedy,
        "addresses in PTX are consecutive, but masks differ within 16 bytes",
    )


def _loaded_start(source: str, *, masked: bool) -> NarrowReason:
    other = "; and load under a mask whose bound is such a multiple" if masked else ""
    return NarrowReason(
        f"the access starts at an offset loaded{source}, of unknown alignment",
        f"If that offset is a multiple of 16, declare it: tl.multiple_of(…, 16) around it{other}",
        "addresses in PTX are consecutive, but start at a loaded offset",
    )


_UNALIGNED = NarrowReason(
    "the access does not start at a multiple of 16 bytes",
    "Align the start of the tile to 16 bytes: use another offset, or pad the data in front",
    (
        "addresses in PTX are consecutive, but never start at such a multiple, whatever the "
        "arguments"
    ),
)

MORE_ROWS = "Give each block more work, such as several rows, so that a thread moves 16 bytes"


def _too_few(moved: int, cuda: bool) -> NarrowReason:
    return NarrowReason(
        f"each thread moves only {moved} bits there",
        "Give each thread adjacent elements, and move them as float4 (16 bytes)"
        if cuda
        else "Use fewer warps (num_warps) or a larger block, so that a thread moves 16 bytes",
        f"all accesses of the line together move {moved} bits per thread",
    )


def _in_the_source(narrow: Narrow) -> NarrowReason:
    return NarrowReason(
        f"the source moves {narrow.width} bits at a time, with no known alignment to 16 bytes",
        "Give each thread adjacent elements, and move them as float4 (16 bytes) from addresses "
        "that are multiples of 16",
        "addresses in PTX are consecutive",
    )


def _is_transposed(narrow: Narrow, compiled: Compiled) -> bool:
    is_copy = narrow.place[1] == "async-copy" and narrow.width <= 32
    return is_copy and bool(_K_MAJOR.search(compiled.ptx or ""))


def _names(narrow: Narrow) -> str:
    """The names of the arrays that an access may touch: `x or y`."""
    return " or ".join(sorted(narrow.array))


def _transposed(narrow: Narrow) -> NarrowReason:
    name = _names(narrow) or "the operand"
    return NarrowReason(
        "the operand is transposed element by element on the way to shared memory",
        f"Lay {name} out so that the axis that tl.dot sums over (K) is contiguous",
        "wgmma transposes 16-bit operands only, and these have 32 or 8 bits",
    )


_UNKNOWN = NarrowReason(
    "",
    "Check that adjacent elements go to one thread: stride 1 along the axis that varies fastest, "
    "and sizes and pointers that are multiples of 16",
    f"one instruction can move {WIDE_BITS} bits",
)
