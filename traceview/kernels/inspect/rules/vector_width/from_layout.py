"""The reason for a narrow access as Triton's analysis has it: its layout, address or mask."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from traceview.base import units
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.recompilations import Place
from traceview.kernels.inspect.rules.vector_width import causes
from traceview.kernels.inspect.rules.vector_width.causes import Narrow, NarrowReason
from traceview.kernels.ptx.addresses.request_costs import SECTOR_BYTES
from traceview.kernels.ptx.addresses.slicing import Array
from traceview.kernels.ptx.addresses.strides import MOST_STRUCTURE_BYTES, Stride
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.ptx.ttgir.parser import parse_ttgir
from traceview.kernels.ptx.ttgir.vector_limit import (
    VECTOR_BYTES,
    Culprit,
    VectorLimit,
    vector_limits,
)

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
    "tt.load": "a loaded value",
    "tt.reduce": "the result of a reduction",
    "tt.scan": "the result of a scan",
    "tt.get_program_id": "the program id",
    "loop": "a value advanced by the loop",
}
_SIGNS = {"arith.divsi": "//", "arith.divui": "//", "arith.remsi": "%", "arith.remui": "%"}
_FEWER = "Use fewer warps (num_warps) or a larger block, so that a thread moves 16 bytes"
_LARGER = "Use a larger block, or give each block more work, so that a thread moves 16 bytes"
_NO_MASK = ". The access has no mask: a larger block needs one where the data end"
_ROWS = (
    "Let each block take several rows: a tile of two axes, [{0}, {1}], with num_warps=1, so that a "
    "thread moves 16 bytes"
)
_SHARED = (
    "Find what gives the tile this layout: an address that Triton cannot follow (a remainder, a "
    "quotient), or another access or a cast to a wider type that shares it"
)
_FEW = (
    "Leave it unless the larger tile can change: these are few elements, and several threads load "
    "the same"
)
_PER_GROUP = (
    "Let a block or an inner loop stay within one group, so that the quotient is a scalar: load "
    "one value per group and broadcast it"
)
_WORDS = (
    "Leave the width: neighbouring threads load one word together. Only with more elements per "
    "thread is a word loaded once for several of them"
)
_EACH_WORD = (
    "Load each word once, in a tile without the repetition, and unpack it along a third axis of "
    "its parts, then tl.reshape"
)
_BY_ARGUMENT = (
    "Let an axis of the grid or a loop run over what {0} divides, so that the quotient is a scalar "
    "and nothing is divided: load one value per group and broadcast it. As tl.constexpr, {0} at "
    "least divides cheaply"
)
_NO_WRAP = (
    "If the remainder only keeps offsets below the end, mask those beyond it instead; if it is the "
    "column of a row, use a tile of two axes, [rows, columns], in which columns are a tl.arange"
)
_NO_CLAMP = (
    "If what the clamped offsets load is not needed, mask the elements beyond the end instead"
)
_MASK_ONLY = (
    "Leave the offsets as they are, and give the condition to the access as its mask: what the "
    "mask leaves out must not be needed"
)
_SHORT_RUNS = (
    "Order the data or the tile so that a thread's elements run along a longer axis: runs end "
    "after {0} elements"
)
_ROWS_BY_ONE = (
    "the rows of the tile start one element apart, so most do not start at a multiple of "
    f"{VECTOR_BYTES} bytes"
)
_OVERLAPPING = (
    "Leave it if the rows overlap by design, as windows do that move by one element: the cache "
    "serves them. Otherwise correct the stride of the rows, which is 1"
)
_STEPS = (
    "Leave the width, and declare no alignment: of elements that are shifted one by one most start "
    "at no vector"
)
_SHIFTED = (
    "Leave the width where the data are to be shifted, as by the taps of a filter: most shifted "
    "elements start at no vector. Otherwise pad the data in front"
)
_OTHER_BLOCKS = (
    f"Let blocks start a multiple of {VECTOR_BYTES} bytes apart: another tile, or several of them "
    "per block"
)
_ALONG = (
    "Compute the offsets so that elements that are adjacent in the tile are adjacent in memory: "
    "load along the contiguous axis, in a tile of two axes if need be"
)
_ONCE = (
    "Combine within the block first (tl.histogram, or compare and tl.sum), then one atomic per "
    "address and block"
)


ROW_PER_WARP = (
    "Let neighbouring threads access adjacent elements: give each row to a warp, which combines "
    "sums by shuffles, or move tiles of rows through shared memory"
)
_BY_DATA = (
    "Let neighbouring threads {}: order the block's values in shared memory first, and let thread "
    "i take those at i, i + blockDim.x and so on. The data place each element, so that no vector "
    "fits"
)
_TRANSPOSED = (
    "Let neighbouring threads access adjacent elements: store {} transposed, or move tiles of rows "
    "through shared memory where a block uses the whole of them"
)
_EXCHANGED = (
    "Let threadIdx.x run along the axis that is contiguous in memory, as {} does here; "
    "where other arrays run along x, move tiles through shared memory"
)
_MOST_KNOWN_BYTES = 1 << 20
_MOSTLY_USED = 0.5
_OF_THEIR_OWN = "Store these elements, such as a diagonal, as an array of their own"
_AS_ARRAYS = (
    "Store each member of the structure as an array of its own, so that neighbouring threads "
    "access adjacent elements"
)
_ROWS_AS_TILE = (
    "Load a tile of two axes, of which the last runs along memory, so that neighbouring threads "
    "access adjacent elements"
)


def from_layout(narrow: Narrow, compiled: Compiled) -> NarrowReason | None:
    """The reason, if Triton's analysis gives the width that the access has; else None."""
    limit = limit_of(narrow, compiled)
    if limit is None:
        return None
    of_layout = limit.limit == "layout"
    reason = _of_layout(limit, compiled) if of_layout else _of_values(limit, narrow, compiled)
    if reason is None:
        return None
    # What is not adjacent forms no vector, whatever else limits it.
    grows = limit.mask is None and "larger block" in reason.remedy
    remedy = (
        reason.remedy + _NO_MASK * grows + _beside(limit, compiled) * (limit.limit != "contiguity")
    )
    basis = "; ".join(filter(None, (reason.basis, _basis(limit))))
    return replace(reason, remedy=remedy, basis=basis, sized=of_layout)


