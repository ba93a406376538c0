"""Atomics of global memory that do more, or wait longer, than a sum needs.

What there is, and since when (PTX ISA manual, `atom` and `red`): vectors .v2 and .v4 of f32, .v2
to .v8 of f16 and bf16 from PTX 8.1 on sm_90 on; pairs f16x2 from PTX 6.2 on sm_60 on and bf16x2
from PTX 7.8 on sm_90 on; none of integers. Without .sem an operation is relaxed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.errors import TraceviewError
from traceview.inspect.kernel_report import Finding, Severity, where
from traceview.inspect.sass_vs_ptx import by_place
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.addresses.slicing import reads, results, together
from traceview.ptx.model import Access, Compiled, Function, Instruction, SourceLine
from traceview.toolchain.listings import code_of

_VECTORS_FROM = 90
_NARROWABLE = re.compile(r"\.(?:f32|f16|bf16|f16x2|bf16x2)$")
_OPERATIONS = {"f32": {"add"}, "f16": {"add", "min", "max"}}
_ORDERED = re.compile(r"\b((?:atom|red)\b[\w.:]*?)\.(acq_rel|acquire|release)\b")
_SWAP = re.compile(r"\.(?:exch|cas)\b")
_ASKING = ("ld.acquire", "ld.volatile", "ld.relaxed")
_FENCES = ("MEMBAR", "CCTL")
VECTORS_SINCE = "atomics of vectors exist from PTX ISA 8.1 on, on sm_90 and newer"


def has_wider_form(access: Access, arch: str) -> bool:
    """Whether the PTX ISA has a vector of this atomic for the architecture."""
    number = int(re.sub(r"\D", "", arch) or 0)
    words = set(access.opcode.split("."))
    type_ = _NARROWABLE.search(access.opcode)
    if number < _VECTORS_FROM or access.space != "global" or not type_:
        return False
    kind = "f32" if type_[0] == ".f32" else "f16"
    return bool(words & _OPERATIONS[kind])


def atomic_findings(
    compiled: Compiled,
    accesses: Sequence[Access],
    provenance: Provenance,
    sass: Function | None,
) -> Iterator[Finding]:
    """Ordering that a sum does without, wide scopes, emulation, and blocks that queue."""
    places = by_place(accesses, "ptx")
    atomics = {p: a for p, a in places.items() if p[1] == "atomic" and p[2] == "global"}
    if not atomics:
        return
    every = [access for listed in atomics.values() for access in listed]
    sums = _sums(every, provenance)
    yield from _ordered(compiled, sums, provenance, sass)
    for place, listed in atomics.items():
        yield from _system_wide(place[0], listed)
        yield from _emulated(place[0], listed, accesses)
        yield from _contended(compiled, place[0], [a for a in listed if a in sums], provenance)


def _sums(listed: Sequence[Access], provenance: Provenance) -> list[Access]:
    """The atomics that only gather something: their results are not read, nor is their array asked.

    What swaps, and what touches an array of which the kernel reads the result of an atomic or
    waits for a value, may be a lock, a flag or a counter: others may wait for it.
    """
    function = provenance.slices.function
    asked = {
        provenance.slices.address(instruction).pointers
        for instruction in function.instructions
        if _waits(instruction.opcode)
    }
    for access in listed:
        if _result_is_read(access, function):
            asked |= _arrays(access, provenance)
    return [
        access
        for access in listed
        if not _SWAP.search(access.opcode) and not asked & _arrays(access, provenance)
    ]


def _waits(opcode: str) -> bool:
    """Whether it reads what other blocks may be writing just now."""
    return opcode.startswith(_ASKING) and ".shared" not in opcode


def _arrays(access: Access, provenance: Provenance) -> set[frozenset[str]]:
    each = provenance.instructions(access)
    return {provenance.slices.address(instruction).pointers for instruction in each}


def _ordered(
    compiled: Compiled, sums: Sequence[Access], provenance: Provenance, sass: Function | None
) -> Iterator[Finding]:
    """Orders of memory that nobody asks of a mere sum."""
    ordered = [access for access in sums if _is_ordered(access)]
    if not ordered:
        return
    count = sum(access.count for access in ordered)
    many = count > 1 or any(access.loop_depth for access in ordered)
    severity: Severity = "medium" if many else "low"
    worst = max(ordered, key=lambda access: access.count)
    lines = {i.line for access in ordered for i in provenance.instructions(access)}
    # Only Triton orders by default; in CUDA C++ somebody asked for it.
    triton = worst.source is not None and worst.source.file.endswith(".py")
    order = _order(worst) + (", Triton's default" if triton else "")
    relax = "Pass sem='relaxed'" if triton else "Ask for relaxed order"
    yield Finding(
        severity,
        f"{count} atomic{'s'[: count > 1]} at {_lines(ordered)} whose result nobody reads "
        f"order{'s'[: count == 1]} all memory around {'them' if count > 1 else 'it'} ({order})",
        f"{relax} where only the sum matters, and no other block waits for it",
        f"{_counted(ordered)} in PTX{_fences_shown(compiled, lines, sass)}",
        worst.source,
    )


def _lines(listed: Iterable[Access]) -> str:
    sources = {access.source for access in listed}
    ordered = sorted(sources, key=lambda source: (source.file, source.line) if source else ("", 0))
    return " and ".join(map(where, ordered))


def _counted(listed: Iterable[Access]) -> str:
    counts = Counter[str]()
    for access in listed:
        counts[access.opcode] += access.count
    return " + ".join(f"{count} × {opcode}" for opcode, count in counts.most_common())


def _fences_shown(compiled: Compiled, lines: Collection[int], sass: Function | None) -> str:
    """What the order costs in SASS, and what is left if these lines of the PTX are relaxed."""
    if sass is None or not compiled.ptx:
        return ""
    before = _fences(sass.instructions)
    relaxed = replace(compiled, ptx=_relaxed(compiled.ptx, lines), cubin=None, notes=())
    try:
        after = code_of(relaxed).sass
    except TraceviewError:
        after = None
    said = f"; {before} fences and cache invalidations (MEMBAR, CCTL) in SASS"
    if after is None:
        return said
    return f"{said}, {_fences(after.instructions)} of them once assembled with .relaxed instead"


def _fences(instructions: Iterable[Instruction]) -> int:
    return sum(instruction.opcode.startswith(_FENCES) for instruction in instructions)


def _relaxed(ptx: str, lines: Collection[int]) -> str:
    """The text with the atomics of these lines, numbered from 1, relaxed."""
    return "\n".join(
        _ORDERED.sub(r"\1.relaxed", text) if number in lines else text
        for number, text in enumerate(ptx.split("\n"), 1)
    )


def _is_ordered(access: Access) -> bool:
    return bool(_ORDERED.search(access.opcode))


def _order(access: Access) -> str:
    found = _ORDERED.search(access.opcode)
    return found[2] if found else ""


def _result_is_read(access: Access, function: Function) -> bool:
    wanted = {name for i in function.instructions for name in reads(i)}
    same = (i for i in function.instructions if i.opcode == access.opcode)
    here = (i for i in same if i.source == access.source)
    return any(name in wanted for instruction in here for name in results(instruction))


def _system_wide(source: SourceLine | None, listed: Sequence[Access]) -> Iterator[Finding]:
    wide = [access for access in listed if access.scope == "sys"]
    if wide:
        yield Finding(
            "low",
            f"The atomics at {where(source)} hold for the CPU and other GPUs, too (scope sys)",
            "Pass scope='gpu' where only this GPU touches the data meanwhile: likely faster",
            f"{sum(a.count for a in wide)} × {wide[0].opcode} in PTX; .gpu is the default",
            source,
        )


def _emulated(
    source: SourceLine | None, listed: Sequence[Access], accesses: Sequence[Access]
) -> Iterator[Finding]:
    """An atomic that the GPU does not have: ptxas writes a loop of compare-and-swap."""
    swaps = [
        access
        for access in accesses
        if access.level == "sass" and access.source == source and ".CAS" in access.opcode
    ]
    if source is None or not swaps or any(".cas" in access.opcode for access in listed):
        return
    count = sum(access.count for access in swaps)
    yield Finding(
        "medium",
        f"The GPU has no such atomic as {listed[0].opcode}: at {where(source)} each becomes a "
        "loop of compare-and-swap, which repeats whenever another thread was faster",
        "Let neighbouring elements go in one instruction, or sum in fp32",
        f"{count} × {swaps[0].opcode} in SASS",
        source,
    )


def _contended(
    compiled: Compiled,
    source: SourceLine | None,
    listed: Sequence[Access],
    provenance: Provenance,
) -> Iterator[Finding]:
    """Sums of all blocks at one address. What depends on loaded data cannot be told."""
    if not listed:
        return
    origin = together(provenance.address(access) for access in listed)
    blocks = math.prod(compiled.grid) if compiled.grid else None
    varies = origin.per_thread or origin.per_block or origin.loaded
    if blocks == 1 or varies:
        return
    each = f"all {blocks:,} blocks" if blocks else "all blocks"
    yield Finding(
        "low",
        f"The atomics at {where(source)} of {each} go to the same address, one after the other",
        "Let each block write a partial result of its own and sum these in a second kernel, if "
        "there are many blocks: likely faster, and the same in every run",
        "the address depends on neither the thread nor the block",
        source,
    )
