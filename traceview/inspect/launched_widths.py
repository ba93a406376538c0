"""How wide the accesses of kernels are that ran: of many kernels, and of their own code alone."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from traceview.errors import TraceviewError
from traceview.inspect.kernel_report import Finding
from traceview.inspect.rules.findings import ranked
from traceview.inspect.rules.vector_width.narrow_accesses import narrow_findings
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.addresses.thread_traffic import Traffic, traffic_of
from traceview.ptx.model import Access, Compiled, Kind, Level, SourceLine
from traceview.ptx.sass import accesses as sass_accesses
from traceview.toolchain import nvdisasm
from traceview.toolchain.listings import Code, code_of

_LOADS: tuple[Kind, ...] = ("load", "async-copy")
_STORES: tuple[Kind, ...] = ("store",)
# nvdisasm is a process: while some of them run, others start.
_AT_ONCE = min(16, os.cpu_count() or 1)
MOST_DISASSEMBLED = 48
LEFT_OUT = "no SASS, as only the longest kernels are disassembled: their widths are those of PTX"
_MOST_KEPT = 4096


@dataclass(frozen=True)
class Main:
    """The width by which a kernel moves most, and the first line that does so."""

    bits: int
    source: SourceLine | None


@dataclass(frozen=True)
class RunningWidths:
    """The accesses of one kernel at both levels, and what follows from them.

    `loads` and `stores` are told by SASS, which runs, else by PTX (`level`); None without any of
    known width in global memory. `narrow` are the findings on accesses below 128 bits, the worst
    first. `notes` say what could not be had.
    """

    accesses: tuple[Access, ...]
    level: Level
    loads: Main | None
    stores: Main | None
    traffic: Traffic
    narrow: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


_kept: dict[bytes, RunningWidths] = {}


def running_widths(
    kernels: Sequence[Compiled], most_disassembled: int = MOST_DISASSEMBLED
) -> list[RunningWidths]:
    """One of each kernel. What cannot be read has no accesses, and a note.

    The kernels come in order of importance: nvdisasm takes a quarter of a second for each, so
    that of those beyond the first PTX is read alone, where there is one. Results are kept within
    the process by the code that they are of. Of PTX without a cubin none is made: it may not be
    the one that ran.
    """
    shortened = [_without_cubin(k) if k.ptx else k for k in kernels[most_disassembled:]]
    found = _found([*kernels[:most_disassembled], *shortened])
    late = found[most_disassembled:]
    told = [replace(w, notes=(*w.notes, LEFT_OUT)) if w.level == "ptx" else w for w in late]
    return found[:most_disassembled] + told


def _without_cubin(kernel: Compiled) -> Compiled:
    return replace(kernel, cubin=None)


def _found(kernels: Sequence[Compiled]) -> list[RunningWidths]:
    keys = [_key(kernel) for kernel in kernels]
    fresh = {key: kernel for key, kernel in zip(keys, kernels, strict=True) if key not in _kept}
    made = dict(zip(fresh, _all_of(list(fresh.values())), strict=True))
    known = {**{key: _kept[key] for key in keys if key in _kept}, **made}
    if len(_kept) + len(made) > _MOST_KEPT:
        _kept.clear()
    # What a missing tool left out may be had the next time.
    _kept.update({key: found for key, found in made.items() if not found.notes})
    return [known[key] for key in keys]


def _key(kernel: Compiled) -> bytes:
    code = hashlib.sha256(kernel.cubin or b"")
    code.update((kernel.ptx or "").encode("utf-8", "surrogateescape"))
    told = (kernel.name, kernel.arch, kernel.arguments, kernel.num_warps, kernel.source_file)
    code.update(repr(told).encode("utf-8", "surrogateescape"))
    return code.digest()


def _all_of(kernels: Sequence[Compiled]) -> list[RunningWidths]:
    """Disassemble ahead in threads, a few at a time: the texts of all would fill the memory."""
    found: list[RunningWidths] = []
    if not kernels:
        return found
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(kernels), nvdisasm.MOST_KEPT):
            some = kernels[first : first + nvdisasm.MOST_KEPT]
            list(pool.map(_disassembled, {kernel.cubin for kernel in some if kernel.cubin}))
            found.extend(map(_widths, some))
    return found


def _disassembled(cubin: bytes) -> None:
    try:
        nvdisasm.text_of(cubin)
    except TraceviewError:
        # It is met again, and told, by who asks for the text.
        return


def _widths(compiled: Compiled) -> RunningWidths:
    try:
        return _of_code(compiled, code_of(compiled, ptxas=False))
    except TraceviewError as error:
        nothing = Traffic(None, None, "its code cannot be read")
        return RunningWidths((), "ptx", None, None, nothing, (), (str(error),))


def _of_code(compiled: Compiled, code: Code) -> RunningWidths:
    written = ptx_accesses.accesses(code.ptx) if code.ptx else ()
    running = sass_accesses.accesses(code.sass) if code.sass else ()
    level: Level = "sass" if code.sass else "ptx"
    told = running if code.sass else written
    return RunningWidths(
        accesses=(*written, *running),
        level=level,
        loads=main_width(told, _LOADS),
        stores=main_width(told, _STORES),
        traffic=traffic_of(code.ptx, code.sass),
        narrow=_narrow(compiled, code, written),
        notes=code.notes,
    )


def _narrow(compiled: Compiled, code: Code, written: tuple[Access, ...]) -> tuple[Finding, ...]:
    if code.ptx is None:
        return ()
    provenance = Provenance.of(code.ptx, compiled.arguments)
    found = narrow_findings(compiled, written, provenance, None)
    return ranked(found)


def main_width(accesses: Iterable[Access], kinds: tuple[Kind, ...]) -> Main | None:
    """The width by which these kinds move most bits of global memory, in the innermost loop.

    Where two move as much, the wider. None without an access of known width.
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
    return Main(bits, next(a.source for a in inner if a.width_bits == bits))
