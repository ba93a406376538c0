"""Findings on copies that no kernel hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceview import groups, intervals, units
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.analyses.memory_copies.copies import (
    copies_by_kind,
    exposed_by,
    longest_of,
    rows_of,
    time_of,
)
from traceview.analyses.memory_copies.on_gpu import copies_on_gpu
from traceview.analyses.memory_copies.staging import STAGING, STAGING_OF_ONE, staging_idle_ns
from traceview.facts.idle.gaps import steady_span_ns, steady_spans_ns
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.copies import pageable_uploads
from traceview.facts.operations.frameworks import framework, terms
from traceview.facts.operations.operations import operations
from traceview.facts.samples import UNNAMED_FUNCTIONS, SampledLine, sampled_line
from traceview.facts.steps.steps import steps
from traceview.facts.steps.warm_up import steady_operations
from traceview.findings import (
    RECORDING,
    Evidence,
    Finding,
    Severity,
    Subject,
    severity_of,
    share_pct,
)
from traceview.tables import Cell, Mask, Table
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSE_NAMES, COPY_WAIT

_ONLY_COPIES_FRACTION = 0.5
# A copy of few bytes takes only its latency, pinned or not; a small copy mostly its latency.
_FEW_BYTES, _SMALL_BYTES, _SLOW_PCT = 4096, 1 << 16, 33.0
_OFTEN, _ABOUT_EQUAL, _BESIDE = 4, 1.25, 0.1
# A program that runs on after its last step for more than this part of its time has other work.
_TAIL_FRACTION = 0.2
_KEEP = "Keep on the GPU what is copied back and forth: about as many bytes come back as go up. "
_OF_NUMBA = (
    "Pass kernels arrays of cuda.to_device, as Numba copies NumPy arrays up before each launch and "
    "back after it. "
)
_OTHERS = "Where they are other arrays, "
_SLOW_UPLOAD = ("H2D", "pageable")


def copy_findings(trace: Trace, copies: Table, early: Mask) -> tuple[Finding, ...]:
    """Copies that no kernel hides; pageable ones of warm-up, for information."""
    steady = copies.take(~early & ~_after_the_loop(trace, copies))
    return (
        *_exposed(trace, steady),
        *copies_on_gpu(trace, steady),
        *_of_warm_up(trace, copies.take(early)),
    )


def _of_warm_up(trace: Trace, copies: Table) -> Iterator[Finding]:
    for row in copies_by_kind(trace, copies).rows():
        if row["host_memory"] == "pageable" and severity_of(
            int(row["total_ns"] or 0), steady_span_ns(trace)
        ):
            yield _early_pageable(row, longest_of(copies, row))


def _exposed(trace: Trace, copies: Table) -> Iterator[Finding]:
    """Copies between host and GPU while no kernel runs, of the GPU with most of that time."""
    spans = steady_spans_ns(trace)
    for row in copies_by_kind(trace, copies).rows():
        if row["direction"] not in ("H2D", "D2H"):
            continue
        own = copies.take(rows_of(copies, row))
        by_device = groups.group(own["device"])
        parts = exposed_by(trace, own, by_device)
        worst = int(np.argmax(parts))
        device = int(own["device"][by_device.first[worst]])
        span_ns = spans.get(device, 0)
        exposed_ns = min(int(parts[worst]), span_ns)
        # Copies of other GPUs run at the same time: their sum would be longer than the run.
        on_gpu = own.take(own["device"] == device)
        slow = (row["direction"], row["host_memory"]) == _SLOW_UPLOAD
        staging_ns = staging_idle_ns(trace, on_gpu, device, span_ns) if slow else 0
        severity = severity_of(exposed_ns + staging_ns, span_ns)
        if severity:
            [of_gpu] = copies_by_kind(trace, on_gpu).rows()
            longest = longest_of(on_gpu, row)
            # A result of each step that stays on the GPU needs no copy. The result of the program
            # does, uploads beside it take their time without it, and an upload that moves beside
            # kernels still shares memory and host with them (docs/accuracy.md).
            alone = _in_steps(trace, own) and not _beside_others(copies, row, device)
            lost_ns = exposed_ns, staging_ns
            finding = _exposed_finding(trace, of_gpu, longest, severity, lost_ns, device, alone)
            if row["direction"] == "H2D" and _comes_back(copies.take(copies["device"] == device)):
                why = _OF_NUMBA if framework(trace) == "numba" else ""
                otherwise = f"{finding.remedy[0].lower()}{finding.remedy[1:]}"
                remedy = f"{_KEEP}{why}{_OTHERS}{otherwise}"
                finding = replace(finding, remedy=remedy)
            yield replace(finding, work=time_of(on_gpu))


def _in_steps(trace: Trace, copies: Table) -> bool:
    """Whether most of these copies run from the first to the last step."""
    all_steps = steps(trace)
    if not len(all_steps):
        return False
    begin, end = all_steps.gpu_start_ns.min(), all_steps.gpu_end_ns.max()
    inside = (copies["start_ns"] >= begin) & (copies["start_ns"] < end)
    return 2 * int(np.count_nonzero(inside)) > len(copies)


def _beside_others(copies: Table, row: Mapping[str, Cell], device: int) -> bool:
    """Whether copies of another kind run during a good part of a row's copies."""
    on_gpu = copies.take(copies["device"] == device)
    own = rows_of(on_gpu, row)
    spans = (on_gpu["start_ns"], on_gpu["end_ns"])
    own_time, other_time = (intervals.union(*(each[m] for each in spans)) for m in (own, ~own))
    return intervals.intersection(own_time, other_time).total() > _BESIDE * own_time.total()


