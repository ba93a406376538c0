"""One kernel as the rules see it: its code, its limits, and each memory access with its origin."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from traceview.base.errors import InputError
from traceview.base.hardware import Occupancy, limits_of
from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect import recompilations
from traceview.kernels.inspect.kernel_report import Difference, SmCount
from traceview.kernels.inspect.recompilations import Place, Recompilations, differences
from traceview.kernels.ptx.accesses import AsyncWait, TensorOp, async_waits, tensor_ops
from traceview.kernels.ptx.addresses.request_costs import RequestCosts
from traceview.kernels.ptx.addresses.slicing import Array, Origin, Provenance, together
from traceview.kernels.ptx.instruction_mix import InstructionMix, instruction_mix
from traceview.kernels.ptx.live_registers import SpilledValue, spilled_values
from traceview.kernels.ptx.model import Access, Compiled, Instruction, SourceLine
from traceview.kernels.ptx.pipes import SCHEDULERS, need_of
from traceview.kernels.ptx.ttgir.operations import (
    LayoutConversion,
    layout_conversions,
    without_few_turns,
)
from traceview.kernels.ptx.ttgir.parser import IrModule, parse_ttgir
from traceview.kernels.ptx.ttgir.vector_limit import scalar_accesses
from traceview.kernels.toolchain.listings import Code

_SASS_TENSOR_OPS = {
    *("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA"),
    *("HGMMA", "IGMMA", "QGMMA", "BGMMA"),
    *("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"),
}


@record
class AccessContext:
    """A memory access in the PTX to one array, and what its address and mask are computed from.

    `access` counts the instructions that touch this array. `pointers` holds, for each of them, the
    pointer parameters that its address starts from.
    """

    access: Access
    array: Array
    instructions: tuple[Instruction, ...]
    address: Origin
    guard: Origin
    pointers: frozenset[frozenset[str]]

    @property
    def place(self) -> Place:
        """Its source line, kind and memory space."""
        return recompilations.place_of(self.access)


ENOUGH_BYTES_IN_FLIGHT = 64 * 1024
"""What an SM needs in flight for its part of the memory's bandwidth, and more.

