"""When the GPU had nothing to do, and why.

A device is busy while any kernel, copy, memset or whole graph of any process runs on it; a gap is
the time between. Each part of a gap has one cause: what held up the operation that ends the gap.
Once queued, it waited behind a copy (copy-wait) or other work (dependency). Before, the thread that
launched it was in a call (module-load, allocation …), was on its way back from a synchronization
(sync-drain), or had simply not come so far (launch-late).
"""

from __future__ import annotations

import numpy as np

from traceview.base import groups, units
from traceview.base.tables import Array, Integers, Table, TableSpec, Texts, column_list
from traceview.base.vocabulary.causes import CAUSE_NAMES, CAUSES
from traceview.traces import rules
from traceview.traces.analyses.base import Analysis, Chart, Deferred, Result
from traceview.traces.analyses.gpu_idle import findings, gap_evidence
from traceview.traces.analyses.wording import warm_up_notes
from traceview.traces.facts.idle.cpu_activity import CPU_CAUSES, late_idle
from traceview.traces.facts.idle.gaps import Gaps, device_work, gaps
from traceview.traces.facts.idle.lines import idle_samples, line_cells, sum_lines
from traceview.traces.facts.operations import HOST, device_hosts, gpu_cells, operations
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.trace import Trace

# The tables of `gpu-idle`, column by column.

DEVICES = TableSpec(
    "devices",
    "one row per GPU that did work",
    column_list(f"""
        device_id int32: GPU, as the recorder numbers it
        span_ns int64: first start to last end of GPU work; busy plus idle time where ranges are
            selected
        busy_ns int64: union of kernels, copies, memsets and whole graphs
        idle_ns int64: span minus busy
        busy_pct float64: busy share of the span
        one_time_idle_ns int64: idle in warm-up, first uses of kernels and the first allocation of
            pinned memory
        steady_busy_pct float64?: busy share after warm-up, without first uses; absent if nothing
            ran after warm-up
        {HOST}
    """),
    brief="device_id host_id span_ns busy_ns idle_ns busy_pct steady_busy_pct one_time_idle_ns",
)
CAUSE_TABLE = TableSpec(
    "causes",
    "one row per GPU and cause, over all parts of gaps",
    column_list(f"""
        device_id int32: GPU, as the recorder numbers it
        cause text: why the work that ended the gap did not start earlier
        gaps int64: number of idle gaps with some of this time
        idle_ns int64: idle time in them
        share_pct float64: share of the GPU's idle time
        steady_idle_ns int64: part of idle after warm-up
        meaning sentence: meaning of the cause
        {HOST}
    """),
    brief="device_id host_id cause gaps idle_ns share_pct steady_idle_ns meaning",
)
GAPS = TableSpec(
    "gaps",
    "the 100 longest idle gaps",
    column_list(f"""
        device_id int32: GPU, as the recorder numbers it
        start_ns int64: time at which the GPU ran dry
        duration_ns int64: time until work started again
        cause text: why the work that ended the gap did not start earlier: the cause of most of it
        range_path text: range in which the next work was launched
        next_operation text: the work that ended the gap
        call text?: the CUDA call that the cause rests on
        evidence sentence: what in the recording shows the cause
        {HOST}
    """),
    brief="duration_ns cause range_path evidence next_operation call start_ns device_id host_id",
)
LATE = TableSpec(
    "late",
    "launch-late idle time by what the CPU did meanwhile, most steady idle first",
    column_list("""
        device_id int32: GPU, as the recorder numbers it
        range_pattern text: range open on the launching thread, numbers as #
        where sentence: CUDA call it was in; outside CUDA is Python or other CPU work
        gaps int64: idle gaps with some of this time
        idle_ns int64: GPU idle time meanwhile
        share_pct float64: share of the GPU's launch-late idle time
        steady_idle_ns int64: part of idle after warm-up
    """),
    brief="steady_idle_ns idle_ns share_pct range_pattern where gaps device_id",
    adds="idle_ns steady_idle_ns",
)
LINES = TableSpec(
    "lines",
    "idle time waiting for the CPU by line or native function of the program, most steady first",
    column_list("""
        device_id int32: GPU, as the recorder numbers it
        file text?: innermost file of the program, or executable; absent: library
        line int32?: line that the launching thread was at, in Python
        function text?: function that contains the line
        inner text?: library function that it was in there
        activity text: cpu, or what the thread did or waited for instead
        source text?: text of the line, where recorded
        samples int64: samples of the stack in idle gaps; 0 for recorded waits
        idle_ns int64: GPU idle time that these samples stand for, or of these waits
        share_pct float64: share of the GPU's idle time waiting for the CPU
        steady_idle_ns int64: part of idle after warm-up
    """),
    brief=(
        "steady_idle_ns file line function inner idle_ns share_pct activity samples source "
        "device_id"
    ),
    adds="samples idle_ns steady_idle_ns",
    rare=True,
)


LONGEST = 100
ALL_EXPLAINED = 0.99


def compute(trace: Trace) -> Result:
    every = gaps(trace)
    return Result(
        Deferred(
            lambda: {
                "devices": _devices(trace, every),
                "causes": _causes(trace, every),
                "late": _late(trace),
                "lines": _lines(trace, every),
                "gaps": _longest(trace, every),
            }
        ),
        tuple(rules.findings(trace, findings.RULES)),
        notes=(*warm_up_notes(trace), *_line_notes(trace, every)),
    )


