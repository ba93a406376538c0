"""Shared memory: bank conflicts, needless trips through it in loops, and early waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.base.findings import Severity
from traceview.base.records import record
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.recompilations import Outcome
from traceview.kernels.inspect.rules import remedies
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.inspect.rules.remedies import Remedy
from traceview.kernels.inspect.rules.shared_arrays import array_conflict
from traceview.kernels.ptx.accesses import COPIES, AsyncWait, async_waits
from traceview.kernels.ptx.instruction_mix import instruction_mix
from traceview.kernels.ptx.model import Access, RequestCost
from traceview.kernels.ptx.ttgir import operations

_POOR, _BAD = 2.0, 4.0
_MINOR_SHARE = 0.25
_CONFLICTS = Diagnosis(
    "Bank conflicts: shared-memory accesses[ of {array}] at {line} take {wavefronts_per_request} "
    "wavefronts per request instead of {ideal_wavefronts_per_request}[ ({ways}-way): neighbouring "
    "threads are {stride_words:word} of 4 bytes apart]",
    "Load and store the tile along the same axis, or use another tile shape or num_warps, so that "
    "Triton lays shared memory out differently",
)
# A copy too narrow for whole rows of banks is told with the cause of its width.
_COPY_CONFLICTS = replace(_CONFLICTS, explained_by=("narrow_global_accesses",))
_PAD = (
    "Pad each row of the shared array by one element, or exchange the column for column ^ row on "
    "both sides"
)
_PAD_ROWS = (
    "Pad each row of the shared array by 16 bytes: tiles of matrix products (wmma, ldmatrix) are "
    "read and written by rows that begin at a multiple of that"
)
_OF_TILES = ("wmma.load", "wmma.store", "ldmatrix", "stmatrix")
_REDUCTIONS: dict[operations.Purpose, Diagnosis] = {
    "pick": Diagnosis(
        "{reductions:reduction} in {reductions?the innermost loop|innermost loops}, at {places}, "
        "{reductions?picks|pick} one element of a block, but {reductions?combines|combine} all "
        "warps through shared memory in each iteration[ ({barriers:barrier})]",
        "Load the one value in the loop with a scalar tl.load(pointer + index), without tl.where "
        "and tl.sum: it is in the cache",
        "medium",
    ),
    "accumulation": Diagnosis(
        "{reductions:reduction} in {reductions?the innermost loop|innermost loops}, at {places}, "
        "only {reductions?adds|add} to what the loop accumulates, but "
        "{reductions?combines|combine} all warps through shared memory in each iteration[ "
        "({barriers:barrier})]",
        "Accumulate the whole block element by element in the loop, and reduce it once after the "
        "loop",
    ),
    "result": Diagnosis(
        "{reductions:reduction} in {reductions?the innermost loop|innermost loops}, at {places}, "
        "{reductions?combines|combine} all warps through shared memory in each iteration[ "
        "({barriers:barrier})], whose result is that iteration's own",
        "Take several iterations at once in a tile of two axes, iterations by elements, so that a "
        "warp reduces rows of its own and more loads are in flight, if no iteration loads what one "
        "before it stored; or use fewer warps (num_warps), so that the reduced axis is within one",
    ),
}
# Less is one instruction per thread of four warps.
_LEAST_BYTES = 2048
_CONVERSIONS = Diagnosis(
    "{conversions:layout conversion} in the hottest loop, at {places}, {conversions?moves|move} "
    "{size_bytes} per iteration and block through shared memory",
    "Move the conversion out of the loop, or let both sides use the tensor along the same axis, so "
    "that they have one layout",
)
_SERIAL_COPIES = Diagnosis(
    "The hottest loop waits at {line} for {kind} copies that it has just started: nothing in the "
    "block overlaps them",
    "Start the copy of the next tile before this tile is used, into another buffer",
    then=", and measure it",
    explained_by=("waiting_operands",),
)

_BY_STAGES = "Use more stages (num_stages), as far as shared memory suffices"


@record
class _Passes:
    """Wavefronts taken by shared accesses in one pass of the innermost loop, and those needed."""

    needed: float
    taken: float

    @property
    def factor(self) -> float:
        return self.taken / self.needed if self.needed else 1.0


def bank_conflicts(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Shared accesses that take at least twice the wavefronts because of bank conflicts.

    Reported for the innermost loop that uses shared memory, if conflicts cause a quarter of its
    wavefronts or more.
    """
    listed = _innermost(kernel.accesses_with_costs)
    conflicting = [access for access in listed if _passes([access]).factor >= _POOR]
    if not conflicting:
        return
    every, these = _passes(listed), _passes(conflicting)
    if these.taken - these.needed < _MINOR_SHARE * every.taken:
        return

    def halved(outcome: Outcome) -> _Passes | None:
        """The wavefronts with a larger num_warps, if its other layout halves the excess."""
        costs = outcome.request_costs
        shared = [a for a in outcome.ptx_accesses if a.space == "shared" or a.kind == "async-copy"]
        now = _passes(_innermost([replace(a, cost=costs.cost(a)) for a in shared]))
        return now if now.factor - 1 <= (every.factor - 1) / 2 else None

    # What a reduction exchanges is not laid out by the program: the finding on it says what helps.
    reduced = {r.source for r in operations.warp_reductions(kernel.ttgir)} if kernel.ttgir else ()
    tries = remedies.tested_remedies(remedies.more_warps(kernel.compiled), kernel.trials, halved)
    worst = max(conflicting, key=lambda access: _passes([access]).taken)
    array = array_conflict(kernel, worst)
    cost = array.cost if array else worst.cost or RequestCost()
    ways = _passes([replace(worst, cost=cost)]).factor
    basis = f"addresses in PTX of {worst.count} × {worst.opcode} at loop depth {worst.loop_depth}"
    advised = ""
    for best in tries[:1]:
        advised = remedies.actions_in_words([best.remedy])
        waves = f"{best.after.taken:.0f} wavefronts, {best.after.needed:.0f} without conflicts"
        basis += f"; recompiled with {best.remedy.change.description}: {waves}"
    yield CodeClaim(
        _COPY_CONFLICTS if worst.kind == "async-copy" else _CONFLICTS,
        {
            "line": line_name(worst.source),
            "wavefronts_per_request": cost.wavefronts,
            "ideal_wavefronts_per_request": cost.ideal_wavefronts,
            "ways": round(ways) if ways == round(ways) else ways,
            "array": array.name if array else None,
            "stride_words": array.stride_bytes // 4 if array else None,
            "instructions": sum(access.count for access in conflicting),
            "shared_wavefronts": every.taken,
            "ideal_shared_wavefronts": every.needed,
        },
        basis,
        worst.source,
        severity=_severity(
            kernel,
            worst,
            costly=every.factor >= _POOR and ways >= _BAD and worst.source not in reduced,
        ),
        remedy=advised
        or (_PAD_ROWS if kernel.compiled.is_cuda(worst.source) and _moves_tiles(kernel) else "")
        or (
            f"Declare it {array.padded}, so that its rows start in different banks"
            if array and array.padded
            else ""
        )
        or (_PAD if kernel.compiled.is_cuda(worst.source) else ""),
    )