def limit_of(narrow: Narrow, compiled: Compiled) -> VectorLimit | None:
    """What Triton's analysis says limits an access, if that gives the width that it has.

    A layout that leaves room in the tile is Triton's answer to an address that it cannot follow, so
    that another explanation comes first.
    """
    listed = [
        limit
        for aligned in (True, False)
        for limit in _limits_at(narrow.place, narrow.array, compiled, aligned_remainders=aligned)
        if max(limit.width_bits, 8) == narrow.width
    ]
    return min(listed, key=lambda limit: _leaves_room(limit, compiled), default=None)


def tile_bits(place: Place, array: Array, compiled: Compiled) -> float:
    """The bits per thread of the tiles at a place in TTGIR; infinity where it has none.

    Instructions move more where threads repeat elements of others, or have none.
    """
    limits = _limits_at(place, array, compiled, aligned_remainders=True)
    bits = sum(8 * limit.element_bytes * math.prod(limit.shape) for limit in limits)
    return bits / (WARP_THREADS * (compiled.num_warps or 1)) or math.inf


def is_column(narrow: Narrow, compiled: Compiled) -> bool:
    """Whether the tile has one element along one of its axes."""
    limits = _limits_at(narrow.place, narrow.array, compiled, aligned_remainders=True)
    return bool(limits) and all(1 in limit.shape and max(limit.shape) > 1 for limit in limits)


def _limits_at(
    place: Place, array: Array, compiled: Compiled, *, aligned_remainders: bool
) -> list[VectorLimit]:
    text = compiled.stages.get("ttgir")
    return [
        limit
        for limit in (_limits(text, aligned_remainders) if text else ())
        if (limit.line, limit.kind) == place[:2]
        and (not array or not limit.arrays or limit.arrays & array)
    ]


def _leaves_room(limit: VectorLimit, compiled: Compiled) -> bool:
    """Whether a layout gives threads less than a vector of a tile that has one for each."""
    threads = WARP_THREADS * (compiled.num_warps or 1)
    is_own = limit.limit == "layout" and limit.share.kind == "blocked" and not compiled.is_gluon
    return is_own and math.prod(limit.shape) * limit.element_bytes >= VECTOR_BYTES * threads


@lru_cache(maxsize=4)
def _limits(ttgir: str, aligned_remainders: bool) -> tuple[VectorLimit, ...]:
    return tuple(vector_limits(parse_ttgir(ttgir), aligned_remainders=aligned_remainders))


def _reason(cause: str, remedy: str, *, conditional: bool = False) -> NarrowReason:
    return NarrowReason(cause, remedy, "", proven=True, conditional=conditional)


