"""PyTorch's anomaly detection, which was left on: a stack and a check per operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base.findings import RECORDING, severity_of
from traceview.traces.analyses.gpu_idle.line_sites import LEAST_SAMPLES
from traceview.traces.facts.idle.gaps import gaps, steady_span_ns, steady_spans_ns
from traceview.traces.facts.operations import Kind, operations
from traceview.traces.facts.samples import compiler_frames
from traceview.traces.facts.steps.steps import steady_operations, warm_up_end_ns
from traceview.traces.rules import FindingRule, TimeClaim
from traceview.traces.trace import Trace

_PER_CHECK = 3
"""A comparison, a reduction and a copy of one byte to the CPU (torch.isnan(x).any().item())."""


def of_anomaly_mode(trace: Trace) -> Iterator[TimeClaim]:
    """Stacks that autograd formats in the forward pass, and reads of one byte in the backward one.

    torch.compile formats stacks, too, where it traces.
    """
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    formats = frames.texts("function").isin(["format_stack"])
    formats &= frames.texts("file").matching(lambda name: name.endswith("torch/fx/traceback.py"))
    if trace.selection or not formats.any():
        return
    steady = samples["time_ns"] >= warm_up_end_ns(trace)
    hit = steady & np.isin(samples["stack"], frames["stack"][formats])
    hit &= compiler_frames(trace).row[samples["stack"]] < 0
    if np.count_nonzero(hit) < LEAST_SAMPLES or not steady_spans_ns(trace):
        return
    thread = int(np.bincount(samples["thread"][hit]).argmax())
    fraction = np.count_nonzero(hit) / np.count_nonzero(steady & (samples["thread"] == thread))
    ops, steady_ops = operations(trace), steady_operations(trace)
    copied = trace.recorded("copies")["bytes"][ops.row[steady_ops & (ops.kind == Kind.COPY)]]
    checks = int(np.count_nonzero(copied == 1))
    checking = min(_PER_CHECK * checks / max(int(steady_ops.sum()), 1), 1.0)
    span_ns, every = steady_span_ns(trace), gaps(trace)
    # Where the GPU is busy meanwhile, the CPU's time is no loss.
    idle_ns = max(int(every.idle_ns[every.steady(each)].sum()) for each in steady_spans_ns(trace))
    saved_ns = min(round(span_ns * (fraction + (1 - fraction) * checking)), idle_ns)
    yield TimeClaim(
        RECORDING,
        {"stack_pct": 100 * fraction, **({"checks": checks} if checks else {})},
        None,
        {},
        saved_ns=saved_ns,
        span_ns=span_ns,
        severity=severity_of(saved_ns, span_ns),
    )


RULE = FindingRule(
    of_anomaly_mode,
    "torch.autograd's anomaly detection is on: formatting a stack per operation takes {stack_pct} "
    "of the steps, by samples[, and {checks:check} for NaN in the backward pass, each with a read "
    "on the CPU, come on top].",
    "Turn it off: remove torch.autograd.set_detect_anomaly(True), or detect_anomaly(), from the "
    "program. It is for short runs that look for a NaN.",
)
