"""What the recording does not show: lost events, blind spots, the profiler's own overhead.

The other analyses speak of what was recorded. Each check here says what is missing, which analyses
that affects, and the command that would record it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from traceview.base import groups
from traceview.base.findings import RECORDING, Evidence, Finding, Severity, share_pct
from traceview.base.tables import NULL, Table, Texts
from traceview.base.units import Value
from traceview.traces.analyses import base, trace_health_cold, trace_health_work, wording
from traceview.traces.analyses.trace_health_checks import (
    CHECKS,
    DIAGNOSTICS,
    OVERHEADS,
    STATUSES,
    Check,
    clocks,
    impossible_rows,
    lost_events,
    missing_copies,
    profiler_cost,
    record_less,
    recorded_window,
    recording_cost,
    warning_texts,
    warnings,
)
from traceview.traces.facts.idle import gap_bounds
from traceview.traces.facts.idle.gaps import unknown_idle
from traceview.traces.facts.launches import cuda_graphs, cut_window, loses_graphs, unpaired
from traceview.traces.facts.operations import CallKind, Kind, call_kinds, operations
from traceview.traces.trace import Trace, model
from traceview.traces.trace.nsys import program_output


def compute(trace: Trace) -> base.Result:
    checks = [outcome for check in _CHECKS for outcome in check(trace)]
    checks.sort(key=lambda check: STATUSES.index(check.status))
    rows = [
        {"check": c.check, "status": c.status, "detail": c.detail, "remedy": c.remedy}
        for c in checks
    ]
    return base.Result(
        {
            "checks": Table.from_rows(CHECKS.columns, rows),
            "overheads": _overheads(trace),
            "diagnostics": _diagnostics(trace),
        },
        tuple(_finding(check) for check in checks if check.status in ("blind", "warning")),
        notes=tuple(trace.warnings),
    )


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


def _graphs(trace: Trace) -> Iterator[Check]:
    """Checks of what CUDA graphs hide, by the way they were recorded."""
    ops, graphs = operations(trace), cuda_graphs(trace)
    if graphs.whole.any():
        time_ns = int(ops.duration_ns[graphs.whole].sum())
        values = {"launches": int(graphs.whole.sum()), "graph_ns": time_ns}
        yield Check("CUDA graphs", "blind", _BLIND_INSIDE, wording.AS_NODES, values)
    if graphs.node.any():
        slowed = (
            "{nodes:operation} of {launches:graph launch|graph launches} were recorded node by "
            "node, which slows graphs down."
        )
        values = {"nodes": int(graphs.node.sum()), "launches": graphs.node_launches}
        yield Check("CUDA graphs", "note", slowed, wording.AS_WHOLE, values)


_BLIND_INSIDE = (
    "The kernels inside {launches:CUDA graph launch|CUDA graph launches} ({graph_ns}) are hidden: "
    "graphs were recorded as a whole. kernel-share and memory-copies do not see what ran inside, "
    "gpu-idle counts all of that time as busy, and run-ahead and steps count a launch as one "
    "operation."
)


def _unpaired(trace: Trace) -> Iterator[Check]:
    """Launches without GPU work, and GPU work without a launch."""
    if trace_health_work.without_gpu(trace) or trace_health_work.other_accelerator(trace):
        return
    if program_output.LOADER_ERROR in trace.run or trace_health_work.is_cut_off(trace):
        return
    if "api_calls" not in trace.tables:
        missing = (
            "The CUDA API was not recorded, so run-ahead, syncs and launch overhead are unknown."
            if "kernels" in trace.tables
            else "Neither calls of CUDA nor GPU work were recorded, so GPU time is unknown."
        )
        remedy = trace_health_work.how_to_record(trace)
        values: dict[str, Value] = {}
        if gap_bounds.holds_communication_alone(trace):
            missing = "Nothing but collectives was recorded, so idle time is unknown."
            remedy = "Read the whole recording, from which these were taken."
        elif exchanged := trace_health_work.exchange_on_cpu(trace):
            missing, remedy, values = exchanged
        yield Check("CUDA API", "blind", missing, remedy, values)
        return
    alone = unpaired(trace)
    launches, cut = int((call_kinds(trace) == CallKind.LAUNCH).sum()), cut_window(trace) is not None
    ends_early = cut or model.recording_options(trace).bounded
    lost = int((alone.launches & ~(alone.late & ends_early)).sum())
    # Another check says that no kernel or graph was recorded, or that their rows are left out.
    computes = _computes(trace)
    left_out = [each for each in trace.impossible if each.table == "kernels"]
    of_those = sum(each.rows for each in left_out if each.reason != "twice")
    lost = lost if computes and lost > of_those else 0
    orphans = int((alone.operations & ~(alone.early & cut)).sum())
    if lost:
        graphs = loses_graphs(trace)
        text = "{lost:launch call} {lost?has|have} no GPU work: " + (
            "most launch CUDA graphs, whose kernels were not recorded."
            if graphs
            else "{lost?it|they} failed, or the events were lost."
        )
        in_doubt = bool(unknown_idle(trace)) or 2 * lost > launches
        yield Check(
            "launches",
            "blind" if in_doubt else "warning",
            text + " That leaves idle time unknown." * in_doubt,
            wording.AS_NODES if graphs else wording.flush(trace),
            {"lost": lost, "launches": launches},
            all_in_doubt=in_doubt,
        )
    if orphans:
        unknown = (
            "{operations:operation} {operations?has|have} no launch call: queue wait and range are "
            "unknown."
        )
        yield Check("launches", "warning", unknown, wording.flush(trace), {"operations": orphans})
    if not lost and not orphans and computes:
        but = ", but for the edges of the window" if cut else ""
        yield Check("launches", "ok", f"Each operation has its launch call{but}.")


def _computes(trace: Trace) -> bool:
    kinds = operations(trace).kind
    return bool(np.isin(kinds, (Kind.KERNEL, Kind.GRAPH)).any()) and "kernels" in trace.tables


def _ranges(trace: Trace) -> list[Check]:
    if "ranges" not in trace.tables or "ranges" in trace.absent:
        absent = wording.by_recorder(trace, "NVTX was not traced.", "Operators were not recorded.")
        return [Check("NVTX ranges", "note", absent, trace_health_work.how_to_record(trace))]
    ranges = trace.ranges
    checks = _nvtx_too_new(trace)
    if not len(ranges) and not checks:
        none = "No range was recorded, so times cannot be attributed to steps or layers."
        remedy = wording.by_recorder(
            trace,
            "Add torch.cuda.nvtx.range('step') or nvtx.annotate to the program.",
            "Call prof.step() after each step, or put record_function('step') around it.",
            "Add torch.cuda.nvtx.range('step') or nvtx.annotate to the program.",
        )
        checks.append(Check("NVTX ranges", "note", none, remedy))
    opened = ~ranges.texts("kind").isin(["mark"]) & (ranges["end_ns"] == NULL)
    if opened.any():
        values = {"open_ranges": int(opened.sum())}
        never = "{open_ranges:range} never ended."
        checks.append(Check("NVTX ranges", "note", never, "Pop each range that is pushed.", values))
    if len(ranges) and not checks:
        checks.append(Check("NVTX ranges", "ok", "{ranges:range}", values={"ranges": len(ranges)}))
    return checks


def _nvtx_too_new(trace: Trace) -> list[Check]:
    """The nvtx package from 0.2.12 on records nothing under nsys up to 2024.2."""
    reported = any(_INCOMPATIBLE.search(text) for text in warning_texts(trace))
    package, recorder = _version(trace.run.get("nvtx")), _version(trace.recorder_version)
    old = bool(recorder) and recorder < (2024, 3)
    if len(trace.ranges) or not old or not (reported or package >= (0, 2, 12)):
        return []
    text = (
        "No NVTX ranges were recorded: the nvtx package[ {nvtx_version}] is too new for nsys "
        "{recorder_version}."
    )
    remedy = "Install nvtx<0.2.12, use torch.cuda.nvtx, or record with nsys 2024.4 or newer."
    values = {"nvtx_version": trace.run.get("nvtx", ""), "recorder_version": trace.recorder_version}
    return [Check("NVTX ranges", "blind", text, remedy, values)]


_INCOMPATIBLE = re.compile(r"nvtx.*(incompatib|not supported)", re.IGNORECASE)


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:3])


def _profiler_overhead(trace: Trace) -> Iterator[Check]:
    cost = profiler_cost(trace)
    if cost is None or unknown_idle(trace):
        # Of a GPU's time that is not known, no share is.
        return
    overhead_pct = 100.0 * cost.lost_ns / max(cost.span_ns, 1)
    span = "GPU span after warm-up" if cost.after_warm_up else "GPU span"
    text = f"The profiler took {{overhead_ns}}, {{overhead_pct}} of the {span}"
    values: dict[str, Value] = {"overhead_ns": cost.lost_ns, "overhead_pct": overhead_pct}
    beside = cost.idle_ns < _BESIDE_WORK * cost.lost_ns
    if overhead_pct < _NOTABLE_OVERHEAD_PCT or beside:
        yield Check("profiler overhead", "ok", f"{text}.", None, values, cost.idle_ns)
        return
    remedy = next((how for what, how in _COST_REMEDIES if what.search(cost.mostly)), None)
    yield Check(
        "profiler overhead",
        "warning",
        f"{text}, mostly for {{purpose}}{_WORKED if 2 * cost.idle_ns < cost.lost_ns else ''}.",
        remedy or record_less(trace),
        {**values, "purpose": cost.mostly},
        # Where no warm-up is known, most of it may be in first uses: no share of the rest. Where
        # the CPU runs ahead, the GPU works on.
        cost.idle_ns if cost.after_warm_up else 0,
        cost.span_ns,
    )


_WORKED = ", and the GPU worked for most of that time"
_NOTABLE_OVERHEAD_PCT = 5.0
_BESIDE_WORK = 0.01
"""Of time that the profiler writes out what it has, while the program waits for its kernels."""
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


_CHECKS: tuple[Callable[[Trace], Iterable[Check]], ...] = (
    trace_health_work.gpu_work,
    _unpaired,
    _graphs,
    _ranges,
    lost_events,
    recorded_window,
    trace_health_cold.cold,
    trace_health_cold.loaded,
    missing_copies,
    impossible_rows,
    clocks,
    _profiler_overhead,
    recording_cost,
)


def _overheads(trace: Trace) -> Table:
    overheads = trace.recorded("overheads")
    ops = operations(trace)
    first, last = (int(ops.start_ns[0]), int(ops.end_ns.max())) if len(ops) else (0, 0)
    by_purpose = groups.group(overheads.texts("name").codes, overheads.texts("kind").codes)
    total = groups.sums(by_purpose, overheads.duration_ns)
    within = np.clip(overheads["end_ns"], first, last) - np.clip(overheads["start_ns"], first, last)
    table = Table(
        OVERHEADS.columns,
        {
            "name": overheads.texts("name").take(by_purpose.first),
            "kind": overheads.texts("kind").take(by_purpose.first),
            "calls": groups.count(by_purpose),
            "total_ns": total,
            "in_gpu_span_ns": groups.sums(by_purpose, within),
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


def _diagnostics(trace: Trace) -> Table:
    messages = warnings(trace)
    by_text = groups.group(messages.texts("severity").codes, messages.texts("text").codes)
    texts = messages.texts("text").take(by_text.first).decode()
    table = Table(
        DIAGNOSTICS.columns,
        {
            "severity": messages.texts("severity").take(by_text.first),
            "times": groups.count(by_text),
            "text": Texts.of((text or "").strip() for text in texts),
        },
    )
    return table.take(np.argsort(-table["times"], kind="stable"))


ANALYSIS = base.Analysis(
    name="trace-health",
    title="Trace health",
    question="What does this recording not show, and what did recording it cost?",
    needs=(),
    tables=(CHECKS, OVERHEADS, DIAGNOSTICS),
    compute=compute,
    charts=(base.Chart("bars", "overheads", "Profiler overhead by purpose", "name", "total_ns"),),
)
