"""How far the CPU runs ahead of the GPU, and what ends its lead.

A long queue wait is healthy: the CPU queued work early, and the GPU always finds some. What costs
time is a GPU that runs dry; the verdict names the reason, or says that it does not.

Queue wait is max(0, start of the operation − end of its launch call). Queue depth counts operations
whose launch call has started and that have not ended. A GPU that is idle for more than 20 % of the
time after warm-up is sync-drained, launch-bound or dependency-bound (its work was queued, and began
late) if causes of that kind make more than half of the idle time, else mixed; so is one that is
idle for 10 to 20 %. A finding calls a
launch-bound GPU data-bound where the limit of the program is data loading, and sync-drained where
samples show that the program waits for results. A GPU that is idle for less is gpu-bound, unless
synchronizations drain it step by step, or for 5 % of the time, or launch calls waited for room in
the queue.
"""

from __future__ import annotations

import numpy as np

from traceview.base.tables import Cell, Keep, Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import NULL, Array, Integers, Mask
from traceview.traces.analyses.base import Analysis, Chart, Deferred, Result
from traceview.traces.analyses.run_ahead_findings import MESSAGE, verdict_claims
from traceview.traces.facts import launches, operations
from traceview.traces.facts.idle import gaps, launching
from traceview.traces.facts.ranges.selection import selected, selected_operations
from traceview.traces.facts.steps.steps import step_names, steps, steps_ahead
from traceview.traces.rules import FindingRule, findings
from traceview.traces.trace import Trace

STREAMS = TableSpec(
    "streams",
    "one row per stream that did work",
    column_list(f"""
        process_id int64: process id of the operating system
        device_id int32: GPU, as the recorder numbers it
        context_id int32: CUDA context, unique within the process
        stream_id int32: CUDA stream, unique within the context
        operations int64: kernels, copies, memsets and whole graphs
        queue_wait_median_ns int64?: median of the queue waits
        queue_wait_p90_ns int64?: 90th percentile of the queue waits
        queue_wait_max_ns int64?: longest queue wait
        max_queue_depth int64: most operations launched but not finished
        mean_queue_depth float64: time-weighted mean of the queue depth
        {operations.HOST}
    """),
    brief=(
        "stream_id host_id operations queue_wait_median_ns queue_wait_p90_ns max_queue_depth "
        "mean_queue_depth queue_wait_max_ns process_id device_id context_id"
    ),
)
DEVICES = TableSpec(
    "devices",
    "one row per GPU that did work",
    column_list(f"""
        device_id int32: GPU, as the recorder numbers it
        operations int64: kernels, copies, memsets and whole graphs
        queue_wait_median_ns int64?: median of the queue waits
        queue_wait_max_ns int64?: longest queue wait
        max_queue_depth int64: most operations launched but not finished
        verdict text: gpu-bound, launch-bound, sync-drained, dependency-bound, queue-full, mixed;
            unknown where work was lost
        steady_idle_pct float64?: GPU idle share after warm-up, without first uses; absent if
            nothing ran after it (then the verdict is about the warm-up) or work was lost
        queue_full_ns int64: time that calls waited for room in a full launch queue
        {operations.HOST}
    """),
    brief=(
        "device_id host_id verdict operations queue_wait_median_ns max_queue_depth steady_idle_pct "
        "queue_full_ns queue_wait_max_ns"
    ),
)
RANGES = TableSpec(
    "ranges",
    "one row per instance of an outermost repeated range (a step)",
    column_list(f"""
        name text: name of the range, with its path or a count where names repeat
        process_id int64: process id of the operating system
        cpu_start_ns int64: start of the range on the CPU
        cpu_end_ns int64: end of the range on the CPU
        gpu_start_ns int64?: start of its work on the GPU
        gpu_end_ns int64?: end of its work on the GPU
        lead_ns int64?: gpu_end minus cpu_end: lead of the CPU
        steps_ahead int64?: later steps that the CPU has begun when GPU work of this step starts
        operations int64: GPU operations launched in it
        {operations.HOST}
    """),
    brief="name host_id lead_ns steps_ahead operations cpu_start_ns gpu_start_ns",
    adds="operations",
    # Places where the CPU has lost its lead matter most.
    keep=Keep("lead_ns", greatest=False),
)


