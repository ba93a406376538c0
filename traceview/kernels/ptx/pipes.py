"""What a SASS instruction takes of an SM: which pipe, for how long, and when its result is there.

All times are cycles of one of the four schedulers; what the four share (load and store, L2) takes
four times as long for each. Per SM and clock:

- fp32, fp64: `hardware.lanes_of`. Special functions and counts of bits: 16 lanes, integers,
  comparison and packing: 64, shared memory and shuffles: 32. One half of the fp32 lanes multiplies
  integers; products with a 64-bit result or its upper half take twice as long, and VIADD counts to
  that pipe, too (`sm__pipe_fma_cycles_active` of an H200). Which pipe: Nsight Compute, Kernel
  Profiling Guide, pipelines.
- An FFMA or HFMA2 of sm_90 that fetches three registers keeps its scheduler for two cycles, a DFMA
  for three.
- Tensor cores of sm_90: 2048 multiply-adds in 16 bits (Hopper whitepaper), which wgmma reaches with
  64 and 128 columns; mma.sync reaches 64.5 %, in TF32 and in 8 bits, too.
- L2: 64 bytes for an SM (NVIDIA, GTC 2020 S21819, for V100 and A100).

Measured on one H200 (driver 580, CUDA 13.0) by benchmarks/kernels/issue_rates.cu, three runs within
0.2 %: the lanes, the tensor cores, and all latencies (that of L2 is the mean of 275 and 281 cycles
of near and far lines; that of wgmma is from its issue to the end of the wait for its group). The
three registers of FFMA: benchmarks/kernels/fma_operands.py. Lanes of other GPUs: their whitepapers
and the CUDA C++ Programming Guide. That operands are read as late as a result from shared memory
is assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from traceview.base.hardware import lanes_of
from traceview.base.records import frequent_record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.disassembly import access_of
from traceview.kernels.ptx.instruction_mix import class_of
from traceview.kernels.ptx.model import Instruction

SCHEDULERS = 4
TENSOR, BARRIER = "tensor cores", "barrier"
READ_LATENCY = SHARED_LATENCY = 19
SHUFFLE_LATENCY, L1_LATENCY, L2_LATENCY = 22, 35, 274
SPECIAL_LATENCY, MMA_LATENCY, WGMMA_LATENCY = 9, 24.4, 54
# Of a barrier: with the first warp's, and more for each warp of the block.
BARRIER_LATENCY, WARP_BARRIER_LATENCY = 12, 2

_MMA_SYNC = 0.645
# 16×8 by 32 bytes of k are 2048 multiply-adds of 16 bits, of 512 per clock and scheduler.
_MMA_CYCLES, _MMA_BYTES = 4 / _MMA_SYNC, 16 * 8 * 32
_MMA_SHAPE = re.compile(r"(?P<m>16|8)(?P<n>8)(?P<k>\d{1,3})")
_WGMMA_SHAPE = re.compile(r"64x(?P<n>\d{1,3})x\d{1,3}")
_ELEMENT_BYTES = {"HMMA": 2.0, "IMMA": 1.0, "QMMA": 1.0, "BMMA": 1 / 8, "DMMA": 8.0}
# The cycles of those that fetch three registers.
_OF_THREE = {"FFMA": 2, "HFMA2": 2, "DFMA": 3}
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


def need_of(instruction: Instruction, capability: str, warps: int = 1) -> PipeUse | None:
    """What an instruction of a block of `warps` needs; None for tensor cores of unknown rate."""
    root, *modifiers = instruction.opcode.split(".")
    kind = class_of(instruction, "sass")
    if kind == "MMA":
        return _of_mma(root, modifiers) if capability == "9.0" and modifiers else None
    if root == "BAR":
        return PipeUse((BARRIER,), latency=BARRIER_LATENCY + WARP_BARRIER_LATENCY * warps)
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
    """The cycles for which the scheduler issues nothing else: more for three registers to fetch.

    A register marked `.reuse` by the instruction before is not fetched again in the same place.
    """
    slow = _OF_THREE.get(instruction.opcode.partition(".")[0], 1)
    if capability != "9.0" or slow == 1:
        return 1
    kept = {at for at in _sources(before) if at[2]}
    fetched = {name for place, name, _ in _sources(instruction) if (place, name, True) not in kept}
    return slow if len(fetched) > 2 else 1


def _sources(instruction: Instruction) -> Iterator[tuple[int, str, bool]]:
    """The registers that an instruction reads: place, name, and whether it is kept."""
    for place, operand in enumerate(instruction.operands.split(",")[1:]):
        if found := _REGISTER.match(operand.strip()):
            yield place, found["name"], bool(found["kept"])


def _cycles(lanes: int | None) -> float:
    return SCHEDULERS * WARP_THREADS / lanes if lanes else 0.0


def _of_mma(root: str, modifiers: Sequence[str]) -> PipeUse:
    if wide := _WGMMA_SHAPE.fullmatch(modifiers[0]):
        return PipeUse((TENSOR,), int(wide["n"]) / 2, WGMMA_LATENCY, queued=True)
    parts = _MMA_SHAPE.fullmatch(modifiers[0])
    size = math.prod(map(int, parts.groups())) if parts else _MMA_BYTES
    element = 4.0 if "TF32" in modifiers else _ELEMENT_BYTES.get(root, 2.0)
    return PipeUse((TENSOR,), _MMA_CYCLES * size * element / _MMA_BYTES, MMA_LATENCY - _MMA_CYCLES)


def _of_memory(kind: str, width_bits: int | None) -> PipeUse:
    sent = WARP_THREADS * (width_bits or 0) // 8
    cycles, copies = SCHEDULERS * max(1.0, sent / _WAVEFRONT_BYTES), kind == "async copy"
    latency = L2_LATENCY if kind in _FROM_L2 else SHARED_LATENCY
    latency = {"local load": L1_LATENCY, "shuffle": SHUFFLE_LATENCY}.get(kind, latency)
    to_l2 = sent if copies or kind in ("global load", "global store") else 0
    return PipeUse(("shared memory",), cycles, latency, True, to_l2, copies)
