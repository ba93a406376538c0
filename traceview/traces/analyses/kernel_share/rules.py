"""The rules of kernel-share in reading order, and those that need no file of their own.

Shorter kernels shorten a step only where the GPU is what limits it: a replay of the run tells, see
facts/dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from traceview.base import groups
from traceview.base.tables import NULL, Integers, Mask, RowNumbers
from traceview.base.vocabulary.libraries import architecture, multiplies_16_bits
from traceview.traces import rules
from traceview.traces.analyses.kernel_share import fusion, library_kernels, own_kernels, products
from traceview.traces.analyses.wording import is_compiled
from traceview.traces.facts import launches, savings
from traceview.traces.facts.idle import launching
from traceview.traces.facts.kernel_classes import (
    KernelClass,
    framework,
    kernel_classes,
    kernel_labels,
)
from traceview.traces.facts.memory import levels
from traceview.traces.facts.operations import Kind, gpu_cells, kernel_operations, operations
from traceview.traces.facts.steps.steps import steady_kernels
from traceview.traces.facts.work.kernel_work import alone
from traceview.traces.facts.work.peaks import peaks
from traceview.traces.trace import Trace

# Activations that the backward pass computes again (gradient checkpointing).
#
# PyTorch runs the backward pass of a GPU on a thread of its own, which launches kernels of the
# forward pass only where a block is run once more: no operator's derivative calls, say, the
# softmax of the forward pass. The block extends around such a kernel over all launches that
# follow each other in the forward pass too. On an H200, where a step without checkpoints had 16
# GEMMs and GELUs less, these took 5.87 ms of it (`workloads/recomputation.py`). Their launches
# are saved with them: steps with 11.5 and 5.2 ms of such kernels were 12.9 and 5.7 ms shorter
# without (docs/accuracy.md).

_FORWARD = (
    r"GeluCUDAKernelImpl|\b(?:silu|mish|softplus|elu|hardswish|leaky_relu)_kernel\b"
    r"|softmax_warp_forward|cunn_SoftMaxForward|vectorized_layer_norm_kernel|RowwiseMomentsCUDA"
    r"|fused_dropout_kernel|batch_norm_(?:transform_input|collect_statistics)|\bbn_fw_"
    r"|\bflash_fwd_|fmha_cutlassF|flash_fprop|max_pool_forward"
)
_LEAST_LAUNCHES = 2
# A thread that launches less than this part of the backward pass's kernels runs the forward pass.
_FORWARD_THREAD = 0.05
_FULL_MEMORY = 0.8
_WITH_CHECKPOINT = savings.Effect("gone", around=True)
"""torch.utils.checkpoint restores the state of the forward pass before each block and packs tensors
behind it: 0.32 and 0.39 ms per block of GPT-2, ten times the usual pause. It also calls Python for
each tensor that is saved, and to unpack it: without it the steps of GPT-2 and Qwen2 took 1.2 and
0.9 times that time less again (docs/accuracy.md)."""


def _recomputations(trace: Trace) -> Iterator[rules.TimeClaim]:
    for device, rows in rules.costliest_gpu(trace, rules.steady(trace, recomputed_kernels(trace))):
        peak, memory = _memory(trace, device)
        values = {"peak_bytes": peak, "memory_bytes": memory}
        claim = rules.whole_claim(trace, device, rows, values, effect=_WITH_CHECKPOINT)
        if peak is None or memory is None:
            yield replace(claim, at_most="low")
        else:
            yield replace(claim, at_most="info" if peak > _FULL_MEMORY * memory else "high")


RECOMPUTATION = rules.FindingRule(
    _recomputations,
    "The backward pass computes activations again: {kernels:kernel} of the forward pass "
    "{kernels?takes|take} {total_ns} ({total_pct} of kernel time after warm-up).[ Memory peaks at "
    "{peak_bytes} of {memory_bytes}.]",
    "Where the memory allows it, keep the activations: checkpoint fewer blocks or none "
    "(torch.utils.checkpoint, gradient_checkpointing), or only what is cheap to compute again.",
    saving="about",
)


def recomputed_kernels(trace: Trace) -> Mask:
    """True for the kernels of the forward pass that the backward pass launches once more."""
    kernels = trace.recorded("kernels")
    result = np.zeros(len(kernels), bool)
    forward, backward = (rules.named(trace, rule) for rule in (_FORWARD, rules.BACKWARD))
    forward = forward & ~backward
    if not forward.any() or not backward.any():
        return result
    rows, thread = _in_launch_order(trace)
    grid = (kernels[f"grid_{axis}"][rows] for axis in "xyz")
    kind = groups.group(kernels.texts("name").codes[rows], *grid).ids
    process = kernels["process"][rows]
    for number in groups.different(process).tolist():
        own = process == number
        of_thread = np.bincount(thread, own & backward[rows])
        forwards = of_thread < _FORWARD_THREAD * of_thread.sum()
        first, again = own & forwards[thread], own & ~forwards[thread]
        # Indices, within `again`, of runs of launches that follow each other in `first` as well.
        # Each run holds an anchor, a kernel that only the forward pass launches.
        anchor = forward[rows]
        kinds = int(kind.max(initial=0)) + 1
        pair = kind[:-1] * kinds + kind[1:]
        same = thread[:-1] == thread[1:]
        known = groups.isin(pair, pair[same & first[:-1] & first[1:]])
        linked = same & again[:-1] & again[1:] & known
        run = np.cumsum(np.append(True, ~linked)) - 1
        anchored = again & anchor & groups.isin(kind, kind[first & anchor])
        holds = np.zeros(int(run.max(initial=0)) + 1, bool)
        holds[run[anchored]] = True
        repeated = np.flatnonzero(again & holds[run])
        if len(repeated) and int(forward[rows[repeated]].sum()) >= _LEAST_LAUNCHES:
            result[rows[repeated]] = True
    return result


def _in_launch_order(trace: Trace) -> tuple[RowNumbers, Integers]:
    """The launched kernels by thread and time of the call, and the thread of each."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    rows = np.flatnonzero((ops.kind == Kind.KERNEL) & ops.launched)
    thread = calls["thread"][ops.call[rows]].astype(np.int64)
    order = np.lexsort((calls["start_ns"][ops.call[rows]], thread))
    return ops.row[rows[order]], thread[order]


