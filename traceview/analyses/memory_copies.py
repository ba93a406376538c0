"""Memory copies, memsets and page migrations: how much, between which memories, how fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.facts.idle.causes import CAUSES, COPY_WAIT
from traceview.facts.idle.gaps import steady_span_ns, steady_spans_ns
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.copies import pageable_uploads
from traceview.facts.operations.exposure import compute_time, exposure
from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.operations import Kind, migrations, operations
from traceview.facts.ranges.selection import selected, selected_operations
from traceview.facts.samples.sampled_lines import SampledLine, sampled_line
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.facts.steps.warm_up import (
    in_warm_up_range,
    operations_in_warm_up,
    operations_in_warm_up_ranges,
)
from traceview.facts.work.peaks import GIVEN, peaks
from traceview.findings import (
    RECORDING,
    Evidence,
    Finding,
    Severity,
    Subject,
    severity_of,
    share_pct,
)
from traceview.tables import Array, Cell, Column, Integers, Mask, Table, Texts
from traceview.trace import Trace
from traceview.trace.schema import UNIFIED

_OVER_THE_LINK = ("H2D", "D2H", f"{UNIFIED}H2D", f"{UNIFIED}D2H")
_MOST_RATE = float(1 << 62)
_ON_DEMAND = ("page fault", "speculative prefetch")
_START_UP_FRACTION = 0.05
_ONLY_COPIES_FRACTION = 0.5
# A copy of fewer bytes takes no longer than its latency, pinned or not.
_FEW_BYTES = 4096
COPIES = TableSpec(
    "copies",
    "one row per direction, kind of host memory and cause of migration, longest time first",
    (
        Column(
            "direction",
            "text",
            "H2D, D2H, D2D, P2P, …; UVM H2D and UVM D2H for pages that unified memory migrated",
        ),
        Column(
            "host_memory",
            "text",
            "pageable, pinned or managed; absent for copies between GPUs",
            nullable=True,
        ),
        Column(
            "migration_cause",
            "text",
            "why unified memory migrated pages: page fault, user prefetch, eviction, …",
            nullable=True,
        ),
        Column("calls", "int64", "copies"),
        Column("bytes", "int64", "bytes copied, all calls"),
        Column("total_ns", "int64", "time of all calls"),
        Column(
            "exposed_ns",
            "int64",
            "time in which they run and no kernel does on the same GPU, all GPUs",
        ),
        Column("bytes_per_s", "int64", "bytes ÷ time"),
        Column(
            "link_pct",
            "float64",
            "percentage of the peak rate of the link between host and GPU, per direction (see the "
            "note); absent where that is unknown, and for copies between GPUs",
            nullable=True,
        ),
        Column("median_bytes", "int64", "median size per copy"),
    ),
    brief=(
        *("direction", "host_memory", "migration_cause", "calls", "bytes", "total_ns"),
        *("exposed_ns", "bytes_per_s", "link_pct", "median_bytes"),
    ),
)
SETS = TableSpec(
    "sets",
    "memsets on all GPUs",
    (
        Column("calls", "int64", "memsets"),
        Column("bytes", "int64", "bytes written, all calls"),
        Column("total_ns", "int64", "time of all calls"),
        Column("bytes_per_s", "int64", "bytes ÷ time"),
    ),
    brief=("calls", "bytes", "total_ns", "bytes_per_s"),
)


def compute(trace: Trace) -> Result:
    copies = trace.copies
    chosen, moved = _chosen(trace, Kind.COPY, len(copies)), np.flatnonzero(migrations(trace))
    chosen[moved] = selected(trace, copies["process"][moved], copies["start_ns"][moved])
    early, copies = _early(trace, copies, moved)[chosen], copies.take(chosen)
    return Result(
        {"copies": _copies(trace, copies), "sets": _sets(trace)},
        _findings(trace, copies, early),
        notes=_notes(trace, copies),
    )


def _chosen(trace: Trace, kind: Kind, rows: int) -> Mask:
    """True for the selected operations among the rows of the table of that kind."""
    ops = operations(trace)
    of_kind = ops.kind == kind
    chosen = np.zeros(rows, bool)
    chosen[ops.row[of_kind]] = selected_operations(trace)[of_kind]
    return chosen


def _copies(trace: Trace, copies: Table) -> Table:
    direction, host = copies.texts("direction"), _host_memory(copies)
    cause = copies.texts("migration_cause")
    found = groups.group(direction.codes, host.codes, cause.codes)
    total = groups.sums(found, copies.duration_ns)
    at_best = np.bincount(found.ids, _at_best_ns(trace, copies), found.size)
    size = groups.stats(found, copies["bytes"])
    table = Table(
        COPIES.columns,
        {
            "direction": direction.take(found.first),
            "host_memory": host.take(found.first),
            "migration_cause": cause.take(found.first),
            "calls": size.calls,
            "bytes": size.total,
            "total_ns": total,
            "exposed_ns": _exposure_of(trace, copies, found),
            "bytes_per_s": _rate(size.total, total),
            "link_pct": _link_pct(at_best, total),
            "median_bytes": size.median,
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


def _at_best_ns(trace: Trace, copies: Table) -> Array:
    """Least time of each copy, at the peak rate of its link; NaN without a link or its rate."""
    links = [known["link"].value if "link" in known else np.nan for known in peaks(trace)]
    rates = np.array([*links, np.nan])[copies["device"]]
    crosses = copies.texts("direction").isin(_OVER_THE_LINK)
    result: Array = np.where(crosses, copies["bytes"] / rates * 1e9, np.nan)
    return result


def _link_pct(at_best: Array, total: Array) -> Array:
    """Percent of the link's peak; NaN above 100, where the copies cannot have used that link."""
    pct = np.where(total > 0, 100 * at_best / np.maximum(total, 1), np.nan)
    result: Array = np.where(pct <= 100, pct, np.nan)
    return result


