"""The program's own kernel that takes most of the time, and what its recording shows against it.

A library's kernel is fast for what it does. What a program wrote itself may keep most of an SM
empty, work in a type that the GPU is slow at, or read its inputs again and again: the launch and
the name tell, without the code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceview.base import groups, hardware
from traceview.base.findings import LOW, Clause, Severity, Subject, severity_of
from traceview.base.records import record
from traceview.base.tables import RowNumbers
from traceview.base.units import Value
from traceview.traces.analyses.wording import on_amd
from traceview.traces.facts import delays, launch_configurations, operations, savings
from traceview.traces.facts.code import gathered_code
from traceview.traces.facts.grid_waves import gpu_limits, grid_columns
from traceview.traces.facts.idle import launching
from traceview.traces.facts.idle.gaps import steady_span_ns
from traceview.traces.facts.kernel_classes import (
    KernelClass,
    KernelOwner,
    kernel_classes,
    kernel_labels,
    kernel_owners,
    terms,
)
from traceview.traces.facts.ranges.selection import selected_kernels
from traceview.traces.facts.steps.steps import launched_in_warm_up
from traceview.traces.facts.work import variants
from traceview.traces.facts.work.peaks import peaks
from traceview.traces.rules import (
    FindingRule,
    TimeClaim,
    capability,
    costliest_gpu,
    kernel_claim,
    named,
    of_kernels,
    steady,
)
from traceview.traces.trace import Trace

_OWN_KERNEL_PCT = 10.0
_MOST_OF_TIME = 0.5
"""A kernel that takes more of the time is what the program is about."""
_LOW_OCCUPANCY_PCT = 25.0
"""With fewer of its warps an SM cannot hide the latency of memory by others: a kernel of 188
registers per thread, one block of 192 per SM, has 12 % (a public recording)."""
_SLOW_FP64 = 16
"""From this ratio of fp32 to fp64 lanes on, fp64 is there for compatibility: 32 and 64 of cards for
graphics, 2 of those for computing."""
_FP64 = r"<double\b|\bdouble(?: const)? ?[*&>]|float64\b|Float64|[dz]gemm|d884|f64f64|_f64_"
"""Names of kernels of fp64 arrays and products; a `double` may be one scalar beside arrays of
fp32."""
_OF_VECTORS = re.compile(r"vec|gemv|gevm|mv\b", re.IGNORECASE)
_TRANSPOSES = re.compile(r"transpos", re.IGNORECASE)
_LESS_OF = {
    "registers": "Use fewer registers: __launch_bounds__ with {threads} threads and more blocks, "
    "less unrolling, smaller arrays per thread.",
    "shared memory": "Use less shared memory per block, or more threads for the same.",
}
_BY_LIBRARY = (
    "Use a library's matrix product ({product}), or compare with it: it keeps tiles of inputs in "
    "shared memory, and uses tensor cores where the GPU has them."
)
_CUB = "Compare with CUB, whose {what} moves memory at nearly its full rate"
_MOST_TO_MOVE = 64
"""Registers per thread of a kernel that mostly moves memory, as those of CUB do. Sums of points on
an elliptic curve take 104 to 127 (public recordings): what limits them is arithmetic."""
_COMPARE: tuple[tuple[KernelClass, str, str], ...] = (
    (KernelClass.GEMM, "", "Compare with a library's matrix product ({product}) of the same size"),
    (KernelClass.CONVOLUTION, "", "Compare with a library's convolution (cuDNN)"),
    (KernelClass.ATTENTION, "", "Compare with a fused attention kernel (FlashAttention, cuDNN)"),
    (KernelClass.SORT_SCAN, "sort", _CUB.format(what="sort")),
    (KernelClass.SORT_SCAN, "scan|prefix|cumsum", _CUB.format(what="scan")),
    (KernelClass.SORT_SCAN, "histogram", _CUB.format(what="histogram")),
    (KernelClass.REDUCTION, "reduc|sum", _CUB.format(what="reduction")),
)
"""What libraries do as well as the GPU can, by class and words of the name."""
_BY_TILES = (
    "Use a tile in shared memory (32 × 33 elements), so that neighbouring threads both read and "
    "write neighbouring elements."
)


_SLOW_PRODUCT_PCT = 35.0
"""Of the peak rate: a library's matrix product has 60 to 95 % of it. Public recordings of own
ones have 7 % (GTX 1650, no shared memory) and 14 % (RTX 4070, tiles in registers)."""
_BYTES = {"float": 4, "double": 8}
_MOST_THREADS = 1.5


def _own_kernel(trace: Trace) -> Iterator[TimeClaim]:
    """The selected kernel with most time after warm-up, if the program wrote it.

    Launches of warm-up count only if there are no others.
    """
    chosen = selected_kernels(trace)
    late = ~launched_in_warm_up(trace)[operations.kernel_operations(trace)] & chosen
    after_warm_up = bool(late.any() and (late != chosen).any())
    rows = np.flatnonzero(late) if after_warm_up else np.flatnonzero(chosen)
    kernels = trace.recorded("kernels")
    by_name = groups.group(kernels.texts("name").codes[rows])
    total_ns = groups.sums(by_name, kernels.duration_ns[rows])
    if not total_ns.any():
        return
    most = int(np.argmax(total_ns))
    first, largest_ns = int(rows[by_name.first[most]]), int(total_ns[most])
    pct = 100.0 * largest_ns / int(total_ns.sum())
    short = largest_ns < LOW * steady_span_ns(trace)
    if short or pct < _OWN_KERNEL_PCT or kernel_owners(trace)[first] != KernelOwner.PROGRAM:
        return
    device, name = int(kernels["device"][first]), str(kernels.texts("name")[first])
    own = rows[by_name.ids == most]
    own = own[kernels["device"][own] == device]
    if delays.may_delay(trace, own):
        # wave-quantization says so.
        return
    gain, shown = of_kernels(trace, own), _shown(trace, own, name)
    limits = largest_ns > _MOST_OF_TIME * steady_span_ns(trace)
    # Waits around it would go, too, if nothing else took their place. Calls that wait for a kernel
    # which runs most of the time do not all say so, such as cudaMalloc on several threads, nor
    # does a host thread that is as slow where the GPU seldom waits for it.
    idle_pct = launching.steady_idle_pct(trace, device)
    counts = limits or (idle_pct is not None and idle_pct <= launching.BOUND_PCT)
    saved_ns = largest_ns if counts else min(gain.saved_ns, largest_ns)
    for each in shown:
        # It computes in any case, at the peak rate at best.
        saved_ns = round(saved_ns * (1 - float(each.values.get("peak_pct") or 0) / 100) * each.most)
    severity: Severity = "medium" if any(each.sure for each in shown) and limits else "info"
    if severity == "info" and any(each.measured for each in shown):
        severity = severity_of(saved_ns, steady_span_ns(trace)) or "info"
        severity = "medium" if severity == "high" else severity
    values = {
        "kernel": kernel_labels(trace)[first],
        "kernel_ns": largest_ns,
        "kernel_pct": pct,
        "saved_ns": saved_ns,
    }
    yield TimeClaim(
        Subject("kernel", name),
        values | {key: value for each in shown for key, value in each.values.items()},
        "kernels",
        {"name": name},
        saved_ns,
        span_ns=steady_span_ns(trace),
        # Nothing is known of how much less it could take: it cannot save more than if it went.
        error_ns=gain.error_ns,
        saving="at-most",
        words={
            "when": " after warm-up" if after_warm_up else "",
            "plain": "".join(each.plain for each in shown),
        },
        remedy=_remedy(trace, first, shown),
        severity=severity,
    )


def _remedy(trace: Trace, kernel: int, shown: Sequence[Shown]) -> str:
    """What a library does as well, what the launches show, or else what to measure it by."""
    sentences = [each.remedy for each in shown] or [_counters(trace, kernel)]
    if any(each.sure for each in shown):
        return " ".join(sentences)
    kind, kernels = kernel_classes(trace)[kernel], trace.recorded("kernels")
    name = str(kernels.texts("short_name")[kernel]).lower()
    alike = (text for of, words, text in _COMPARE if of == kind and re.search(words, name))
    text = "" if on_amd(trace) else next(alike, "")
    if "CUB" in text and int(kernels["registers_per_thread"][kernel]) > _MOST_TO_MOVE:
        text = ""
    return " ".join([f"{text.format(product=terms(trace).product)}."] * bool(text) + sentences)


def _counters(trace: Trace, kernel: int) -> str:
    """How to see what limits a kernel of which the recording shows nothing."""
    if on_amd(trace):
        return "Record its counters, which show what limits it: rocprof-compute profile -k NAME."
    name = str(trace.recorded("kernels").texts("short_name")[kernel] or "NAME")
    return (
        f"Record its counters, which show what limits it: ncu --set full -k regex:{name[:40]} "
        "-o kernel. Then traceview report with --ncu kernel.ncu-rep."
    )


def _shown(trace: Trace, rows: RowNumbers, name: str) -> list[Shown]:
    every = (
        _by_code(trace, rows),
        _in_few_warps(trace, rows),
        _as_long_in_any_grid(trace, rows),
        _slow_product(trace, rows, name) or _without_shared_memory(trace, rows, name),
        _beside_faster(trace, rows),
        _in_a_row(trace, rows),
    )
    return [each for each in every if each]


@record
class Shown:
    """What launches of a kernel show against it, in `values` of a clause or `plain` words.

    `sure` says that its remedy is known to help, `most` the part of the time that it saves at most;
    `measured` that the recording shows as much.
    """

    values: Mapping[str, Value]
    remedy: str
    plain: str = ""
    sure: bool = False
    most: float = 1.0
    measured: bool = False


def _by_code(trace: Trace, rows: RowNumbers) -> Shown | None:
    """What its code shows, where that was recorded: the worst finding, or a limit by arithmetic."""
    if "kernel_code" not in trace.tables:
        return None
    its = set(rows.tolist())
    running = (
        each
        for each in gathered_code(trace).launched
        if any(not its.isdisjoint(run.rows.tolist()) for run in each.runs)
    )
    code = next(running, None)
    if code is None:
        return None
    # Most recordings have no code, and the import takes long.
    from traceview.kernels.inspect.running_kernel import shown_by_code

    sms = trace.devices.cells("sm_count")[code.device]
    finding, arithmetic = shown_by_code(code.compiled, sms if isinstance(sms, int) else None)
    if finding:
        told = finding.evidence.values
        part, whole = told.get("instructions"), told.get("all_instructions")
        most = float(part) / float(whole) if part and whole else 1.0
        return Shown({}, f"{finding.action}.", f" {finding.message}.", sure=True, most=most)
    if arithmetic is None:
        return None
    values: dict[str, Value] = {
        "pipe": arithmetic.pipe,
        "pipe_instructions": arithmetic.instructions,
        "loop_instructions": arithmetic.of,
        **({"loop": str(arithmetic.source)} if arithmetic.source else {}),
    }
    return Shown(values, _FEWER_OPERATIONS)


_FEWER_OPERATIONS = (
    "Do less in that loop: fewer operations per element, or several elements per thread, which "
    "share what each pass loads and counts."
)


def _in_few_warps(trace: Trace, rows: RowNumbers) -> Shown | None:
    """Most of an SM's warps stay empty, though there are blocks enough to fill it."""
    if kernel_classes(trace)[rows[0]] in (KernelClass.GEMM, KernelClass.ATTENTION):
        # Their pipeline inside a warp hides latency, not other warps: few are usual.
        return None
    longest = rows[[int(np.argmax(trace.recorded("kernels").duration_ns[rows]))]].astype(np.int64)
    grids = grid_columns(launch_configurations.single_launches(trace, longest), gpu_limits(trace))
    held = grids.occupancy_at(0)
    if held is None or held.theoretical_occupancy_pct > _LOW_OCCUPANCY_PCT:
        return None
    if held.limiter not in _LESS_OF or held.waves.blocks <= held.waves.at_once:
        return None
    of = grids.configurations[0]
    used = {"registers": of.registers}
    if held.limiter != "registers":
        used = {"shared_bytes": of.static_bytes + of.dynamic_bytes}
    values = {
        **used,
        "blocks_per_sm": held.blocks_per_sm,
        "threads": of.threads,
        "occupancy_pct": held.theoretical_occupancy_pct,
    }
    return Shown(values, _LESS_OF[held.limiter])


