"""Why a global access is narrow, as far as its addresses and masks in the PTX tell."""

from __future__ import annotations

import re
from dataclasses import replace

from traceview.inspect.rules.vector_width.causes import WIDE_BITS, undeclared
from traceview.inspect.rules.vector_width.narrow_place import Narrow, Verdict
from traceview.ptx.model import Compiled

# Products whose operands wgmma takes with K contiguous only.
_K_MAJOR = re.compile(r"wgmma\.mma_async\S*\.(tf32\.tf32|[es]\d\w*\.[es]\d\w*|[su]8\.[su]8)")
_MOST_PARTS = 16


def inferred(narrow: Narrow, compiled: Compiled, *, tried: bool) -> Verdict:
    """The likely cause. `tried` says that no recompilation that could show one is left."""
    return _seen(narrow, compiled) or _likely(narrow, compiled, tried=tried)


def _seen(narrow: Narrow, compiled: Compiled) -> Verdict | None:
    """What the addresses alone tell: elements that are no neighbours fit into no vector."""
    if _is_transposed(narrow, compiled):
        return _transposed(narrow)
    if narrow.layout.scattered:
        return _apart(narrow, cuda=narrow.is_cuda(compiled))
    return None


def _likely(narrow: Narrow, compiled: Compiled, *, tried: bool) -> Verdict:
    cuda, layout = narrow.is_cuda(compiled), narrow.layout
    if narrow.address.gathered and not layout.consecutive:
        return replace(_GATHER, action=_SORT) if cuda else _GATHER
    arguments = undeclared(narrow.suspects)
    if arguments and not tried:
        names = " and ".join(argument.name for argument in arguments)
        return Verdict(
            f"likely because {names} may not be divisible by 16",
            f"Pad or align {names} to a multiple of 16",
            "the address or the mask is computed from it, and the compiler was not told",
        )
    if narrow.moved < WIDE_BITS and not tried:
        return _too_few(narrow.moved, cuda)
    if layout.consecutive and not cuda:
        return _of_neighbours(narrow) or _UNKNOWN
    return _UNKNOWN


def _of_neighbours(narrow: Narrow) -> Verdict | None:
    """Why elements that lie side by side are moved one by one, sizes being multiples of 16."""
    layout = narrow.layout
    if not layout.starts_wide and narrow.address.loaded:
        return _loaded_start(masked=layout.masks_differ)
    if layout.masks_differ:
        return _masked(stores=narrow.place[1] != "load")
    if not layout.starts_wide:
        return _OFF
    if narrow.moved < WIDE_BITS and narrow.count == 1:
        return replace(_too_few(narrow.moved, cuda=False), action=_MORE_ROWS)
    return None


def _apart(narrow: Narrow, *, cuda: bool) -> Verdict:
    step, apart = narrow.layout.step, narrow.layout.apart
    if step is None or step.of == 0:
        return _SAME
    size = f"of {8 * narrow.layout.element_bytes} bits"
    if step.parameter:
        name, value = step.parameter.name, step.parameter.value
        said = f"{name}={value}" if isinstance(value, int) else name
        far = said if apart == 1 else f"{apart} × {said}"
        evidence = f"in PTX each element {size} lies {abs(step.of)} × {name} bytes from the next"
        return Verdict(f"the elements of a thread lie {far} apart", _ALONG, evidence)
    way = "before" if step.of < 0 else "after"
    evidence = f"in PTX each element {size} lies {abs(step.of)} bytes {way} the last one"
    if apart == -1:
        said = "the elements of a thread are moved in reverse order"
        return Verdict(said, _turned(narrow, cuda), evidence)
    return Verdict(f"the elements of a thread lie {apart} apart", _parted(narrow, cuda), evidence)


