"""The tables of the answer for a job."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.base.tables import TableSpec, column_list

_PER_STEP = "mean of a steady step; of all steady time without steps"
_RANK = "rank int64: number of the rank"
_PLACE = "place text?: where the rank's program is meanwhile: file and line, or range"
_CAUSE = (
    "cause text?: why the rank arrives last, if it does: gpu-work (it works longer since the "
    "previous collective than the others do), or the cause of its extra idle time"
)
RANKS = TableSpec(
    "ranks",
    "one row per rank",
    column_list(f"""
        {_RANK}
        host text?: machine
        device_id int64: GPU
        step_median_ns int64?: median time of a steady step
        busy_pct float64: percentage of steady time in which the GPU is busy
        compute_ns int64: time of kernels without communication; {_PER_STEP}
        exposed_ns int64: communication without compute; {_PER_STEP}
        hidden_ns int64: communication under compute; {_PER_STEP}
        wait_ns int64?: time inside collectives before the last rank arrived; {_PER_STEP}
        late_ns int64?: time that the rank which waited longest waited for this one; {_PER_STEP}
        idle_ns int64: time without work on the GPU; {_PER_STEP}
        {_CAUSE}
        {_PLACE}
        peak_memory_bytes int64?: most GPU memory allocated at once
        clock_offset_ns int64?: offset to add to the rank's times to get the first rank's clock
        clock_error_ns int64?: spread of clock_offset_ns
        path text: recording
    """),
    brief=(
        "rank step_median_ns busy_pct compute_ns exposed_ns wait_ns late_ns cause place idle_ns "
        "host"
    ),
)
GROUPS = TableSpec(
    "groups",
    "one row per process group: communicators of the same ranks",
    column_list("""
        group text: name of the group, unique
        name text?: purpose: world, data parallel, tensor parallel, pipeline or expert parallel,
            recorded or inferred from ranks and collectives; absent if unsure
        ranks text: ranks of one such group, such as 0-3 or 0,4,8,12
        members int64: ranks of each such group
        communicators int64: groups of that shape, each with its own communicator
        kinds text: kinds of its collectives, most time first
        calls int64: collectives, each counted once for all its ranks
        bytes int64?: bytes of all calls, each of its larger buffer
        total_ns int64: GPU time over all ranks, waiting included
        exposed_ns int64: part of total_ns without compute on the same GPU
        wait_ns int64?: part of total_ns before the last rank arrived
        bus_bytes_per_s int64?: bus bandwidth as in nccl-tests, without waits
        link text?: link between the ranks, if known: NVLink, PCIe or network
        link_pct float64?: percentage of the peak rate of that link
    """),
    brief="group ranks kinds calls total_ns exposed_ns wait_ns link_pct",
    rare=True,
)
COLLECTIVES = TableSpec(
    "collectives",
    "one row per group, kind and size of collectives; most waiting first",
    column_list("""
        group text: group, as in groups
        kind text: all-reduce, all-gather, send-receive …
        bytes int64?: bytes of a call, of its larger buffer
        calls int64: collectives, each counted once for all its ranks
        calls_per_step float64?: calls on a rank in a steady step
        total_ns int64: GPU time over all ranks, waiting included
        median_ns int64: median GPU time on a rank, waiting included
        transfer_ns int64?: median time of the rank that arrived last, which is the transfer itself
        wait_ns int64?: time before the last rank arrived, summed over all ranks
        skew_median_ns int64?: median time from the first arrival to the last
        bus_bytes_per_s int64?: bus bandwidth as in nccl-tests, without waits
        link_pct float64?: percentage of the peak rate of the link
    """),
    brief="group kind bytes calls median_ns transfer_ns wait_ns link_pct",
    adds="calls total_ns wait_ns",
    rare=True,
)
STRAGGLERS = TableSpec(
    "stragglers",
    "one row per rank and cause that others wait for; most lateness first",
    column_list(f"""
        {_RANK}
        steps text?: when: every step, every third step, step 17 …
        late_steps int64?: steady steps in which it is late
        calls int64: collectives in which it arrived last and others waited
        late_ns int64: time that the rank which waited longest waited for it, in all
        late_median_ns int64: median of late_ns over the steps in which it is late
        others_wait_ns int64: time that all other ranks waited for it, in all
        cause text: gpu-work, or the cause of its idle time
        {_PLACE}
        kernel_class text?: class of kernels that takes longer than on the other ranks, if the cause
            is gpu-work
    """),
    brief="rank steps late_ns late_median_ns cause place kernel_class calls",
    rare=True,
)
CRITICAL_PATH = TableSpec(
    "critical_path",
    "one row per segment of what the job waits for in its median step, in order of time",
    column_list(f"""
        {_RANK}
        what text: gpu-work, a cause of idle time, or the kind of a collective
        offset_ns int64: start of the segment, from the start of the step on the path
        duration_ns int64: time on the path
        {_PLACE}
    """),
    brief="rank what offset_ns duration_ns place",
    adds="duration_ns",
    rare=True,
)
RANK_STEPS = TableSpec(
    "rank_steps",
    "one row per rank and step",
    column_list(f"""
        {_RANK}
        step text: name of the step
        begin_ns int64: start on the rank's own clock
        duration_ns int64: time of the step
        compute_ns int64: kernels without communication
        exposed_ns int64: communication without compute, waits included
        wait_ns int64: time inside collectives before the last rank arrived
        copies_ns int64: copies and memsets without kernels
        idle_ns int64: time without work on the GPU
        cause text?: cause of most of the idle time
        late_ns int64: time that others waited for this rank
    """),
    brief="rank step duration_ns compute_ns exposed_ns wait_ns late_ns",
    detail=True,
    rare=True,
)
TABLES = (RANKS, STRAGGLERS, CRITICAL_PATH, GROUPS, COLLECTIVES, RANK_STEPS)


def chosen(names: Sequence[str]) -> tuple[TableSpec, ...]:
    """The named tables in their order; all of them if none is named."""
    return tuple(spec for spec in TABLES if not names or spec.name in names)
