"""Too much for one thread: spills, serialised wgmma, low occupancy, and what relieves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from traceview.hardware import Limiter, Occupancy
from traceview.inspect.kernel_report import Finding, Severity
from traceview.inspect.rules.local_memory import stack_finding
from traceview.inspect.rules.remedies import (
    Remedy,
    Tested,
    both,
    fewer_registers,
    fewer_stages,
    imperative,
    more_warps,
    one_of_each,
    smaller_tiles,
    tested,
)
from traceview.inspect.trials import Outcome, Trials, serialised
from traceview.ptx.model import Compiled, Function

LOW_OCCUPANCY_PCT = 25.0
_MANY_SPILLED_BYTES = 128
_BY_THEMSELVES = ("wgmma", "tcgen05", "UTC", "HGMMA", "IGMMA", "QGMMA", "BGMMA")
_MOST_REMEDIES = 2
_NO_HELP = "no recompilation helped"
_RELIEF: dict[Limiter, str] = {
    "registers": "Try a smaller tile or more warps, which likely lower the registers of a thread",
    "shared memory": "Try fewer stages or a smaller tile, which likely take less shared memory",
    "blocks": "Try larger blocks of more warps each, which likely raise it",
    "warps": "Try a block whose warps divide those of the SM, which likely raises it",
    "barriers": "Try fewer named barriers in a block, which likely raises it",
}
# ptxas's reasons besides want of registers, and what removes each.
_OTHER_REASONS = {
    "non wgmma instructions": "Leave the accumulator and the operands alone between the products "
    "of a loop: likely something reads or changes them before the wait",
    "xtern call": "Remove the call to another function from the loop: likely that alone does it",
    "function boundary": "Inline the function that the loop calls: likely that alone does it",
}

T = TypeVar("T")


class _Relief(NamedTuple):
    """Occupancy in percent and bytes spilled, after a change."""

    occupancy_pct: float
    spill_bytes: int


def spill_findings(
    compiled: Compiled,
    spill_bytes: int | None,
    stack_bytes: int | None,
    trials: Trials | None,
    ptx: Function | None = None,
) -> Iterator[Finding]:
    """Registers that went to local memory, or arrays that live there. `ptx` is the kernel's."""
    if spill_bytes:
        yield _spills(compiled, spill_bytes, trials)
    elif stack_bytes:
        yield stack_finding(stack_bytes, ptx)


def serialised_findings(compiled: Compiled, trials: Trials | None) -> Iterator[Finding]:
    """wgmma instructions that ptxas makes wait for one another."""
    remarks = serialised(compiled.notes)
    if not remarks:
        return
    tries = _relieved(compiled, trials, lambda outcome: outcome.serialised)
    helped = one_of_each([each for each in tries if each.after == 0], _MOST_REMEDIES)
    many = "s" if len(remarks) > 1 else ""
    yield Finding(
        "high",
        f"The wgmma instructions are serialised ({len(remarks)} remark{many} of ptxas): each waits "
        "for the one before it",
        imperative(helped) if helped else _against(remarks[0]),
        f"{remarks[0]}{_shown(helped, tries, lambda _: 'ptxas no longer says so')}",
    )


def occupancy_findings(
    compiled: Compiled,
    occupancy: Occupancy | None,
    spill_bytes: int | None,
    trials: Trials | None,
    *,
    tensor_cores: str | None = None,
    registers_for_more: int | None = None,
) -> Iterator[Finding]:
    """An SM that holds few warps, or none.

    `tensor_cores` is the operation on these, if any: wgmma and tcgen05 run by themselves, so few
    warps keep them busy. `registers_for_more` is how many registers a thread may have for one
    more block to fit.
    """
    if occupancy is None or occupancy.theoretical_occupancy_pct >= LOW_OCCUPANCY_PCT:
        return
    before = _Relief(occupancy.theoretical_occupancy_pct, spill_bytes or 0)
    remedies = _against_limits(compiled, occupancy, registers_for_more)
    tries = tested(remedies, trials, _relief)
    raised = [each for each in tries if each.after.occupancy_pct > before.occupancy_pct]
    free = [each for each in raised if each.after.spill_bytes <= before.spill_bytes]
    helped = one_of_each(_highest_first(free), _MOST_REMEDIES)
    limiters = " and ".join(occupancy.limiters)
    yield Finding(
        _severity(occupancy, tensor_cores),
        f"A block does not fit on an SM (0 blocks, limited by {limiters}): its launch fails"
        if not occupancy.blocks_per_sm
        else f"Theoretical occupancy is {before.occupancy_pct:.1f} %, limited by {limiters}",
        f"{imperative(helped)}, and time it" if helped else _RELIEF[occupancy.limiter],
        _limits(occupancy)
        + _shown(helped or raised, tries, lambda after: _compared(before, after)),
    )