def _parted(narrow: Narrow, cuda: bool) -> str:
    """What to do where only every k-th element is moved."""
    parts = abs(narrow.layout.apart)
    if not 1 < parts <= _MOST_PARTS:
        return _ALONG
    if cuda or parts & (parts - 1) or narrow.place[1] == "atomic":
        return f"Lay each of the {parts} parts out as an array of its own, or move whole runs"
    if narrow.place[1] == "store":
        return "Join the parts (tl.join, then tl.reshape) and store the whole run at once"
    return "Load the whole run at once, then part it (tl.reshape, then tl.split)"


def _turned(narrow: Narrow, cuda: bool) -> str:
    """The whole tile through tl.flip would go through shared memory; the last axis does not."""
    run = WIDE_BITS // (8 * narrow.layout.element_bytes)
    if cuda:
        return f"Move runs of {run} forwards, and turn each around in registers"
    return (
        f"Move runs of {run} forwards, and turn each around in registers: a tile of "
        f"[BLOCK // {run}, {run}], and tl.flip(tile, 1)"
    )


_ALONG = (
    "Let the elements of a thread run along the axis that is contiguous in memory: another tile, "
    "or the data transposed first"
)

_SAME = Verdict(
    "the elements of a thread are all the same one",
    "Load each value once and spread it: a smaller tensor broadcast over the axis that repeats "
    "it, or one value a block",
    "the addresses are equal in PTX",
)

_GATHER = Verdict(
    "likely a gather, as the compiler cannot know that neighbouring addresses follow each other",
    "Say so where they do: tl.max_contiguous(tl.multiple_of(index, 4), 4); else sort or group "
    "the indices",
    "the address is computed from values that are loaded",
)
_SORT = "Sort or group the indices, or gather runs of elements and move each as a float4"


def _masked(*, stores: bool) -> Verdict:
    action = (
        "Where the rest may be overwritten, store under a mask with a bound that is a multiple of "
        "16, and choose what is stored with tl.where"
        if stores
        else "Load under a mask with the array's own bound, a multiple of 16, and apply the rest "
        "with tl.where"
    )
    return Verdict(
        "likely because the mask differs from element to element",
        action,
        "addresses in PTX are consecutive, masks within 16 bytes not the same",
    )


def _loaded_start(*, masked: bool) -> Verdict:
    other = "; and load under a mask with a bound that is such a multiple" if masked else ""
    return Verdict(
        "likely because it starts at a loaded offset, which may be any",
        f"Say so if it is a multiple of 16: tl.multiple_of(start, 16){other}",
        "addresses in PTX are consecutive, their start comes from a load",
    )


_OFF = Verdict(
    "likely because it does not start at a multiple of 16 bytes",
    "Let the tile start at a multiple of 16 bytes: another offset, or the data padded in front",
    "addresses in PTX are consecutive, but off such a multiple whatever the arguments are",
)

_MORE_ROWS = "Let a block take more, such as several rows, so that a thread has 16 bytes to move"


def _too_few(moved: int, cuda: bool) -> Verdict:
    return Verdict(
        f"likely because each thread moves only {moved} bits there",
        "Give each thread neighbouring elements, and move them as float4 (16 bytes)"
        if cuda
        else "Use fewer warps (num_warps) or a larger block, so that a thread has 16 bytes to move",
        f"all accesses of the line together move {moved} bits a thread",
    )


def _is_transposed(narrow: Narrow, compiled: Compiled) -> bool:
    is_copy = narrow.place[1] == "async-copy" and narrow.width <= 32
    return is_copy and bool(_K_MAJOR.search(compiled.ptx or ""))


def _transposed(narrow: Narrow) -> Verdict:
    name = " or ".join(sorted(narrow.array)) or "the operand"
    return Verdict(
        "likely because it is transposed on the way to shared memory, element by element",
        f"Lay {name} out so that the axis that tl.dot sums over (K) is contiguous",
        "wgmma reads transposed operands of 16 bits alone, and these have 32 or 8",
    )


_UNKNOWN = Verdict(
    "the cause was not found",
    "Check that neighbouring elements go to one thread: stride 1 along the axis that varies "
    "fastest, and sizes and pointers that are multiples of 16",
    f"{WIDE_BITS} bits are possible in one instruction",
)
