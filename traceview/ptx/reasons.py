"""What to change in a kernel, and what that stands on: findings, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from traceview.hardware import Limiter, Occupancy
from traceview.ptx.causes import WIDE_BITS
from traceview.ptx.kernel_report import SEVERITIES, Difference, Finding
from traceview.ptx.levels import place_of, said, widths
from traceview.ptx.model import Access, Compiled, Level
from traceview.ptx.narrow import narrow_findings, where
from traceview.ptx.provenance import Provenance
from traceview.ptx.trials import Recompile, Trials

LOW_OCCUPANCY_PCT = 25.0
_MANY_SHARED = 8
_MOVES = ("load", "store", "async-copy")
_NARROW_SHARED_BITS = 32
_RELIEF: dict[Limiter, str] = {
    "registers": "Lower the registers a thread needs: a smaller tile, or more warps for it",
    "shared memory": "Lower the shared memory of a block: fewer stages, or a smaller tile",
    "blocks": "Use larger blocks: more warps each",
    "warps": "Choose a block whose warps divide those of the SM",
    "barriers": "Use fewer named barriers in a block",
}


def access_findings(
    compiled: Compiled,
    accesses: Sequence[Access],
    differences: Iterable[Difference],
    provenance: Provenance | None,
    recompile: Recompile | None,
) -> Iterator[Finding]:
    """What can be said of the accesses. `provenance` is None where there is no PTX."""
    if provenance:
        trials = Trials(recompile) if recompile else None
        yield from narrow_findings(compiled, accesses, provenance, trials)
        yield from _dead_lanes(accesses, differences, provenance)
    else:
        yield from _narrow_in_sass(accesses)
    yield from _narrow_shared(accesses)


def resource_findings(
    compiled: Compiled,
    *,
    spill_bytes: int | None,
    stack_bytes: int | None,
    occupancy: Occupancy | None,
    uses_tensor_cores: bool,
) -> Iterator[Finding]:
    """Spills, arrays in local memory, low occupancy, and what ptxas remarked."""
    if spill_bytes:
        yield _spills(spill_bytes)
    elif stack_bytes:
        yield _stack(stack_bytes)
    yield from _serialised(compiled.notes)
    if occupancy:
        yield from _low_occupancy(occupancy, uses_tensor_cores)


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, the worst first; equals stay in their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _narrow_in_sass(accesses: Sequence[Access]) -> Iterator[Finding]:
    """All that SASS alone tells: how many accesses are narrow, not why."""
    wide = [a for a in accesses if a.space == "global" and a.kind in _MOVES and a.width_bits]
    narrow = [access for access in wide if (access.width_bits or 0) < WIDE_BITS]
    if narrow:
        count, total = (sum(a.count for a in listed) for listed in (narrow, wide))
        yield Finding(
            "medium",
            f"{count} of {total} global accesses move less than {WIDE_BITS} bits a thread and "
            f"instruction ({said(widths(narrow))})",
            "Inspect the kernel's PTX or its source to learn why",
            "seen in SASS, which does not tell the cause",
            narrow[0].source,
        )


def _dead_lanes(
    accesses: Sequence[Access], differences: Iterable[Difference], provenance: Provenance
) -> Iterator[Finding]:
    for difference in differences:
        if difference.change != "narrowed":
            continue
        place = (difference.source, difference.kind, difference.space)
        unused = sum(
            provenance.unused_lanes(a)
            for a in accesses
            if a.level == "ptx" and place_of(a) == place
        )
        dead = f"{unused} loaded values are never read" if unused else "likely values unused"
        yield Finding(
            "low",
            f"the {difference.kind} at {where(difference.source)} is narrower in SASS: "
            f"{difference.ptx} become {difference.sass} ({dead})",
            "Load only what is used, so that the remaining lanes can be filled",
            "PTX and SASS of the same line, side by side",
            difference.source,
        )


def _narrow_shared(accesses: Sequence[Access]) -> Iterator[Finding]:
    """In loops only: outside of them a few narrow accesses cost next to nothing."""
    level: Level = "sass" if any(access.level == "sass" for access in accesses) else "ptx"
    narrow = [access for access in accesses if access.level == level and _is_narrow_shared(access)]
    count = sum(access.count for access in narrow)
    if count < _MANY_SHARED:
        return
    worst = max(narrow, key=lambda access: access.count)
    yield Finding(
        "low",
        f"{count} shared-memory accesses in loops move {_NARROW_SHARED_BITS} bits or less, "
        f"most of them at {where(worst.source)}",
        "Give each thread neighbouring elements of the tile, or let tl.dot load them by ldmatrix",
        f"{worst.count} × {worst.opcode} at loop depth {worst.loop_depth} in {level.upper()}",
        worst.source,
    )


def _is_narrow_shared(access: Access) -> bool:
    return (
        access.space == "shared"
        and access.kind in ("load", "store")
        and access.loop_depth > 0
        and 0 < (access.width_bits or 0) <= _NARROW_SHARED_BITS
        and "matrix" not in access.opcode.lower()
        and not access.opcode.startswith("LDSM")
    )


def _spills(spill_bytes: int) -> Finding:
    return Finding(
        "high" if spill_bytes >= 128 else "medium",
        f"{spill_bytes:,} bytes of registers a thread are spilled to local memory",
        "Use a smaller tile or more warps, so that a thread has less to hold; fewer stages help, "
        "too",
        "read from the compiled kernel",
    )


def _stack(stack_bytes: int) -> Finding:
    return Finding(
        "low",
        f"{stack_bytes:,} bytes a thread lie in local memory without a spill: likely an array "
        "indexed at run time",
        "Unroll the loop that indexes the array, so that it can live in registers",
        "the stack frame in the compiled kernel",
    )


def _serialised(notes: Sequence[str]) -> Iterator[Finding]:
    remarks = [note for note in notes if "wgmma" in note and "serializ" in note]
    if remarks:
        yield Finding(
            "high",
            f"wgmma instructions are serialised ({len(remarks)} remark{'s'[: len(remarks) > 1]} of "
            "ptxas): each waits for the one before it",
            "Lower the register pressure: a smaller tile, or 8 warps instead of 4",
            remarks[0],
        )


def _low_occupancy(occupancy: Occupancy, uses_tensor_cores: bool) -> Iterator[Finding]:
    pct = occupancy.theoretical_occupancy_pct
    limiters = " and ".join(occupancy.limiters)
    if not occupancy.blocks_per_sm:
        yield Finding(
            "high",
            f"a block does not fit on an SM (0 blocks, limited by {limiters}): its launch fails",
            _RELIEF[occupancy.limiter],
            _limits(occupancy),
        )
    elif pct < LOW_OCCUPANCY_PCT:
        # Tensor-core kernels hide latency by their own pipeline, and are built to run so.
        yield Finding(
            "low" if uses_tensor_cores else "medium",
            f"theoretical occupancy is {pct:.1f} %, limited by {limiters}",
            _RELIEF[occupancy.limiter],
            _limits(occupancy),
        )


def _limits(occupancy: Occupancy) -> str:
    each = ", ".join(f"{name} {blocks}" for name, blocks in occupancy.blocks_by_limit.items())
    return f"blocks per SM that each limit allows: {each}"