def _notes(trace: Trace, copies: Table) -> tuple[str, ...]:
    """The source of the link's rate: no recording says how a GPU is connected."""
    crosses = copies.texts("direction").isin(_OVER_THE_LINK)
    links = [peaks(trace)[device].get("link") for device in np.unique(copies["device"][crosses])]
    notes = {
        f"link_pct is relative to {units.quantity('bytes_per_s', link.value)} per direction "
        f"({link.source})."
        for link in links
        if link
    }
    by_data_sheet = any(link and link.source != GIVEN for link in links)
    unknown = None in links
    if unknown:
        notes.add("link_pct is absent where the data sheet of the GPU is unknown.")
    if not notes:
        return ()
    connection = (
        "The trace does not say how the GPU is connected: pass --peak link=BYTES_PER_S."
        if by_data_sheet or unknown
        else ""
    )
    return (" ".join(filter(None, (*sorted(notes), connection))),)


def _host_memory(copies: Table) -> Texts:
    """Kind of host memory at either end of each copy; absent where both ends are on a GPU."""
    ends = [copies.texts(n) for n in ("direction", "source_memory", "destination_memory")]
    found = groups.group(*(end.codes for end in ends))
    labels = [
        source
        if str(direction).removeprefix(UNIFIED).startswith("H")
        else target
        if str(direction).endswith("H")
        else None
        for direction, source, target in (
            (end[row] for end in ends) for row in found.first.tolist()
        )
    ]
    return Texts.of(labels).take(found.ids)


def _rate(size: Array, time: Array) -> Array:
    """Bytes per second, 0 where no time passed."""
    rate = np.where(time > 0, size / np.maximum(time, 1) * 1e9, 0)
    # Damaged sizes and times make rates that no integer holds.
    return np.rint(np.minimum(rate, _MOST_RATE)).astype(np.int64)


def _sets(trace: Trace) -> Table:
    sets = trace.recorded("sets")
    sets = sets.take(_chosen(trace, Kind.SET, len(sets)))
    if not len(sets):
        return Table.empty(SETS.columns)
    size, time = (
        sets["bytes"].sum(keepdims=True),
        sets.duration_ns.sum(keepdims=True),
    )
    calls = np.array([len(sets)])
    rate = _rate(size, time)
    return Table(
        SETS.columns, {"calls": calls, "bytes": size, "total_ns": time, "bytes_per_s": rate}
    )


def _early(trace: Trace, copies: Table, moved: Integers) -> Mask:
    """True for the copies of warm-up and start-up; `moved` are the rows of page migrations."""
    early: Mask = copies["start_ns"] < warm_up_end_ns(trace)
    warm, ops = operations_in_warm_up_ranges(trace), operations(trace)
    copied = ops.kind == Kind.COPY
    if warm is not None:
        early[ops.row[copied]] |= warm[copied]
        early[moved] |= in_warm_up_range(trace, copies["process"][moved], copies["start_ns"][moved])
    rows = ops.row[copied]
    early[rows] |= copies["start_ns"][rows] < _compute_begins_ns(trace)[copies["device"][rows]]
    return early


