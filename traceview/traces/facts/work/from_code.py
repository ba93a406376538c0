"""Bytes and FLOP counted in the PTX of kernels without loops.

Every thread of such a kernel executes each instruction once, except where it is predicated off at
the edge of the data. The count has the bytes that threads request from device memory, which caches
may serve, and the FLOP of add, mul and fma as Nsight Compute counts them, without the instructions
behind a division or a tanh. Kernels that loop, call, branch or copy in bulk are left out, and so
are kernels that were launched in several variants of different work.
"""

from __future__ import annotations

import numpy as np

from traceview.base.errors import TraceviewError
from traceview.base.records import record
from traceview.kernels.ptx import accesses, lexer, model
from traceview.kernels.toolchain.listings import code_of
from traceview.traces.facts.code import gathered_code
from traceview.traces.facts.work.peaks import KINDS, WorkEstimate
from traceview.traces.trace import Trace

_ON_CHIP = {"shared", "local"}
_FLOP = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
_LANES = {
    "f64": ("fp64", 1),
    "f32": ("fp32", 1),
    "f32x2": ("fp32", 2),
    **dict.fromkeys(("f16", "bf16"), ("fp16-lanes", 1)),
    **dict.fromkeys(("f16x2", "bf16x2"), ("fp16-lanes", 2)),
}


@record
class ThreadWork:
    """Bytes requested and FLOP executed by one thread; `kind` is the commonest kind of FLOP."""

    bytes: float
    flop: float
    kind: str | None


def from_code(trace: Trace) -> WorkEstimate:
    """The work of each kernel by its code in the trace."""
    kernels = trace.recorded("kernels")
    names = kernels.texts("name")
    estimate = WorkEstimate.unknown(len(kernels))
    threads = np.ones(len(kernels))
    for side in (f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"):
        threads *= kernels[side]
    code = gathered_code(trace)
    variants_of: dict[str, set[ThreadWork | None]] = {}
    for launched in code.launched:
        try:
            function = code_of(launched.compiled, sass=False).ptx
        except TraceviewError:
            function = None
        work = thread_work(function) if function else None
        variants_of.setdefault(launched.compiled.name, set()).add(work)
    for name, different in variants_of.items():
        work = different.pop()
        if work is not None and not different and name not in code.unfit:
            rows = np.flatnonzero(names.isin([name]))
            estimate.bytes[rows] = work.bytes * threads[rows]
            estimate.flop[rows] = work.flop * threads[rows]
            estimate.kind[rows] = KINDS.index(work.kind) if work.kind else -1
    return estimate


def thread_work(function: model.Function) -> ThreadWork | None:
    """The work of a thread in a function without loops; None if that cannot be known."""
    roots = [lexer.words(instruction.opcode).root for instruction in function.instructions]
    branches = [root for root in roots if root in {"bra", "brx", "call"}]
    looped = any(instruction.loop_depth for instruction in function.instructions)
    # At most one branch, which is an early exit.
    if looped or branches not in ([], ["bra"]) or accesses.tensor_ops(function):
        return None
    moved = [access for access in accesses.accesses(function) if access.space not in _ON_CHIP]
    # Of textures and generic addresses it is unknown how much goes to device memory.
    bits = [a.width_bits * a.count for a in moved if a.width_bits and a.space == "global"]
    if len(bits) < len(moved):
        return None
    flop: dict[str, float] = {}
    for instruction in function.instructions:
        root, _ = opcode = lexer.words(instruction.opcode)
        type_ = opcode.types[-1] if opcode.types else ""
        if root in _FLOP and type_ in _LANES:
            kind, lanes = _LANES[type_]
            flop[kind] = flop.get(kind, 0) + _FLOP[root] * lanes
    most = max(flop, key=lambda kind: flop[kind]) if flop else None
    return ThreadWork(sum(bits) / 8, sum(flop.values()), most)
