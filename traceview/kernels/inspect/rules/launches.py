"""Kernels that Triton refuses, and grids of too many, too small or repeated blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from traceview.base import units
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.addresses.evaluation import Registers
from traceview.kernels.ptx.pipes import SCHEDULERS
from traceview.kernels.ptx.ttgir import grid_axes
from traceview.kernels.ptx.ttgir.loop_loads import tile_bytes
from traceview.kernels.ptx.ttgir.parser import parse_ttgir
from traceview.kernels.ptx.ttgir.vector_limit import ACCESSES

_REFUSED = Diagnosis(
    "Triton refuses to compile the kernel: at {line} it reads the global {name}, which is no "
    "tl.constexpr; the code shown is compiled as if it were",
    "Define it as {name} = tl.constexpr(…), or pass it as a tl.constexpr parameter",
    "high",
)

# On an H200 with the sums loaded instead: the nearest of 256 to 1,024 vectors of 128, whose squared
# lengths each block computed, and 4,096 rows divided by their lengths and multiplied with weights.
_REPEATED = Diagnosis(
    "Every block along axis {axis} of the grid[, of {blocks},] computes the reduction at {places} "
    "again, which does not depend on tl.program_id({axis}). With its results loaded instead, two "
    "such kernels on an H200 were 1.0 to 1.7 times as fast",
    "Compute it once, where its data are written or in a kernel before, and load the results here",
    "medium",
)
_MASKED = Diagnosis(
    "Of {sampled_blocks:block} spread over a grid of {blocks}, {idle_blocks} store nothing: their "
    "masks leave out all elements",
    "Launch as many blocks as hold the data: triton.cdiv(n, BLOCK) along an axis of n elements",
    "medium",
)
# Measured on an H200 with copies of 128 B to 32 kB per block, by 1 to 8 warps: 1.64 blocks per ns,
# so that blocks of 1 kB reach 42 % of the bandwidth of those of 4 kB, whatever their warps.
_STARTS_PER_S, _SMALL_BLOCK_BYTES = 1.64e9, 1024
# On each of 132 SMs at 1.755 GHz, one per so many cycles: beyond, instructions take longer.
_START_CYCLES = 141
# What may move or compute any amount.
_ANY_AMOUNT = re.compile(r"scf\.(?:for|while)|tt\.call|tma|descriptor|dot|sort")
# Starting so many takes 5 µs, twice as long as an empty kernel.
_LEAST_BLOCKS = 8192
_SMALL_BLOCKS = Diagnosis(
    "Each block moves at most {block_bytes}, and an H200 starts 1.6 blocks per ns: all of them "
    "together move at most {most_bytes_per_s}, of 4.8 TB/s, however many warps they have",
    "Give each block more work, such as several rows: from 4 kB on, their starts limit nothing",
)
_PARTIAL = Diagnosis(
    "Blocks of {threads:thread}[, launched at {line},] leave {idle_lanes} of the {lanes} lanes of "
    "their warps idle",
    "Launch blocks of a multiple of 32 threads, such as 128 or 256, and fewer of them{index}",
)
# More threads of such a kernel would each do what the block does now.
_INDEX = ", and share a block's work by threadIdx, which the kernel does not read"
# Of the lanes: a block of 500 threads leaves 12 of 512, which no one would see.
_IDLE_LANES = 0.2
# Fewer cost little beside those that work. Multiples of it fall evenly on all axes.
_SAMPLES, _MOST_IDLE, _GOLDEN = 64, 0.5, 0.6180339887
_SPLIT = Diagnosis(
    "{parts:block} along axis {axis} of the grid share the loop at {loop}, {tile:element} each: "
    "with less than {step} of {bound}[, here {length},] some of them load nothing, and only add "
    "zeros at {places}",
    "Launch no more of them than triton.cdiv({bound}, {tile}), with as many as the loop's step "
    "counts, or return before the atomics where a block's first element is beyond {bound}",
    "low",
)
# Longer than the hidden size of most models.
_USUAL_LENGTH = 8192
_WRITES = re.compile(r"(?:st|atom|red)\b(?!.*\.(?:shared|local|param)\b)|cp\..*bulk|multimem|call")


def plain_globals(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A global that the kernel reads although it is no constant for Triton."""
    if kernel.compiled.plain_global:
        name, source = kernel.compiled.plain_global
        yield CodeClaim(
            _REFUSED,
            {"line": line_name(source), "name": name, "proven": True},
            "the error of Triton's compiler",
            source,
        )