4.8 TB/s × 1 µs ÷ 132 on an H200 is 36 kB.
"""
# 3.35 TB/s ÷ 132 SMs ÷ 1.755 GHz of an H100, in bytes per cycle and SM.
_MEMORY_BYTES = 14.5
ARITHMETIC = ("fp32", "fp64", "special function")
"""Pipes of an SM, as `pass_cycles` names them."""
_GLOBAL_MOVES = ("load", "store", "async-copy")


@record
class KernelContext:
    """A compiled kernel with all that its rules need, each part computed once.

    `accesses` are those of PTX and SASS. With `trials` causes and remedies are tested by
    recompiling, within one budget for all rules.
    """

    compiled: Compiled
    code: Code
    accesses: tuple[Access, ...] = ()
    occupancy: Occupancy | None = None
    sms: SmCount | None = None
    trials: Recompilations | None = None

    @property
    def spill_bytes(self) -> int | None:
        """Bytes of registers that a thread spills; None where unknown."""
        return self.code.resources.spill_bytes if self.code.resources else None

    @property
    def resident_blocks(self) -> int:
        """The blocks that an SM holds at once: those that fit, or those the grid has for it."""
        most = self.occupancy.blocks_per_sm if self.occupancy else 0
        if not self.compiled.grid or not self.sms:
            return most
        return min(most, -(-math.prod(self.compiled.grid) // self.sms.count))

    @cached_property
    def mix(self) -> InstructionMix | None:
        """The instructions by class: of the SASS, else of the PTX."""
        return instruction_mix(self.code.sass) if self.code.sass else self.ptx_mix

    @cached_property
    def spilled_values(self) -> tuple[SpilledValue, ...]:
        """What the SASS spills, with its loads in the hottest loop; none without SASS."""
        if not self.code.sass or not self.spill_bytes:
            return ()
        loop = self.mix.hottest_loop if self.mix else None
        return spilled_values(self.code.sass, loop.instructions if loop else ())

    @cached_property
    def ptx_mix(self) -> InstructionMix | None:
        """The instructions of the PTX by class; None without it."""
        return instruction_mix(self.code.ptx) if self.code.ptx else None

    @cached_property
    def ttgir(self) -> IrModule | None:
        """Triton's TTGIR, parsed, with no loops of one or two turns; None without it."""
        text = self.compiled.stages.get("ttgir")
        passed = {a.name: a.value for a in self.compiled.arguments if type(a.value) is int}
        integers = {**passed, **self.compiled.integers}
        return without_few_turns(parse_ttgir(text), integers) if text else None

    @cached_property
    def layout_conversions(self) -> tuple[LayoutConversion, ...]:
        """The layout conversions in TTGIR; none without it."""
        return layout_conversions(self.ttgir, self.code.ptx) if self.ttgir else ()

    @cached_property
    def scalar_accesses(self) -> frozenset[tuple[SourceLine, str]]:
        """Lines and kinds of access of global memory that move one value per program, by TTGIR."""
        return scalar_accesses(self.ttgir) if self.ttgir else frozenset()

    @cached_property
    def async_waits(self) -> tuple[AsyncWait, ...]:
        """The waits of the hottest loop for asynchronous copies and matrix products, by the PTX."""
        ptx, mix = self.code.ptx, self.ptx_mix
        return async_waits(ptx, mix) if ptx and mix else ()

    @cached_property
    def provenance(self) -> Provenance | None:
        """The dataflow of the PTX; None without PTX."""
        compiled, ptx = self.compiled, self.code.ptx
        return Provenance.of(ptx, compiled.arguments, compiled.parameter_names) if ptx else None

    @cached_property
    def bytes_in_flight(self) -> float | None:
        """Bytes that the threads of an SM load from global memory in one pass of the hottest loop.

        None where the occupancy is not known or a bulk copy (TMA) loads, whose size is not in the
        instruction.
        """
        loads = [
            access
            for access in self.accesses
            if (access.level, access.space) == ("ptx", "global")
            and access.kind in ("load", "async-copy")
        ]
        if self.occupancy is None or any(access.width_bits is None for access in loads):
            return None
        threads = 32 * (self.compiled.num_warps or 0) * self.occupancy.blocks_per_sm
        bits = self.provenance.bits_of(loads) if self.provenance else 0
        return bits / 8 * threads * self.distinct_fraction

    @cached_property
    def distinct_fraction(self) -> float:
        """The distinct bytes among those that the threads of a block load, in loops if in any."""
        every = [c for each in self.global_accesses.values() for c in each]
        loads = [c for c in every if c.access.kind in ("load", "async-copy")]
        loads = [c for c in loads if c.access.loop_depth] or loads
        needed, nominal, costs = 0.0, 0.0, self.request_costs
        for each in loads:
            count, width = len(each.instructions), (each.access.width_bits or 0) // 8
            nominal += count * width * WARP_THREADS * (self.compiled.num_warps or 0)
            if costs:
                needed += count * costs.distinct_bytes(each.access, each.instructions)
        return min(1.0, needed / nominal) if costs and nominal else 1.0

    @cached_property
    def pass_cycles(self) -> Mapping[str, float]:
        """The cycles that a warp takes of each arithmetic pipe of an SM, and of an H100's `memory`.

        They are of one pass of the hottest loop, or of the whole code without one. Empty for other
        GPUs, and where they are not known: with tensor cores, atomics or copies by TMA.
        """
        sass, loop = self.code.sass, self.mix.hottest_loop if self.mix else None
        try:
            capability = limits_of(self.compiled.arch).compute_capability
        except InputError:
            return {}
        if sass is None or capability != "9.0" or tensor_ops_of(self.code):
            return {}
        moves = [
            access
            for access in self.accesses
            if (access.level, access.space) == ("sass", "global")
            and access.loop_depth >= (loop.depth if loop else 0)
        ]
        if any(a.kind not in _GLOBAL_MOVES or a.width_bits is None for a in moves):
            return {}
        cycles = dict.fromkeys(ARITHMETIC, 0.0)
        for at in loop.instructions if loop else range(len(sass.instructions)):
            need = need_of(sass.instructions[at], capability)
            if need and need.pipes and need.pipes[-1] in cycles:
                cycles[need.pipes[-1]] += need.cycles / SCHEDULERS / len(need.pipes)
        bits = sum((a.width_bits or 0) * a.count for a in moves)
        if not loop:
            # Of alternative paths a thread takes one.
            bits = min(
                bits, self.bits_per_pass(c for g in self.global_accesses.values() for c in g)
            )
        sent = bits / 8 * WARP_THREADS
        return {**cycles, "memory": sent * self._most_waste / _MEMORY_BYTES}

    @property
    def arithmetic(self) -> float:
        """The cycles of a pass on its most used arithmetic pipe, as a multiple of the memory's."""
        times = self.pass_cycles
        memory = times.get("memory", 0.0)
        return max(times[name] for name in ARITHMETIC) / memory if memory else 0.0

    @cached_property
    def _most_waste(self) -> float:
        """How many times what is needed the worst requests to global memory move."""
        costs = [access.cost for access in self.accesses_with_costs if access.cost]
        shares = [c.sectors / c.ideal_sectors for c in costs if c.sectors and c.ideal_sectors]
        return max([1.0, *shares])

    @cached_property
    def request_costs(self) -> RequestCosts | None:
        """The cost of a warp's requests; None without PTX."""
        return RequestCosts.of(self.provenance, self.compiled) if self.provenance else None

    @cached_property
    def accesses_with_costs(self) -> tuple[Access, ...]:
        """The accesses; those in PTX have the cost of a warp's request."""
        costs = self.request_costs
        return tuple(
            replace(access, cost=costs.cost(access)) if costs and access.level == "ptx" else access
            for access in self.accesses
        )

    @cached_property
    def global_accesses(self) -> Mapping[tuple[Place, Array], tuple[AccessContext, ...]]:
        """The accesses of the PTX to global memory, by place and array, in program order."""
        streams: dict[tuple[Place, Array], list[AccessContext]] = defaultdict(list)
        for place, listed in recompilations.by_place(self.accesses, "ptx").items():
            if self.provenance and place[2] == "global":
                for access in listed:
                    for context in _of_each_array(access, self.provenance):
                        streams[place, context.array].append(context)
        return {stream: tuple(contexts) for stream, contexts in streams.items()}

    def bits_per_pass(self, contexts: Iterable[AccessContext]) -> int:
        """The bits that a thread moves through accesses in one pass of the innermost loop.

        Alternative paths count once, by the one that moves the most.
        """
        instructions = (each for context in contexts for each in context.instructions)
        return self.provenance.bits_per_pass(instructions) if self.provenance else 0

    @cached_property
    def launched_bytes(self) -> float | None:
        """The bytes of global memory that the launch moves.

        None where there is no launch, and where a loop or a bulk copy moves an unknown number.
        """
        grid, costs = self.compiled.grid, self.request_costs
        moves = [c for listed in self.global_accesses.values() for c in listed]
        unknown = any(c.access.loop_depth or not c.access.width_bits for c in moves)
        if self.compiled.how != "launched" or not grid or not moves or not costs or unknown:
            return None
        block = sum(
            costs.block_bytes(instruction, (c.access.width_bits or 0) // 8)
            for c in moves
            for instruction in c.instructions
        )
        return block * math.prod(grid)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The places whose widths differ between PTX and SASS."""
        ignored = recompilations.stores_of_tensor_maps(self.code.ptx) if self.code.ptx else ()
        return differences(self.accesses, ignored)


def tensor_ops_of(code: Code) -> tuple[TensorOp, ...]:
    """The tensor-core operations of the PTX; of the SASS where there is no PTX."""
    if code.ptx:
        return tensor_ops(code.ptx)
    instructions = code.sass.instructions if code.sass else ()
    counts = Counter(
        (i.opcode, i.loop_depth)
        for i in instructions
        if i.opcode.partition(".")[0] in _SASS_TENSOR_OPS
    )
    return tuple(TensorOp(op, None, (), depth, count) for (op, depth), count in counts.items())


def _of_each_array(access: Access, provenance: Provenance) -> list[AccessContext]:
    by_array: dict[Array, list[Instruction]] = defaultdict(list)
    for instruction in provenance.instructions(access):
        by_array[provenance.array(instruction)].append(instruction)
    return [
        _context(replace(access, count=len(listed)), array, listed, provenance)
        for array, listed in by_array.items()
    ]


def _context(
    access: Access, array: Array, instructions: list[Instruction], provenance: Provenance
) -> AccessContext:
    addresses = [provenance.slices.address(instruction) for instruction in instructions]
    return AccessContext(
        access,
        array,
        tuple(instructions),
        address=together(addresses),
        guard=together(provenance.slices.guard(instruction) for instruction in instructions),
        pointers=frozenset(address.pointers for address in addresses),
    )
