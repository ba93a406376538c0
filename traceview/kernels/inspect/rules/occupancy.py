"""Hardware left idle: few warps or blocks, small grids, unused tensor cores."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from traceview.base import units
from traceview.base.findings import Severity
from traceview.base.hardware import Limiter, Occupancy, lanes_of, limits_of
from traceview.base.hardware.occupancy import waves_of
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.kernel_context import (
    ENOUGH_BYTES_IN_FLIGHT,
    KernelContext,
    tensor_ops_of,
)
from traceview.kernels.inspect.kernel_report import line_name, registers_for_more_blocks
from traceview.kernels.inspect.recompilations import Outcome, serialization_remarks
from traceview.kernels.inspect.rules import remedies
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.inspect.rules.loops import keeps_tensor_cores
from traceview.kernels.inspect.rules.remedies import Remedy
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.pipes import SCHEDULERS, need_of
from traceview.kernels.ptx.ttgir.loop_loads import upcast_products
from traceview.kernels.ptx.ttgir.operations import cuda_core_products
from traceview.kernels.toolchain.tools import number_of

LOW_OCCUPANCY_PCT = 25.0
_ASYNCHRONOUS = ("wgmma", "tcgen05", "UTC", "HGMMA", "IGMMA", "QGMMA", "BGMMA")
_LOW = Diagnosis(
    "Theoretical occupancy is {theoretical_occupancy_pct}, limited by {limiters}",
    then=", and measure it",
)
_DOES_NOT_FIT = Diagnosis(
    "A block does not fit on an SM, limited by {limiters}: the launch fails",
    then=", and measure it",
)
_LEFT_OUT = Diagnosis(
    "A block does not fit on an SM, limited by {limiters}: the autotuner leaves this configuration "
    "out",
    "Leave it out of the list, or make it smaller",
    then=", and measure it",
)
_RELIEF: dict[Limiter, str] = {
    "registers": "Try a smaller tile or more warps, which likely lower the registers per thread",
    "shared memory": "Try fewer stages or a smaller tile, which likely need less shared memory",
    "blocks": "Try larger blocks of more warps, which likely raise it",
    "warps": (
        "Try a block size whose number of warps divides that of the SM, which likely raises it"
    ),
    "barriers": "Try fewer named barriers per block, which likely raises it",
}
_SMALLER_TILE = "Try a smaller tile, which likely lowers the registers per thread"
_LEAST_IDLE, _LARGE_IDLE = 0.1, 0.25
_SMALL_GRID = Diagnosis(
    "The grid has only {blocks:block}, so {idle_sms} of {sm_count} SMs {idle_sms?stays|stay} idle",
    "Launch more blocks: use a smaller tile, or split a dimension whose parts do not depend on one "
    "another. A larger input launches more, too",
)
_TAIL_WAVE = Diagnosis(
    "The grid runs in {waves} waves: {idle_pct} of the block slots stay unused, all of them in the "
    "last wave. {unused_slots:more block|more blocks} would fill it",
    "Choose a tile size that gives whole waves, or use a persistent kernel",
)


class _Pressure(NamedTuple):
    occupancy_pct: float
    spill_bytes: int


def low_occupancy(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Occupancy below 25 %, with the changes that raise it without spilling more."""
    occupancy, resources = kernel.occupancy, kernel.code.resources
    if occupancy is None or occupancy.theoretical_occupancy_pct >= LOW_OCCUPANCY_PCT:
        return
    # The grid has no more blocks for an SM than it holds.
    if kernel.resident_blocks < occupancy.blocks_per_sm:
        return
    # wgmma and tcgen05 are asynchronous: few warps keep them busy, and a smaller tile or more warps
    # reuse less of what they load. A public wgmma kernel ran 8 % slower with more warps.
    if occupancy.blocks_per_sm and _is_asynchronous(kernel):
        return
    before = _Pressure(occupancy.theoretical_occupancy_pct, kernel.spill_bytes or 0)

    def pressure(outcome: Outcome) -> _Pressure | None:
        if outcome.occupancy is None or not keeps_tensor_cores(kernel, outcome):
            return None
        return _Pressure(outcome.occupancy.theoretical_occupancy_pct, outcome.spill_bytes or 0)

    tries = remedies.tested_remedies(_remedies(kernel, occupancy), kernel.trials, pressure)
    raised = [each for each in tries if each.after.occupancy_pct > before.occupancy_pct]
    free = [each for each in raised if each.after.spill_bytes <= before.spill_bytes]
    helped = remedies.one_of_each(sorted(free, key=lambda each: -each.after.occupancy_pct))
    compared = remedies.results_clause(
        helped or raised, tries, lambda after: _compared(before, after)
    )
    is_tuned = bool(kernel.compiled.configuration)
    in_flight = kernel.bytes_in_flight
    loads = f"; {units.quantity('bytes', in_flight)} of loads in flight per SM" if in_flight else ""
    limits = ", ".join(f"{name} {blocks}" for name, blocks in occupancy.blocks_by_limit.items())
    recompiled = {"recompiled_occupancy_pct": helped[0].after.occupancy_pct} if helped else {}
    # If more warps do not hold, they are not advised a second time.
    warps = any(each.remedy.change.num_warps for each in helped)
    yield CodeClaim(
        _LOW if occupancy.blocks_per_sm else _LEFT_OUT if is_tuned else _DOES_NOT_FIT,
        {
            "theoretical_occupancy_pct": occupancy.theoretical_occupancy_pct,
            "blocks_per_sm": occupancy.blocks_per_sm,
            "limiters": " and ".join(occupancy.limiters),
            "registers": resources.registers if resources else None,
            "proven": bool(helped),
            **recompiled,
        },
        f"blocks per SM by limit: {limits}{loads}{compared}",
        severity=_severity(kernel, occupancy),
        remedy=_RELIEF[occupancy.limiter],
        helped=helped,
        otherwise=_SMALLER_TILE if occupancy.limiter == "registers" and warps else "",
    )