def _after_the_loop(trace: Trace, copies: Table) -> Mask:
    """True for copies after the last step of a program that ends soon, of sizes not seen before.

    Weights and results are copied once there, such as by a trainer that moves its model away.
    Copies of sizes seen before belong to the last step, as an inferred step ends with its
    optimizer.
    """
    all_steps, ops = steps(trace), operations(trace)
    last_ns = int(all_steps.gpu_end_ns.max(initial=0))
    tail_ns = int(ops.end_ns.max(initial=0)) - last_ns
    if not last_ns or tail_ns > _TAIL_FRACTION * steady_span_ns(trace):
        return np.zeros(len(copies), bool)
    after: Mask = copies["start_ns"] >= last_ns
    alike = groups.group(copies.texts("direction").codes, copies["bytes"])
    usual = np.zeros(alike.size, bool)
    usual[alike.ids[~after]] = True
    return after & ~usual[alike.ids]


def _comes_back(copies: Table) -> bool:
    """Whether about as many bytes come back from a GPU as go to it, again and again."""
    directions = copies.texts("direction")
    up, down = (copies["bytes"][directions.isin([one])] for one in ("H2D", "D2H"))
    if min(len(up), len(down)) < _OFTEN or np.median(down) <= _FEW_BYTES:
        return False
    less, more = sorted((int(up.sum()), int(down.sum())))
    return more <= _ABOUT_EQUAL * less


def _exposed_finding(
    trace: Trace,
    row: Mapping[str, Cell],
    longest: tuple[int, int],
    severity: Severity,
    lost_ns: tuple[int, int],
    device: int,
    in_steps_alone: bool,
) -> Finding:
    """The finding; `lost_ns` is the time of the copies, and the idle time before them."""
    exposed_ns, staging_ns = lost_ns
    spans = steady_spans_ns(trace)
    span_ns, several = spans[device], len(spans) > 1
    slow_upload = (row["direction"], row["host_memory"]) == _SLOW_UPLOAD
    line = _upload_line(trace, device) if slow_upload else None
    subject = gpu_subject(trace, device) if several else RECORDING
    evidence = _evidence(row, longest)
    values = {**evidence.values, "exposed_ns": exposed_ns, "gpu": gpu_name(trace, device)}
    message = _exposed_message(row, exposed_ns, span_ns, several)
    if staging_ns:
        values["staging_ns"] = staging_ns
        message += STAGING_OF_ONE if row["calls"] == 1 else STAGING
    if line:
        values |= {"site": line.place, "function": line.function}
        subject = Subject("line", line.place, line.file, line.line)
    return Finding(
        severity,
        message + _made_at(row, line),
        _overlap_remedy(trace, row),
        sum(lost_ns),
        subject,
        replace(evidence, values=values),
        share_pct(sum(lost_ns), span_ns),
        # The GPU also idles before such a copy: one cause, and one remedy.
        CAUSE_NAMES[COPY_WAIT] if slow_upload else "",
        saving="about" if row["direction"] == "D2H" and in_steps_alone else "at-most",
    )


