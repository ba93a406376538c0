"""The reason for a narrow global access, inferred from its PTX or from Triton's layouts."""

from __future__ import annotations

import re
from dataclasses import replace

from traceview.base import units
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.rules.vector_width import causes
from traceview.kernels.inspect.rules.vector_width.causes import Narrow, NarrowReason
from traceview.kernels.inspect.rules.vector_width.from_layout import (
    ROW_PER_WARP,
    from_layout,
    is_column,
    limit_of,
    threads_apart,
    tile_bits,
)
from traceview.kernels.ptx.addresses.request_costs import SECTOR_BYTES
from traceview.kernels.ptx.model import Compiled

# Operand types that wgmma takes with K contiguous only.
_K_MAJOR = re.compile(r"wgmma\.mma_async\S*\.(tf32\.tf32|[es]\d\w*\.[es]\d\w*|[su]8\.[su]8)")
_MOST_PARTS = 16


def inferred_reason(narrow: Narrow, compiled: Compiled, *, tried: bool) -> NarrowReason:
    """The likely reason. `tried`: no recompilation that could prove a reason is left."""
    if compiled.is_cuda(narrow.place[0]):
        return _of_threads(narrow)
    return (
        _seen(narrow, compiled)
        or from_layout(narrow, compiled)
        or _likely(narrow, compiled, tried=tried)
    )


def _of_threads(narrow: Narrow) -> NarrowReason:
    """The reason in CUDA C++, which follows from the distance of neighbouring threads if proven."""
    layout, address = narrow.layout, narrow.address
    if narrow.overlapping:
        return _OVERLAPPING
    if narrow.shared and narrow.coalesced:
        return _STENCIL
    sectors = narrow.cost.sectors if narrow.cost else None
    is_far = SECTOR_BYTES * (sectors or 0) >= 2 * WARP_THREADS * narrow.moved / 8
    is_far |= layout.lane is not None and layout.lane.parameter is not None
    known = layout.step is not None and layout.step.parameter is None
    if narrow.assembled and known and not is_far and layout.apart <= narrow.count:
        return _ASSEMBLED
    repeated = layout.scattered and layout.apart == 0
    # What is far from thread to thread costs more than how a thread's own elements lie.
    apart = None if repeated else threads_apart(narrow, cuda=True)
    if apart:
        return apart
    if address.counted:
        return _COUNTED
    if narrow.walks and not layout.lane:
        return _ROW_PER_THREAD
    if (address.gathered or address.picked) and not layout.lane:
        return replace(causes.by_loaded(narrow, _SORT), inherent=True)
    if repeated:
        return replace(_SAME, remedy=_KEEP)
    # An index that is loaded, or divided, may start or end a row anywhere.
    starts = layout.starts_wide and not (address.loaded or address.picked or address.divided)
    if starts and narrow.coalesced:
        return _coalesced(narrow)
    run = layout.lane and not layout.lane.parameter and layout.consecutive
    return _one_by_one(narrow) if starts and run else UNPROVEN


def _seen(narrow: Narrow, compiled: Compiled) -> NarrowReason | None:
    """Reasons visible in the addresses alone: elements that are not adjacent fit into no vector."""
    is_copy = narrow.place[1] == "async-copy" and narrow.width <= 32
    # A gather, a stride or a small tile is as narrow without wgmma.
    if is_copy and _K_MAJOR.search(compiled.ptx or "") and not limit_of(narrow, compiled):
        name = _names(narrow) or "the operand"
        return NarrowReason(
            "the operand is transposed element by element on the way to shared memory",
            f"Lay {name} out so that the axis that tl.dot sums over (K) is contiguous",
            "wgmma transposes 16-bit operands only, and these have 32 or 8 bits",
        )
    if narrow.layout.scattered:
        reason = _strided(narrow)
        is_thin = reason.remedy == _CONTIGUOUS and is_column(narrow, compiled)
        return replace(reason, remedy=_SEVERAL_COLUMNS) if is_thin else reason
    return None