def _severity(kernel: KernelContext, occupancy: Occupancy) -> Severity:
    if not occupancy.blocks_per_sm:
        is_guess = kernel.compiled.how in ("called", "guessed")
        return "info" if kernel.compiled.configuration else "medium" if is_guess else "high"
    if not tensor_ops_of(kernel.code):
        in_flight = kernel.bytes_in_flight
        return "medium" if in_flight is not None and in_flight < ENOUGH_BYTES_IN_FLIGHT else "info"
    # Tensor-core kernels hide latency with their own pipeline.
    return "low"


def _is_asynchronous(kernel: KernelContext) -> bool:
    ops = tensor_ops_of(kernel.code)
    return bool(ops) and ops[0].operation.startswith(_ASYNCHRONOUS)


def _remedies(kernel: KernelContext, occupancy: Occupancy) -> Iterator[Remedy]:
    if "registers" in occupancy.limiters:
        yield from remedies.fewer_registers(registers_for_more_blocks(kernel.compiled, kernel.code))
    if "shared memory" in occupancy.limiters:
        yield from remedies.fewer_stages(kernel.compiled)
    yield from remedies.more_warps(kernel.compiled)
    yield from remedies.smaller_tiles(kernel.compiled)


def _compared(before: _Pressure, after: _Pressure) -> str:
    spilled = ""
    if after.spill_bytes != before.spill_bytes:
        counts = f"{units.count(before.spill_bytes)} → {units.count(after.spill_bytes)}"
        spilled = f", {counts} bytes spilled"
    return f"occupancy {before.occupancy_pct:.1f} → {units.percent(after.occupancy_pct)}{spilled}"


# Eight times as many sectors as needed are then 1 MiB, 0.3 µs at the 3.35 TB/s of an H100, and
# an empty kernel takes 2 to 3 µs.
_SMALL_BYTES = 128 * 1024
_SMALL_LAUNCH = Diagnosis(
    "The launch moves only {launched_bytes} in {blocks:block}: too little to judge the kernel by",
    "Launch it with the data sizes of real use; the other findings then count",
    "info",
)