def _moves_tiles(kernel: KernelContext) -> bool:
    """Whether CUDA C++ moves tiles of matrix products through shared memory, row by row."""
    code = kernel.code.ptx.instructions if kernel.code.ptx else ()
    return any(each.opcode.startswith(_OF_TILES) for each in code)


def _severity(kernel: KernelContext, worst: Access, *, costly: bool) -> Severity:
    """Conflicts beside a deeper loop take place once for all of its iterations.

    A loop that polls for a barrier is none of the mix.
    """
    loops = kernel.ptx_mix.loops if kernel.ptx_mix else ()
    if worst.loop_depth < max((loop.depth for loop in loops), default=0):
        return "info"
    return "medium" if costly else "low"


def _innermost(accesses: Sequence[Access]) -> list[Access]:
    known = [a for a in accesses if a.cost and a.cost.wavefronts]
    deepest = max((access.loop_depth for access in known), default=0)
    return [access for access in known if access.loop_depth == deepest]


def _passes(accesses: Sequence[Access]) -> _Passes:
    costs = [(a.count, a.cost) for a in accesses if a.cost]
    return _Passes(
        sum(count * (cost.ideal_wavefronts or 0) for count, cost in costs),
        sum(count * (cost.wavefronts or 0) for count, cost in costs),
    )


