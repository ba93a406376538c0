"""The cycles of one pass of a loop: an estimate from the machine code, not a measurement.

For one warp, the control bits give the least cycles from each instruction to its next. For the
warps of an SM, one of its four schedulers is followed over some passes: per cycle, it issues for
the warp that has waited longest of those whose stall count, scoreboards, barriers, copies and pipe
are ready. Accesses have no bank conflicts, all global loads come from L2, and copies of the TMA are
there when the loop asks for them: what takes longer comes on top.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from traceview.base.records import record
from traceview.kernels.ptx.instruction_mix import LoopMix, Passes
from traceview.kernels.ptx.loops import loop_nest
from traceview.kernels.ptx.model import Function, Instruction, SourceLine
from traceview.kernels.ptx.pipes import (
    BARRIER,
    READ_LATENCY,
    SCHEDULERS,
    PipeUse,
    issue_cycles,
    need_of,
)
from traceview.kernels.ptx.scoreboards import PRODUCTS, Control, closes, named

_PASSES, _SETTLED = 4, 2
MOST_STEPS = 50_000
"""Instructions that are followed per loop; a loop with more of them has no cycles of an SM."""
_TAKEN = 0.85
"""The part of the cycles from which on a pipe is what limits the loop, instead of latency."""


@record
class LoopCycles:
    """The cycles of one pass of an innermost loop, on its path of most cycles.

    A loop inside it that only polls, as for a barrier, has no part in it.

    `warp_cycles` are the least of one warp by itself, `sm_cycles_per_warp` those of an SM with
    `warps_per_sm` for each of them; both None where the block size or a rate is not known. `limit`
    is what takes the latter: issue, a pipe, L2, or latency. `loaded_bytes` are those that a warp
    asks of L2 or DRAM, without copies of the TMA.
    """

    source: SourceLine | None
    instructions: int
    warp_cycles: int
    sm_cycles_per_warp: float | None
    limit: str | None
    warps_per_sm: int | None
    loaded_bytes: int


def loop_cycles(
    function: Function,
    loops: Sequence[LoopMix],
    controls: Sequence[Control],
    capability: str,
    blocks: int = 0,
    warps: int = 0,
) -> Iterator[LoopCycles]:
    """The cycles of the loops without inner loops. `capability` is such as "9.0".

    An SM has so many `blocks` of so many `warps`; 0 where that is not known.
    """
    code, passes = function.instructions, Passes(function)
    innermost = loop_nest(len(code), function.jumps).innermost
    for loop in loops:
        if any(other.instructions < loop.instructions for other in loops):
            continue
        own = [at for at in loop.instructions if innermost[at] == loop.header]
        control = {id(code[at]): controls[at] for at in own}
        path = passes.heaviest((code[at], controls[at].stall_cycles) for at in own)
        needs = [need_of(each, capability, warps or 1) for each in path]
        known = [need for need in needs if need]
        befores = [*path[-1:], *path[:-1]]
        steps = [
            _step(i, control[id(i)], need, issue_cycles(i, before, capability))
            for i, before, need in zip(path, befores, known, strict=False)
        ]
        # A block's warps are spread over the schedulers, those of small blocks over all.
        per_block = max(1, warps // SCHEDULERS)
        shares = [per_block] * math.ceil(blocks * warps / SCHEDULERS / per_block)
        found = _of_sm(steps, shares) if shares and None not in needs else None
        yield LoopCycles(
            loop.source,
            len(path),
            sum(control[id(instruction)].stall_cycles for instruction in path),
            found[0] / blocks / warps if found else None,
            found[1] if found else None,
            blocks * warps if found else None,
            sum(need.l2_bytes for need in known),
        )


@record
class _Step:
    """An instruction of a pass. `issue` are the cycles that its scheduler issues nothing else.

    `blocking` are the pipes of which one must be free. `sets` are the scoreboards that its result
    frees, `reads` those that it frees once its operands are read.

    `ends` has the scoreboard of the group, of copies or products, that ends with it. `leaves` has
    how many groups of a scoreboard may be under way when it issues.
    """

    need: PipeUse
    issue: int
    blocking: tuple[str, ...]
    stall: int
    sets: frozenset[int]
    reads: frozenset[int]
    waits: frozenset[int]
    ends: frozenset[int]
    leaves: tuple[tuple[int, int], ...]


def _step(instruction: Instruction, control: Control, need: PipeUse, issue: int) -> _Step:
    ends = closes(instruction) or (instruction.opcode == "LDGDEPBAR" and control.sets)
    blocking = () if need.queued else need.pipes
    stall = max(1, control.stall_cycles)
    leaves = tuple(named(instruction).items())
    sets = control.sets - control.reads
    ends = ends or frozenset()
    return _Step(need, issue, blocking, stall, sets, control.reads, control.waits, ends, leaves)


def _of_sm(steps: Sequence[_Step], shares: Sequence[int]) -> tuple[float, str] | None:
    """The cycles of a pass of all warps, and what takes them."""
    warps = sum(shares)
    if _PASSES * len(steps) * warps > MOST_STEPS:
        return None
    taken = defaultdict[str, float](float, {"issue": sum(step.issue for step in steps)})
    # What one pipe alone can do first.
    for need in sorted((step.need for step in steps), key=lambda need: len(need.pipes)):
        if need.pipes:
            taken[min(need.pipes, key=lambda name: taken[name])] += need.cycles
    taken["L2"] = sum(step.need.l2_cycles for step in steps)
    most = max(taken, key=lambda name: taken[name])
    # Nothing may wait for what a pipe does, so that it falls behind.
    cycles = max(_Scheduler(steps, shares).cycles(), warps * taken[most])
    return cycles, most if warps * taken[most] >= _TAKEN * cycles else "latency"


class _Warp:
    """A warp: where it is, from when on it can issue, and until when its results are under way."""

    def __init__(self, block: int) -> None:
        self.block, self.at, self.passes = block, 0, 0
        self.issued, self.ready = -1.0, 0.0
        # Damaged code names more scoreboards than there are.
        self.boards = defaultdict[int, float](float)
        self.copied = 0.0
        self.groups: dict[int, list[float]] = defaultdict(list)


class _Scheduler:
    def __init__(self, steps: Sequence[_Step], shares: Sequence[int]) -> None:
        self._steps, self._shares = steps, shares
        self._warps = [_Warp(block) for block, share in enumerate(shares) for _ in range(share)]
        self._free = defaultdict[str, float](float)
        self._waiting: dict[int, list[_Warp]] = defaultdict(list)
        self._ends = [0.0] * (_PASSES + 1)

    def cycles(self) -> float:
        """The cycles of a pass of all warps, once they have settled."""
        now, running = 0.0, self._warps
        while running:
            # Since warps are many, their pipes are looked up in place.
            ready = [
                max(w.ready, min([self._free[pipe] for pipe in self._steps[w.at].blocking] or [0]))
                for w in running
            ]
            now = max(now, min(ready))
            able = (w for w, at in zip(running, ready, strict=True) if at <= now)
            first = min(able, key=lambda w: w.issued)
            busy = self._steps[first.at].issue
            self._issue(first, now)
            now += busy
            running = [w for w in running if w.passes < _PASSES]
        return (self._ends[_PASSES] - self._ends[_SETTLED]) / (_PASSES - _SETTLED)

    def _issue(self, warp: _Warp, now: float) -> None:
        step = self._steps[warp.at]
        warp.issued = now
        if step.need.pipes == (BARRIER,):
            waiting = self._waiting[warp.block]
            waiting.append(warp)
            warp.ready = math.inf
            if len(waiting) == self._shares[warp.block]:
                for each in waiting:
                    self._go_on(each, now + step.need.latency)
                waiting.clear()
            return
        read, done = self._done(step.need, now)
        for boards, at in ((step.reads, read), (step.sets, done)):
            for board in boards:
                warp.boards[board] = max(warp.boards[board], at)
        if step.need.copies:
            warp.copied = max(warp.copied, done)
        for board in step.ends:
            warp.groups[board].append(done if board == PRODUCTS else warp.copied)
        self._go_on(warp, now + step.stall)

    def _done(self, need: PipeUse, now: float) -> tuple[float, float]:
        """When the operands are read, and when the result is there; takes the pipe."""
        begin = now
        if need.pipes:
            pipe = min(need.pipes, key=lambda name: self._free[name])
            begin = max(now, self._free[pipe])
            self._free[pipe] = begin + need.cycles
        read = begin + need.cycles + READ_LATENCY
        if need.l2_bytes:
            begin = max(begin, self._free["L2"])
            self._free["L2"] = begin + need.l2_cycles
        return read, begin + need.cycles + need.latency

    def _go_on(self, warp: _Warp, at: float) -> None:
        warp.at += 1
        if warp.at == len(self._steps):
            warp.at, warp.passes = 0, warp.passes + 1
            self._ends[warp.passes] = max(self._ends[warp.passes], at)
        step = self._steps[warp.at]
        until = [warp.boards[board] for board in step.waits]
        for board, left in step.leaves:
            until += warp.groups[board][: -left or None][-1:]
        warp.ready = max(at, *until) if until else at