def masked_blocks(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A launch most of whose blocks store nothing, by the masks of all that they could store."""
    grid, costs, ptx = kernel.compiled.grid, kernel.request_costs, kernel.code.ptx
    if kernel.compiled.how != "launched" or not grid or not costs or not ptx:
        return
    slices, blocks = costs.provenance.slices, math.prod(grid)
    writes = [i for i in ptx.instructions if _WRITES.match(i.opcode)]
    known = costs.provenance.arguments_by_parameter
    needed = {name for each in writes for name in slices.guard(each).parameters}
    if not all(name in known and type(known[name].value) is int for name in needed):
        return
    idle, places = 0, {blocks - 1, *(int(blocks * (n * _GOLDEN % 1)) for n in range(_SAMPLES))}
    for place in sorted(places, reverse=True):
        block = place % grid[0], place // grid[0] % grid[1], place // grid[0] // grid[1]
        registers = Registers(slices, replace(costs.each[0].launch, block=block))
        idle += not any(registers.may_execute(each) for each in writes)
        # The last block is the first to be masked off.
        if not idle:
            return
    # Where none stores, the arguments are not those of real use.
    if _MOST_IDLE * len(places) < idle < len(places):
        yield CodeClaim(
            _MASKED,
            {"sampled_blocks": len(places), "blocks": blocks, "idle_blocks": idle, "proven": True},
            "the masks in PTX for the launch's arguments",
        )


def partial_warps(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Blocks that fill no whole number of warps, by the launch in the source or as launched."""
    block, line = kernel.compiled.block, kernel.compiled.block_from
    threads = math.prod(block) if block else 0
    lanes = -(-threads // WARP_THREADS) * WARP_THREADS
    if threads and lanes - threads >= _IDLE_LANES * lanes:
        yield CodeClaim(
            _PARTIAL,
            {
                "threads": threads,
                "idle_lanes": lanes - threads,
                "lanes": lanes,
                "line": line_name(line) if line else None,
                "proven": True,
            },
            "the source of the launch" if line else "the launch",
            line,
            words={"index": "" if kernel.code.ptx is None or _reads_thread(kernel) else _INDEX},
            severity="high" if 2 * threads <= lanes else "medium",
        )


def _reads_thread(kernel: KernelContext) -> bool:
    code = kernel.code.ptx.instructions if kernel.code.ptx else ()
    return any("%tid" in each.operands for each in code)


def small_blocks(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Blocks that move so few bytes that the GPU cannot start enough of them."""
    grid, ttgir = kernel.compiled.grid, kernel.ttgir
    if ttgir is None or kernel.mix is None or (grid and math.prod(grid) < _LEAST_BLOCKS):
        return
    moves = [op for op in ttgir.operations if op.opcode in ACCESSES]
    # Blocks of single values are a finding of their own, with the same remedy.
    if not any(op.shape for op in ttgir.operations):
        return
    unknown = any(_ANY_AMOUNT.search(op.opcode) for op in ttgir.operations)
    cycles = kernel.mix.counts.total * (kernel.compiled.num_warps or 1) / SCHEDULERS
    if unknown or not moves or cycles > _START_CYCLES:
        return
    moved = sum(tile_bytes(op, ttgir) for op in moves)
    if moved <= _SMALL_BLOCK_BYTES:
        yield CodeClaim(
            _SMALL_BLOCKS,
            {
                "block_bytes": moved,
                "most_bytes_per_s": moved * _STARTS_PER_S,
            },
            f"TTGIR: the tiles of {units.counted(len(moves), 'access', 'accesses')} of global "
            f"memory, none of them in a loop; instructions take {cycles:.0f} cycles of an SM",
            severity="medium",
        )


def split_loops(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Loops that more blocks share than there are tiles, and whose sums atomics add up."""
    # What a call in the source passes may be assumed.
    is_launched = kernel.compiled.how == "launched"
    known = kernel.compiled.arguments if is_launched else ()
    lengths = {a.name: a.value for a in known if type(a.value) is int}
    # With the loops of few iterations, which for assumed sizes may be this one.
    text = kernel.compiled.stages.get("ttgir", "")
    module = parse_ttgir(text) if "tt.atomic_rmw" in text else None
    for loop in grid_axes.split_loops(module) if module else ():
        length = lengths.get(loop.bound)
        if loop.step > (_USUAL_LENGTH if length is None else length):
            yield CodeClaim(
                _SPLIT,
                {
                    "parts": loop.parts,
                    "axis": loop.axis,
                    "loop": line_name(loop.source),
                    "tile": loop.tile,
                    "step": loop.step,
                    "bound": loop.bound,
                    "length": length,
                    "proven": True,
                },
                "TTGIR: the loop's step, the first elements of a block, and the mask of its loads",
                loop.atomics[0],
                loop.atomics,
                severity="low" if length is None else "medium",
            )


def repeated_reductions(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Reductions in loops that all blocks along an axis of the grid compute alike."""
    grid, ttgir = kernel.compiled.grid, kernel.ttgir
    found = list(grid_axes.repeated_reductions(ttgir)) if ttgir else []
    for axis in dict.fromkeys(axis for each in found for axis in each.axes):
        lines = list(dict.fromkeys(each.source for each in found if axis in each.axes))
        if not grid or grid[axis] > 1:
            yield CodeClaim(
                _REPEATED,
                {"axis": axis, "blocks": grid[axis] if grid else None, "proven": True},
                f"TTGIR: tt.reduce of loads whose addresses and masks do not contain axis {axis}",
                lines[0],
                lines,
            )