def _of_layout(limit: VectorLimit, compiled: Compiled) -> NarrowReason:
    elements, each = math.prod(limit.shape), limit.share.adjacent
    threads = WARP_THREADS * (compiled.num_warps or 1)
    is_small = elements <= WARP_THREADS * each
    fewer = _LARGER if compiled.num_warps == 1 or is_small else _FEWER
    if names := causes.growing(compiled, limit.shape):
        fewer = fewer.replace("a larger block", f"a larger block ({', '.join(names)})")
    if causes.is_row(compiled, limit.shape):
        wide = VECTOR_BYTES // limit.element_bytes
        warps = elements // (WARP_THREADS * wide)
        rows = WARP_THREADS * wide // elements if elements else 0
        fewer = f"Use num_warps={warps}, so that a thread moves 16 bytes"
        if not warps:
            fewer = _ROWS.format(rows, elements)
    adjacent = f"{each} adjacent element{'' if each == 1 else 's'}"
    tile = " × ".join(f"{size:,}" for size in limit.shape)
    if compiled.is_gluon:
        wide = VECTOR_BYTES // limit.element_bytes
        remedy = f"Give each thread {wide} adjacent elements in the layout (size_per_thread)"
        return _reason(f"the layout gives each thread {adjacent} of a tile of {tile}", remedy)
    if "slice" in limit.share.kind:
        given = f"the layout is that of a larger tile and gives each thread {adjacent}"
        return _reason(given, _FEW, conditional=True)
    if _leaves_room(limit, compiled):
        given = f"the layout gives each thread {adjacent} of a tile of {tile}, which has more"
        return _reason(given, _SHARED, conditional=True)
    if elements * limit.element_bytes < VECTOR_BYTES * threads:
        return _reason(f"a tile of {tile} elements is too small for {threads:,} threads", fewer)
    return _reason(f"the layout gives each thread {adjacent} of a tile of {tile}", fewer)


def _beside(limit: VectorLimit, compiled: Compiled) -> str:
    """A sentence on the limits that keep the access as narrow when that of the reason is gone."""
    also = dict.fromkeys(filter(None, (_in_short(each, compiled) for each in limit.beside)))
    if not also:
        return ""
    return f". Then {causes.in_words([*also])} {'limits' if len(also) == 1 else 'limit'} the width"


def _in_short(culprit: Culprit, compiled: Compiled) -> str:
    if culprit.opcode == "arith.constant":
        # A number alone says nothing, such as a factor of an unaligned value.
        return f"{name}={culprit.constant}" if (name := causes.padded(culprit, compiled)) else ""
    if culprit.opcode == "parameter":
        return causes.with_value(culprit.name or "", compiled)
    return _described(culprit)


def _of_values(limit: VectorLimit, narrow: Narrow, compiled: Compiled) -> NarrowReason | None:
    culprit = limit.culprit
    if culprit is None:
        return None
    if limit.limit == "contiguity":
        return _not_adjacent(limit, culprit, narrow, compiled)
    if culprit.opcode == "parameter":
        named = (argument for argument in compiled.arguments if argument.name == culprit.name)
        cause = next(map(causes.not_divisible, named), None)
        return _reason(cause.clause, cause.remedy) if cause else None
    if culprit.opcode == "arith.constant" and (culprit.constant or 0) > 1:
        # An offset of one is no pitch that padding could change.
        return _of_constant(culprit, limit, compiled)
    if culprit.opcode == "tt.make_range" and sum(size > 1 for size in limit.shape) > 1:
        return _reason(_ROWS_BY_ONE, _OVERLAPPING, conditional=True)
    what = _described(culprit)
    if not what:
        return None
    is_program_id = culprit.opcode == "tt.get_program_id"
    if limit.limit == "alignment" and is_program_id:
        where, multiple = what.removeprefix("the program id"), limit.alignment * limit.element_bytes
        start = f"multiples of {units.counted(multiple, 'byte')}, not of {VECTOR_BYTES}"
        return _reason(f"blocks start at {start}{where}", _OTHER_BLOCKS)
    if limit.limit == "mask" and (culprit.wanted != "divisibility" or is_program_id):
        differs = f"the mask depends on {what}, so it may differ from element to element"
        return _reason(differs, causes.own_bound(narrow), conditional=True)
    return _to_declare(f"the {'mask' if limit.limit == 'mask' else 'address'} depends", culprit)


def _to_declare(depends: str, culprit: Culprit) -> NarrowReason:
    """The reason where a value may be a multiple that Triton does not know of."""
    depends = f"{depends} on {_described(culprit)}"
    if culprit.opcode == "loop" and (culprit.constant or 0) % culprit.need:
        steps = f"{depends} in steps of {culprit.constant}, so most are not aligned"
        return replace(_reason(steps, _STEPS), kept=True)
    name = culprit.name if (culprit.name or "").isidentifier() else ""
    remedy = causes.declared(name or "such value", name or "value", culprit.need)
    unknown = "" if depends.startswith("the mask") else ", whose alignment is not known"
    return _reason(f"{depends}{unknown}", remedy, conditional=True)