def is_small_launch(kernel: KernelContext) -> bool:
    """Whether the launch does so little that nothing costs time that could be measured.

    A loop may compute for any time on what it holds in registers.
    """
    moved, mix = kernel.launched_bytes, kernel.ptx_mix
    return moved is not None and moved <= _SMALL_BYTES and not (mix and mix.loops)


def small_launch(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A launch on a few elements, as in a test: its findings are information."""
    if is_small_launch(kernel) and kernel.compiled.grid:
        yield CodeClaim(
            _SMALL_LAUNCH,
            {
                "launched_bytes": round(kernel.launched_bytes or 0),
                "blocks": math.prod(kernel.compiled.grid),
            },
            "the accesses of global memory in PTX, as masked for the launch's arguments",
        )


def tail_wave(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A grid smaller than the GPU, or one whose last wave is mostly idle.

    The idle fraction is of the block slots of all waves, assuming that all blocks take equally
    long; no time is claimed. A grid between one block per SM and a whole wave is not reported, as
    persistent kernels have one.
    """
    grid, occupancy, sms = kernel.compiled.grid, kernel.occupancy, kernel.sms
    waves = waves_of(grid, occupancy, sms.count) if grid and occupancy and sms else None
    if waves is None or occupancy is None or sms is None or is_small_launch(kernel):
        return
    on = {"sm_count": sms.count, "sm_count_assumed": sms.assumed is not None}
    if waves.idle_sms:
        yield CodeClaim(
            _SMALL_GRID,
            {"blocks": waves.blocks, "idle_sms": waves.idle_sms, **on},
            f"the grid of the launch on {sms.described}",
        )
    elif waves.waves > 1 and waves.idle_fraction >= _LEAST_IDLE:
        yield CodeClaim(
            _TAIL_WAVE,
            {
                "waves": waves.waves,
                "idle_pct": 100 * waves.idle_fraction,
                "unused_slots": waves.unused_slots,
                "blocks": waves.blocks,
                "blocks_per_wave": waves.at_once,
                "blocks_per_sm": occupancy.blocks_per_sm,
                **on,
            },
            f"{units.counted(waves.blocks, 'block')}, "
            f"{units.count(occupancy.blocks_per_sm)} at once on each of {sms.described}",
            severity="low" if waves.idle_fraction >= _LARGE_IDLE else "info",
        )


_TF32_SINCE = 80
_FP32_PRODUCTS = Diagnosis(
    "{products:matrix product} at {places} {products?runs|run} on CUDA cores, not on tensor cores: "
    "fp32 operands at full precision (ieee)",
    'Where a 10-bit mantissa is accurate enough, pass input_precision="tf32" to tl.dot; where 7 '
    'bits are enough, cast both operands to bf16; "tf32x3" is nearly as accurate as fp32',
)
_RECURRENT = (
    "Leave the precision where the results have to be exact: each product's result is an operand "
    'of the next, so that rounding errors multiply; "tf32x3" is nearly as accurate as fp32'
)
_UPCAST = Diagnosis(
    "{products:matrix product} at {places} {products?multiplies|multiply} in fp32 what was loaded "
    "as {element}: the operands are converted first, and tensor cores multiply 16 bits at least "
    "twice as fast",
    "Pass both operands to tl.dot as they are loaded, without .to(tl.float32): it multiplies "
    "{element} exactly and sums in fp32 all the same",
)
_UPCAST_ONE = Diagnosis(
    "{products:matrix product} at {places} {products?multiplies|multiply} in fp32 an operand that "
    "was loaded as {element} and converted: tensor cores multiply 16 bits at least twice as fast",
    "Where the other operand may be rounded to {element}, as attention does with its "
    "probabilities, convert that one instead, and pass the loaded one as it is: tl.dot sums in "
    "fp32 all the same",
)
_FP64 = Diagnosis(
    "{instructions} of {all_instructions} instructions[ of the hottest loop at {loop}] compute in "
    "fp64 on values of narrower types, converted at {places}[: fp64 takes {memory_times} times as "
    "long as an H100's memory]"
)
_IN_FP32 = (
    "Where fp32 suffices, compute in it: without .to(tl.float64), and with tl.float32 constants "
    "and scalars",
    "Where fp32 suffices, write literals as 0.5f, call float functions (sqrtf, expf), and write "
    "x * x for pow(x, 2)",
)
_WIDENED = re.compile(r"cvt\S*\.f64\.(?:[su]\d|b?f(?:16|32))")
_CONVERSION = re.compile(r"(?:F2F|F2I|I2F)\.\S*F64")
# Of GPUs whose rate is not known. Of few instructions, loads and stores take longer: 16 of an SM
# with 64 lanes take 8 cycles per warp, as long as a warp's 512 bytes at an H200's bandwidth.
_SLOW_LANES, _MANY_FP64 = 2, 8
_KERNEL_FILES = (".cu", ".cuh", ".py")
_SCALARS = Diagnosis(
    "Each block works on single values, not on tiles: its {threads} threads all do the same, and "
    "each load moves one value",
    "Give each block a tile: offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) for the "
    "index that selects the value, with a mask at the end of the array",
)
_SERIALIZED_WGMMA = Diagnosis(
    "ptxas serializes the wgmma instructions ({remarks:remark}): each waits for the previous one",
    "Try a smaller tile or 8 warps instead of 4, which likely leave enough registers",
    "high",
)
# ptxas's reasons other than a lack of registers, and what removes each.
_OTHER_REASONS = {
    "non wgmma instructions": "Leave the accumulator and the operands alone between the wgmma "
    "instructions of a loop: likely something reads or changes them before the wait",
    "xtern call": "Remove the call to another function from the loop, which likely causes it",
    "function boundary": "Inline the function that the loop calls, which likely causes it",
}


def fp32_products(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Uses of tl.dot that run on CUDA cores because full fp32 precision is asked for."""
    if kernel.ttgir is None or number_of(kernel.compiled.arch) < _TF32_SINCE:
        return
    upcast = {product.source for product in upcast_products(kernel.ttgir)}
    full = [
        product
        for product in cuda_core_products(kernel.ttgir)
        if product.operands == ("f32", "f32") and product.precision == "ieee"
        if product.source not in upcast
    ]
    if full:
        lines = list(dict.fromkeys(product.source for product in full))
        recurrent = any(product.is_recurrent for product in full)
        hot = any(product.in_deepest_loop for product in full) and not recurrent
        # Triton's default is tf32, so that somebody chose ieee: whether it may go is theirs to say.
        yield CodeClaim(
            _FP32_PRODUCTS,
            {"products": len(full), "proven": True},
            "TTGIR: tt.dot of f32 without a layout of tensor cores",
            lines[0],
            lines,
            severity="medium" if hot else "low",
            remedy=_RECURRENT if recurrent else "",
        )


def fp64_arithmetic(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Arithmetic in fp64 of a kernel whose arrays hold none: literals such as 0.5, and casts."""
    ptx, mix = kernel.code.ptx, kernel.mix
    if not ptx or not mix or not kernel.code.sass:
        return
    widened = [i for i in ptx.instructions if _WIDENED.match(i.opcode)]
    moved = (i for each in kernel.global_accesses.values() for c in each for i in c.instructions)
    is_data = any("fp64" in a.type for a in kernel.compiled.arguments)
    loop = mix.hottest_loop
    counts = (loop or mix).counts
    count = counts.by_class.get("fp64", 0)
    if not widened or not count or is_data or any(i.opcode.endswith("f64") for i in moved):
        return
    capability = limits_of(kernel.compiled.arch).compute_capability
    lanes = lanes_of(capability, "fp64") or _SLOW_LANES
    listed = kernel.code.sass.instructions
    code = [listed[at] for at in loop.instructions] if loop else listed
    times, memory_times = kernel.pass_cycles, None
    # What a function does that the loop calls, such as pow, is not in the pass.
    if times.get("memory") and not any(each.opcode.startswith("CALL") for each in code):
        to_fp64 = [need_of(i, capability) for i in code if _CONVERSION.match(i.opcode)]
        converting = sum(each.cycles / SCHEDULERS for each in to_fp64 if each)
        memory_times = max(times["fp64"], converting) / times["memory"]
    many = count * WARP_THREADS >= _MANY_FP64 * lanes
    lines = [source for source, _ in Counter(i.source for i in widened if i.source).most_common()]
    # Of functions of headers, the lines that call them.
    here = [at for at in lines if at.file.endswith(_KERNEL_FILES)]
    sources: list[SourceLine | None] = [*here] or [None]
    yield CodeClaim(
        _FP64,
        {
            "instructions": count,
            "all_instructions": counts.total,
            "loop": line_name(loop.source) if loop and loop.source else None,
            "memory_times": memory_times if memory_times and memory_times >= 1 else None,
            "proven": True,
        },
        f"SASS: an SM has {lanes} fp64 lanes; PTX: {len(widened)} × {widened[0].opcode}, and no "
        "array in global memory is fp64",
        sources[0],
        sources,
        severity="medium" if (many if memory_times is None else memory_times >= 1) else "low",
        remedy=_IN_FP32[kernel.ttgir is None],
    )


def upcast_operands(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Products of operands that are converted from 16 bits to fp32 first, one claim per kind."""
    if kernel.ttgir is None or number_of(kernel.compiled.arch) < _TF32_SINCE:
        return
    products = list(upcast_products(kernel.ttgir))
    for type_, both in dict.fromkeys((product.type, product.both) for product in products):
        same = [product for product in products if (product.type, product.both) == (type_, both)]
        lines = list(dict.fromkeys(product.source for product in same))
        yield CodeClaim(
            _UPCAST if both else _UPCAST_ONE,
            {"products": len(same), "element": type_.replace("f16", "fp16").replace("bfp", "bf")},
            f"TTGIR: arith.extf on {'both operands' if both else 'one operand'} of the product, "
            "and no arithmetic after it",
            lines[0],
            lines,
            severity=("high" if both else "medium")
            if any(product.in_deepest_loop for product in same)
            else "low",
        )


def scalar_blocks(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A kernel without any tile: every thread of a block computes the same scalars."""
    if kernel.ttgir is None or not kernel.compiled.num_warps:
        return
    opcodes = [op.opcode for op in kernel.ttgir.operations]
    # A few blocks of bookkeeping take no time; of how many there are, a guess says nothing.
    blocks = math.prod(kernel.compiled.grid or (0,))
    if "tt.load" in opcodes and not any(op.shape for op in kernel.ttgir.operations):
        yield CodeClaim(
            _SCALARS,
            {
                "threads": WARP_THREADS * kernel.compiled.num_warps,
                "loads": opcodes.count("tt.load"),
            },
            "TTGIR: no operation on a tensor",
            severity="high" if kernel.sms and blocks > kernel.sms.count else "medium",
        )


def serialized_wgmma(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Remarks of ptxas that it serializes wgmma."""
    remarks = serialization_remarks(kernel.compiled.notes)
    if not remarks:
        return
    tries = remedies.relieving_remedies(
        kernel.compiled, kernel.trials, lambda outcome: outcome.serialized
    )
    helped = remedies.one_of_each([each for each in tries if each.after == 0])
    yield CodeClaim(
        _SERIALIZED_WGMMA,
        {"remarks": len(remarks), "proven": bool(helped)},
        f"{remarks[0]}{remedies.results_clause(helped, tries, lambda _: 'no such remark')}",
        remedy=next((text for why, text in _OTHER_REASONS.items() if why in remarks[0]), ""),
        helped=helped,
    )
