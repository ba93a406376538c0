"""Bytes and FLOP by counting in the PTX of kernels that run straight through, without a loop.

Every thread of such a kernel executes its instructions once, but for what is predicated off at the
edge of the data. Counted are the bytes that threads ask device memory for, which caches may
answer, and the FLOP of add, mul and fma as Nsight Compute counts them; what the hardware does for
a division or a tanh is left out. A kernel that loops, calls, chooses between branches, or copies
in bulk is left out as a whole, as are kernels of which several variants that differ were launched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceview.errors import TraceviewError
from traceview.facts.code.gathered import LaunchedCode, gathered_code
from traceview.facts.work.estimate import KINDS, Part
from traceview.ptx.accesses import accesses, tensor_ops
from traceview.ptx.model import Function
from traceview.ptx.opcodes import words
from traceview.toolchain.listings import code_of
from traceview.trace import Trace

_ON_CHIP = {"shared", "local"}
_FLOP = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
_LANES = {
    "f64": ("fp64", 1),
    "f32": ("fp32", 1),
    "f32x2": ("fp32", 2),
    **dict.fromkeys(("f16", "bf16"), ("fp16-lanes", 1)),
    **dict.fromkeys(("f16x2", "bf16x2"), ("fp16-lanes", 2)),
}


@dataclass(frozen=True)
class Count:
    """What one thread does."""

    bytes: float
    flop: float
    kind: str | None


def from_code(trace: Trace) -> Part | None:
    """What the code in the trace says of each kernel; None where there is none."""
    if not len(trace.recorded("kernel_code")):
        return None
    kernels = trace.recorded("kernels")
    names = kernels.texts("name")
    part = Part.unknown(len(kernels))
    threads = np.ones(len(kernels))
    for side in (f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"):
        threads *= kernels[side]
    for name, count in _counts(trace):
        rows = np.flatnonzero(names.isin([name]))
        part.bytes[rows], part.flop[rows] = count.bytes * threads[rows], count.flop * threads[rows]
        part.kind[rows] = KINDS.index(count.kind) if count.kind else -1
    return part


def _counts(trace: Trace) -> Iterator[tuple[str, Count]]:
    code = gathered_code(trace)
    of_name: dict[str, list[LaunchedCode]] = {}
    for launched in code.launched:
        of_name.setdefault(launched.compiled.name, []).append(launched)
    for name, variants in of_name.items():
        counts = {_count(variant) for variant in variants}
        only = counts.pop()
        if only is not None and not counts and name not in code.unfit:
            yield name, only


def _count(launched: LaunchedCode) -> Count | None:
    try:
        function = code_of(launched.compiled, sass=False).ptx
    except TraceviewError:
        return None
    return count(function) if function else None


def count(function: Function) -> Count | None:
    """What a thread does in a function without loops; None if that cannot be told."""
    moved = [access for access in accesses(function) if access.space not in _ON_CHIP]
    # Textures and generic addresses: nobody knows how much of it is device memory.
    bits = [a.width_bits * a.count for a in moved if a.width_bits and a.space == "global"]
    if not _straight(function) or tensor_ops(function) or len(bits) < len(moved):
        return None
    flop: dict[str, float] = {}
    for instruction in function.instructions:
        root, _ = opcode = words(instruction.opcode)
        type_ = opcode.types[-1] if opcode.types else ""
        if root in _FLOP and type_ in _LANES:
            kind, lanes = _LANES[type_]
            flop[kind] = flop.get(kind, 0) + _FLOP[root] * lanes
    most = max(flop, key=lambda kind: flop[kind]) if flop else None
    return Count(sum(bits) / 8, sum(flop.values()), most)


def _straight(function: Function) -> bool:
    """Whether no thread comes to an instruction twice, or may choose another way than out."""
    roots = [words(i.opcode).root for i in function.instructions]
    branches = [root for root in roots if root in {"bra", "brx", "call"}]
    looped = any(i.loop_depth for i in function.instructions)
    return not looped and "call" not in branches and "brx" not in branches and len(branches) <= 1
