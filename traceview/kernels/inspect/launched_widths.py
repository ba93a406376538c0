"""Access widths of kernels that ran, from their recorded code alone, for many kernels at once."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from traceview.base.errors import TraceviewError
from traceview.base.findings import Finding
from traceview.base.records import record
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.rules import ranked
from traceview.kernels.inspect.rules.engine import advice_by
from traceview.kernels.inspect.rules.vector_width.narrow_accesses import narrow_global_accesses
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.addresses.request_costs import Traffic, traffic_of
from traceview.kernels.ptx.model import Access, Compiled, Kind, Level, SourceLine
from traceview.kernels.toolchain import listings

_LOADS: tuple[Kind, ...] = ("load", "async-copy")
_STORES: tuple[Kind, ...] = ("store",)
# nvdisasm runs as a process of its own, so that several run at once.
_AT_ONCE = min(16, os.cpu_count() or 1)
MOST_DISASSEMBLED = 48
LEFT_OUT = "no SASS: only the longest kernels are disassembled, so its widths are from PTX"
_MOST_KEPT = 4096


@record
class MainWidth:
    """The width at which a kernel moves most bits, and the first line that does so."""

    bits: int
    source: SourceLine | None


@record
class RunningWidths:
    """The accesses of one kernel in PTX and SASS, and the widths at which it moves most.

    `loads` and `stores` are from the SASS, or from the PTX without SASS (see `level`); None without
    global accesses of known width. `narrow` are the findings on accesses below 128 bits, the worst
    first; the values of their evidence have the `cause`, a clause or None, and whether it is
    `proven`. `notes` say what is missing, `request_bound` that the requests to global memory take
    longer than all instructions of the hottest loop.
    """

    accesses: tuple[Access, ...]
    level: Level
    loads: MainWidth | None
    stores: MainWidth | None
    traffic: Traffic
    narrow: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    request_bound: bool = False


_kept: dict[bytes, RunningWidths] = {}


def running_widths(
    kernels: Sequence[Compiled], most_disassembled: int = MOST_DISASSEMBLED
) -> list[RunningWidths]:
    """The widths of each kernel. Code that cannot be read has no accesses, and a note.

    `kernels` are in order of importance. nvdisasm takes a quarter of a second for each, so beyond
    the first `most_disassembled` only PTX is read, if there is any. Results are cached by code. PTX
    without a cubin is not assembled, as the result may not be what ran.
    """
    ptx_only = [replace(k, cubin=None) if k.ptx else k for k in kernels[most_disassembled:]]
    widths = _cached([*kernels[:most_disassembled], *ptx_only])
    rest = widths[most_disassembled:]
    noted = [replace(w, notes=(*w.notes, LEFT_OUT)) if w.level == "ptx" else w for w in rest]
    return widths[:most_disassembled] + noted


def _cached(kernels: Sequence[Compiled]) -> list[RunningWidths]:
    keys = [_key(kernel) for kernel in kernels]
    fresh = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in _kept}
    computed = dict(zip(fresh, _all_of(list(fresh.values())), strict=True))
    known = {**{key: _kept[key] for key in keys if key in _kept}, **computed}
    if len(_kept) + len(computed) > _MOST_KEPT:
        _kept.clear()
    # A tool that is missing now may be there the next time.
    _kept.update({key: widths for key, widths in computed.items() if not widths.notes})
    return [known[key] for key in keys]


def _key(kernel: Compiled) -> bytes:
    code = hashlib.sha256(kernel.cubin or b"")
    code.update((kernel.ptx or "").encode())
    launch = (kernel.name, kernel.arch, kernel.arguments, kernel.num_warps, kernel.source_file)
    code.update(repr(launch).encode("utf-8", "surrogateescape"))
    return code.digest()


def _all_of(kernels: Sequence[Compiled]) -> list[RunningWidths]:
    """The widths of each kernel; threads disassemble a few at a time to bound the memory."""
    result: list[RunningWidths] = []
    if not kernels:
        return result
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(kernels), listings.MOST_KEPT):
            some = kernels[first : first + listings.MOST_KEPT]
            list(pool.map(_disassembled, {kernel.cubin for kernel in some if kernel.cubin}))
            result.extend(map(_widths, some))
    return result


def _disassembled(cubin: bytes) -> None:
    try:
        listings.text_of(cubin)
    except TraceviewError:
        # It is raised again, and noted, where the text is read.
        return


def _widths(compiled: Compiled) -> RunningWidths:
    try:
        code = listings.code_of(compiled, ptxas=False)
        written = accesses(code.ptx) if code.ptx else ()
        running = accesses(code.sass) if code.sass else ()
        level: Level = "sass" if code.sass else "ptx"
        main = running if code.sass else written
        kernel = KernelContext(compiled, code, written)
        return RunningWidths(
            accesses=(*written, *running),
            level=level,
            loads=main_width(main, _LOADS),
            stores=main_width(main, _STORES),
            traffic=traffic_of(code.ptx, code.sass),
            narrow=ranked(each.finding for each in advice_by(narrow_global_accesses, kernel)),
            request_bound=_is_request_bound(kernel),
            notes=code.notes,
        )
    except TraceviewError as error:
        nothing = Traffic(None, None, "its code cannot be read")
        return RunningWidths((), "ptx", None, None, nothing, (), (str(error),))


def _is_request_bound(kernel: KernelContext) -> bool:
    """Whether the sectors of a pass of the hottest loop take longer than issuing all of it.

    An SM moves 64 bytes per clock from L2, two sectors, and issues for four warps (`pipes`).
    """
    if kernel.mix is None:
        return False
    loop = kernel.mix.hottest_loop
    issued = (loop or kernel.mix).counts.total
    sectors = sum(
        access.count * access.cost.sectors
        for access in kernel.accesses_with_costs
        if access.level == "ptx" and access.space == "global" and access.cost
        if access.cost.sectors and access.loop_depth >= (loop.depth if loop else 0)
    )
    return sectors / 2 > issued / 4


def main_width(accesses: Iterable[Access], kinds: tuple[Kind, ...]) -> MainWidth | None:
    """The width at which these kinds move most bits of global memory, in the innermost loop.

    Of two widths that move as much, the wider. None without an access of known width.
    """
    listed = [a for a in accesses if a.space == "global" and a.kind in kinds and a.width_bits]
    deepest = max((access.loop_depth for access in listed), default=0)
    inner = [access for access in listed if access.loop_depth == deepest]
    moved = Counter[int]()
    for access in inner:
        moved[access.width_bits or 0] += (access.width_bits or 0) * access.count
    if not moved:
        return None
    bits = max(moved, key=lambda width: (moved[width], width))
    return MainWidth(bits, next(a.source for a in inner if a.width_bits == bits))