def fp64_ratio(trace: Trace, device: int) -> int:
    """How many times as fast a GPU computes fp32 where it has next to no lanes for fp64, else 0."""
    version = capability(trace, device)
    fp32, fp64 = (hardware.lanes_of(f"{version:.1f}", kind) for kind in ("fp32", "fp64"))
    return fp32 // fp64 if fp32 and fp64 and fp32 >= _SLOW_FP64 * fp64 else 0


def _slow_fp64(trace: Trace) -> Iterator[TimeClaim]:
    """Kernels in fp64 on a GPU that has next to no lanes for it: they win its ratio at most."""
    rows = steady(trace, named(trace, _FP64))
    codes = trace.recorded("kernels").texts("name").codes[rows]
    of_block = np.zeros(len(rows), bool)
    for own in groups.rows_of(codes).values():
        of_block[own] = _as_long_in_any_grid(trace, rows[own]) is not None
    rows = rows[~of_block]
    for device, own in costliest_gpu(trace, rows, lambda gpu: bool(fp64_ratio(trace, gpu))):
        ratio = fp64_ratio(trace, device)
        less_ns = trace.recorded("kernels").duration_ns[own] * (ratio - 1) // ratio
        claim = kernel_claim(trace, device, own, {"fp64_ratio": ratio}, savings.faster(less_ns))
        yield replace(claim, saving="at-most")


