"""The hottest loop of a Triton kernel: loads that it waits for, and the tensor cores in use."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from traceview.base import units
from traceview.base.hardware import lanes_of, limits_of
from traceview.base.units import Value
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.kernel_context import KernelContext, tensor_ops_of
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.recompilations import Outcome, Place
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.inspect.rules.remedies import Remedy, results_clause, tested_remedies
from traceview.kernels.ptx.accesses import GENERATIONS, tensor_ops
from traceview.kernels.ptx.addresses.slicing import address_text
from traceview.kernels.ptx.addresses.strides import LoopSteps, Samples
from traceview.kernels.ptx.model import Instruction, SourceLine
from traceview.kernels.ptx.pipes import SCHEDULERS
from traceview.kernels.ptx.ttgir.loop_loads import (
    LEAST_COPY_BITS,
    DeepestLoop,
    WaitingLoad,
    Why,
    deepest_loop,
    dot_rows,
    repeated_loads,
)
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

_WAITS = (
    "{operands:operand} of tl.dot at {places} {operands?is|are} loaded within the loop "
    "without prefetching, so that each iteration waits for memory: "
)
_NOT_PREFETCHED: dict[Why, Diagnosis] = {
    "if": Diagnosis(
        f"{_WAITS}an if is around {{operands?it|them}}, and Triton pipelines only what every "
        "iteration loads",
        "Loop over a list of the blocks to visit instead of testing each, so that every iteration "
        "loads and the loads of the next ones run ahead",
        "high",
    ),
    "result": Diagnosis(
        f"{_WAITS}an if is around {{operands?it|them}} that tests what this iteration computes",
        "If most iterations take the branch, load {operands?it|them} before the if, so that the "
        "loads run ahead",
        "low",
    ),
    "narrow": Diagnosis(
        f"{_WAITS}{{operands?it moves|they move}} {{width_bits:bit}} at a time, and an "
        f"asynchronous copy takes at least {LEAST_COPY_BITS}",
        "Widen {operands?it|them}: {operands?it is|they are} then prefetched, too",
        "high",
        explained_by=("narrow_global_accesses",),
        adds="The loads are too narrow for an asynchronous copy, so that they are not prefetched, "
        "and tl.dot waits for memory in each iteration",
    ),
    "while": Diagnosis(
        f"{_WAITS}the loop is a while, and Triton pipelines only for",
        "Write for … in tl.range(start, end, step) in place of while, whose condition and last "
        "line are then that range: the loads run ahead, with num_stages={stages}",
        "medium",
    ),
    "indirect": Diagnosis(
        f"{_WAITS}{{operands?its|their}} addresses are loaded in the same iteration, and Triton "
        "did not pipeline {operands?it|them} with num_stages={stages}",
        "Compute the addresses from the loop's variable alone, without a loaded value in between",
        "medium",
    ),
    "unknown": Diagnosis(
        f"{_WAITS}Triton did not pipeline {{operands?it|them}} with num_stages={{stages}}",
        "Load ahead by hand, before the loop and then in each iteration what the next one needs",
    ),
}
_ONE_STAGE = Diagnosis(
    f"{_WAITS}num_stages=1 switches Triton's pipeline off",
    "Use num_stages=2 or more, as far as shared memory suffices",
    "high",
    then=", and measure it",
)
# What other threads may change meanwhile.
_AWAITED = re.compile(r"\.(?:volatile|acquire|relaxed|mmio)\b")
_ACCUMULATED = Diagnosis(
    "{space} stores at {places} write the same address in each iteration of their loop",
    "Accumulate in a register, and store once after the loop",
    "medium",
)
_RACES = Diagnosis(
    "Threads store at {places} what other threads of the block load there in the next iteration of "
    "the loop, and no barrier is between: results depend on which warp is first",
    "End each iteration with __syncthreads(), which all threads of the block reach",
    "medium",
)
_UNCHANGING = Diagnosis(
    "Global loads at {places} read the same address in each iteration of their loop",
    "Load before the loop; the compiler does that by itself where no store can change the array: "
    "with const and __restrict__ in CUDA C++",
)
_LEAST_PRODUCTS = 8
_SHARED_BOUND = Diagnosis(
    "The hottest loop reads shared memory {loads:time} for {fmas:FMA} at {places}: shared memory "
    "takes longer than the arithmetic",
    "Let each thread compute several results, such as 4 × 4, in registers, so that each value it "
    "reads serves several FMAs; for matrix products, tensor cores (wmma, CUTLASS) or cuBLAS are "
    "faster still",
    "medium",
)
_UNSHARED = Diagnosis(
    "The hottest loop loads {loads} values from global memory for {fmas:FMA} at {places}, and the "
    "threads of a row or column of the block load the same ones",
    "Load tiles of both operands into shared memory, and let each thread compute several results "
    "from them; for matrix products, cuBLAS or CUTLASS are faster still",
    "medium",
)
_REPEATED = Diagnosis(
    "Each element that the hottest loop loads at {places} is loaded {times} times, as so many "
    "elements of the tile have one offset",
    "Load each of them once, in a tile {times} times as small, and unpack it in registers "
    "(tl.join, or a third axis that is broadcast, then tl.reshape)",
    "medium",
)
_MOST_STAGES = 3
_WHATEVER_STAGES: tuple[Why, ...] = ("if", "result", "narrow", "while")
# An SM's part of an H100's 3.35 TB/s during a latency of 1 µs: 3.35 MB ÷ 132. Measured kernels with
# less in flight stay below the bandwidth (docs/ptx.md). At 1.755 GHz, 1 µs is so many cycles.
_NEEDED_BYTES, _LATENCY_CYCLES = 25_000, 1755
_EACH_WAITS = "Each iteration of the loop at {loop} waits for its loads at {places}: "
_FEW_IN_FLIGHT = Diagnosis(
    f"{_EACH_WAITS}with {{blocks_per_sm:block}} per SM only {{in_flight_bytes}} are in flight, of "
    "{needed_bytes} that an H100's bandwidth takes",
    severity="medium",
)
_FEW_PER_BLOCK = Diagnosis(
    f"{_EACH_WAITS}a block has only {{in_flight_bytes}} in flight, so that {{needed_blocks:block}} "
    "per SM are needed for the {needed_bytes} that an H100's bandwidth takes",
    severity="medium",
)
_AHEAD = (
    "et loads run ahead: write for … in tl.range(…, num_stages=4), the only way in which Triton"
)
_MORE_BLOCKS = "Split the loop over more blocks"
_WARPS, _ROWS = 4, 64
_OLDER = (
    "tl.dot runs as mma.sync, the tensor-core instruction of Ampere, and not as {newer}, which "
    "this GPU needs for its full rate: "
)
_FEW_WARPS = Diagnosis(
    f"{_OLDER}{{num_warps:warp}} cannot issue it, as it takes a warp group of {_WARPS}",
    f"Use num_warps={_WARPS} with a tile of {_ROWS} rows or more",
    "medium",
    then=", and measure it",
)
_FEW_ROWS = Diagnosis(
    f"{_OLDER}the tile has {{rows:row}}, and {{newer}} takes {_ROWS} or more",
    f"Where the problem has so many, use a tile of {_ROWS} rows or more, or exchange the operands "
    "so that the longer axis is the first",
    "low",
)


def waiting_operands(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Operands of tl.dot that the hottest loop loads without prefetching, one claim per reason."""
    loop = deepest_loop(kernel.ttgir, with_dot=True) if kernel.ttgir else None
    operands = [load for load in loop.loads if load.feeds_dot] if loop else []
    is_off = kernel.compiled.num_stages == 1 and not (loop and loop.has_copies)
    claims = list(_with_one_stage(kernel, operands)) if is_off else []
    yield from claims
    for why, says in () if claims else _NOT_PREFETCHED.items():
        same = [load for load in operands if load.why == why]
        lines = list(dict.fromkeys(load.source for load in same))
        if same:
            yield CodeClaim(
                says,
                {
                    "operands": len(same),
                    "width_bits": max(load.width_bits or 0 for load in same),
                    "stages": max(kernel.compiled.num_stages or 0, _MOST_STAGES),
                    "proven": True,
                },
                "TTGIR: a load that the same iteration waits for, not a copy to shared memory that "
                "runs ahead of it",
                lines[0],
                lines,
            )