def _memory(trace: Trace, device: int) -> tuple[int | None, int | None]:
    """The peak of the allocated memory of a GPU, and its size; None where unknown."""
    level, total = levels(trace).get(device), int(trace.devices["total_memory_bytes"][device])
    peak = int(level.bytes.max(initial=0)) if level is not None else None
    return peak, None if total == NULL else total


_HOPPER = 90
_TINY_NS = 3_000
_MANY_TINY = 1_000
_COMPILED_IN_PART = (
    "torch.compile is on, but not for these: look for graph breaks (TORCH_LOGS=graph_breaks), and "
    "compile what calls them."
)
_FUSED_REAL = (
    "Use fused=True (Adam, AdamW, SGD, Adagrad). It does not take complex parameters: give these "
    "an optimizer of their own."
)


def _is_old_gemm(name: str) -> bool:
    """Whether a kernel multiplies aligned matrices of 16 bits, and was built before Hopper."""
    made = architecture(name)
    return made is not None and made < _HOPPER and multiplies_16_bits(name)


def _old_gemms(trace: Trace) -> Iterable[rules.TimeClaim]:
    # Libraries choose older kernels for small or odd shapes as well, and rightly:
    # certain is a recording that has none of the GPU's own, as with a CUDA version older than it.
    # Without wgmma, Hopper's tensor cores reach some 60 % of their peak.
    old = rules.faster(_is_old_gemm, 1.6, since=9.0, least_ns=20_000)
    newer = rules.named(trace, lambda name: (architecture(name) or 0) >= _HOPPER)
    return () if newer.any() else old(trace)


_IN_DOUBLE, _FP64_PRODUCT = r"^void at::native::.*<double[,>]", r"dgemm|d884|f64f64|_f64_|fp64"