def _as_long_in_any_grid(trace: Trace, rows: RowNumbers) -> Shown | None:
    """Its calls of few blocks take as long as those of many: a block is what takes the time."""
    kernels = trace.recorded("kernels")
    blocks = np.prod([kernels[f"grid_{axis}"][rows].astype(np.int64) for axis in "xyz"], axis=0)
    took_ns = kernels.duration_ns[rows]
    few, many = np.percentile(blocks, (10, 90), method="nearest")
    if len(rows) < _MANY or few < 1 or many < _TIMES_MORE * few:
        return None
    low, usual, high = np.percentile(took_ns, (10, 50, 90))
    if usual < _SHORT_NS or high > _NEARLY_EQUAL * low:
        return None
    values = {"block_ns": round(usual), "few_blocks": int(few), "many_blocks": int(many)}
    return Shown(values, _LATENCY, sure=True)


_TIMES_MORE, _NEARLY_EQUAL = 8, 1.2
"""A solver takes 53 to 64 µs for each of 1,221 levels, of 1 to 120 blocks (a public recording)."""
_LATENCY = (
    "Shorten what a block does one after another: more warps for it, fewer loads that wait for "
    "others. Where calls depend on each other, do several in one cooperative launch, whose blocks "
    "all run at once and may wait for each other."
)


