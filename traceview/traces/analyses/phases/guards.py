"""The finding on guards of torch.compile: each call of compiled code checks them before it runs.

PyTorch marks these checks as an operator of its profiler. They cost what the GPU waits for them:
behind queued work they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import Clause, severity_of
from traceview.base.units import Value
from traceview.traces.facts import operations, python_events
from traceview.traces.facts.idle.gaps import busy, steady_spans_ns
from traceview.traces.facts.python_events import COMPILATION, RECOMPILATION
from traceview.traces.facts.steps.steps import warm_up_end_ns
from traceview.traces.rules import FindingRule, TimeClaim, gpu_subject
from traceview.traces.trace import Trace

_CHECK = "TorchDynamo Cache Lookup"


def _guarded(trace: Trace) -> Iterator[TimeClaim]:
    """Checks after warm-up during which the GPU is idle, on the GPU with the longest span."""
    ranges, spans = trace.recorded("ranges"), steady_spans_ns(trace)
    rows = np.flatnonzero(ranges.texts("name").isin([_CHECK]))
    rows = rows[ranges["start_ns"][rows] >= warm_up_end_ns(trace)]
    if not len(rows) or not spans:
        return
    device, ops = max(spans, key=lambda each: spans[each]), operations.operations(trace)
    # Of the processes that use this GPU, and before its last work: later it has none to wait for.
    own = groups.isin(ranges["process"][rows], groups.different(ops.process[ops.device == device]))
    rows = rows[own & (ranges["start_ns"][rows] < busy(trace)[device].end[-1])]
    if not len(rows):
        return
    checks = intervals.covered(ranges, rows)
    hidden = intervals.overlap(busy(trace)[device], checks.start, checks.end)
    exposed_ns = checks.total() - int(hidden.sum())
    if severity_of(exposed_ns, spans[device]) is None:
        return
    values: dict[str, Value] = {
        "checks": len(rows),
        "guards_ns": exposed_ns,
        "guards_pct": 100.0 * exposed_ns / spans[device],
    }
    process = int(ranges["process"][rows[0]])
    compiled = [
        each
        for kind in (COMPILATION, RECOMPILATION)
        for each in python_events.of_kind(trace, kind, process)
        if each.guards_ns
    ]
    slowest = max(compiled, key=lambda each: each.guards_ns or 0, default=None)
    if slowest:
        values |= {"code": slowest.name, "place": slowest.place, "check_ns": slowest.guards_ns}
    subject = slowest.subject if slowest else gpu_subject(trace, device)
    # The time is part of the late launches, which gpu-idle has.
    yield TimeClaim(subject, values, "compiled", {}, severity="low")


GUARDS = FindingRule(
    _guarded,
    "The GPU sits idle for {guards_ns} ({guards_pct} of the time after warm-up) while "
    "torch.compile checks guards, {checks:time}.",
    "Compile fewer, larger functions. Once all versions are compiled, torch.compiler.set_stance("
    "skip_guard_eval_unsafe=True) checks only what tells them apart (PyTorch 2.6 and newer).",
    clauses=(Clause(" Those of `{code}` at {place} take longest, {check_ns} each time."),),
)