def _not_adjacent(
    limit: VectorLimit, culprit: Culprit, narrow: Narrow, compiled: Compiled
) -> NarrowReason | None:
    """The reason where elements are not known to be adjacent; the addresses tell if they are."""
    what = _described(culprit)
    if limit.gathered:
        return causes.by_loaded(narrow, _ONCE if narrow.place[1] == "atomic" else "")
    if narrow.layout.threads_apart:
        return threads_apart(narrow, cuda=False)
    if not what:
        return None
    is_it = culprit.opcode in _SIGNS or culprit.opcode.startswith("arith.shr")
    depends = "is" if is_it else "depends on"
    cause = f"the offset {depends} {what}, so its elements are not known to be adjacent"
    if limit.packed:
        each = f"several elements take their bits of one word at {what}"
        # The parts of a word that a thread has are loaded one by one.
        own = math.prod(limit.shape) // (WARP_THREADS * (compiled.num_warps or 1))
        parts = culprit.constant or own
        parts = 1 << parts if culprit.opcode.startswith("arith.shr") else parts
        if 1 < parts <= own:
            return _reason(each, _EACH_WORD, conditional=True)
        return replace(_reason(each, _WORDS), kept=True)
    if what.startswith("a quotient"):
        arguments = {a.name for a in compiled.arguments if a.type != "constexpr"}
        divisor = "" if culprit.constant is not None else (culprit.operands or ("",))[-1]
        is_argument = divisor in arguments
        remedy = _BY_ARGUMENT.format(divisor) if is_argument else _PER_GROUP
        return _reason(cause, remedy, conditional=is_argument)
    if what.startswith("a remainder"):
        run = _run(culprit, compiled)
        return _reason(cause, _SHORT_RUNS.format(run) if run else _NO_WRAP, conditional=not run)
    if culprit.opcode == "arith.select":
        return _reason(cause, _MASK_ONLY, conditional=True)
    if culprit.opcode.startswith(("arith.min", "arith.max")):
        return _reason(cause, _NO_CLAMP, conditional=True)
    return _reason(cause, _ALONG)


def threads_apart(narrow: Narrow, *, cuda: bool) -> NarrowReason | None:
    """The reason where neighbouring threads leave gaps between them; None where they do not."""
    step, size, lane = narrow.layout.threads_apart, narrow.layout.element_bytes, narrow.layout.lane
    # Whole structures of an odd size make no vectors either.
    if cuda and lane and not lane.parameter and lane.of % VECTOR_BYTES and lane.of.bit_count() > 1:
        step = lane
    value = step.parameter.value if step and step.parameter else 1
    distance = abs(step.of * value) if step and type(value) is int else None
    if step is None or (distance is not None and distance < 2 * narrow.layout.width_bytes):
        return None
    times, left = divmod(abs(step.of), size)
    if distance is not None and distance > _MOST_KNOWN_BYTES:
        # It depends on the grid, of which the samples have one size.
        far, distance = "rows", None
    elif step.parameter and not left:
        far = step.parameter.name if times == 1 else f"{times} × {step.parameter.name}"
        far += f" {'+-'[step.more < 0]} {abs(step.more) // size}" * bool(step.more) + " elements"
    elif step.parameter:
        far = f"{abs(step.of)} × {step.parameter.name} bytes"
    else:
        far = f"{abs(step.of):,} bytes"
    sectors = "each needs a sector of its own, whatever the width"
    if distance is None:
        sectors += f", if that is {SECTOR_BYTES} bytes or more"
    elif distance < SECTOR_BYTES:
        shared = SECTOR_BYTES / distance
        shown = units.count(int(shared) if shared.is_integer() else shared)
        sectors = f"{shown} of them share a sector"
    by_data = cuda and _placed_by_data(narrow, step)
    if (used := narrow.used_fraction if cuda else None) is not None:
        sectors += (
            "; accesses to the other members use the rest of its bytes, through L1"
            if narrow.used
            else f"; all accesses together use {units.percent(100 * used)} of the bytes moved"
        )
    return NarrowReason(
        f"neighbouring threads are {far} apart{' or more, by what they load' * by_data}",
        _adjacent(narrow, step) if cuda else _ROWS_AS_TILE,
        f"the addresses of neighbouring threads in PTX: {sectors}",
        proven=not by_data,
        # The cache serves the other members: an array per member saved 17 and 21 % of the time of
        # such kernels on an H200; whole vectors instead of bytes 66 %.
        uncertain=cuda
        and not by_data
        and (narrow.used or (used or 0) >= _MOSTLY_USED)
        and narrow.width > 8,
    )