def _exposed_message(row: Mapping[str, Cell], exposed_ns: int, span_ns: int, several: bool) -> str:
    """The message: the time of the copies, and how long no kernel runs meanwhile.

    It names the GPU if there are `several`.
    """
    take, block = ("takes", "blocks") if row["calls"] == 1 else ("take", "block")
    copies = (
        "{calls:copy|copies} of {host_memory} memory ({direction}, {bytes}) "
        f"{take} {{total_ns}} at {{bytes_per_s}}"
    )
    if row["host_memory"] == "pageable":
        copies += f" and {block} the CPU meanwhile"
    if exposed_ns >= _ONLY_COPIES_FRACTION * span_ns:
        return f"{'{gpu}' if several else 'The GPU'} only copies for {{exposed_ns}}. {copies}."
    idle = "{gpu} runs no kernel" if several else "No kernel runs"
    all_of_it = units.duration(exposed_ns) == units.quantity("total_ns", row["total_ns"])
    return f"{copies}. {idle} {'in that time' if all_of_it else 'for {exposed_ns} of it'}."


def _made_at(row: Mapping[str, Cell], line: SampledLine | None) -> str:
    """The sentence on the line of the program that makes the copies; empty where it is unknown."""
    if line is None:
        return ""
    within = "" if line.function in UNNAMED_FUNCTIONS else " in {function}"
    return f" {'It is' if row['calls'] == 1 else 'They are'} made at {{site}}{within}."


def _upload_line(trace: Trace, device: int) -> SampledLine | None:
    """The line of the program that uploads pageable memory after warm-up, from Python samples."""
    ops = operations(trace)
    chosen = pageable_uploads(trace) & steady_operations(trace)
    calls = ops.call[chosen & ops.launched & (ops.device == device)]
    return sampled_line(trace, np.flatnonzero(groups.isin(waits(trace).call, calls)))


def _overlap_remedy(trace: Trace, row: Mapping[str, Cell]) -> str:
    """The remedy that hides the copies, or avoids them."""
    if _is_small(row):
        return (
            "Make the values on the GPU, or copy many at once: each copy takes microseconds, "
            "whatever its size."
            if row["direction"] == "H2D"
            else "Read values on the CPU less often: each copy takes microseconds, whatever its "
            "size."
        )
    ahead = "so that the next data arrives while kernels run"
    if row["host_memory"] == "pageable":
        return (
            f"{terms(trace).pinned}, {ahead}."
            if row["direction"] == "H2D"
            else (f"{terms(trace).pinned}, or copy less often: results can stay on the GPU.")
        )
    if row["direction"] == "H2D":
        return (
            f"Start the copies earlier on a stream of their own, {ahead}. Keep on the GPU what is "
            "copied more than once, or copy fewer bytes."
        )
    return (
        "Start the copies on a stream of their own while kernels run, or copy less often: results "
        "can stay on the GPU."
    )


def _is_small(row: Mapping[str, Cell]) -> bool:
    """Whether these copies are so small that latency keeps them far below the rate of their link.

    False where a few large copies among them take the time.
    """
    median, link_pct = int(row["median_bytes"] or 0), row["link_pct"]
    if int(row["bytes"] or 0) > _SMALL_BYTES * int(row["calls"] or 1):
        return False
    slow = link_pct is not None and float(link_pct) < _SLOW_PCT and row["host_memory"] == "pinned"
    return median <= _FEW_BYTES or (slow and median <= _SMALL_BYTES)


def _early_pageable(row: Mapping[str, Cell], longest: tuple[int, int]) -> Finding:
    take, block = ("takes", "blocks") if row["calls"] == 1 else ("take", "block")
    return Finding(
        "info",
        f"{{calls:copy|copies}} of pageable memory ({{direction}}) {take} {{total_ns}} of warm-up "
        f"or start-up at {{bytes_per_s}} and {block} the CPU meanwhile.",
        "Pin the host memory if the program is often started: a longer run pays this once.",
        int(row["total_ns"] or 0),
        RECORDING,
        _evidence(row, longest),
    )


def _evidence(row: Mapping[str, Cell], longest: tuple[int, int]) -> Evidence:
    """The row of the table, and the time of its longest copy."""
    keys = ("direction", "host_memory", "migration_cause")
    names = (*keys, "calls", "bytes", "total_ns", "bytes_per_s", "median_bytes")
    return Evidence(
        {name: row[name] for name in names}, "copies", {name: row[name] for name in keys}, *longest
    )