def _highest_first(raised: Sequence[Tested[_Relief]]) -> list[Tested[_Relief]]:
    return sorted(raised, key=lambda each: -each.after.occupancy_pct)


def _severity(occupancy: Occupancy, tensor_cores: str | None) -> Severity:
    if not occupancy.blocks_per_sm:
        return "high"
    if tensor_cores is None:
        return "medium"
    # Tensor-core kernels hide latency by their own pipeline, and are built to run so.
    return "info" if tensor_cores.startswith(_BY_THEMSELVES) else "low"


def _spills(compiled: Compiled, spill_bytes: int, trials: Trials | None) -> Finding:
    tries = _relieved(compiled, trials, lambda outcome: outcome.spill_bytes)
    less = sorted((each for each in tries if each.after < spill_bytes), key=lambda each: each.after)
    cleared = one_of_each([each for each in less if each.after == 0], _MOST_REMEDIES)
    helped = cleared or less[:1]
    return Finding(
        "high" if spill_bytes >= _MANY_SPILLED_BYTES else "medium",
        f"{spill_bytes:,} bytes of registers a thread are spilled to local memory",
        imperative(helped)
        if helped
        else "Try a smaller tile, more warps or fewer stages, which likely leave a thread less to "
        "hold",
        "the bytes that spill stores write, as in the compiled kernel"
        + _shown(helped, tries, lambda after: f"{spill_bytes:,} → {after:,} bytes spilled"),
    )


def _relieved(
    compiled: Compiled, trials: Trials | None, measure: Callable[[Outcome], int | None]
) -> list[Tested[int]]:
    """Warps and stages, whose change leaves the program as it is; tiles where these do not do."""
    tries = tested(chain(more_warps(compiled), fewer_stages(compiled)), trials, measure)
    if any(each.after == 0 for each in tries):
        return tries
    tries += tested(smaller_tiles(compiled), trials, measure)
    if any(each.after == 0 for each in tries):
        return tries
    return tries + tested(both(compiled), trials, measure)


def _against_limits(
    compiled: Compiled, occupancy: Occupancy, registers: int | None
) -> Iterator[Remedy]:
    if "registers" in occupancy.limiters:
        yield from fewer_registers(registers)
    if "shared memory" in occupancy.limiters:
        yield from fewer_stages(compiled)
    yield from more_warps(compiled)
    yield from smaller_tiles(compiled)


def _relief(outcome: Outcome) -> _Relief | None:
    if outcome.occupancy is None:
        return None
    return _Relief(outcome.occupancy.theoretical_occupancy_pct, outcome.spill_bytes or 0)


def _compared(before: _Relief, after: _Relief) -> str:
    spilled = ""
    if after.spill_bytes != before.spill_bytes:
        spilled = f", {before.spill_bytes:,} → {after.spill_bytes:,} bytes spilled"
    return f"{before.occupancy_pct:.1f} → {after.occupancy_pct:.1f} % occupancy{spilled}"


def _shown(
    helped: Sequence[Tested[T]], tries: Sequence[Tested[T]], compared: Callable[[T], str]
) -> str:
    """What the recompilations showed, to follow what was seen."""
    each = [f"; recompiled with {t.remedy.change.said}: {compared(t.after)}" for t in helped]
    return "".join(each[:_MOST_REMEDIES]) or (f"; {_NO_HELP}" if tries else "")


def _against(remark: str) -> str:
    for reason, action in _OTHER_REASONS.items():
        if reason in remark:
            return action
    return "Try a smaller tile or 8 warps instead of 4, which likely leave registers enough"


def _limits(occupancy: Occupancy) -> str:
    each = ", ".join(f"{name} {blocks}" for name, blocks in occupancy.blocks_by_limit.items())
    return f"blocks per SM that each limit allows: {each}"
