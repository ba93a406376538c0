"""Activations that the backward pass computes again (gradient checkpointing).

PyTorch runs the backward pass of a GPU on a thread of its own, which launches kernels of the
forward pass only where a block is run once more: no operator's derivative calls, say, the softmax
of the forward pass. The block extends around such a kernel over all launches that follow each other
in the forward pass too. On an H200, where a step without checkpoints had 16 GEMMs and GELUs less,
these took 5.87 ms of it (`workloads/recomputation.py`). Their launches are saved with them: steps
with 11.5 and 5.2 ms of such kernels were 12.9 and 5.7 ms shorter without (docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.facts.memory.levels import levels
from traceview.facts.operations.operations import Kind, operations
from traceview.findings import Severity
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.rules.kernels import costliest_gpu, named, steady, whole_claim
from traceview.tables import NULL, Integers, Mask, RowNumbers
from traceview.trace import Trace

_FORWARD = (
    r"GeluCUDAKernelImpl|\b(?:silu|mish|softplus|elu|hardswish|leaky_relu)_kernel\b"
    r"|softmax_warp_forward|cunn_SoftMaxForward|vectorized_layer_norm_kernel|RowwiseMomentsCUDA"
    r"|fused_dropout_kernel|batch_norm_(?:transform_input|collect_statistics)|\bbn_fw_"
    r"|\bflash_fwd_|fmha_cutlassF|flash_fprop|max_pool_forward"
)
_BACKWARD = r"(?i)backward|_bwd|\bbn_bw_|grad(?:_|Kernel)|[dw]grad|cutlassB|_bprop"
_LEAST_LAUNCHES = 2
# A thread that launches fewer of the backward pass than this part of its kernels runs the forward.
_FORWARD_THREAD = 0.05
_FULL_MEMORY = 0.8


def _recomputations(trace: Trace) -> Iterator[TimeClaim]:
    for device, rows in costliest_gpu(trace, steady(trace, recomputed_kernels(trace))):
        peak, memory = _memory(trace, device)
        values = {"peak_bytes": peak, "memory_bytes": memory}
        yield replace(whole_claim(trace, device, rows, values), at_most=_most_severe(peak, memory))


def _most_severe(peak: int | None, memory: int | None) -> Severity:
    """The most that recomputation can be, by whether there is memory for the activations."""
    if peak is None or memory is None:
        return "low"
    return "info" if peak > _FULL_MEMORY * memory else "high"


RECOMPUTATION = FindingRule(
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
    forward, backward = (named(trace, rule) for rule in (_FORWARD, _BACKWARD))
    forward = forward & ~backward
    if not forward.any() or not backward.any():
        return result
    rows, thread = _in_launch_order(trace)
    grid = (kernels[f"grid_{axis}"][rows] for axis in "xyz")
    kind = groups.group(kernels.texts("name").codes[rows], *grid).ids
    of_thread = np.bincount(thread), np.bincount(thread, backward[rows])
    forwards = of_thread[1] < _FORWARD_THREAD * np.maximum(of_thread[0], 1)
    process = kernels["process"][rows]
    for number in groups.different(process).tolist():
        own = process == number
        first, again = own & forwards[thread], own & ~forwards[thread]
        repeated = _repeated(kind, thread, forward[rows], first, again)
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


def _repeated(kind: Integers, thread: Integers, anchor: Mask, first: Mask, again: Mask) -> Integers:
    """Indices, within `again`, of runs of launches that follow each other in `first` as well.

    Each run holds an anchor, a kernel that only the forward pass launches.
    """
    kinds = int(kind.max(initial=0)) + 1
    pair = kind[:-1] * kinds + kind[1:]
    same = thread[:-1] == thread[1:]
    known = groups.isin(pair, pair[same & first[:-1] & first[1:]])
    linked = same & again[:-1] & again[1:] & known
    run = np.cumsum(np.append(True, ~linked)) - 1
    anchored = again & anchor & groups.isin(kind, kind[first & anchor])
    holds = np.zeros(int(run.max(initial=0)) + 1, bool)
    holds[run[anchored]] = True
    return np.flatnonzero(again & holds[run])


def _memory(trace: Trace, device: int) -> tuple[int | None, int | None]:
    """The peak of the allocated memory of a GPU, and its size; None where unknown."""
    level, total = levels(trace).get(device), int(trace.devices["total_memory_bytes"][device])
    peak = int(level.bytes.max(initial=0)) if level is not None else None
    return peak, None if total == NULL else total
