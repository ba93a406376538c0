"""What the recording does not show: lost events, blind spots, the profiler's own cost.

Answers of the other analyses hold for what was recorded. Each check here says what is missing,
which answers that blinds, and the command that would record it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Result, TableSpec
from traceview.analyses.trace_health.profiler_cost import profiler_cost
from traceview.facts.operations.cuda_api import Does, captured_calls, what_calls_do
from traceview.facts.operations.cuda_graphs import AS_NODES, AS_WHOLE, cuda_graphs
from traceview.facts.operations.operations import operations
from traceview.findings import Finding, Severity, shortened
from traceview.tables import NULL, Column, Integers, Table, Texts
from traceview.trace import Trace
from traceview.trace.nsys.importer_errors import failure

CHECKS = TableSpec(
    "checks",
    "one row a check; `blind` and `warning` come first",
    (
        Column("check", "text", "what was looked at"),
        Column("status", "text", "blind (an answer is impossible or wrong), warning, note or ok"),
        Column("detail", "text", "what was found", prose=True),
        Column("remedy", "text", "how to record it", nullable=True, prose=True),
    ),
    brief=("check", "status", "detail", "remedy"),
)
OVERHEADS = TableSpec(
    "overheads",
    "time the profiler took, by what it was for",
    (
        Column("name", "text", "what it was for"),
        Column("kind", "text", "profiler, cupti or queue-full"),
        Column("calls", "int64", "times"),
        Column("total_ns", "int64", "their time"),
        Column("in_gpu_span_ns", "int64", "of it, between the first and the last GPU work"),
    ),
    brief=("name", "kind", "calls", "total_ns", "in_gpu_span_ns"),
)
DIAGNOSTICS = TableSpec(
    "diagnostics",
    "warnings and errors of the recorder",
    (
        Column("severity", "text", "warning or error"),
        Column("times", "int64", "how often it was said"),
        Column("text", "text", "the message", prose=True),
    ),
    brief=("severity", "times", "text"),
)
RANKS = ("blind", "warning", "note", "ok")


@dataclass(frozen=True)
class Check:
    """Outcome of one check; `lost_ns` is the time it puts at stake.

    `all_in_doubt` is True where nothing else in the report can be relied on.
    """

    check: str
    status: str
    detail: str
    remedy: str | None = None
    lost_ns: int = 0
    all_in_doubt: bool = False


def compute(trace: Trace) -> Result:
    checks = [outcome for ask in _CHECKS for outcome in ask(trace)]
    checks.sort(key=lambda check: RANKS.index(check.status))
    rows = [
        {"check": c.check, "status": c.status, "detail": c.detail, "remedy": c.remedy}
        for c in checks
    ]
    return Result(
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
    return Finding(severity, f"{check.check}: {check.detail}", check.remedy or "", check.lost_ns)


def _gpu_work(trace: Trace) -> list[Check]:
    done = operations(trace)
    if "kernels" not in trace.tables:
        if (what_calls_do(trace) == Does.LAUNCH).any():
            return [_lost_all()]
        return [Check("GPU work", "note", "none recorded", _record("cuda,nvtx"))]
    if not len(done) and (what_calls_do(trace) == Does.LAUNCH).any():
        return [_lost_all()]
    if not len(done):
        return [Check("GPU work", "note", "CUDA was traced and the GPU did nothing")]
    kernels = len(trace.kernels)
    return [
        Check(
            "GPU work",
            "ok",
            f"{units.counted(kernels, 'kernel')}, "
            f"{units.counted(len(done) - kernels, 'other operation')}",
        )
    ]


def _lost_all() -> Check:
    detail = "work was launched and none of it was recorded, so GPU time is unknown"
    return Check("GPU work", "blind", detail, _record("cuda,nvtx"))


def _record(trace_option: str) -> str:
    return f"Record with traceview record SCRIPT, or nsys profile --trace={trace_option}"


def _graphs(trace: Trace) -> list[Check]:
    """What is not to be seen of CUDA graphs, by how they were recorded."""
    done, graphs = operations(trace), cuda_graphs(trace)
    checks = []
    if graphs.whole.any():
        number = units.counted(int(graphs.whole.sum()), "graph launch", "graph launches")
        time = int(done.duration_ns[graphs.whole].sum())
        detail = f"{number} ({units.duration(time)}) recorded whole: {_BLIND_INSIDE}"
        checks.append(Check("CUDA graphs", "blind", detail, AS_NODES, time))
    if graphs.node.any():
        nodes = units.counted(int(graphs.node.sum()), "operation")
        number = units.counted(graphs.node_launches, "graph launch", "graph launches")
        detail = f"{nodes} of {number} recorded node by node, which slows graphs down"
        checks.append(Check("CUDA graphs", "note", detail, AS_WHOLE))
    return checks


_BLIND_INSIDE = (
    "kernel-share and memory-copies do not see what ran inside, gpu-idle takes all of that time "
    "for busy, and run-ahead and steps count a launch as one operation"
)


def _unpaired(trace: Trace) -> list[Check]:
    """Launches without GPU work and GPU work without a launch."""
    if "api_calls" not in trace.tables:
        detail = "not recorded, so run-ahead, syncs and launch overhead are unknown"
        return [Check("CUDA API", "blind", detail, _record("cuda,nvtx"))]
    done = operations(trace)
    launched = np.zeros(len(trace.api_calls), bool)
    launched[done.call[done.launched]] = True
    launched |= captured_calls(trace)
    launching = what_calls_do(trace) == Does.LAUNCH
    lost = int((launching & ~launched).sum())
    orphans = int((~done.launched).sum())
    checks = []
    if lost:
        detail = f"{units.counted(lost, 'launch call')} without GPU work: failed, or lost"
        if 2 * lost > launching.sum():
            detail = f"{detail}; most of the GPU's work is missing, and what is idle cannot be told"
            checks.append(Check("launches", "blind", detail, _FLUSH, all_in_doubt=True))
        else:
            checks.append(Check("launches", "warning", detail, _FLUSH))
    if orphans:
        detail = (
            f"{units.counted(orphans, 'operation')} without a launch call: their queue waits and "
            "ranges are unknown"
        )
        checks.append(Check("launches", "warning", detail, _FLUSH))
    if not checks and len(done):
        checks.append(Check("launches", "ok", "each operation has its launch call"))
    return checks


_FLUSH = (
    "Record from the start of the program to its end, let it exit by itself, and synchronize "
    "before it does."
)


def _ranges(trace: Trace) -> list[Check]:
    if "ranges" not in trace.tables:
        return [Check("NVTX ranges", "note", "NVTX was not traced", _record("cuda,nvtx"))]
    ranges = trace.ranges
    checks = _nvtx_too_new(trace)
    if not len(ranges) and not checks:
        detail = "none: times cannot be told apart by step or layer"
        remedy = "Add torch.cuda.nvtx.range('step') or nvtx.annotate to the program."
        checks.append(Check("NVTX ranges", "note", detail, remedy))
    opened = ~ranges.texts("kind").isin(["mark"]) & (ranges["end_ns"] == NULL)
    if opened.any():
        detail = f"{units.counted(int(opened.sum()), 'range')} never ended"
        checks.append(Check("NVTX ranges", "note", detail, "Pop each range that is pushed."))
    if len(ranges) and not checks:
        checks.append(Check("NVTX ranges", "ok", units.counted(len(ranges), "range")))
    return checks


def _nvtx_too_new(trace: Trace) -> list[Check]:
    """The nvtx package from 0.2.12 on records nothing under nsys up to 2024.2."""
    told = any(re.search(r"nvtx.*(incompatib|not supported)", text, re.I) for text in _said(trace))
    package, recorder = _version(trace.run.get("nvtx")), _version(trace.recorder_version)
    old = bool(recorder) and recorder < (2024, 3)
    if len(trace.ranges) or not old or not (told or package >= (0, 2, 12)):
        return []
    package_text = f"the nvtx package {trace.run.get('nvtx', '')}".rstrip()
    detail = f"none were recorded: {package_text} is too new for nsys {trace.recorder_version}"
    remedy = "Install nvtx<0.2.12, use torch.cuda.nvtx, or record with nsys 2024.4 or newer."
    return [Check("NVTX ranges", "blind", detail, remedy)]


def _warnings(trace: Trace) -> Table:
    """What the recorder said that is more than information."""
    said = trace.recorded("diagnostics")
    return said.take(~said.texts("severity").isin(["info", "verbose", "debug"]))


def _said(trace: Trace) -> list[str]:
    return [str(text) for text in _warnings(trace).texts("text").decode()]


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:3])


def _dropped(trace: Trace) -> list[Check]:
    if "diagnostics" not in trace.tables:
        return [Check("lost events", "note", "this recorder does not tell of lost events")]
    failed = failure(_said(trace))
    if failed is not None:
        detail = f"the recorder failed as it read its events back, so much is missing: {failed}"
        return [Check("lost events", "blind", detail, _OTHERWISE, all_in_doubt=True)]
    lost = [text for text in _said(trace) if re.search(r"\b(dropped|lost|discarded)\b", text, re.I)]
    lost = [text for text in lost if not re.search(r"\b(no|none|0)\b", text, re.I)]
    if not lost:
        return [Check("lost events", "ok", "the recorder tells of none")]
    return [Check("lost events", "warning", lost[0].strip()[:500], _RECORD_LESS)]


_RECORD_LESS = (
    "Record a shorter window (nsys profile --delay, --duration) or fewer event kinds (--trace)."
)
_OTHERWISE = (
    "Record again: a shorter run, fewer kinds of events (traceview record --backtrace none), or "
    "another version of nsys."
)


def _profiler_cost(trace: Trace) -> list[Check]:
    cost = profiler_cost(trace)
    if cost is None:
        return []
    share = 100.0 * cost.lost_ns / max(cost.span_ns, 1)
    of = "the GPU's span after set-up" if cost.after_set_up else "the GPU's span"
    detail = f"{units.duration(cost.lost_ns)} of {of} ({units.percent(share)})"
    if share < 5.0:
        return [Check("profiler overhead", "ok", detail, None, cost.lost_ns)]
    detail += f", most of it for: {shortened(cost.mostly)}"
    remedy = next((how for what, how in _COST_REMEDIES if what.search(cost.mostly)), _RECORD_LESS)
    return [Check("profiler overhead", "warning", detail, remedy, cost.lost_ns)]


_COST_REMEDIES = (
    (
        re.compile(r"(?i)backtrace"),
        "Record without call chains: traceview record --backtrace none, or nsys profile "
        "--cudabacktrace=none --python-backtrace=none.",
    ),
    (
        re.compile(r"(?i)initiali[sz]ation"),
        "Warm up before what is measured, or record longer: this comes once.",
    ),
    (
        re.compile(r"(?i)nvtx|os runtime"),
        "Record with fewer ranges, or without these events (nsys profile --trace=cuda).",
    ),
)


def _span(trace: Trace) -> tuple[int, int]:
    done = operations(trace)
    return (int(done.start_ns[0]), int(done.end_ns.max())) if len(done) else (0, 0)


_CHECKS: tuple[Callable[[Trace], list[Check]], ...] = (
    _gpu_work,
    _unpaired,
    _graphs,
    _ranges,
    _dropped,
    _profiler_cost,
)


def _overheads(trace: Trace) -> Table:
    overheads = trace.recorded("overheads")
    first, last = _span(trace)
    found = groups.group(overheads.texts("name").codes, overheads.texts("kind").codes)
    total = groups.sums(found, overheads.duration_ns)
    within = np.clip(overheads["end_ns"], first, last) - np.clip(overheads["start_ns"], first, last)
    table = Table(
        OVERHEADS.columns,
        {
            "name": overheads.texts("name").take(found.first),
            "kind": overheads.texts("kind").take(found.first),
            "calls": _ones(found, len(overheads)),
            "total_ns": total,
            "in_gpu_span_ns": groups.sums(found, within),
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


def _ones(found: groups.Groups, rows: int) -> Integers:
    return groups.sums(found, np.ones(rows, np.int64))


def _diagnostics(trace: Trace) -> Table:
    said = _warnings(trace)
    found = groups.group(said.texts("severity").codes, said.texts("text").codes)
    table = Table(
        DIAGNOSTICS.columns,
        {
            "severity": said.texts("severity").take(found.first),
            "times": _ones(found, len(said)),
            "text": Texts.of(
                (text or "").strip() for text in said.texts("text").take(found.first).decode()
            ),
        },
    )
    return table.take(np.argsort(-table["times"], kind="stable"))


ANALYSIS = Analysis(
    name="trace-health",
    title="Trace health",
    question="What does this recording not show, and what did recording cost?",
    needs=(),
    tables=(CHECKS, OVERHEADS, DIAGNOSTICS),
    compute=compute,
)
