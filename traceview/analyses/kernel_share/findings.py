"""Findings of kernel-share: unfused kernels and optimizers, tiny kernels, the costliest own kernel.

Shorter kernels shorten a step only where the GPU is what limits it: see facts/idle/gpu_limited.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview import groups
from traceview.analyses.framework_wording import is_compiled
from traceview.analyses.gpu_wording import gain_sentence, gpu_subject, severity_of_part
from traceview.analyses.kernel_share.attention import unfused_attention
from traceview.analyses.kernel_share.fusion import (
    Runs,
    matching_kernels,
    unfused_kernels,
    unfused_optimizer,
)
from traceview.analyses.recorder_wording import on_amd
from traceview.facts.idle.gaps import steady_span_ns, steady_spans_ns
from traceview.facts.idle.gpu_limited import claimable_ns
from traceview.facts.kernel_names.kernel_labels import kernel_labels
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.frameworks import terms
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.kernel_owners import KernelOwner, kernel_owners
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.steps.steps import steps
from traceview.facts.steps.warm_up import launched_in_warm_up, steady_kernels
from traceview.findings import LOW, Evidence, Finding, LostTime, Subject, share_pct
from traceview.tables import Mask
from traceview.trace import Trace
from traceview.units import Value

_COMPILED_IN_PART = (
    "torch.compile is on, but not for these: look for graph breaks (TORCH_LOGS=graph_breaks), and "
    "compile what calls them."
)
_PER_TENSOR = re.compile(r"elementwise_kernel<.*\baddcdiv_cuda_kernel", re.DOTALL)
_MANY_TENSORS = 20
_OWN_KERNEL_PCT = 10.0
_TINY_NS = 3_000
_MANY_TINY = 1_000


_FUSED = "Use fused=True (Adam, AdamW, SGD, Adagrad), or torch.compile on the optimizer's step."
_FUSED_REAL = (
    "Use fused=True (Adam, AdamW, SGD, Adagrad). It does not take complex parameters: give these "
    "an optimizer of their own."
)
_COMPLEX = re.compile(r"c10::complex<")


def fusion_findings(trace: Trace) -> Iterator[Finding]:
    """Chains of eager kernels, and foreach optimizers, of the GPU that spends most time in them."""
    of = max(unfused_kernels(trace, unfused_attention(trace)), key=_most_first, default=None)
    if of:
        yield from _runs_finding(
            trace,
            of,
            "{kernels:kernel} of elementwise operations, casts, normalizations and reductions run "
            "in {runs:chain} and take {total_ns}. Fused, a chain takes about as long as its "
            "longest kernel: up to {less_ns} less.",
            _COMPILED_IN_PART if is_compiled(trace) else terms(trace).fuse,
        )
    of = max(unfused_optimizer(trace), key=_most_first, default=None)
    if of:
        yield from _runs_finding(
            trace,
            of,
            "The optimizer is not fused: {kernels:foreach kernel} in {runs:run} take {total_ns}. "
            "One kernel that reads and writes each tensor once takes up to {less_ns} less.",
            _FUSED_REAL if matching_kernels(trace, _COMPLEX).any() else _FUSED,
        )


def _most_first(runs: Runs) -> tuple[int, int]:
    return runs.saved_ns, runs.less_ns


def _runs_finding(trace: Trace, of: Runs, template: str, remedy: str) -> Iterator[Finding]:
    span_ns = steady_spans_ns(trace).get(of.device, 0)
    severity = severity_of_part(of.saved_ns, of.gain_ns, span_ns)
    if severity is None:
        return
    kind = max(of.class_ns, key=lambda each: of.class_ns[each])
    values: dict[str, Value] = {
        "kernels": of.kernels,
        "runs": of.runs,
        "total_ns": of.total_ns,
        "less_ns": of.less_ns,
        "saved_ns": of.saved_ns,
    }
    yield Finding(
        severity,
        template + gain_sentence(of.saved_ns, of.gain_ns),
        remedy,
        of.saved_ns,
        gpu_subject(trace, of.device),
        Evidence(
            values, "classes", {**gpu_cells(trace, of.device), "class": kind.label}, *of.longest
        ),
        share_pct(of.saved_ns, span_ns) if of.saved_ns else None,
        work=LostTime(of.device, of.time),
    )


def per_tensor_optimizer(trace: Trace) -> Iterator[Finding]:
    """A finding on Adam-like optimizers that update each tensor alone: only these call addcdiv.

    The cost lies in the launches, which other analyses claim, so no time is claimed here.
    """
    kernels, loops = trace.recorded("kernels"), max(len(steps(trace)), 1)
    rows = np.flatnonzero(steady_kernels(trace) & matching_kernels(trace, _PER_TENSOR))
    if len(rows) < _MANY_TENSORS * loops:
        return
    device = int(kernels["device"][rows[0]])
    name = str(kernels.texts("name")[rows[0]])
    yield Finding(
        "low",
        "The optimizer updates its tensors one by one, {updates:update} in all, each of several "
        "kernels.",
        "Use foreach=True, or fused=True (Adam, AdamW): a few kernels update all tensors.",
        0,
        Subject("kernel", name),
        Evidence({"updates": len(rows), "device": device}, "kernels", {"name": name}),
    )


def tiny_kernels(trace: Trace) -> Iterator[Finding]:
    """A finding, for information, where most kernels take no longer than their launch.

    Kernels of CUDA graphs are left out, as they are not launched one by one.
    """
    kernels = trace.recorded("kernels")
    steady = steady_kernels(trace) & ~cuda_graphs(trace).node[kernel_operations(trace)]
    tiny = steady & (kernels.duration_ns <= _TINY_NS)
    device = kernels["device"][tiny]
    if not len(device):
        return
    by_device = groups.group(device)
    calls = groups.count(by_device)
    most = int(np.argmax(calls))
    worst = int(device[by_device.first[most]])
    on_device = steady & (kernels["device"] == worst)
    if calls[most] < max(_MANY_TINY, on_device.sum() // 2):
        return
    chosen = tiny & on_device
    kinds = kernel_classes(trace)[chosen]
    kind = KernelClass(int(np.argmax(np.bincount(kinds))))
    values: dict[str, Value] = {
        "tiny_kernels": int(calls[most]),
        "kernels": int(on_device.sum()),
        "longest_ns": _TINY_NS,
        "total_ns": int(kernels.duration_ns[chosen].sum()),
    }
    window = int(kernels["start_ns"][chosen].min()), int(kernels["end_ns"][chosen].max())
    yield Finding(
        "info",
        "{tiny_kernels} of {kernels} kernels take {longest_ns} or less, {total_ns} in all: each "
        "takes about as long to launch as to run.",
        f"Use {terms(trace).replay}, larger batches, or fused kernels.",
        0,
        gpu_subject(trace, worst),
        Evidence(values, "classes", {**gpu_cells(trace, worst), "class": kind.label}, *window),
    )


def costliest_own_kernel(trace: Trace, chosen: Mask) -> Iterator[Finding]:
    """The chosen kernel with most time after warm-up, if the program wrote it.

    Launches of warm-up count only if there are no others.
    """
    steady = ~launched_in_warm_up(trace)[kernel_operations(trace)] & chosen
    after_warm_up = bool(steady.any() and (steady != chosen).any())
    rows = np.flatnonzero(steady) if after_warm_up else np.flatnonzero(chosen)
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
    saved_ns = claimable_ns(trace, device, own[kernels["device"][own] == device])
    template = "{kernel} takes {kernel_ns}, {kernel_pct} of kernel time"
    template += " after warm-up." if after_warm_up else "."
    answers = "roofline, wave-quantization, load-widths, traceview ptx"
    remedy = f"Look at what limits it ({'rocprof-compute' if on_amd(trace) else answers})."
    values: dict[str, Value] = {
        "kernel": kernel_labels(trace)[first],
        "kernel_ns": largest_ns,
        "kernel_pct": pct,
        "saved_ns": saved_ns,
    }
    yield Finding(
        "info",
        template,
        remedy,
        saved_ns,
        Subject("kernel", name),
        Evidence(values, "kernels", {"name": name}),
        share_pct(saved_ns, steady_span_ns(trace)) if saved_ns else None,
    )
