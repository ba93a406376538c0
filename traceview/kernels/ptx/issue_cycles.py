"""The least cycles of one pass of a loop: an estimate from the machine code, not a measurement.

For one warp, the control bits give the least cycles from each instruction to its next. For the
warps of an SM, each of its four schedulers issues one instruction per cycle, and a pipe needs
32 ÷ its lanes cycles per warp. Waits for scoreboards (memory, shared memory, tensor cores) and
instruction fetches come on top.

Lanes per SM: CUDA C++ Programming Guide, throughput of arithmetic instructions, as in
`hardware.lanes_of`; special functions: 4 units per scheduler, by the whitepapers of Volta (GV100),
Turing, Ampere, Ada and Hopper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from traceview.base.hardware import lanes_of
from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.instruction_mix import LoopMix, Passes, class_of
from traceview.kernels.ptx.loops import loop_nest
from traceview.kernels.ptx.model import Function, SourceLine
from traceview.kernels.ptx.scoreboards import Control

_SCHEDULERS = 4
_SPECIAL_FUNCTIONS = dict.fromkeys(("7.0", "7.5", "8.0", "8.6", "8.9", "9.0"), 16)


@record
class LoopCycles:
    """The least cycles of one pass of an innermost loop, on its path of most cycles.

    A loop inside it that only polls, as for a barrier, has no part in it.

    `warp_cycles` are those of one warp by itself, `sm_cycles_per_warp` those of an SM for each warp
    on it, None for a loop with matrix products. `limit` is what takes the latter: issue, fp32,
    fp64 or special function.
    """

    source: SourceLine | None
    instructions: int
    warp_cycles: int
    sm_cycles_per_warp: float | None
    limit: str | None


def loop_cycles(
    function: Function, loops: Sequence[LoopMix], controls: Sequence[Control], capability: str
) -> Iterator[LoopCycles]:
    """The cycles of the loops without inner loops. `capability` is such as "9.0"."""
    code, passes = function.instructions, Passes(function)
    innermost = loop_nest(len(code), function.jumps).innermost
    for loop in loops:
        if any(other.instructions < loop.instructions for other in loops):
            continue
        own = [at for at in loop.instructions if innermost[at] == loop.header]
        stalls = {id(code[at]): controls[at].stall_cycles for at in own}
        path = passes.heaviest((code[at], stalls[id(code[at])]) for at in own)
        classes = Counter(class_of(instruction, function.level) for instruction in path)
        cycles = _sm_cycles(len(path), classes, capability)
        limit = None if classes["MMA"] else max(cycles, key=lambda name: cycles[name])
        yield LoopCycles(
            loop.source,
            len(path),
            sum(stalls[id(instruction)] for instruction in path),
            cycles[limit] if limit else None,
            limit,
        )


def _sm_cycles(
    instructions: int, classes: Mapping[str, int], capability: str
) -> Mapping[str, float]:
    """The cycles of an SM for one warp, by what takes them, as far as rates are published."""
    lanes = {
        "fp32": lanes_of(capability),
        "fp64": lanes_of(capability, "fp64"),
        "special function": _SPECIAL_FUNCTIONS.get(capability),
    }
    pipes = {name: WARP_THREADS * classes[name] / n for name, n in lanes.items() if n}
    return {"issue": instructions / _SCHEDULERS, **pipes}
