"""Findings of `run-ahead`: the verdict on each device, with its lead and its queue.

What idle time costs is a finding of other analyses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from traceview.base.tables import Cell, Mask
from traceview.base.vocabulary import libraries
from traceview.base.vocabulary.causes import CAUSES, SYNC_DRAIN
from traceview.traces.analyses import wording
from traceview.traces.analyses.verdict.verdict import keeps_busy, late_word
from traceview.traces.facts import launches, operations
from traceview.traces.facts.idle import gaps, launching, typical
from traceview.traces.facts.ranges.selection import selected, selected_operations
from traceview.traces.facts.steps.steps import steps, steps_ahead
from traceview.traces.rules import TimeClaim, gpu_name, gpu_subject
from traceview.traces.trace import Trace

MESSAGE = (
    "{gpu} {verdict}[ It sits idle for {idle_ns} because of that.][ For {copying_ns} "
    "of its {busy_ns} of work it only copies.] Operations wait {queue_wait_median_ns} in the queue "
    "(median), and at most {max_queue_depth:operation} {max_queue_depth?is|are} queued.[ The CPU "
    "ends a step {lead_ns} {side} the GPU does (median) and is {ahead}.][ {other_gpus:other GPU} "
    "got the same verdict.]"
)
_SITS_IDLE = "it sits idle for {steady_idle_pct} of the time, mostly"
_READ_LESS = "Read results on the CPU less often, or later, with a non-blocking copy."
_LARGEST_FIRST = "Look at the causes in gpu-idle, the largest first."
_LATE = f"is launch-bound: {_SITS_IDLE} because the CPU launches too late."
VERDICTS = {
    "gpu-bound": (
        "is GPU-bound: it nearly always has work queued.",
        "Make the kernels faster. The launches are early enough.",
    ),
    "kept-busy": (
        "is GPU-bound: its work fills the time, and most of it begins as soon as it is launched.",
        "Make the kernels faster. Earlier launches would save little.",
    ),
    "queue-full": (
        "has a full launch queue (queue-full): the CPU is so far ahead that it waits for room "
        "there.",
        "Make the kernels faster. Launching earlier cannot help.",
    ),
    "launch-bound": (_LATE, "Launch less often or earlier: {fewer}."),
    "sync-drained": (
        "is sync-drained: it runs dry after synchronizations, in which the CPU loses its lead.",
        _READ_LESS,
    ),
    "dependency-bound": (
        "has its work queued early enough (dependency-bound): it sits idle while queued work waits "
        "for other work, or for the GPU to begin it.",
        "Look in gpu-idle at what the queued work waited for. Launching earlier cannot help.",
    ),
    "mixed": (
        "has no single limit (mixed): it runs dry for several reasons, or queued work waits for "
        "other work.",
        _LARGEST_FIRST,
    ),
    "one cause": (f"{_SITS_IDLE[3:]} {{cause}} (mixed).", _LARGEST_FIRST),
    "paced": (
        f"is paced: {_SITS_IDLE} because the loop that launches its work waits for its turn.",
        "Look in gpu-idle at what paces it. Fewer launches would not help.",
    ),
    "paused": (
        f"is paused: {_SITS_IDLE} in few long pauses of the CPU.",
        "Look in gpu-idle for these pauses. Elsewhere launches are not the limit.",
    ),
    "data-loading": (
        f"is data-bound: {_SITS_IDLE} because the CPU loads data, then launches late.",
        "Look in gpu-idle for where the program gets its data. Fewer launches would help little.",
    ),
    "message-bound": (
        f"is message-bound: {_SITS_IDLE} while the CPU is in calls of MPI.",
        "Look in gpu-idle for these calls. Fewer launches would not help.",
    ),
    "results": (
        f"is sync-drained: {_SITS_IDLE} after the program waited for results, as samples show.",
        _READ_LESS,
    ),
    "long calls": (
        _LATE,
        "Look in launch-overhead at the launch calls that take long. Fewer launches would help "
        "little.",
    ),
    "cpu-bound": (
        f"is CPU-bound: {_SITS_IDLE} because the CPU does something else, then launches late.",
        "Look in gpu-idle for what the CPU did between launches. It launched nothing for so long "
        "that fewer launches would help little.",
    ),
}
"""What is said behind `GPU 0`, and the remedy: of each verdict, and of some more closely."""
_AHEAD = ("gpu-bound", "queue-full")
"""Verdicts on a GPU that is never out of work for long."""
_RUNS_DRY = "is launch-bound: it runs dry because the CPU launches too late."
_COPY_LESS = (
    "Make copies fewer or faster, or overlap them with kernels on a separate stream (see "
    "memory-copies). The launches are early enough."
)
_LEAVE_PRODUCTS = (
    "Leave the kernels as they are: {products_pct} of their time is in 16-bit GEMMs of {library} "
    "on tensor cores, which fill the GPU. Fewer or smaller products take less time{shapes}."
)
_MOST_PRODUCTS, _NEW_TENSOR_CORES = 90.0, 90
_LEAST_OPERATIONS = 4
"""A program that launches only a memset and a kernel does not show how early it launches."""


def verdict_claims(trace: Trace, rows: Mapping[int, Mapping[str, Cell]]) -> Iterator[TimeClaim]:
    """One claim per known verdict; `rows` are the rows of the table `devices` by device."""
    by_verdict: dict[str, list[int]] = {}
    for device, row in rows.items():
        if row["verdict"] != "unknown" and int(row["operations"] or 0) >= _LEAST_OPERATIONS:
            by_verdict.setdefault(str(row["verdict"]), []).append(device)
    for first, *others in by_verdict.values():
        yield _claim(trace, first, rows[first], len(others))


def _claim(trace: Trace, device: int, row: Mapping[str, Cell], others: int) -> TimeClaim:
    """The verdict on a device; `row` is its row of the table `devices`."""
    verdict, every = str(row["verdict"]), gaps.gaps(trace)
    counted = launching.counted_gaps(trace, device, every)
    own = counted & (every.cause == SYNC_DRAIN)
    idle_ns = int(every.idle_ns[own].sum()) if verdict == "sync-drained" else 0
    figures = {"idle_ns": idle_ns, "steady_idle_pct": row["steady_idle_pct"], "other_gpus": others}
    says, remedy = VERDICTS[_closer(trace, device, verdict, row, counted)]
    if verdict == "launch-bound" and row["steady_idle_pct"] is None:
        says = _RUNS_DRY
    work = launching.work_ns(trace, device)
    if verdict in _AHEAD and 2 * (copying := launching.copying_ns(trace, device)) >= work:
        figures, remedy = {**figures, "copying_ns": copying, "busy_ns": work}, _COPY_LESS
    elif verdict in _AHEAD and (products := _library_products(trace, device)):
        pct, libraries_of = products
        figures, remedy = {**figures, "products_pct": pct}, _LEAVE_PRODUCTS
    of_cause = every.by_cause(counted)
    most = CAUSES[int(np.argmax(of_cause))]
    words = {"gpu": gpu_name(trace, device), "verdict": says, "cause": most.idle or most.lost}
    if remedy == _LEAVE_PRODUCTS:
        words |= {"library": libraries_of, "shapes": wording.peak_by_shapes(trace)}
    if "{fewer}" in remedy:
        words["fewer"] = wording.fewer_launches(trace)
    values = {name: row[name] for name in ("queue_wait_median_ns", "max_queue_depth")}
    if lead := _lead(trace, device):
        values |= {"lead_ns": abs(lead.median_ns), "steps_ahead": lead.most_steps}
        words["side"] = "before" if lead.median_ns >= 0 else "after"
        ahead = "at most {steps_ahead:step} ahead"
        words["ahead"] = ahead if lead.most_steps else "never a whole step ahead"
    return TimeClaim(
        gpu_subject(trace, device),
        values,
        "devices",
        {name: row[name] for name in ("device_id", "host_id")},
        saved_ns=idle_ns,
        span_ns=gaps.steady_spans_ns(trace)[device],
        window=_window(trace, device, verdict),
        work=wording.lost_in(every, own) if idle_ns else None,
        figures=figures,
        words=words,
        remedy=remedy,
        severity="info",
    )


def _library_products(trace: Trace, device: int) -> tuple[float, str] | None:
    """The part of kernel time in libraries' 16-bit GEMMs on tensor cores, and these libraries.

    None where that is not nearly all. Grids of fewer blocks than SMs do not count, nor those built
    for GPUs before this one's new tensor cores: these win more elsewhere.
    """
    kernels, gpu = trace.recorded("kernels"), trace.devices
    sms, capability = int(gpu["sm_count"][device]), gpu.texts("compute_capability")[device]
    first = _NEW_TENSOR_CORES if 10 * float(capability or 0) >= _NEW_TENSOR_CORES else 0
    library = {
        name: str(each.name)
        for name in map(str, kernels.texts("name").values)
        if libraries.multiplies_16_bits(name) and (libraries.architecture(name) or 0) >= first
        if (each := libraries.read(name).library)
    }
    blocks = kernels["grid_x"].astype(np.int64) * kernels["grid_y"] * kernels["grid_z"]
    own = kernels["device"] == device
    good = own & kernels.texts("name").isin([*library]) & (blocks >= sms) & (sms > 0)
    pct = 100 * int(kernels.duration_ns[good].sum()) / max(int(kernels.duration_ns[own].sum()), 1)
    if pct < _MOST_PRODUCTS:
        return None
    used = {library[str(name)] for name in kernels.texts("name").take(good).decode()}
    return pct, " and ".join(sorted(used))


def _closer(trace: Trace, device: int, verdict: str, row: Mapping[str, Cell], counted: Mask) -> str:
    """The entry of VERDICTS that says most of a device; `counted` are the gaps that count."""
    every = gaps.gaps(trace)
    if verdict == "mixed" and row["steady_idle_pct"] is not None:
        of_cause = every.by_cause(counted)
        return "one cause" if 2 * of_cause.max() > of_cause.sum() else verdict
    if verdict != "launch-bound":
        return "kept-busy" if keeps_busy(trace, device) else verdict
    word = late_word(trace, device)
    if word == "launch-bound":
        long = launching.long_launches(trace).get(device)
        return "long calls" if long and long.is_most else verdict
    return "results" if word == "sync-drained" else word


def _window(trace: Trace, device: int, verdict: str) -> tuple[int, int]:
    """Time window of the evidence: the longest queue wait, or the longest gap of a dry GPU."""
    every = gaps.gaps(trace)
    counted = launching.counted_gaps(trace, device, every)
    if verdict not in _AHEAD and counted.any():
        gap = typical.typical_gap(trace, every, counted)
        return int(every.start_ns[gap]), int(every.end_ns[gap])
    ops, wait = operations.operations(trace), launches.queue_wait_ns(trace)
    own = np.flatnonzero((ops.device == device) & selected_operations(trace))
    longest = own[np.argmax(wait[own])]
    return int(ops.start_ns[longest]) - max(int(wait[longest]), 0), int(ops.end_ns[longest])


class Lead(NamedTuple):
    """How far the CPU is ahead of a device: at the end of a step, and in steps at most."""

    median_ns: int
    most_steps: int


def _lead(trace: Trace, device: int) -> Lead | None:
    """The lead in steps that work on this device alone; None without such steps."""
    ops, every = operations.operations(trace), steps(trace)
    process, of_stream = ops.streams[:, 0], ops.streams[:, 1]
    alone = ~np.isin(process, process[of_stream != device])
    own = (every.operations > 0) & np.isin(every.process, process[alone])
    own &= selected(trace, every.process, every.cpu_start_ns)
    if not own.any():
        return None
    lead = float(np.median((every.gpu_end_ns - every.cpu_end_ns)[own]))
    return Lead(round(lead), int(steps_ahead(every)[own].max()))
