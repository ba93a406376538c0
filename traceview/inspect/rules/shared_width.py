"""Shared memory that is read or written in small pieces, and what makes them larger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.headless.change import Change
from traceview.inspect.kernel_report import Finding, where
from traceview.inspect.rules.remedies import (
    Remedy,
    Tested,
    fewer_stages,
    imperative,
    more_warps,
    tested,
)
from traceview.inspect.sass_vs_ptx import said, widths
from traceview.inspect.trials import Outcome, Trials
from traceview.ptx.model import Access, Compiled, Level

_MANY = 8
_NARROW_BITS = 32


def narrow_shared_findings(
    compiled: Compiled, accesses: Sequence[Access], trials: Trials | None
) -> Iterator[Finding]:
    """In loops only: outside of them a few narrow accesses cost next to nothing."""
    level: Level = "sass" if any(access.level == "sass" for access in accesses) else "ptx"
    narrow = _narrow(access for access in accesses if access.level == level)
    count = sum(access.count for access in narrow)
    if count < _MANY:
        return
    worst = max(narrow, key=lambda access: access.count)

    def left(outcome: Outcome) -> tuple[Access, ...] | None:
        """The accesses of shared memory in loops, if none of them is narrow any more."""
        found = outcome.running if level == "sass" else outcome.written
        return None if _narrow(found) else tuple(a for a in found if _is_in_loop(a))

    tries = tested(_remedies(compiled), trials, left)
    yield Finding(
        "low",
        f"{count} shared-memory accesses in loops move {_NARROW_BITS} bits or less, most of them "
        f"at {where(worst.source)}",
        imperative(tries[:1]) if tries else _likely(narrow, compiled),
        f"{worst.count} × {worst.opcode} at loop depth {worst.loop_depth} in {level.upper()}"
        + (_shown(tries[0]) if tries else _no_help(trials)),
        worst.source,
    )


def _remedies(compiled: Compiled) -> Iterator[Remedy]:
    yield from more_warps(compiled)
    if compiled.num_warps and compiled.num_warps > 1:
        fewer = compiled.num_warps // 2
        yield Remedy(f"use num_warps={fewer}", Change(num_warps=fewer))
    yield from fewer_stages(compiled)


def _narrow(accesses: Iterator[Access] | Sequence[Access]) -> list[Access]:
    return [
        access
        for access in accesses
        if _is_in_loop(access)
        and 0 < (access.width_bits or 0) <= _NARROW_BITS
        and "matrix" not in access.opcode.lower()
        and not access.opcode.startswith(("LDSM", "STSM"))
    ]


def _is_in_loop(access: Access) -> bool:
    return access.space == "shared" and access.kind in ("load", "store") and access.loop_depth > 0


def _shown(best: Tested[tuple[Access, ...]]) -> str:
    rest = said(widths(best.after)) or "none at all: the operands are read by descriptor"
    return f"; recompiled with {best.remedy.change.said}, those in loops are {rest}"


def _no_help(trials: Trials | None) -> str:
    return "; no recompilation with one thing changed helped" if trials and trials.worked else ""


def _likely(narrow: Sequence[Access], compiled: Compiled) -> str:
    if any(access.kind == "load" for access in narrow) and "mma" in (compiled.ptx or ""):
        return (
            "Lay the operand of tl.dot out so that its inner dimension is contiguous: likely the "
            "elements are transposed one by one, as ldmatrix transposes those of 16 bits alone"
        )
    return "Give each thread neighbouring elements of the tile, which likely makes them wider"