def _devices(trace: Trace, gaps: Gaps) -> Table:
    rows = []
    for device in groups.different(operations(trace).device[selected_operations(trace)]).tolist():
        work_ns, steady_ns = device_work(trace)[device]
        idle_ns = int(gaps.idle_ns[gaps.device == device].sum())
        steady_idle_ns = int(gaps.idle_ns[gaps.steady(device)].sum())
        span_ns, steady_span_ns = work_ns + idle_ns, steady_ns + steady_idle_ns
        rows.append(
            {
                **gpu_cells(trace, device),
                "span_ns": span_ns,
                "busy_ns": work_ns,
                "idle_ns": idle_ns,
                "busy_pct": 100.0 * work_ns / max(span_ns, 1),
                "one_time_idle_ns": idle_ns - steady_idle_ns,
                "steady_busy_pct": 100.0 * steady_ns / steady_span_ns if steady_span_ns else None,
            }
        )
    return Table.from_rows(DEVICES.columns, rows)


def _causes(trace: Trace, gaps: Gaps) -> Table:
    each = groups.group(gaps.device, gaps.cause)
    idle, device = groups.sums(each, gaps.idle_ns), gaps.device[each.first]
    cause = [CAUSES[number] for number in gaps.cause[each.first].tolist()]
    table = Table(
        CAUSE_TABLE.columns,
        {
            "device_id": trace.devices["device_id"][device],
            "host_id": device_hosts(trace)[device],
            "cause": Texts.of(each.name for each in cause),
            "gaps": groups.distinct(each, gaps.gap),
            "idle_ns": idle,
            "share_pct": _share_of_device_pct(device, idle),
            "steady_idle_ns": groups.sums(each, np.where(gaps.one_time, 0, gaps.idle_ns)),
            "meaning": Texts.of(each.meaning for each in cause),
        },
    )
    return table.take(np.lexsort((-idle, device)))


def _late(trace: Trace) -> Table:
    """Launch-late idle time by site, most steady idle first, then most idle."""
    late, patterns = late_idle(trace), range_tree(trace).patterns
    data: dict[str, Array | Texts] = {
        "device_id": trace.devices["device_id"][late.device],
        "range_pattern": patterns.texts(late.pattern),
        "where": Texts.of(
            gap_evidence.activity_name(trace, each) for each in late.activity.tolist()
        ),
        "gaps": late.gaps,
        "idle_ns": late.time_ns,
        "share_pct": _share_of_device_pct(late.device, late.time_ns),
        "steady_idle_ns": late.steady_ns,
    }
    return Table(LATE.columns, data).take(np.lexsort((-late.time_ns, -late.steady_ns)))


def _line_notes(trace: Trace, gaps: Gaps) -> tuple[str, ...]:
    """A note on the share of idle time that samples explain, unless that is all."""
    shown_ns = int(idle_samples(trace).time_ns.sum())
    waiting_ns = int(gaps.idle_ns[np.isin(gaps.cause, CPU_CAUSES)].sum())
    if not shown_ns or shown_ns >= ALL_EXPLAINED * waiting_ns:
        return ()
    python = len(trace.recorded("python_samples"))
    what = "Python samples show the line" if python else "Samples and waits show the function"
    shown, waiting = units.duration(shown_ns), units.duration(waiting_ns)
    return (f"{what} for {shown} of the {waiting} that the GPU sat idle waiting for the CPU.",)


def _lines(trace: Trace, gaps: Gaps) -> Table:
    lines = sum_lines(trace, idle_samples(trace))
    on_cpu = np.isin(gaps.cause, CPU_CAUSES)
    waiting = groups.added(gaps.device[on_cpu], gaps.idle_ns[on_cpu], len(trace.devices) + 1)
    data: dict[str, Array | Texts] = {
        **line_cells(trace, lines),
        "samples": lines.samples,
        "idle_ns": lines.time_ns,
        "share_pct": 100.0 * lines.time_ns / np.maximum(waiting[lines.device], 1),
        "steady_idle_ns": lines.steady_ns,
    }
    return Table(LINES.columns, data)


def _share_of_device_pct(device: Array, time: Integers) -> Array:
    """The share that each row has of all rows of its device, in percent."""
    by_device = groups.group(device)
    total = groups.sums(by_device, time)[by_device.ids]
    return 100.0 * time / np.maximum(total, 1)


def _longest(trace: Trace, gaps: Gaps) -> Table:
    whole, tree = gaps.whole(), range_tree(trace)
    longest = whole.take(np.argsort(-whole.idle_ns, kind="stable")[:LONGEST])
    path = attributed_operations(trace).path(tree)[longest.after]
    evidence, numbers = gap_evidence.GapEvidence(trace, longest), range(len(longest))
    return Table(
        GAPS.columns,
        {
            "device_id": trace.devices["device_id"][longest.device],
            "host_id": device_hosts(trace)[longest.device],
            "start_ns": longest.start_ns,
            "duration_ns": longest.idle_ns,
            "cause": Texts.of(CAUSE_NAMES[cause] for cause in longest.cause.tolist()),
            "range_path": tree.paths.texts(path),
            "next_operation": Texts.of(
                gap_evidence.operation_name(trace, r) for r in longest.after.tolist()
            ),
            "call": Texts.of(evidence.call(number) for number in numbers),
            "evidence": Texts.of(evidence.text(number) for number in numbers),
        },
    )


ANALYSIS = Analysis(
    name="gpu-idle",
    title="GPU idle",
    question="How long did the GPU have nothing to do, and why?",
    needs=("kernels",),
    tables=(DEVICES, CAUSE_TABLE, LATE, LINES, GAPS),
    compute=compute,
    charts=(
        Chart("bars", "causes", "Idle time by cause, after warm-up", "cause", "steady_idle_ns"),
    ),
)