def repeated_operands(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Operands of products that load an element several times, as packed ones are unpacked."""
    found = repeated_loads(kernel.ttgir) if kernel.ttgir else []
    for times in dict.fromkeys(each.times for each in found):
        lines = [each.source for each in found if each.times == times]
        yield CodeClaim(
            _REPEATED,
            {"times": times, "proven": True},
            "TTGIR: the pointers of neighbouring elements along an axis are equal, such as of a "
            "quotient k // 8",
            lines[0],
            lines,
        )


def _with_one_stage(kernel: KernelContext, loads: Sequence[WaitingLoad]) -> Iterator[CodeClaim]:
    """A claim on loads that more stages prefetch, or on any whose cause is not known otherwise."""

    def left(outcome: Outcome) -> int | None:
        text = outcome.compiled.stages.get("ttgir")
        loop = deepest_loop(parse_ttgir(text), with_dot=True) if text else None
        return sum(load.feeds_dot for load in loop.loads) if loop else None

    more = Remedy(f"use num_stages={_MOST_STAGES}", Change(num_stages=_MOST_STAGES))
    tries = tested_remedies([more], kernel.trials, left) if loads else []
    helped = [each for each in tries if each.after < len(loads)]
    if not helped and (tries or all(load.why in _WHATEVER_STAGES for load in loads)):
        return
    lines = list(dict.fromkeys(load.source for load in loads))
    yield CodeClaim(
        _ONE_STAGE,
        {"operands": len(loads), "proven": bool(helped)},
        "TTGIR: a tt.load in the loop"
        + results_clause(helped, tries, lambda after: f"{after} of {len(loads)} left"),
        lines[0],
        lines,
        severity=None if helped else "medium",
        helped=helped,
    )


def few_loads_in_flight(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A loop whose loads, which no product multiplies, are too few to fill the memory's latency.

    Without a launch, only a loop that no grid fills, or a recurrence over time, which blocks cannot
    share.
    """
    loop = deepest_loop(kernel.ttgir) if kernel.ttgir else None
    if loop is None or loop.has_copies or not loop.loads or newer_generation(kernel) != "wgmma":
        return
    blocks, in_flight = kernel.resident_blocks, _bytes_in_flight(kernel)
    known = kernel.compiled.grid is not None or not loop.is_recurrence
    # Nothing waits for stores: what an iteration stores fills the same latency.
    moved = max(in_flight, loop.stored_bytes)
    few = in_flight > 0 and moved < _NEEDED_BYTES / (blocks if known else 1)
    if any(load.feeds_dot for load in loop.loads) or not blocks or not few:
        return
    if _pass_cycles(kernel, blocks if known else 1) > _LATENCY_CYCLES:
        return
    lines = list(dict.fromkeys(load.source for load in loop.loads))
    yield CodeClaim(
        _FEW_IN_FLIGHT if known else _FEW_PER_BLOCK,
        {
            "loop": line_name(loop.source),
            "in_flight_bytes": round(blocks * in_flight if known else in_flight),
            "needed_bytes": _NEEDED_BYTES,
            **(
                {"blocks_per_sm": blocks}
                if known
                else {"needed_blocks": math.ceil(_NEEDED_BYTES / in_flight)}
            ),
        },
        f"the loads of one iteration, as ptxas unrolled it: {units.quantity('bytes', in_flight)} "
        "per block",
        lines[0],
        lines,
        remedy=_run_ahead(kernel, loop),
    )


def _run_ahead(kernel: KernelContext, loop: DeepestLoop) -> str:
    """How to let the loads of a loop run ahead, and when that leaves results as they are."""
    whys = {load.why for load in loop.loads}
    first = "L"
    if whys & {"if", "result"}:
        first = (
            "Load in every iteration, under a mask in place of the if, which Triton does not "
            "pipeline whatever num_stages; then l"
        )
    elif "narrow" in whys:
        first = (
            f"Let each thread move {LEAST_COPY_BITS} bits or more, which an asynchronous copy "
            "takes, with fewer warps or more per block; then l"
        )
    only = "loads that no tl.dot multiplies" if loop.has_dot else "a loop without tl.dot"
    arrays: dict[str, set[frozenset[str]]] = {"load": set(), "store": set()}
    for (place, array), contexts in kernel.global_accesses.items():
        if place[1] in arrays and any(each.access.loop_depth for each in contexts):
            arrays[place[1]].add(array)
    again = frozenset().union(*arrays["load"]) & frozenset().union(*arrays["store"])
    safe = ""
    if again:
        safe = f", if no iteration loads what one before it stored to {' or '.join(sorted(again))}"
    elif arrays["store"] and frozenset() in arrays["load"] | arrays["store"]:
        safe = ", if no iteration loads what one before it stored"
    ahead = f"{first}{_AHEAD} pipelines {only}{safe}"
    if loop.is_recurrence:
        return ahead
    blocks = math.prod(kernel.compiled.grid) if kernel.compiled.grid and kernel.sms else 0
    if 0 < blocks < (kernel.sms.count if kernel.sms else 0):
        # Loads that run ahead do not use the SMs that have no block.
        return f"{_MORE_BLOCKS}. Then l{ahead[1:]}"
    return f"{ahead}; and s{_MORE_BLOCKS[1:]}"


def _pass_cycles(kernel: KernelContext, blocks: int) -> float:
    """The least cycles in which an SM with so many blocks issues one pass of the hottest loop."""
    loop = kernel.mix.hottest_loop if kernel.mix else None
    warps = blocks * (kernel.compiled.num_warps or 1)
    return len(loop.instructions) * warps / min(warps, SCHEDULERS) if loop and warps else 0.0


def _bytes_in_flight(kernel: KernelContext) -> float:
    """The distinct bytes that a block loads in a pass of the loop, as often as it is unrolled."""

    def bits(level: str) -> int:
        return sum(
            (a.width_bits or 0) * a.count
            for a in kernel.accesses
            if (a.level, a.space, a.kind) == (level, "global", "load") and a.loop_depth
        )

    threads = WARP_THREADS * (kernel.compiled.num_warps or 0)
    return max(bits("ptx"), bits("sass")) / 8 * threads * kernel.distinct_fraction


def older_tensor_cores(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Products that run as mma.sync where the GPU has a faster instruction, and why."""
    newer, rows = newer_generation(kernel), dot_rows(kernel.ttgir) if kernel.ttgir else None
    ops = tensor_ops_of(kernel.code)
    if not newer or not ops or rows is None or any(op.operation != "mma" for op in ops):
        return
    if any("f64" in op.types for op in ops):
        return
    warps = kernel.compiled.num_warps or _WARPS
    values: dict[str, Value] = {"newer": newer, "rows": rows, "num_warps": warps}
    basis = f"PTX: {ops[0].operation} {ops[0].shape or ''} on {kernel.compiled.arch}"
    if rows < _ROWS:
        yield CodeClaim(_FEW_ROWS, {**values, "proven": True}, basis)
    elif warps % _WARPS:
        remedy = Remedy(f"use num_warps={_WARPS}", Change(num_warps=_WARPS))
        tries = tested_remedies([remedy], kernel.trials, lambda outcome: _uses(newer, outcome))
        helped = [each for each in tries if each.after]
        clause = results_clause(helped, tries, lambda after: f"{after} × {newer}")
        recompiled = {**values, "proven": bool(helped)}
        yield CodeClaim(_FEW_WARPS, recompiled, basis + clause, helped=helped)


def shared_memory_bound(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A loop of FMAs on CUDA cores for which shared memory takes at least twice as long."""
    loop, sass = kernel.mix.hottest_loop if kernel.mix else None, kernel.code.sass
    if loop is None or sass is None or kernel.ttgir or "MMA" in loop.counts.by_class:
        return
    code = [sass.instructions[at] for at in sorted(loop.instructions)]
    products = [each for each in code if each.opcode.startswith("FFMA")]
    loads = [each for each in code if each.opcode.startswith("LDS")]
    lanes = lanes_of(limits_of(kernel.compiled.arch).compute_capability) or WARP_THREADS
    # Shared memory serves a warp per cycle, the lanes several.
    if len(products) < _LEAST_PRODUCTS or len(loads) * lanes < 2 * len(products) * WARP_THREADS:
        return
    lines = Counter(each.source for each in products)
    yield CodeClaim(
        _SHARED_BOUND,
        {"loads": len(loads), "fmas": len(products), "proven": True},
        f"SASS: {len(loads)} × LDS and {len(products)} × FFMA in the hottest loop; an SM has "
        f"{lanes} fp32 lanes and serves {WARP_THREADS} threads of shared memory per cycle",
        source := lines.most_common(1)[0][0],
        [source],
    )


def unshared_products(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A matrix product that loads both operands of each FMA from global memory."""
    loop, sass = kernel.mix.hottest_loop if kernel.mix else None, kernel.code.sass
    if loop is None or sass is None or kernel.ttgir or "MMA" in loop.counts.by_class:
        return
    code = [sass.instructions[at].opcode for at in loop.instructions]
    loads = sum(each.startswith("LDG") for each in code)
    products = sum(each.startswith(("FFMA", "DFMA", "HFMA2")) for each in code)
    shared = any(access.space == "shared" for access in kernel.accesses)
    if not products or loads < 2 * products or shared:
        return
    deepest = max((a.loop_depth for a in kernel.accesses if a.level == "ptx"), default=0)
    reads = [
        (place[0], kernel.provenance.slices.address(each).axes)
        for (place, _), contexts in kernel.global_accesses.items()
        for context in contexts
        for each in context.instructions
        if kernel.provenance and place[1] == "load" and context.access.loop_depth == deepest
    ]
    sides = {axes for _, axes in reads}
    if not {frozenset("x"), frozenset("y")} <= sides:
        return
    lines = list(dict.fromkeys(source for source, axes in reads if len(axes) == 1))
    yield CodeClaim(
        _UNSHARED,
        {"loads": loads, "fmas": products, "proven": True},
        "SASS of the hottest loop; by the addresses in PTX, one operand does not depend on the "
        "thread's x, the other not on its y",
        lines[0],
        lines,
    )


def unchanging_loads(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Loads and stores that each iteration of a loop repeats, as their address does not change."""
    if kernel.provenance is None:
        return
    slices = kernel.provenance.slices
    steps, samples = LoopSteps(slices), Samples.of(kernel.provenance, kernel.compiled)
    # By line and kind, and by the pointers that addresses start from.
    streams: dict[tuple[Place, frozenset[str]], list[Instruction]] = defaultdict(list)
    for (place, _), contexts in kernel.global_accesses.items():
        for each in (instruction for context in contexts for instruction in context.instructions):
            streams[place, slices.address(each).pointers].append(each)
    fixed = {s for s, listed in streams.items() if all(steps.of(each) == 0 for each in listed)}
    writes = [stream for stream in streams if stream[0][1] in ("store", "atomic")]
    in_sass = {(a.source, a.kind) for a in kernel.accesses if a.level == "sass" and a.loop_depth}
    found: dict[tuple[Diagnosis, bool], list[SourceLine | None]] = defaultdict(list)
    for (source, kind, space), pointers in fixed:
        listed = streams[(source, kind, space), pointers]
        is_kept = kernel.code.sass is None or (source, kind) in in_sass
        if not is_kept or any(_AWAITED.search(each.opcode) for each in listed):
            continue
        if kind == "store":
            others = _loaded_by_others(kernel, listed[0], pointers, streams)
            if others is not None:
                rare = not others and any(_is_by_data(each, samples) for each in listed)
                found[_RACES if others else _ACCUMULATED, rare].append(source)
        elif kind == "load" and all(pointers and s[1] and not pointers & s[1] for s in writes):
            found[_UNCHANGING, False].append(source)
    for (says, rare), sources in found.items():
        lines = sorted({*sources}, key=lambda at: (at.file, at.line) if at else ("", 0))
        yield CodeClaim(
            says,
            {"accesses": len(sources)},
            "the address in PTX does not depend on the innermost loop around it"
            + ("; that of a load is another thread's, and there is no barrier" * (says is _RACES)),
            lines[0],
            lines,
            words={"space": "Global"},
            severity="low" if rare else None,
        )
    yield from _accumulated_in_shared(kernel, steps)


def _is_by_data(access: Instruction, samples: Samples) -> bool:
    """Whether what an iteration loads decides if it runs an access, so that few may."""
    around = (b for b, _ in samples.branches.around(access) if b.loop_depth == access.loop_depth)
    guards = (access, *around)
    return any(samples.slices.guard(each).loaded for each in guards if each.predicate)


def _accumulated_in_shared(kernel: KernelContext, steps: LoopSteps) -> Iterator[CodeClaim]:
    """Elements of shared memory that the hottest loop adds to, without a barrier in it."""
    loop, ptx = kernel.ptx_mix.hottest_loop if kernel.ptx_mix else None, kernel.code.ptx
    inside = [ptx.instructions[at] for at in sorted(loop.instructions)] if ptx and loop else []
    if kernel.ttgir or any(i.opcode.startswith(("bar", "membar", "fence")) for i in inside):
        return
    own = [each for each in inside if not _AWAITED.search(each.opcode)]
    loads = {(i.source, address_text(i.operands)) for i in own if i.opcode.startswith("ld.shared")}
    sums = [
        each
        for each in own
        if each.opcode.startswith("st.shared") and each.source and steps.of(each) == 0
        if (each.source, address_text(each.operands)) in loads
    ]
    if sums:
        yield CodeClaim(
            _ACCUMULATED,
            {"accesses": len(sums)},
            "the address in PTX, which the same line loads, does not depend on the loop",
            sums[0].source,
            list(dict.fromkeys(each.source for each in sums)),
            words={"space": "Shared-memory"},
        )


def _loaded_by_others(
    kernel: KernelContext,
    store: Instruction,
    pointers: frozenset[str],
    streams: Mapping[tuple[Place, frozenset[str]], list[Instruction]],
) -> bool | None:
    """Whether a loop loads at other threads' addresses what each of its iterations stores.

    False if it loads only what the thread itself stored; None if that is not known, and where
    barriers order the threads.
    """
    ptx, provenance = kernel.code.ptx, kernel.provenance
    loads = [
        load
        for (place, of), listed in streams.items()
        for load in listed
        if place[1] == "load" and load.loop_depth and (not of or of & pointers)
    ]
    if ptx is None or provenance is None or not loads:
        return False
    samples = Samples.of(provenance, kernel.compiled)
    apart = {samples.in_block_apart(store, load) for load in loads}
    if apart <= {0}:
        return False
    barrier = any(i.opcode.startswith(("bar", "membar", "fence")) for i in ptx.instructions)
    return True if not barrier and None not in apart and kernel.compiled.by_nvvm else None


def newer_generation(kernel: KernelContext) -> str:
    """The tensor-core instruction of the architecture that replaces mma.sync; empty without one."""
    major = "".join(filter(str.isdigit, kernel.compiled.arch))[:-1]
    return next((each.name for each in GENERATIONS[2:] if major in each.majors), "")


def _uses(newer: str, outcome: Outcome) -> int:
    ops = tensor_ops(outcome.function)
    return sum(op.count for op in ops if op.operation.startswith(newer))


def keeps_tensor_cores(kernel: KernelContext, outcome: Outcome) -> bool:
    """Whether a change leaves the architecture's own tensor-core instruction in reach.

    A tile of fewer than 64 rows rules it out for good.
    """
    newer, rows = newer_generation(kernel), dot_rows(kernel.ttgir) if kernel.ttgir else None
    if not newer or rows is None:
        return True
    after = dot_rows(parse_ttgir(outcome.compiled.stages.get("ttgir", "")))
    if after is None:
        return True
    used = any(op.operation.startswith(newer) for op in tensor_ops_of(kernel.code))
    return (rows < _ROWS or after >= _ROWS) and not (used and not _uses(newer, outcome))
