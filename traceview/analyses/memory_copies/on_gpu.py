"""Copies from one place in a GPU's memory to another, which take turns with kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals, units
from traceview.analyses.framework_wording import UNROLL_LOOPS, has_recurrent_layers
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.analyses.memory_copies.copies import copies_by_kind, exposed_by, longest_of
from traceview.facts.idle.gaps import steady_spans_ns
from traceview.facts.operations.frameworks import terms
from traceview.facts.operations.kernel_classes import communication_operations
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges.xla_loops import in_xla_loops
from traceview.findings import Evidence, Finding, LostTime, severity_of, share_pct
from traceview.tables import Table
from traceview.trace import Trace

_IN_BUCKETS = (
    " DistributedDataParallel copies gradients into its buckets unless "
    "gradient_as_bucket_view=True is set."
)
_OF_PACKED = (
    " cuDNN's recurrent layers copy between time steps where sequences are packed "
    "(pack_padded_sequence): pad them instead where the results allow."
)
_OF_LOOPS = "XLA copies what a loop carries from one iteration to the next. "


def copies_on_gpu(trace: Trace, copies: Table) -> Iterator[Finding]:
    """Copies within the memory of a GPU while no kernel runs, of the GPU with most of that time."""
    own = copies.take(copies.texts("direction").isin(["D2D"]))
    if not len(own):
        return
    by_device = groups.group(own["device"])
    parts = exposed_by(trace, own, by_device)
    worst = int(np.argmax(parts))
    device = int(own["device"][by_device.first[worst]])
    spans = steady_spans_ns(trace)
    span_ns = spans.get(device, 0)
    exposed_ns = min(int(parts[worst]), span_ns)
    severity = severity_of(exposed_ns, span_ns)
    if severity is None:
        return
    on_gpu = own.take(own["device"] == device)
    row = next(copies_by_kind(trace, on_gpu).rows())
    keys = ("direction", "host_memory", "migration_cause")
    values = {name: row[name] for name in (*keys, "calls", "bytes", "total_ns", "bytes_per_s")}
    take = "takes" if row["calls"] == 1 else "take"
    where = "{gpu}" if len(spans) > 1 else "the GPU"
    all_of_it = units.duration(exposed_ns) == units.quantity("total_ns", row["total_ns"])
    meanwhile = "in that time" if all_of_it else "for {exposed_ns} of it"
    in_loops = _mostly_in_loops(trace, device)
    yield Finding(
        severity,
        f"{{calls:copy|copies}} within the memory of {where} ({{direction}}, {{bytes}}) {take} "
        f"{{total_ns}} at {{bytes_per_s}}. No kernel runs {meanwhile}.",
        _remedy(trace, in_loops),
        exposed_ns,
        gpu_subject(trace, device),
        Evidence(
            {**values, "exposed_ns": exposed_ns, "gpu": gpu_name(trace, device)},
            "copies",
            {key: row[key] for key in keys},
            *longest_of(on_gpu, row),
        ),
        share_pct(exposed_ns, span_ns),
        # The pauses before the copies go with them: measured in docs/accuracy.md.
        saving="at-least" if in_loops else "about",
        work=LostTime(device, intervals.union(on_gpu["start_ns"], on_gpu["end_ns"])),
    )


def _mostly_in_loops(trace: Trace, device: int) -> bool:
    """Whether most copies within the memory of a GPU are in loops of XLA."""
    ops = operations(trace)
    own = (ops.kind == Kind.COPY) & (ops.device == device)
    own[own] = trace.copies.texts("direction").isin(["D2D"])[ops.row[own]]
    return bool(in_xla_loops(trace)[own].mean() > 0.5)


def _remedy(trace: Trace, in_loops: bool) -> str:
    if in_loops:
        return _OF_LOOPS + UNROLL_LOOPS
    remedy, is_torch = terms(trace).copies_on_gpu, terms(trace).name == "torch"
    if is_torch and communication_operations(trace).any():
        remedy += _IN_BUCKETS
    if is_torch and has_recurrent_layers(trace):
        remedy += _OF_PACKED
    return remedy