def _placed_by_data(narrow: Narrow, step: Stride) -> bool:
    """Whether threads are so far apart only where what each loads, such as a bin, is the same."""
    by_data = narrow.address.picked or narrow.address.gathered
    return step.parameter is None and by_data


def _adjacent(narrow: Narrow, step: Stride) -> str:
    """How to let neighbouring threads of CUDA C++ access adjacent elements."""
    if _placed_by_data(narrow, step):
        store = narrow.place[1] == "store"
        return _BY_DATA.format("store to adjacent elements" if store else "load adjacent elements")
    if step.parameter is None and abs(step.of) <= MOST_STRUCTURE_BYTES:
        return _of_structure(narrow, abs(step.of))
    if step.parameter and narrow.used and not any(a.loop_depth for a in narrow.accesses):
        return _AS_ARRAYS
    if narrow.layout.along:
        return _EXCHANGED.format(narrow.layout.along)
    # A thread that takes one element of each row does not walk along it.
    if narrow.layout.loop_step or narrow.count > 1:
        return ROW_PER_WARP
    if step.more:
        return _OF_THEIR_OWN
    return _TRANSPOSED.format(" or ".join(sorted(narrow.array)) or "the array")


def _of_structure(narrow: Narrow, size: int) -> str:
    """How to move structures of `size` bytes; as whole vectors where all of them is used."""
    whole = math.lcm(size, VECTOR_BYTES)
    if not narrow.used or whole > MOST_STRUCTURE_BYTES:
        return _AS_ARRAYS
    vectors, each = units.counted(whole // VECTOR_BYTES, "vector"), whole // size
    what = f"{each} structures as {vectors} of {VECTOR_BYTES} bytes"
    if not VECTOR_BYTES % size:
        what = f"its {size} bytes at once, as one vector"
    return f"{_AS_ARRAYS}; or, where all of it is used, let each thread move {what}"


def _of_constant(culprit: Culprit, limit: VectorLimit, compiled: Compiled) -> NarrowReason:
    """The reason where a size or a pitch that was compiled in is no multiple of a vector."""
    value, name = culprit.constant or 0, causes.padded(culprit, compiled)
    if culprit.is_added:
        shifted = f"offsets are shifted by {value} elements, no multiple of {culprit.need}"
        return _reason(shifted, _SHIFTED, conditional=True)
    if name:
        cause = causes.no_multiple(name, value, culprit.need)
        return _reason(cause.clause, cause.remedy)
    what = "bound of the mask" if limit.limit == "mask" else "constant in the offsets"
    more = -(-value // culprit.need) * culprit.need
    return _reason(
        f"{value}, a {what}, is not a multiple of {culprit.need}",
        f"Pad the data so that it is, such as {more}",
    )


def _run(remainder: Culprit, compiled: Compiled) -> str:
    """The length of the runs that a remainder makes, such as `KW=11`, if no vector fits them."""
    values = {a.name: a.value for a in compiled.arguments}
    name = remainder.operands[-1] if remainder.operands else ""
    length = values.get(name) if remainder.constant is None else remainder.constant
    if not isinstance(length, int) or length % 2 == 0:
        return ""
    return f"{name}={length}" if remainder.constant is None else str(length)


def _described(culprit: Culprit) -> str:
    """A culprit in words: `a quotient (offsets // group, gn.py:89)`; empty for an unknown kind."""
    kind = _MADE.get(culprit.opcode, "")
    if not kind:
        return ""
    name, sign = culprit.name, _SIGNS.get(culprit.opcode)
    terms = [*culprit.operands, *([str(culprit.constant)] if culprit.constant is not None else [])]
    shown = f" {sign} ".join(terms) if sign and len(terms) == 2 else (name or "")
    if culprit.opcode == "loop":
        return f"{kind} at {line_name(culprit.line)}" if culprit.line else kind
    inside = ", ".join(filter(None, (shown, line_name(culprit.line) if culprit.line else "")))
    return f"{kind} ({inside})" if inside else kind


def _basis(limit: VectorLimit) -> str:
    wide = VECTOR_BYTES // limit.element_bytes
    parts = [
        f"{limit.share.adjacent} adjacent per thread by the layout",
        f"{limit.contiguity} contiguous in memory",
        f"aligned to {limit.alignment}",
        *([] if limit.mask is None else [f"{limit.mask} under one mask"]),
    ]
    return f"Triton's analysis, in elements of {wide} per vector: {', '.join(parts)}"