def _likely(narrow: Narrow, compiled: Compiled, *, tried: bool) -> NarrowReason:
    layout, address = narrow.layout, narrow.address
    if address.gathered and not layout.consecutive:
        return causes.by_loaded(narrow)
    undeclared = causes.not_declared_divisible(narrow.suspects)
    names = [argument.name for argument in undeclared]
    if names and not tried:
        return NarrowReason(
            causes.not_known_divisible(names),
            f"Pad or align {causes.in_words(names)} to a multiple of 16"
            f"{causes.specialized(undeclared)}",
            ("the address or the mask depends on it, and the compiler does not know its alignment"),
        )
    if narrow.moved < causes.WIDE_BITS and not tried:
        return _too_few(narrow.moved, _FEWER_WARPS)
    if layout.consecutive:
        # However it is aligned, a thread has less than a vector of the tile.
        if tile_bits(narrow.place, narrow.array, compiled) < causes.WIDE_BITS:
            return _too_few(narrow.moved, MORE_ROWS)
        return _of_adjacent(narrow) or _UNKNOWN
    return _UNKNOWN


def _one_by_one(narrow: Narrow) -> NarrowReason:
    return NarrowReason(
        f"the source moves {narrow.width} bits at a time",
        "Move each thread's adjacent elements in vectors of 16 bytes (such as float4, double2 or "
        "uint4) where the first is so aligned, the rest one by one",
        "addresses in PTX are consecutive",
    )


def _of_adjacent(narrow: Narrow) -> NarrowReason | None:
    """Why adjacent elements are moved one by one although all sizes are multiples of 16."""
    layout = narrow.layout
    if not layout.starts_wide and narrow.address.loaded:
        masked = layout.masks_differ
        other = "; and load under a mask whose bound is such a multiple" if masked else ""
        return NarrowReason(
            f"the access starts at an offset loaded{causes.loaded_from(narrow)}, "
            "of unknown alignment",
            f"{causes.declared('such offset', '…', 16)} around it{other}",
            "addresses in PTX are consecutive, but start at a loaded offset",
            conditional=True,
        )
    if layout.masks_differ:
        cause = "the mask differs from element to element"
        basis = "addresses in PTX are consecutive, but masks differ within 16 bytes"
        return NarrowReason(cause, causes.own_bound(narrow), basis)
    if not layout.starts_wide:
        return _UNALIGNED
    if narrow.moved < causes.WIDE_BITS and narrow.count == 1:
        return _too_few(narrow.moved, MORE_ROWS)
    return None


def _strided(narrow: Narrow) -> NarrowReason:
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
            return NarrowReason(
                *causes.unseen_one(name), "the stride in PTX is a register", proven=True
            )
        written = f"{name}={value}" if isinstance(value, int) else name
        far = written if stride == 1 else f"{stride} × {written}"
        basis = f"in PTX, consecutive {size} elements are {abs(step.of)} × {name} bytes apart"
        return _apart(far, _CONTIGUOUS, basis, narrow)
    way = "before" if step.of < 0 else "after"
    basis = f"in PTX, each {size} element is {abs(step.of)} bytes {way} the previous one"
    if stride == -1:
        cause = "a thread's elements are moved in reverse order"
        run = causes.WIDE_BITS // (8 * narrow.layout.element_bytes)
        return NarrowReason(cause, _REVERSED.format(run), basis, proven=True)
    reason = _apart(str(stride), _interleaved(narrow), basis, narrow)
    # The cache serves the other members: gradients of spherical harmonics, of which a block moves
    # all 3 and 8 of 9 members, took 6 % less time on an H200 with an array per member.
    return replace(reason, uncertain=narrow.used)


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


def _interleaved(narrow: Narrow) -> str:
    """The remedy where only every k-th element is moved."""
    parts = abs(narrow.layout.apart)
    if not 1 < parts <= _MOST_PARTS:
        return _CONTIGUOUS
    if parts & (parts - 1) or narrow.place[1] == "atomic":
        return f"Store each of the {parts} parts as an array of its own, or move whole runs"
    if narrow.place[1] == "store":
        return "Join the parts (tl.join, then tl.reshape) and store the whole run at once"
    return "Load the whole run at once, then split it (tl.reshape, then tl.split)"


# tl.flip along the last axis needs no shared memory.
_REVERSED = (
    "Move runs of {0} forwards, and reverse each in registers: a tile of [BLOCK // {0}, {0}], and "
    "tl.flip(tile, 1)"
)
_CONTIGUOUS = (
    "Let each thread's elements run along the axis that is contiguous in memory: move tiles of "
    "two axes along it, and turn them with tl.trans where the other side runs along the other axis"
)
_SEVERAL_COLUMNS = (
    "The tile has one element along the axis that is contiguous in memory: let a block take more "
    "there, as the last axis of its tile, so that a thread moves adjacent elements"
)
_TRANSPOSED = (
    "transposed, so that what one iteration needs is adjacent. The cache hides a part of the cost: "
    "each sector serves the next iterations, too"
)