def _slow_product(trace: Trace, rows: RowNumbers, name: str) -> Shown | None:
    """It multiplies matrices at a small part of the peak rate.

    Its FLOP follow from what is copied around it, whatever the shapes: with A (m × k), B (k × n)
    and C (m × n) they are 2 m n k = 2 √(|A| |B| |C|). The threads of its grid confirm |C|.
    """
    kernels, copies = trace.recorded("kernels"), trace.recorded("copies")
    kinds = [kind for kind in _BYTES if re.search(rf"[(, ]{kind} ?(const ?)?\*", name)]
    of_matrices = kernel_classes(trace)[rows[0]] == KernelClass.GEMM
    if len(kinds) != 1 or not of_matrices or _OF_VECTORS.search(name):
        return None
    direction, device = copies.texts("direction"), copies["device"] == kernels["device"][rows[0]]
    before = copies["end_ns"] <= kernels["start_ns"][rows].min()
    after = copies["start_ns"] >= kernels["end_ns"][rows].max()
    given = copies["bytes"][device & before & direction.isin(["H2D"])]
    taken = copies["bytes"][device & after & direction.isin(["D2H"])]
    if len(given) != 2 or not len(taken):
        return None
    a, b, c = (int(each) / _BYTES[kinds[0]] for each in (*given, taken[0]))
    row = rows[int(np.argmax(kernels.duration_ns[rows]))]
    threads = math.prod(
        int(kernels[f"{of}_{axis}"][row]) for of in ("grid", "block") for axis in "xyz"
    )
    known = peaks(trace)[int(kernels["device"][row])]
    peak = known.get("fp32" if kinds[0] == "float" else "fp64")
    fits = threads > 0 and (c % threads == 0 or c < threads < _MOST_THREADS * c)
    if not fits or peak is None:
        return None
    rate = 2 * math.sqrt(a * b * c) / float(np.median(kernels.duration_ns[rows])) * 1e9
    pct = 100 * rate / peak.value
    if pct >= _SLOW_PRODUCT_PCT:
        return None
    values = {"flop_per_s": rate, "peak_pct": pct}
    return Shown(values, _BY_LIBRARY.format(product=terms(trace).product), sure=True)


