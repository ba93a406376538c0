"""What the recording does not show: lost events, blind spots, the profiler's own overhead.

The other analyses speak of what was recorded. Each check here says what is missing, which analyses
that affects, and the command that would record it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceview import groups
from traceview.analyses.base import EXPORT_AGAIN, Analysis, Chart, Result, TableSpec
from traceview.analyses.graph_wording import AS_NODES, AS_WHOLE
from traceview.analyses.recorder_wording import by_recorder, flush
from traceview.analyses.trace_health import completeness
from traceview.analyses.trace_health.checks import (
    CHECKS,
    DIAGNOSTICS,
    OVERHEADS,
    STATUSES,
    Check,
    Status,
)
from traceview.analyses.trace_health.recording_cost import profiler_cost, recording_cost
from traceview.facts.idle.unknown_idle import unknown_idle
from traceview.facts.operations.cuda_api import CallKind, call_kinds
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.operations import operations
from traceview.facts.operations.unpaired import cut_window, unpaired
from traceview.findings import RECORDING, Evidence, Finding, Severity, share_pct
from traceview.tables import NULL, Array, Table, Texts
from traceview.trace import Trace
from traceview.trace.schema.torch_profiler import TORCH_PROFILER
from traceview.units import Value


def compute(trace: Trace) -> Result:
    checks = [outcome for check in _CHECKS for outcome in check(trace)]
    checks.sort(key=lambda check: STATUSES.index(check.status))
    rows = [
        {"check": c.check, "status": c.status, "detail": c.detail, "remedy": c.remedy}
        for c in checks
    ]
    ops, overheads = operations(trace), trace.recorded("overheads")
    first, last = (int(ops.start_ns[0]), int(ops.end_ns.max())) if len(ops) else (0, 0)
    within = np.clip(overheads["end_ns"], first, last) - np.clip(overheads["start_ns"], first, last)
    names, kinds = overheads.texts("name"), overheads.texts("kind")
    by_purpose = groups.group(names.codes, kinds.codes)
    of_overheads: dict[str, Array | Texts] = {
        "name": names.take(by_purpose.first),
        "kind": kinds.take(by_purpose.first),
        "calls": groups.count(by_purpose),
        "total_ns": groups.sums(by_purpose, overheads.duration_ns),
        "in_gpu_span_ns": groups.sums(by_purpose, within),
    }
    messages = completeness.warnings(trace)
    severities, texts = messages.texts("severity"), messages.texts("text")
    by_text = groups.group(severities.codes, texts.codes)
    of_messages: dict[str, Array | Texts] = {
        "severity": severities.take(by_text.first),
        "times": groups.count(by_text),
        "text": Texts.of((text or "").strip() for text in texts.take(by_text.first).decode()),
    }
    return Result(
        {
            "checks": Table.from_rows(CHECKS.columns, rows),
            "overheads": _most_first(OVERHEADS, of_overheads, "total_ns"),
            "diagnostics": _most_first(DIAGNOSTICS, of_messages, "times"),
        },
        tuple(_finding(check) for check in checks if check.status in ("blind", "warning")),
        notes=tuple(trace.warnings),
    )


def _most_first(spec: TableSpec, columns: dict[str, Array | Texts], most: str) -> Table:
    table = Table(spec.columns, columns)
    return table.take(np.argsort(-table[most], kind="stable"))


def _finding(check: Check) -> Finding:
    severity: Severity = "medium" if check.status == "blind" else "low"
    severity = "high" if check.all_in_doubt else severity
    return Finding(
        severity,
        check.template,
        check.remedy or "",
        check.lost_ns,
        RECORDING,
        Evidence(check.values, "checks", {"check": check.check, "detail": check.detail}),
        share_pct(check.lost_ns, check.span_ns) if check.lost_ns else None,
    )


def _gpu_work(trace: Trace) -> list[Check]:
    ops = operations(trace)
    if "kernels" in trace.unread:
        values: dict[str, Value] = {"reason": trace.unread["kernels"]}
        template = "The kernels were not read, so GPU time is unknown: {reason}."
        remedy = f"{EXPORT_AGAIN[0].upper()}{EXPORT_AGAIN[1:]}"
        return [Check("GPU work", "blind", template, remedy, values, all_in_doubt=True)]
    if not len(ops) and (call_kinds(trace) == CallKind.LAUNCH).any():
        lost = "Work was launched and none of it was recorded, so GPU time is unknown."
        if "kernels" not in trace.tables:
            lost = "Work was launched, but no table of kernels was read, so GPU time is unknown."
        return [Check("GPU work", "blind", lost, _record(trace))]
    if _without_gpu(trace):
        why = (
            "None was recorded: PyTorch found no GPU, or was profiled without "
            "ProfilerActivity.CUDA."
        )
        return [Check("GPU work", "note", why, _record(trace))]
    if "kernels" not in trace.tables:
        return [Check("GPU work", "note", "None was recorded.", _record(trace))]
    seen = len(ops) or len(trace.recorded("api_calls"))
    warned = (_NO_EVENTS in text for text in completeness.warning_texts(trace))
    if not seen and any(warned):
        return [Check("GPU work", "warning", _NO_CUDA, _SEE_CUDA)]
    if not len(ops):
        return [Check("GPU work", "note", "CUDA was traced and the GPU did nothing.")]
    kernels = len(trace.kernels)
    counts = {"kernels": kernels, "others": len(ops) - kernels}
    return [Check("GPU work", "ok", "{kernels:kernel}, {others:other operation}", values=counts)]


_NO_EVENTS = "No CUDA events collected"
_NO_CUDA = "nsys recorded no CUDA call: the program made none, or nsys did not see them."
_SEE_CUDA = (
    "If the program uses a GPU, check that nsys is as new as the driver and that the recorded "
    "process, or a child of it, does the GPU work. traceview doctor checks this machine."
)


def _without_gpu(trace: Trace) -> bool:
    """Whether torch.profiler saw neither GPU nor CUDA, which is not a fault of a CPU program."""
    return trace.recorder == TORCH_PROFILER and not (
        len(trace.devices) or trace.tables.keys() & {"kernels", "copies", "sets", "api_calls"}
    )


def _record(trace: Trace) -> str:
    return by_recorder(
        trace,
        "Record with traceview record SCRIPT, or nsys profile --trace=cuda,nvtx",
        "Record with torch.profiler.profile(activities=[ProfilerActivity.CPU, "
        "ProfilerActivity.CUDA])",
        "Record with traceview record SCRIPT, on a machine with a GPU",
    )


def _graphs(trace: Trace) -> list[Check]:
    """Checks of what CUDA graphs hide, by the way they were recorded."""
    ops, graphs = operations(trace), cuda_graphs(trace)
    checks = []
    if graphs.whole.any():
        time_ns = int(ops.duration_ns[graphs.whole].sum())
        values = {"launches": int(graphs.whole.sum()), "graph_ns": time_ns}
        checks.append(Check("CUDA graphs", "blind", _BLIND_INSIDE, AS_NODES, values))
    if graphs.node.any():
        slowed = (
            "{nodes:operation} of {launches:graph launch|graph launches} were recorded node by "
            "node, which slows graphs down."
        )
        values = {"nodes": int(graphs.node.sum()), "launches": graphs.node_launches}
        checks.append(Check("CUDA graphs", "note", slowed, AS_WHOLE, values))
    return checks


_BLIND_INSIDE = (
    "The kernels inside {launches:CUDA graph launch|CUDA graph launches} ({graph_ns}) are hidden: "
    "graphs were recorded as a whole. kernel-share and memory-copies do not see what ran inside, "
    "gpu-idle counts all of that time as busy, and run-ahead and steps count a launch as one "
    "operation."
)


def _unpaired(trace: Trace) -> list[Check]:
    """Launches without GPU work, and GPU work without a launch."""
    if _without_gpu(trace):
        return []
    if "api_calls" not in trace.tables:
        missing = (
            "The CUDA API was not recorded, so run-ahead, syncs and launch overhead are unknown."
            if "kernels" in trace.tables
            else "Neither calls of CUDA nor GPU work were recorded, so GPU time is unknown."
        )
        return [Check("CUDA API", "blind", missing, _record(trace))]
    ops = operations(trace)
    launching, alone = call_kinds(trace) == CallKind.LAUNCH, unpaired(trace)
    cut = cut_window(trace) is not None
    lost = int((alone.launches & ~(alone.late & cut)).sum())
    orphans = int((alone.operations & ~(alone.early & cut)).sum())
    checks = []
    if lost and "kernels" in trace.tables:
        template = "{lost:launch call} without GPU work: failed, or the events were lost."
        values = {"lost": lost, "launches": int(launching.sum())}
        in_doubt = bool(unknown_idle(trace)) or 2 * lost > values["launches"]
        template += " That leaves idle time unknown." if in_doubt else ""
        status: Status = "blind" if in_doubt else "warning"
        checks.append(
            Check("launches", status, template, flush(trace), values, all_in_doubt=in_doubt)
        )
    if orphans:
        unknown = (
            "{operations:operation} without a launch call: their queue wait and range are unknown."
        )
        checks.append(Check("launches", "warning", unknown, flush(trace), {"operations": orphans}))
    if not checks and len(ops):
        paired = "Each operation has its launch call, but for the edges of the window."
        paired = paired if cut else "Each operation has its launch call."
        checks.append(Check("launches", "ok", paired))
    return checks


def _ranges(trace: Trace) -> list[Check]:
    if "ranges" not in trace.tables or "ranges" in trace.absent:
        absent = by_recorder(trace, "NVTX was not traced.", "Operators were not recorded.")
        return [Check("NVTX ranges", "note", absent, _record(trace))]
    ranges = trace.ranges
    checks = _nvtx_too_new(trace)
    if not len(ranges) and not checks:
        none = "There are none, so times cannot be attributed to steps or layers."
        remedy = by_recorder(
            trace,
            "Add torch.cuda.nvtx.range('step') or nvtx.annotate to the program.",
            "Call prof.step() after each step, or put record_function('step') around it.",
            "Add torch.cuda.nvtx.range('step') or nvtx.annotate to the program.",
        )
        checks.append(Check("NVTX ranges", "note", none, remedy))
    opened = ~ranges.texts("kind").isin(["mark"]) & (ranges["end_ns"] == NULL)
    if opened.any():
        values = {"open_ranges": int(opened.sum())}
        checks.append(
            Check(
                *("NVTX ranges", "note", "{open_ranges:range} never ended."),
                *("Pop each range that is pushed.", values),
            )
        )
    if len(ranges) and not checks:
        checks.append(Check("NVTX ranges", "ok", "{ranges:range}", values={"ranges": len(ranges)}))
    return checks


def _nvtx_too_new(trace: Trace) -> list[Check]:
    """The nvtx package from 0.2.12 on records nothing under nsys up to 2024.2."""
    reported = any(_INCOMPATIBLE.search(text) for text in completeness.warning_texts(trace))
    package, recorder = _version(trace.run.get("nvtx")), _version(trace.recorder_version)
    old = bool(recorder) and recorder < (2024, 3)
    if len(trace.ranges) or not old or not (reported or package >= (0, 2, 12)):
        return []
    version = trace.run.get("nvtx", "")
    values = {"nvtx_version": version, "recorder_version": trace.recorder_version}
    package_name = "the nvtx package {nvtx_version}" if version else "the nvtx package"
    template = (
        f"No NVTX ranges were recorded: {package_name} is too new for nsys {{recorder_version}}."
    )
    remedy = "Install nvtx<0.2.12, use torch.cuda.nvtx, or record with nsys 2024.4 or newer."
    return [Check("NVTX ranges", "blind", template, remedy, values)]


_INCOMPATIBLE = re.compile(r"nvtx.*(incompatib|not supported)", re.IGNORECASE)


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:3])


def _profiler_overhead(trace: Trace) -> list[Check]:
    cost = profiler_cost(trace)
    if cost is None:
        return []
    overhead_pct = 100.0 * cost.lost_ns / max(cost.span_ns, 1)
    span = "GPU span after warm-up" if cost.after_warm_up else "GPU span"
    template = f"The profiler took {{overhead_ns}}, {{overhead_pct}} of the {span}"
    values: dict[str, Value] = {"overhead_ns": cost.lost_ns, "overhead_pct": overhead_pct}
    if overhead_pct < _NOTABLE_OVERHEAD_PCT:
        return [Check("profiler overhead", "ok", f"{template}.", None, values, cost.lost_ns)]
    template += ", mostly for {purpose}."
    values["purpose"] = cost.mostly
    remedy = next((how for what, how in _COST_REMEDIES if what.search(cost.mostly)), None)
    return [
        Check(
            "profiler overhead",
            "warning",
            template,
            remedy or completeness.record_less(trace),
            values,
            # Where no warm-up is known, most of it may be in first uses: no share of the rest.
            cost.lost_ns if cost.after_warm_up else 0,
            cost.span_ns,
        )
    ]


_NOTABLE_OVERHEAD_PCT = 5.0
_COST_REMEDIES = (
    (
        re.compile(r"(?i)backtrace"),
        "Record without call chains: traceview record --backtrace none, or nsys profile "
        "--cudabacktrace=none --python-backtrace=none.",
    ),
    (
        re.compile(r"(?i)initiali[sz]ation"),
        "Warm up before measuring, or record longer: this is a one-time cost.",
    ),
    (
        re.compile(r"(?i)nvtx|os runtime"),
        "Record with fewer ranges, or without these events (nsys profile --trace=cuda).",
    ),
)


_CHECKS: tuple[Callable[[Trace], list[Check]], ...] = (
    _gpu_work,
    _unpaired,
    _graphs,
    _ranges,
    completeness.lost_events,
    completeness.recorded_window,
    completeness.missing_copies,
    completeness.impossible_rows,
    _profiler_overhead,
    recording_cost,
)


ANALYSIS = Analysis(
    name="trace-health",
    title="Trace health",
    question="What does this recording not show, and what did recording it cost?",
    needs=(),
    tables=(CHECKS, OVERHEADS, DIAGNOSTICS),
    compute=compute,
    charts=(Chart("bars", "overheads", "Profiler overhead by purpose", "name", "total_ns"),),
)