_SORT = (
    "Sort or group the indices, or move a run of elements at each index, with neighbouring threads "
    "on neighbouring elements"
)

_SAME = NarrowReason(
    "a thread accesses the same element repeatedly",
    "Load each value once, in a tile without the repetition, and repeat it in registers: broadcast "
    "it, or unpack a word along a third axis of its parts, then tl.reshape",
    "the addresses are equal in PTX",
    proven=True,
)

_KEEP = "Keep the value in a register: load it once, and store it after its last change"
_STORE_ONCE = "Store each value once, from a tensor without the repeated axis or from a scalar"


_UNALIGNED = NarrowReason(
    "the access does not start at a multiple of 16 bytes",
    "Align the start of the tile to 16 bytes: use another offset, or pad the data in front",
    (
        "addresses in PTX are consecutive, but never start at such a multiple, whatever the "
        "arguments"
    ),
)

_STENCIL = NarrowReason(
    "the kernel is a stencil, whose neighbouring threads read the same elements, shifted",
    "Leave the width, as shifted elements are not aligned to 16 bytes and the cache serves what is "
    "read again. If a profile shows L1 as the limit, let each thread compute several results from "
    "values that it keeps in registers, or load tiles with their rim into shared memory",
    "addresses in PTX: each request is coalesced",
    proven=True,
    kept=True,
    coalesced=True,
)

_ASSEMBLED = NarrowReason(
    "each thread assembles words from bytes, whose address may be any",
    "Leave it where the address or the order of bytes is not known. If each word starts at a "
    "multiple of its size, load it at once, and reverse its bytes with __byte_perm where needed",
    "PTX: loads of adjacent bytes, which the line shifts; nothing shows their alignment",
    kept=True,
)

_OVERLAPPING = NarrowReason(
    "neighbouring threads store to the same elements, shifted, and the last one to store wins",
    "Multiply the thread's index by the number of elements that it stores, here and for what it "
    "loads, if each is to have its own: then vectors of 16 bytes move them",
    "addresses in PTX: threads are one element apart, and each stores several adjacent ones",
    proven=True,
    conditional=True,
)

_COUNTED = NarrowReason(
    "each thread counts the bits of a mask to find its element",
    "Leave the width: threads whose bit is set access adjacent elements, in order",
    "the address in PTX is computed with popc",
    kept=True,
)

_FLOAT4 = (
    "Give each thread adjacent elements, and move them in vectors of 16 bytes (such as float4 or "
    "double2) where each row is so aligned, the rest one by one"
)
_ROW_PER_THREAD = NarrowReason(
    "each thread walks along adjacent elements, so that its neighbours are elsewhere",
    ROW_PER_WARP,
    "addresses in PTX: an iteration of the loop starts where the one before it ended",
)
UNPROVEN = NarrowReason(
    "the source moves them one by one, and nothing shows that vectors of 16 bytes would fit",
    "Leave the width unless threads access adjacent elements that start at multiples of 16 bytes: "
    "then move vectors (such as float4 or double2)",
    "addresses in PTX leave the distance of neighbouring threads open, or where rows start",
    proven=True,
    kept=True,
)
"""The reason for an access of CUDA C++ of which nothing else is known."""
MORE_ROWS = "Give each block more work, such as several rows, so that a thread moves 16 bytes"


_FEWER_WARPS = "Use fewer warps (num_warps) or a larger block, so that a thread moves 16 bytes"


def _too_few(moved: int, remedy: str) -> NarrowReason:
    return NarrowReason(
        f"each thread moves only {moved} bits there",
        remedy,
        f"all accesses of the line together move {moved} bits per thread",
    )


def _coalesced(narrow: Narrow) -> NarrowReason:
    # Its other elements are elsewhere.
    where = "there" if narrow.moved == narrow.width else "in one place"
    return NarrowReason(
        f"each thread moves only {narrow.width} bits {where}",
        _FLOAT4,
        "addresses in PTX: each request is coalesced",
        coalesced=True,
    )


def _names(narrow: Narrow) -> str:
    """The names of the arrays that an access may touch: `x or y`."""
    return " or ".join(sorted(narrow.array))


_UNKNOWN = NarrowReason(
    "",
    "Check that adjacent elements go to one thread: stride 1 along the axis that varies fastest, "
    "and sizes and pointers that are multiples of 16",
    f"one instruction can move {causes.WIDE_BITS} bits",
)
