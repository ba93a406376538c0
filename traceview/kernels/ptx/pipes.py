"""What a SASS instruction takes of an SM: which pipe, for how long, and when its result is there.

All times are cycles of one of the four schedulers; what the four share (load and store, L2) takes
four times as long for each. Per SM and clock:

- fp32, fp64: `hardware.lanes_of`. Special functions and counts of bits: 16 lanes, integers,
  comparison and packing: 64, shared memory and shuffles: 32. One half of the fp32 lanes multiplies
  integers; products with a 64-bit result or its upper half take twice as long, and VIADD counts to
  that pipe, too (`sm__pipe_fma_cycles_active` of an H200). Which pipe: Nsight Compute, Kernel
  Profiling Guide, pipelines.
- An FFMA of sm_90 that fetches three registers keeps its scheduler for two cycles.
- Tensor cores of sm_90: 2048 multiply-adds in 16 bits (Hopper whitepaper), of which mma.sync
  reaches 62.9 % (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
  Microbenchmarking", 2024, arXiv 2402.13499).
- L2: 64 bytes for an SM (NVIDIA, GTC 2020 S21819, for V100 and A100).

Measured on one H200 (driver 580, CUDA 13.0): the lanes, and the latencies of shared memory,
shuffles and special functions, by benchmarks/kernels/issue_rates.cu; the three registers by
benchmarks/kernels/fma_operands.py. Lanes of other GPUs: their whitepapers and the CUDA C++
Programming Guide. From papers, of which the figures were not looked up again:
latencies of L1, L2 and mma.sync, Luo et al., of an H100; a barrier of one warp, Zhang et al., "A
Study of Single and Multi-device Synchronization Methods in Nvidia GPUs" (2020, arXiv 2004.05371),
of a V100. That operands are read as late as a result from shared memory is assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from traceview.base.hardware import lanes_of
from traceview.base.records import frequent_record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.disassembly import access_of
from traceview.kernels.ptx.instruction_mix import class_of
from traceview.kernels.ptx.model import Instruction

SCHEDULERS = 4
TENSOR, BARRIER = "tensor cores", "barrier"
READ_LATENCY = SHARED_LATENCY = 19
SHUFFLE_LATENCY, L1_LATENCY, L2_LATENCY = 22, 41, 262
SPECIAL_LATENCY, BARRIER_LATENCY, MMA_LATENCY = 9, 22, 33

_MMA_SYNC = 0.629
# 16×8 by 32 bytes of k are 2048 multiply-adds of 16 bits, of 512 per clock and scheduler.
_MMA_CYCLES, _MMA_BYTES = 4 / _MMA_SYNC, 16 * 8 * 32
_MMA_SHAPE = re.compile(r"(?P<m>16|8)(?P<n>8)(?P<k>\d{1,3})")
_WGMMA_SHAPE = re.compile(r"64x(?P<n>\d{1,3})x\d{1,3}")
_ELEMENT_BYTES = {"HMMA": 2.0, "IMMA": 1.0, "QMMA": 1.0, "BMMA": 1 / 8, "DMMA": 8.0}
_SPECIAL_LANES = dict.fromkeys(("7.0", "7.5", "8.0", "8.6", "8.9", "9.0"), 16)
_INTEGER_LANES = _HALF_LANES = 64
_REGISTER = re.compile(r"[-|~]*(?P<name>R\d{1,3})(?P<kept>\.reuse)?")
_WAVEFRONT_BYTES, _L2_BYTES = 128, 64
_MULTIPLIES = re.compile(r"IMAD|IMUL|IDP|VIADD$")
_FLOATS = re.compile(r"F(ADD|MUL|FMA|SWZADD)|H(ADD|MUL|FMA)")
_SPECIAL = re.compile(r"MUFU|I2F$|F2I$|F2F$|FRND|POPC|FLO|BREV")
_MEMORY = {"async copy", "shuffle", "barrier", "atomic"}
_FROM_L2 = {"global load", "atomic", "async copy"}


@frequent_record
class PipeUse:
    """The pipe of an instruction, how long it takes it, and when its result is there after that.

    `pipes` are those that can do it, one of them does. `queued` is whether the warp goes on while
    they are taken. `l2_bytes` are those of the warp, without TMA copies, whose size is not in the
    code. `copies` are those to shared memory.
    """

    pipes: tuple[str, ...] = ()
    cycles: float = 0.0
    latency: float = SHARED_LATENCY
    queued: bool = False
    l2_bytes: int = 0
    copies: bool = False

    @property
    def l2_cycles(self) -> float:
        """How long its bytes take the way from or to L2."""
        return SCHEDULERS * self.l2_bytes / _L2_BYTES


def need_of(instruction: Instruction, capability: str) -> PipeUse | None:
    """What an instruction needs; None where the rate of its tensor cores is not known."""
    root, *modifiers = instruction.opcode.split(".")
    kind = class_of(instruction, "sass")
    if kind == "MMA":
        return _of_mma(root, modifiers[0]) if capability == "9.0" and modifiers else None
    if root == "BAR":
        return PipeUse((BARRIER,), latency=BARRIER_LATENCY)
    access = access_of(instruction)
    if access or kind in _MEMORY:
        return _of_memory(kind, access.width_bits if access else None)
    if _SPECIAL.match(root):
        lanes = _SPECIAL_LANES.get(capability)
        return PipeUse(("special function",), _cycles(lanes), SPECIAL_LATENCY, queued=True)
    if _FLOATS.match(root) or _MULTIPLIES.match(root):
        # Of halves of the fp32 lanes, the last one multiplies integers.
        halves = ("fp32, no integers", "fp32")[-((lanes_of(capability) or 128) // _HALF_LANES) :]
        wide = 2 if {"WIDE", "HI"} & {*modifiers} else 1
        able = halves if _FLOATS.match(root) else halves[-1:]
        return PipeUse(able, wide * _cycles(_HALF_LANES))
    if kind == "fp64":
        return PipeUse(("fp64",), _cycles(lanes_of(capability, "fp64")))
    if kind in ("integer", "fp32", "fp16", "conversion", "move") and not root.startswith(
        ("U", "S2")
    ):
        return PipeUse(("integer",), _cycles(_INTEGER_LANES))
    # Among them the uniform data path, which has a pipe of its own.
    return PipeUse()


def issue_cycles(instruction: Instruction, before: Instruction, capability: str) -> int:
    """The cycles for which the scheduler issues nothing else: two for three registers to fetch.

    A register marked `.reuse` by the instruction before is not fetched again in the same place.
    """
    if capability != "9.0" or not instruction.opcode.startswith("FFMA"):
        return 1
    kept = {at for at in _sources(before) if at[2]}
    fetched = {name for place, name, _ in _sources(instruction) if (place, name, True) not in kept}
    return 2 if len(fetched) > 2 else 1


def _sources(instruction: Instruction) -> Iterator[tuple[int, str, bool]]:
    """The registers that an instruction reads: place, name, and whether it is kept."""
    for place, operand in enumerate(instruction.operands.split(",")[1:]):
        if found := _REGISTER.match(operand.strip()):
            yield place, found["name"], bool(found["kept"])


def _cycles(lanes: int | None) -> float:
    return SCHEDULERS * WARP_THREADS / lanes if lanes else 0.0


def _of_mma(root: str, shape: str) -> PipeUse:
    if wide := _WGMMA_SHAPE.fullmatch(shape):
        cycles, queued = int(wide["n"]) / 2, True
    else:
        parts = _MMA_SHAPE.fullmatch(shape)
        size = math.prod(map(int, parts.groups())) if parts else _MMA_BYTES
        cycles, queued = _MMA_CYCLES * size * _ELEMENT_BYTES.get(root, 2.0) / _MMA_BYTES, False
    return PipeUse((TENSOR,), cycles, MMA_LATENCY - _MMA_CYCLES, queued)


def _of_memory(kind: str, width_bits: int | None) -> PipeUse:
    sent = WARP_THREADS * (width_bits or 0) // 8
    cycles, copies = SCHEDULERS * max(1.0, sent / _WAVEFRONT_BYTES), kind == "async copy"
    latency = L2_LATENCY if kind in _FROM_L2 else SHARED_LATENCY
    latency = {"local load": L1_LATENCY, "shuffle": SHUFFLE_LATENCY}.get(kind, latency)
    to_l2 = sent if copies or kind in ("global load", "global store") else 0
    return PipeUse(("shared memory",), cycles, latency, True, to_l2, copies)