def _compute_begins_ns(trace: Trace) -> Integers:
    """When each device has done a twentieth of its kernel time; its start-up is over by then.

    A program uploads its weights and data before it computes. Without steps nothing else tells
    these copies from those of a loop. The least time for a device without kernels.
    """
    begins = np.full(len(trace.devices), np.iinfo(np.int64).min)
    for device, compute in compute_time(trace).items():
        done = np.cumsum(compute.length)
        if len(done):
            begins[device] = compute.start[np.searchsorted(done, _START_UP_FRACTION * done[-1])]
    return begins


def _findings(trace: Trace, copies: Table, early: Mask) -> tuple[Finding, ...]:
    """Copies that no kernel hides, and pages migrated on demand; of warm-up, for information."""
    findings = [*_exposed(trace, copies.take(~early))]
    for part, in_warm_up in ((copies.take(~early), False), (copies.take(early), True)):
        span_ns = steady_span_ns(trace)
        for row in _copies(trace, part).rows():
            total_ns = int(row["total_ns"] or 0)
            severity = severity_of(total_ns, span_ns)
            if severity is None:
                continue
            longest = _longest(part, row)
            if row["host_memory"] == "pageable" and in_warm_up:
                findings.append(_early_pageable(row, longest))
            if row["migration_cause"] in _ON_DEMAND:
                severity = "info" if in_warm_up else severity
                findings.append(_migrated(row, longest, severity, span_ns, in_warm_up))
    return tuple(findings)


def _exposed(trace: Trace, copies: Table) -> Iterator[Finding]:
    """Copies between host and GPU while no kernel runs, of the GPU with most of that time."""
    spans = steady_spans_ns(trace)
    for row in _copies(trace, copies).rows():
        if row["direction"] not in ("H2D", "D2H"):
            continue
        own = copies.take(_rows_of(copies, row))
        by_device = groups.group(own["device"])
        parts = _exposure_of(trace, own, by_device)
        worst = int(np.argmax(parts))
        device = int(own["device"][by_device.first[worst]])
        span_ns = spans.get(device, 0)
        exposed_ns = min(int(parts[worst]), span_ns)
        severity = severity_of(exposed_ns, span_ns)
        if severity:
            # Copies of other GPUs run at the same time: their sum would be longer than the run.
            on_gpu = own.take(own["device"] == device)
            [of_gpu] = _copies(trace, on_gpu).rows()
            longest = _longest(on_gpu, row)
            yield _exposed_finding(trace, of_gpu, longest, severity, exposed_ns, device)


def _exposed_finding(
    trace: Trace,
    row: Mapping[str, Cell],
    longest: tuple[int, int],
    severity: Severity,
    exposed_ns: int,
    device: int,
) -> Finding:
    span_ns, one = steady_spans_ns(trace)[device], row["calls"] == 1
    several = len(steady_spans_ns(trace)) > 1
    template = (
        f"{{calls:copy|copies}} of {{host_memory}} memory ({{direction}}, {{bytes}}) "
        f"{'takes' if one else 'take'} {{total_ns}} at {{bytes_per_s}}"
    )
    if row["host_memory"] == "pageable":
        template += f" and {'blocks' if one else 'block'} the CPU meanwhile"
    if exposed_ns >= _ONLY_COPIES_FRACTION * span_ns:
        template = (
            f"{'{gpu}' if several else 'The GPU'} only copies for {{exposed_ns}}. {template}."
        )
    else:
        template += f". {'{gpu} runs no kernel' if several else 'No kernel runs'}"
        template += " for {exposed_ns} of it."
    evidence = _evidence(row, longest)
    values = {**evidence.values, "exposed_ns": exposed_ns, "gpu": gpu_name(trace, device)}
    slow_upload = (row["direction"], row["host_memory"]) == _SLOW_UPLOAD
    line = _upload_line(trace, device) if slow_upload else None
    subject = gpu_subject(trace, device) if several else RECORDING
    if line:
        within = "" if line.function == "<module>" else " in {function}"
        template += f" {'It is' if one else 'They are'} made at {{site}}{within}."
        values |= {"site": line.place, "function": line.function}
        subject = Subject("line", line.place, line.file, line.line)
    return Finding(
        severity,
        template,
        _overlap_remedy(trace, row),
        exposed_ns,
        subject,
        replace(evidence, values=values),
        share_pct(exposed_ns, span_ns),
        # The GPU also idles before such a copy: one cause, and one remedy.
        CAUSES[COPY_WAIT] if slow_upload else "",
        # A result that stays on the GPU needs no copy. An upload that moves beside kernels still
        # shares memory and host with them, so less than its time is won (docs/accuracy.md).
        saving="about" if row["direction"] == "D2H" else "at-most",
    )