def compute(trace: Trace) -> Result:
    rows = {device: _device_row(trace, device) for device in gaps.device_work(trace)}
    return Result(
        Deferred(
            lambda: {
                "streams": _streams(trace),
                "devices": Table.from_rows(DEVICES.columns, [*rows.values()]),
                "ranges": _ranges(trace),
            }
        ),
        tuple(findings(trace, [FindingRule(lambda of: verdict_claims(of, rows), MESSAGE)])),
    )


def _streams(trace: Trace) -> Table:
    chosen = selected_operations(trace)
    rows = []
    for number, identity in enumerate(operations.operations(trace).streams.tolist()):
        process, device, context, stream = identity
        ops = launches.rows_by_stream(trace)[number]
        ops = ops[chosen[ops]]
        if not len(ops):
            continue
        wait, depth = launches.wait_of(trace, ops), launches.stream_depths(trace)[number]
        rows.append(
            {
                **operations.gpu_cells(trace, device),
                "process_id": int(trace.processes["process_id"][process]),
                "context_id": context,
                "stream_id": stream,
                "operations": len(ops),
                "queue_wait_median_ns": wait.median_ns,
                "queue_wait_p90_ns": wait.p90_ns,
                "queue_wait_max_ns": wait.most_ns,
                "max_queue_depth": depth.most,
                "mean_queue_depth": depth.mean,
            }
        )
    return Table.from_rows(STREAMS.columns, rows)


def _device_row(trace: Trace, device: int) -> dict[str, Cell]:
    on_device, chosen = operations.operations_by_device(trace)[device], selected_operations(trace)
    selected = on_device[chosen[on_device]]
    wait = launches.wait_of(trace, selected)
    depth = launches.depth_of(trace, on_device, chosen)
    return {
        **operations.gpu_cells(trace, device),
        "operations": len(selected),
        "queue_wait_median_ns": wait.median_ns,
        "queue_wait_max_ns": wait.most_ns,
        "max_queue_depth": depth.most,
        "verdict": launching.verdict(trace, device),
        "steady_idle_pct": launching.steady_idle_pct(trace, device),
        "queue_full_ns": launching.queue_full_ns(trace, device),
    }


def _ranges(trace: Trace) -> Table:
    every = steps(trace)
    idle = every.operations == 0
    values: dict[str, Array | Texts] = {
        "name": step_names(trace),
        "process_id": trace.processes["process_id"][every.process],
        "host_id": operations.process_hosts(trace)[every.process],
        "cpu_start_ns": every.cpu_start_ns,
        "cpu_end_ns": every.cpu_end_ns,
        "gpu_start_ns": _unless(idle, every.gpu_start_ns),
        "gpu_end_ns": _unless(idle, every.gpu_end_ns),
        "lead_ns": _unless(idle, every.gpu_end_ns - every.cpu_end_ns),
        "steps_ahead": _unless(idle, steps_ahead(every)),
        "operations": every.operations,
    }
    return Table(RANGES.columns, values).take(selected(trace, every.process, every.cpu_start_ns))


def _unless(absent: Mask, values: Integers) -> Integers:
    return np.where(absent, NULL, values)


ANALYSIS = Analysis(
    name="run-ahead",
    title="CPU run-ahead",
    question="Does the CPU queue work early enough, and what ends its lead?",
    needs=("kernels", "api_calls"),
    tables=(DEVICES, STREAMS, RANGES),
    compute=compute,
    charts=(
        Chart(
            "spans",
            "ranges",
            "CPU time and GPU time of each step",
            label="name",
            value="cpu_start_ns",
            end="cpu_end_ns",
            value2="gpu_start_ns",
            end2="gpu_end_ns",
        ),
    ),
)