def _doubles(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Kernels of torch in double precision, in a program whose products are all in fewer bits.

    Or in one that trains a model in double precision, which a default type of numbers does.
    """
    products_of = kernel_classes(trace) == KernelClass.GEMM
    mixed = not (products_of & rules.named(trace, _FP64_PRODUCT)).any()
    if not products_of.any() or not (mixed or rules.trains(trace)):
        return
    if any(own_kernels.fp64_ratio(trace, device) for device in range(len(trace.devices))):
        # They win more there.
        return
    for claim in rules.faster(_IN_DOUBLE, 2.0, least_ns=20_000)(trace):
        # What they win beyond half of their bytes depends on the GPU.
        yield replace(
            claim,
            words={**claim.words, "fewer": "fewer" if mixed else ""},
            remedy="" if mixed else _ALL_IN_DOUBLE,
            saving="at-most",
            at_most="medium",
        )


_ALL_IN_DOUBLE = (
    "Use float32 if it is precise enough: torch.set_default_dtype(torch.float32), or .float() of "
    "the model and its input. That is half of the bytes."
)


def _rotations(trace: Trace) -> Iterable[rules.TimeClaim]:
    # On an H200 3.2 to 8.3 times as fast for 6 matrices of 1,024 and 16 of 256 rows
    # (docs/accuracy.md).
    rotations = rules.faster(r"\bgesvdb?j_|\bsvd_(?:column|row)_rotate_", 8.3)
    return rotations(trace) if framework(trace) == "torch" else ()


def _chains(trace: Trace) -> Iterator[rules.TimeClaim]:
    others = fusion.unfused_attention(trace)
    others[fusion.tensor_loops(trace).rows] = True
    for claim in fusion.unfused_kernels(trace, others):
        yield replace(claim, remedy=_COMPILED_IN_PART if is_compiled(trace, 0) else "")


def _optimizers(trace: Trace) -> Iterator[rules.TimeClaim]:
    for claim in fusion.unfused_optimizer(trace):
        yield replace(
            claim, remedy=_FUSED_REAL if rules.named(trace, r"c10::complex<").any() else ""
        )


def _tiny(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Where most kernels take no longer than their launch.

    Kernels of CUDA graphs are left out, as they are not launched one by one.
    """
    kernels = trace.recorded("kernels")
    launched = steady_kernels(trace) & ~launches.cuda_graphs(trace).node[kernel_operations(trace)]
    tiny = launched & (kernels.duration_ns <= _TINY_NS)
    calls = groups.frequencies(kernels["device"][tiny], len(trace.devices))
    device = int(np.argmax(calls)) if len(calls) else 0
    on_device = launched & (kernels["device"] == device)
    if not calls.any() or calls[device] < max(_MANY_TINY, on_device.sum() // 2):
        return
    chosen = tiny & on_device
    kind = KernelClass(int(np.argmax(np.bincount(kernel_classes(trace)[chosen]))))
    yield rules.TimeClaim(
        rules.gpu_subject(trace, device),
        {
            "tiny_kernels": int(calls[device]),
            "kernels": int(on_device.sum()),
            "longest_ns": _TINY_NS,
            "total_ns": int(kernels.duration_ns[chosen].sum()),
        },
        "classes",
        {**gpu_cells(trace, device), "class": kind.label},
        window=(int(kernels["start_ns"][chosen].min()), int(kernels["end_ns"][chosen].max())),
        severity="info",
    )


_ENDS_REDUCTION = r"_gpu__red\b"
"""Of OpenACC (nvc): one block adds up what the blocks of the region before left."""
_READ_SELDOM = 0.5
"""Of the reductions: a public recording reads 98 of 9,899."""


def _unread_reductions(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Reductions of directives of which few results reach the CPU."""
    copies = trace.recorded("copies")
    if trace.selection or "copies" not in trace.tables:
        return
    ends = rules.steady(trace, rules.named(trace, _ENDS_REDUCTION))
    for device, chosen in rules.costliest_gpu(trace, ends):
        start = trace.recorded("kernels")["start_ns"][chosen]
        of_gpu = copies.texts("direction").isin(["D2H"]) & (copies["device"] == device)
        # One copy may bring the results of all reductions before it.
        reads = np.searchsorted(np.sort(start), copies["start_ns"][of_gpu])
        read = len(np.unique(reads[reads > 0]))
        if read <= _READ_SELDOM * len(chosen):
            claim = rules.class_claim(trace, device, chosen, {"reads": read})
            yield replace(claim, saving="at-most")


_ONE_BY_ONE = re.compile(
    r"\bunrolled_elementwise_kernel<(?P<does>.*?)\b[Aa]rray<char ?\*, (?:\([\w ]+\))?"
    r"(?P<operands>\d+)>"
)
_TYPES = {"float": (4, 4), "double": (8, 4), "Half": (2, 8), "BFloat16": (2, 8)}
"""Bytes of an element, and most elements per thread: 4 until torch 2.6 whatever the type, and 8 of
2 bytes since."""
_A_TYPE = re.compile(rf"\b(?:{'|'.join(_TYPES)}|bool|long|char|short|complex|int(?!\)))\b")
_FAR_BELOW_PCT, _LEAST_LONG_NS = 60.0, 20_000
"""Of the memory's rate, and least time of a call: a public recording has 54 % where vectors reach
92 % of the same GPU."""


def _unrolled(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Elementwise kernels of torch that load one element at a time, far below the memory's rate.

    Their bytes are no more than their threads, operands and type allow.
    """
    kernels = trace.recorded("kernels")
    rows = rules.steady(trace, rules.named(trace, _bytes_per_thread))
    rows = rows[(kernels.duration_ns[rows] >= _LEAST_LONG_NS) & alone(trace)[rows]]
    by_name = groups.group(kernels["device"][rows], kernels.texts("name").codes[rows])
    each = (_below_bandwidth(trace, rows[own]) for own in groups.rows_of(by_name.ids).values())
    yield from sorted((claim for claim in each if claim), key=lambda claim: claim.gain)[-1:]


def _bytes_per_thread(name: str) -> int:
    """The most that a thread of such a kernel reads and writes; 0 where the name does not say."""
    match = _ONE_BY_ONE.search(name)
    types = {*_A_TYPE.findall(match["does"])} if match else set[str]()
    if not match or len(types) != 1 or types - _TYPES.keys() or "copy" in match["does"]:
        # A conversion may read elements of 8 bytes.
        return 0
    size, elements = _TYPES[types.pop()]
    return int(match["operands"]) * size * elements


def _below_bandwidth(trace: Trace, rows: RowNumbers) -> rules.TimeClaim | None:
    kernels, device = trace.recorded("kernels"), int(trace.recorded("kernels")["device"][rows[0]])
    peak = peaks(trace)[device].get("bandwidth")
    if peak is None:
        return None
    name = str(kernels.texts("name")[int(rows[0])])
    threads = kernels["grid_x"][rows].astype(np.float64) * kernels["block_x"][rows]
    most = threads * _bytes_per_thread(name)
    duration_ns = kernels.duration_ns[rows]
    less_ns = (duration_ns - most / peak.value * 1e9).clip(0).astype(np.int64)
    rate = float(most.sum()) / float(duration_ns.sum()) * 1e9
    pct = 100 * rate / peak.value
    if pct >= _FAR_BELOW_PCT:
        return None
    claim = rules.kernel_claim(trace, device, rows, effect=savings.faster(less_ns))
    idle_pct = launching.steady_idle_pct(trace, device)
    if idle_pct is not None and idle_pct <= launching.BOUND_PCT:
        # Not all that waits for a busy GPU says so.
        bound_ns = max(claim.saved_ns, int(less_ns.sum()))
        claim = replace(claim, saved_ns=bound_ns, lost_ns=None, edit=None, error_ns=None)
    values = {"label": kernel_labels(trace)[rows[0]], "bytes_per_s": rate, "memory_pct": pct}
    return replace(claim, values={**claim.values, **values}, saving="at-most", at_most="medium")


UNROLLED = rules.FindingRule(
    _unrolled,
    "{label} takes {total_ns} ({total_pct} of kernel time after warm-up) in {kernels:call} and "
    "moves at most {bytes_per_s}, {memory_pct} of what the memory does: it loads one element at a "
    "time.",
    "Give it tensors of one type that are contiguous and aligned to 16 bytes: torch then loads "
    "vectors (vectorized_elementwise_kernel).",
)
UNREAD_REDUCTIONS = rules.FindingRule(
    _unread_reductions,
    "{kernels:reduction} of directives take {total_ns} ({total_pct} of kernel time after warm-up) "
    "to end, and results are copied back {reads:time}.",
    "Reduce only in passes whose result the CPU reads: give the other passes a loop without the "
    "reduction clause.",
)
_OF_A_BATCH = r"batch_norm_collect_statistics|\bbn_fw_tr_"
_MUCH_OF_TIME_PCT = 5.0
"""Of kernel time: 26.5 % in a public recording of inference. Below, it is no finding to act on."""


def _statistics_of_batches(trace: Trace) -> Iterator[rules.TimeClaim]:
    """Batch norm in training mode, in a program that never trains."""
    if trace.selection or rules.trains(trace):
        return
    normalizing = rules.steady(trace, rules.named(trace, _OF_A_BATCH))
    for device, chosen in rules.costliest_gpu(trace, normalizing):
        total_ns = int(trace.recorded("kernels").duration_ns[chosen].sum())
        total_pct = 100.0 * total_ns / int(rules.steady_ns(trace)[device])
        if total_pct >= _MUCH_OF_TIME_PCT:
            # How much less it takes with stored statistics was not measured.
            claim = rules.class_claim(trace, device, chosen)
            values = {"kernels": len(chosen), "total_ns": total_ns, "total_pct": total_pct}
            yield rules.TimeClaim(claim.subject, values, claim.table, claim.row, severity="medium")


IN_DOUBLE = rules.FindingRule(
    _doubles,
    "{kernels:kernel} of torch in double precision take {total_ns} ({total_pct} of kernel time "
    "after warm-up)[, though all products are in {fewer} bits].",
    "Cast their input to float32 where it becomes float64, such as from a NumPy array or by "
    ".double(): that is half of the bytes.",
)
STATISTICS_OF_BATCHES = rules.FindingRule(
    _statistics_of_batches,
    "Batch norm runs in training mode, in a program without a backward pass: {kernels:kernel} "
    "that compute statistics of their batch take {total_ns} ({total_pct} of kernel time after "
    "warm-up).",
    "Call model.eval() before inference: batch norm then uses stored statistics, takes less time, "
    "and results no longer depend on what else is in the batch.",
)
OLD_GEMMS = rules.FindingRule(
    _old_gemms,
    "16-bit GEMM kernels built for an older architecture take {total_ns} ({total_pct} of kernel "
    "time after warm-up) in {kernels:call}. The recording has none built for this GPU, and those "
    "are up to {speedup_factor} faster.",
    "Update CUDA's libraries, or the framework to a build for this GPU: cuBLAS 12 has kernels for "
    "it.",
)
JACOBI_ROTATIONS = rules.FindingRule(
    _rotations,
    "Singular values by Jacobi rotations (cuSOLVER's gesvdj) take {total_ns} ({total_pct} of "
    "kernel time after warm-up) in {kernels:call}. Its gesvda is up to {speedup_factor} faster.",
    "Pass driver='gesvda' to torch.linalg.svd or svdvals if small singular values need not be "
    "exact. Use torch.svd_lowrank for a few values, and a Newton-Schulz iteration for the nearest "
    "orthogonal matrix: both are faster still.",
)
UNFUSED_CHAINS = rules.FindingRule(
    _chains,
    "{kernels} elementwise, cast, norm and reduction kernels in {runs:chain} take {total_ns}. "
    "Fused, a chain takes about as long as its longest kernel: {less_ns} less.",
    lambda used: used.fuse,
)
UNFUSED_OPTIMIZER = rules.FindingRule(
    _optimizers,
    "The optimizer is not fused: {kernels:foreach kernel} in {runs:run} take {total_ns}. One "
    "kernel that reads and writes each tensor once takes {less_ns} less.",
    "Use fused=True (Adam, AdamW, SGD, Adagrad), or torch.compile on the optimizer's step.",
)
TINY_KERNELS = rules.FindingRule(
    _tiny,
    "{tiny_kernels} of {kernels} kernels take {longest_ns} or less, {total_ns} in all: each takes "
    "about as long to launch as to run.",
    lambda used: f"Use {used.replay}, larger batches, or fused kernels.",
)
RULES = (
    products.FP32_GEMMS,
    products.UNALIGNED,
    # Built for compute capability 8.0; on one of 9.x FlashAttention-3 (Shah et al., 2024) is 1.5 to
    # 2.0 times as fast forward on an H100, and cuDNN on an H200 1.3 to 1.9 times forward and 1.5 to
    # 2.02 times backward (docs/accuracy.md). Shorter calls are bound by their launch.
    rules.FindingRule(
        rules.faster(
            r"\b(?:pytorch_)?flash::flash_(?:fwd_kernel|bwd_dq_dk_dv_loop_\w+)\b",
            factor=2.1,
            since=9.0,
            until=10.0,
            least_ns=20_000,
        ),
        "FlashAttention-2 kernels, built for compute capability 8.0, take {total_ns} ({total_pct} "
        "of kernel time after warm-up) in {kernels:call}. FlashAttention-3 and cuDNN have kernels "
        "for this GPU, up to {speedup_factor} faster.",
        "Use FlashAttention-3 (flash_attn_interface), or cuDNN's attention: "
        "torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION) around the call.",
    ),
    OLD_GEMMS,
    JACOBI_ROTATIONS,
    fusion.UNFUSED_ATTENTION,
    *products.CONVOLUTIONS,
    IN_DOUBLE,
    own_kernels.SLOW_FP64,
    STATISTICS_OF_BATCHES,
    UNREAD_REDUCTIONS,
    UNROLLED,
    RECOMPUTATION,
    UNFUSED_CHAINS,
    UNFUSED_OPTIMIZER,
    fusion.TENSOR_UPDATES,
    fusion.TENSOR_BY_TENSOR,
    fusion.MEMSETS,
    fusion.LARGE_MEMSETS,
    TINY_KERNELS,
    own_kernels.OWN_KERNEL,
    library_kernels.MISUSED,
)
"""All rules of kernel-share but one. A new one is one record more."""
LAST = library_kernels.LONGEST
"""Of a kernel that takes most of the time, where nothing else says what to do about kernels."""