_SLOW_UPLOAD = ("H2D", "pageable")


def _upload_line(trace: Trace, device: int) -> SampledLine | None:
    """The line of the program that uploads pageable memory after warm-up, from Python samples."""
    ops = operations(trace)
    chosen = pageable_uploads(trace) & selected_operations(trace) & ~operations_in_warm_up(trace)
    calls = ops.call[chosen & ops.launched & (ops.device == device)]
    return sampled_line(trace, np.flatnonzero(np.isin(waits(trace).call, calls)))


_PIN = {
    "torch": "Pin the host memory (pin_memory=True, Tensor.pin_memory) and copy with "
    "non_blocking=True",
    "cupy": "Pin the host memory (cupyx.empty_pinned) and copy on a stream of its own",
    "jax": "Pin the host memory (a sharding of memory_kind pinned_host)",
    "": "Pin the host memory (cudaHostAlloc, cudaHostRegister) and copy with cudaMemcpyAsync",
}


def _overlap_remedy(trace: Trace, row: Mapping[str, Cell]) -> str:
    """What hides the copies, or avoids them."""
    if int(row["median_bytes"] or 0) <= _FEW_BYTES:
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
            f"{_PIN[framework(trace)]}, {ahead}."
            if row["direction"] == "H2D"
            else (f"{_PIN[framework(trace)]}, or copy less often: results can stay on the GPU.")
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


def _rows_of(copies: Table, row: Mapping[str, Cell]) -> Mask:
    """True for the copies that a row of the table adds up."""
    texts = {
        "direction": copies.texts("direction"),
        "host_memory": _host_memory(copies),
        "migration_cause": copies.texts("migration_cause"),
    }
    matches = np.ones(len(copies), bool)
    for name, values in texts.items():
        matches &= values.codes < 0 if row[name] is None else values.isin([str(row[name])])
    return matches


def _exposure_of(trace: Trace, copies: Table, by: groups.Groups) -> Integers:
    """Time of each group of copies in which no kernel runs on their device."""
    start, end = copies["start_ns"], copies["end_ns"]
    return exposure(trace, copies["device"], start, end, by).exposed_ns


def _longest(copies: Table, row: Mapping[str, Cell]) -> tuple[int, int]:
    """Start and end of the longest of the copies that a row of the table adds up."""
    longest = int(np.argmax(np.where(_rows_of(copies, row), copies.duration_ns, -1)))
    return int(copies["start_ns"][longest]), int(copies["end_ns"][longest])


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


def _migrated(
    row: Mapping[str, Cell],
    longest: tuple[int, int],
    severity: Severity,
    span_ns: int,
    in_warm_up: bool,
) -> Finding:
    cause = "page faults" if row["migration_cause"] == "page fault" else "speculative prefetch"
    take = "takes" if row["calls"] == 1 else "take"
    return Finding(
        severity,
        f"{{calls:migration}} of unified memory by {cause} ({{direction}}) {take} {{total_ns}}"
        f"{' of warm-up' if in_warm_up else ''} for {{bytes}}, half of them {{median_bytes}} or "
        "less each.",
        "Prefetch what is used next (cudaMemPrefetchAsync), or keep it on the GPU and copy it.",
        int(row["total_ns"] or 0),
        RECORDING,
        _evidence(row, longest),
        None if in_warm_up else share_pct(int(row["total_ns"] or 0), span_ns),
    )


def _evidence(row: Mapping[str, Cell], longest: tuple[int, int]) -> Evidence:
    """The row of the table, and the time of its longest copy."""
    keys = ("direction", "host_memory", "migration_cause")
    names = (*keys, "calls", "bytes", "total_ns", "bytes_per_s", "median_bytes")
    return Evidence(
        {name: row[name] for name in names}, "copies", {name: row[name] for name in keys}, *longest
    )


ANALYSIS = Analysis(
    name="memory-copies",
    title="Memory copies",
    question="What was copied, how fast, and did it block the CPU?",
    needs=("copies",),
    tables=(COPIES, SETS),
    compute=compute,
    charts=(
        Chart(
            "bars",
            "copies",
            "Copy time by direction and host memory",
            "direction",
            "total_ns",
            stack="host_memory",
        ),
    ),
)
