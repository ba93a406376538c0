"""Attention that is not fused: a softmax between two GEMMs, with the scores in device memory.

A fused attention computes both products and the softmax in one kernel and never writes the scores.
Between the GEMMs stand the softmax and what scales, masks, casts or drops its scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_wording import gain_sentence, gpu_subject, severity_of_part
from traceview.analyses.kernel_share.fusion import matching_kernels, steady_in_order
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.idle.gpu_limited import claimable_ns
from traceview.facts.operations.frameworks import Framework, framework
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.findings import Evidence, Finding, LostTime, share_pct
from traceview.tables import Integers, RowNumbers
from traceview.trace import Trace, fact
from traceview.units import Value

_BETWEEN = (KernelClass.ELEMENTWISE, KernelClass.CAST_COPY, KernelClass.RANDOM)
_NO_SCORES = re.compile(r"(?i)backward|bwd|grad|log_?soft_?max|cross_?entropy|nll|loss")
_MOST_BETWEEN, _LEAST = 8, 2
_FUSED: dict[Framework, str] = {
    "torch": "Use torch.nn.functional.scaled_dot_product_attention (of transformers: "
    "attn_implementation='sdpa').",
    "jax": "Use jax.nn.dot_product_attention with implementation='cudnn'.",
}
_ANY_FUSED = "Use a fused attention, such as FlashAttention or cuDNN's."


def unfused_attention(trace: Trace) -> Iterator[Finding]:
    """A finding on the GPU with most time between the GEMMs of attention."""
    rows, attention = attention_scores(trace)
    by_device = groups.rows_of(trace.recorded("kernels")["device"][rows])
    findings = [_finding(trace, each, rows[own], attention[own]) for each, own in by_device.items()]
    worst = max(filter(None, findings), key=lambda each: each.time_at_stake_ns, default=None)
    if worst:
        yield worst


def _finding(trace: Trace, device: int, rows: RowNumbers, attention: Integers) -> Finding | None:
    kernels, span_ns = trace.recorded("kernels"), steady_spans_ns(trace).get(device, 0)
    times = len(groups.different(attention))
    total_ns, saved_ns = int(kernels.duration_ns[rows].sum()), claimable_ns(trace, device, rows)
    severity = severity_of_part(saved_ns, total_ns, span_ns)
    if severity is None or times < _LEAST:
        return None
    values: dict[str, Value] = {
        "attentions": times,
        "kernels": len(rows),
        "total_ns": total_ns,
        "saved_ns": saved_ns,
    }
    cells = {**gpu_cells(trace, device), "class": KernelClass.SOFTMAX.label}
    time = intervals.union(kernels["start_ns"][rows], kernels["end_ns"][rows])
    return Finding(
        severity,
        "Attention is not fused: {attentions:softmax kernel} between two GEMMs each, with what "
        "scales, masks or casts the scores, take {total_ns}." + gain_sentence(saved_ns, total_ns),
        _FUSED.get(framework(trace), _ANY_FUSED),
        saved_ns,
        gpu_subject(trace, device),
        Evidence(values, "classes", cells, int(time.start[0]), int(time.end[-1])),
        share_pct(saved_ns, span_ns) if saved_ns else None,
        work=LostTime(device, time),
    )


@fact
def attention_scores(trace: Trace) -> tuple[RowNumbers, Integers]:
    """Kernels between the two GEMMs of an attention, in order, and the attention of each."""
    rows, opens = steady_in_order(trace)
    kinds = kernel_classes(trace)[rows]
    scores = (kinds == KernelClass.SOFTMAX) & ~matching_kernels(trace, _NO_SCORES)[rows]
    # A stretch begins behind each GEMM, and where another stream or step begins.
    gemm = kinds == KernelClass.GEMM
    stretch = np.cumsum(gemm | opens)
    inside = np.isin(kinds, _BETWEEN) | scores | gemm
    many = int(stretch.max(initial=0)) + 2
    length = np.bincount(stretch, ~gemm, many)
    plain = np.bincount(stretch, ~inside, many) == 0
    begins = np.bincount(stretch, gemm, many) > 0
    cut = np.bincount(stretch, opens, many) > 0
    ends = np.append(begins[1:] & ~cut[1:], False)
    one = np.bincount(stretch, scores, many) == 1
    attention = plain & begins & ends & one & (length <= _MOST_BETWEEN)
    chosen = attention[stretch] & ~gemm
    return rows[chosen], stretch[chosen]