def _without_shared_memory(trace: Trace, rows: RowNumbers, name: str) -> Shown | None:
    """It multiplies or transposes matrices without a tile in shared memory."""
    kernels = trace.recorded("kernels")
    columns = ("static_shared_memory_bytes", "dynamic_shared_memory_bytes")
    if on_amd(trace) or any((kernels[column][rows] != 0).any() for column in columns):
        return None
    if kernel_classes(trace)[rows[0]] == KernelClass.GEMM and not _OF_VECTORS.search(name):
        plain = " It multiplies matrices without shared memory, so that it reads inputs many times."
        return Shown({}, _BY_LIBRARY.format(product=terms(trace).product), plain, sure=True)
    if _TRANSPOSES.search(name):
        plain = " It transposes without shared memory, so that it reads or writes with a stride."
        return Shown({}, _BY_TILES, plain)
    return None


def _beside_faster(trace: Trace, rows: RowNumbers) -> Shown | None:
    """Another own kernel of the same grid and block, and of a like name, is far faster.

    Or a copy, where it transposes: that moves as many bytes. Where the program compares them, what
    the fastest takes less is what it measured itself.
    """
    kernels = trace.recorded("kernels")
    name, of_grid = str(kernels.texts("short_name")[rows[0]]), variants.of_same_grid(trace, rows[0])
    own = next((each for each in of_grid if rows[0] in each.rows), None)
    if own is None or not own.words:
        return None
    others = [each for each in of_grid if each is not own]
    faster, remedy = [each for each in others if each.words == own.words], _AS_THE_FASTER
    if not faster and _TRANSPOSES.search(name):
        faster, remedy = [each for each in others if each.words == {"copy"}], _AS_A_COPY
    if not faster:
        return None
    fastest = min(faster, key=lambda each: each.usual_ns)
    own_ns = round(float(np.median(kernels.duration_ns[rows])))
    if own_ns < _TIMES_SLOWER * fastest.usual_ns or own_ns < _LEAST_COMPARED_NS:
        return None
    values: dict[str, Value] = {
        "each_ns": own_ns,
        "variant": kernel_labels(trace)[int(fastest.rows[0])],
        "variant_ns": fastest.usual_ns,
    }
    if remedy is _AS_A_COPY or not variants.compared([own, *faster]):
        return Shown(values, remedy)
    values |= {"variants": len(faster) + 1, "variant_calls": len(own.rows)}
    most = 1 - fastest.usual_ns / own_ns
    return Shown(values, remedy, most=most, measured=True)


