"""Shared memory accessed 32 bits or less at a time in loops, and what widens the accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.findings import Evidence, Finding
from traceview.headless.change import Change
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import line_name, subject_of
from traceview.inspect.recompilations import Outcome, Recompilations
from traceview.inspect.rules.advice import Advice
from traceview.inspect.rules.remedies import (
    Remedy,
    Tested,
    fewer_stages,
    imperative,
    more_warps,
    tested_remedies,
)
from traceview.inspect.sass_vs_ptx import widths, widths_text
from traceview.ptx.model import Access, Compiled, Level
from traceview.ptx.ttgir.reductions import scalar_reduction_lines
from traceview.units import Value

_MANY = 8
_NARROW_BITS = 32


def narrow_shared_accesses(kernel: KernelContext) -> Iterator[Advice]:
    """Many narrow accesses of shared memory in loops; outside of loops they cost little.

    Exchanges of a reduction to a scalar are left out, as each warp has only one value.
    """
    compiled, trials = kernel.compiled, kernel.trials
    exchanges = scalar_reduction_lines(kernel.ttgir) if kernel.ttgir else frozenset()
    accesses = [access for access in kernel.accesses if access.source not in exchanges]
    level: Level = "sass" if any(access.level == "sass" for access in accesses) else "ptx"
    narrow = _narrow(access for access in accesses if access.level == level)
    count = sum(access.count for access in narrow)
    if count < _MANY:
        return
    worst = max(narrow, key=lambda access: access.count)

    def left(outcome: Outcome) -> tuple[Access, ...] | None:
        """The accesses of shared memory in loops; None if any of them is still narrow."""
        remaining = outcome.sass_accesses if level == "sass" else outcome.ptx_accesses
        remaining = tuple(access for access in remaining if access.source not in exchanges)
        return None if _narrow(remaining) else tuple(a for a in remaining if _is_in_loop(a))

    tries = tested_remedies(_remedies(compiled), trials, left)
    values: dict[str, Value] = {
        "instructions": count,
        "width_bits": _NARROW_BITS,
        "line": line_name(worst.source),
        "loop_depth": worst.loop_depth,
        "proven": bool(tries),
    }
    basis = f"{worst.count} × {worst.opcode} at loop depth {worst.loop_depth} in {level.upper()}"
    finding = Finding(
        "low",
        "{instructions:shared-memory access|shared-memory accesses} in loops move "
        "{width_bits:bit} or less per thread, mostly at {line}",
        imperative(tries[:1]) if tries else _likely(worst, compiled),
        subject=subject_of(worst.source, compiled),
        evidence=Evidence(values, basis=basis + (_shown(tries[0]) if tries else _no_help(trials))),
    )
    remedies = tuple(each.remedy for each in tries[:1])
    yield Advice(finding, remedies, _likely(worst, compiled))


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
    rest = widths_text(widths(best.after)) or "gone: the operands are read by descriptor"
    return f"; recompiled with {best.remedy.change.description}: those in loops are {rest}"


def _no_help(trials: Recompilations | None) -> str:
    return "; no recompilation helped" if trials and trials.any_compiled else ""


def _likely(worst: Access, compiled: Compiled) -> str:
    if worst.kind == "load" and "mma" in (compiled.ptx or ""):
        return (
            "Lay out the operand of tl.dot so that its inner dimension is contiguous: ldmatrix "
            "transposes 16-bit elements only, so wider ones are likely transposed one by one"
        )
    return "Give each thread adjacent elements of the tile, which likely widens the accesses"