def reductions_in_loops(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Blocks reduced to pick one element, to accumulate, or for a result, in each iteration."""
    by_purpose: dict[operations.Purpose, list[operations.WarpReduction]] = defaultdict(list)
    for reduction in operations.warp_reductions(kernel.ttgir) if kernel.ttgir else ():
        by_purpose[reduction.purpose].append(reduction)
    code = kernel.code.ptx.instructions if kernel.code.ptx else ()
    for purpose, says in _REDUCTIONS.items():
        same = by_purpose[purpose]
        lines = list(dict.fromkeys(reduction.source for reduction in same))
        barriers = [i for i in code if i.opcode.startswith("bar") and i.loop_depth > 0]
        here = [i for i in barriers if i.source and i.source in lines]
        if same:
            yield CodeClaim(
                says,
                {"reductions": len(same), "barriers": len(here), "proven": True},
                "TTGIR: the reduced axis is spread over several warps",
                lines[0],
                lines,
                severity="medium"
                if purpose != "result" and any(each.is_scalar for each in same)
                else None,
            )


def layout_conversions_in_loops(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Conversions in the hottest loop, except operands of MMA, which need shared memory."""
    lines = {line.source for line in kernel.mix.lines if line.in_hottest_loop} if kernel.mix else ()
    costly = [
        each
        for each in kernel.layout_conversions
        if each.path == "shared memory" and each.in_deepest_loop and each.source in lines
        if not each.feeds_mma
    ]
    total = sum(each.size_bytes for each in costly)
    if total < _LEAST_BYTES:
        return
    pairs = dict.fromkeys(f"{each.from_layout} → {each.to_layout}" for each in costly)
    yield CodeClaim(
        _CONVERSIONS,
        {"size_bytes": total, "conversions": len(costly)},
        f"TTGIR: {', '.join(pairs)}",
        max(costly, key=lambda each: each.size_bytes).source,
        list(dict.fromkeys(each.source for each in costly)),
    )


def serialized_copies(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Copies in the hottest loop with no arithmetic between their start and the wait for them.

    Other blocks on the SM may still overlap them.
    """
    stages = kernel.compiled.num_stages

    def left(outcome: Outcome) -> int:
        """The copies that still are."""
        waits = async_waits(outcome.function, instruction_mix(outcome.function))
        return len(_serial_copies(waits))

    for wait in _serial_copies(kernel.async_waits)[:1]:
        more = stages + 1 if stages else 0
        deeper = [Remedy(f"use num_stages={more}", Change(num_stages=more))] if more else []
        tries = remedies.tested_remedies(deeper, kernel.trials, left)
        helped = [each for each in tries if each.after == 0]
        yield CodeClaim(
            _SERIAL_COPIES,
            {
                "line": line_name(wait.source),
                "kind": wait.kind,
                "in_flight": wait.in_flight,
                "proven": bool(helped),
            },
            "PTX: no arithmetic between the copies and the wait for all of them"
            + remedies.results_clause(
                helped, tries, lambda _: "copies of the next tile stay in flight"
            ),
            wait.source,
            remedy=_BY_STAGES if stages and not tries else "",
            helped=helped,
        )


def _serial_copies(waits: Iterable[AsyncWait]) -> list[AsyncWait]:
    return [wait for wait in waits if wait.kind in COPIES and wait.is_serial]