def _in_a_row(trace: Trace, rows: RowNumbers) -> Shown | None:
    """Its calls are short, and nearly all follow one another, with no other work in between."""
    kernels, ops = trace.recorded("kernels"), operations.operations(trace)
    usual_ns = round(float(np.median(kernels.duration_ns[rows])))
    its = np.zeros(len(ops), bool)
    its[operations.kernel_operations(trace)[rows]] = True
    own = its[ops.device == kernels["device"][rows[0]]]
    follows = own[1:] & own[:-1]
    if usual_ns > _SHORT_NS or np.count_nonzero(follows) < max(_MANY, _NEARLY_ALL * len(rows)):
        return None
    return Shown({"short_ns": usual_ns}, _IN_ONE)


_SHORT_NS, _MANY, _NEARLY_ALL = 5_000, 100, 0.9
"""A kernel that does next to nothing takes 0.7 to 2 µs on an H200: a good part of this."""
_IN_ONE = (
    "Do the work of several calls in one, with the loop in the kernel, where no block needs what "
    "another computed: values then stay in registers."
)


_TIMES_SLOWER, _LEAST_COMPARED_NS = 2.0, 10_000
"""Accesses of 4 bytes that are not coalesced move up to 8 times the bytes, in sectors of 32."""
_AS_A_COPY = "A transposition by tiles takes little longer than a copy."
_AS_THE_FASTER = (
    "If both compute the same, use {variant}, or compare how they access memory: neighbouring "
    "threads should read and write neighbouring elements."
)


SLOW_FP64 = FindingRule(
    _slow_fp64,
    "Kernels in fp64 take {total_ns} ({total_pct} of kernel time after warm-up): this GPU computes "
    "fp64 at 1/{fp64_ratio} of its fp32 rate.",
    "Use fp32 where the results allow it: its arithmetic is up to {fp64_ratio} times as fast here, "
    "and its data half as large.",
)
OWN_KERNEL = FindingRule(
    _own_kernel,
    "{kernel} takes {kernel_ns}, {kernel_pct} of kernel time{when}.{plain}",
    clauses=(
        Clause(
            " Arithmetic limits its hottest loop[, at {loop}]: {pipe_instructions} of "
            "{loop_instructions} instructions are of {pipe}."
        ),
        Clause(
            " It multiplies matrices at {flop_per_s}, {peak_pct} of what this GPU computes at most."
        ),
        Clause(
            " Its {registers} registers per thread leave an SM {blocks_per_sm:block} of {threads} "
            "threads, {occupancy_pct} of the warps that it can hold."
        ),
        Clause(
            " Its {shared_bytes} of shared memory per block leave an SM {blocks_per_sm:block} of "
            "{threads} threads, {occupancy_pct} of the warps that it can hold."
        ),
        Clause(
            " It takes {each_ns} per call (median), and {variant}, of the same grid, {variant_ns}."
        ),
        Clause(
            " {variants:kernel} of like names and of this grid run one after another, "
            "{variant_calls:call} each: a comparison."
        ),
        Clause(" Its calls follow one another and take {short_ns} each (median)."),
        Clause(
            " A call takes {block_ns} (median), of {few_blocks:block} as of {many_blocks:block}: "
            "that is the time of a block, not of all the work."
        ),
    ),
)
