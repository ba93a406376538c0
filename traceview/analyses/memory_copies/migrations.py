"""Findings on pages of unified memory: moved on demand, by late prefetches, or outside GPU work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from traceview import groups, intervals
from traceview.analyses.memory_copies.copies import (
    copies_by_kind,
    exposed_by,
    longest_of,
    time_of,
)
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.copies import outer_migration_time, outer_migrations
from traceview.facts.operations.operations import operations
from traceview.findings import (
    RECORDING,
    Evidence,
    Finding,
    LostTime,
    Severity,
    severity_of,
    share_pct,
)
from traceview.intervals import Intervals
from traceview.tables import Cell, Mask, Table
from traceview.trace import Trace

ON_DEMAND, PREFETCH = ("page fault", "speculative prefetch"), "user prefetch"
_OUTER_LEAST_NS, _OUTER_LEAST, _MOST = 1_000_000, 0.1, 0.5
_KEYS = ("direction", "host_memory", "migration_cause")
_BEFORE = "Create the data on the GPU where that is possible"
_AFTER = (
    "prefetch to the CPU what it reads (cudaMemPrefetchAsync to cudaCpuDeviceId), or compute on "
    "the GPU what it needs of it"
)


def migration_findings(trace: Trace, copies: Table, early: Mask) -> Iterator[Finding]:
    """Pages migrated on demand or prefetched while their GPU works; `early` ones are of warm-up."""
    for chosen, in_warm_up in ((~early, False), (early, True)):
        part = copies.take(chosen)
        causes = part.texts("migration_cause")
        on_demand = part.take(causes.isin(ON_DEMAND))
        directions = on_demand.texts("direction")
        for direction in groups.different(directions.codes):
            alike = on_demand.take(directions.codes == direction)
            yield from _on_demand(trace, alike, in_warm_up)
        if not in_warm_up:
            yield from _prefetched(trace, part.take(causes.isin([PREFETCH])))


def _on_demand(trace: Trace, copies: Table, in_warm_up: bool) -> Iterator[Finding]:
    """Findings on pages of one direction that the driver moved after faults, or with such pages."""
    moved, span_ns = time_of(copies), steady_span_ns(trace)
    total_ns = int(copies.duration_ns.sum())
    at_stake_ns = total_ns if in_warm_up else _in_use(trace, moved).total()
    severity = severity_of(at_stake_ns, span_ns)
    if severity is None:
        return
    severity = "info" if in_warm_up else severity
    row = next(copies_by_kind(trace, copies).rows())
    sums: dict[str, Cell] = {
        "calls": len(copies),
        "bytes": int(copies["bytes"].sum()),
        "total_ns": total_ns,
        "median_bytes": int(np.median(copies["bytes"])),
    }
    yield Finding(
        severity,
        "{calls:migration} of unified memory by page faults ({direction}) "
        f"{'takes' if len(copies) == 1 else 'take'} {{total_ns}}"
        f"{' of warm-up' if in_warm_up else ''} for {{bytes}}, half of them {{median_bytes}} or "
        "less each.",
        "Prefetch what is used next (cudaMemPrefetchAsync), or keep it on the GPU and copy it.",
        at_stake_ns,
        RECORDING,
        _evidence(copies, row, sums),
        None if in_warm_up else share_pct(at_stake_ns, span_ns),
        work=moved,
    )


def _prefetched(trace: Trace, copies: Table) -> Iterator[Finding]:
    """Prefetches that no kernel hides, of the GPU and direction with most of that time."""
    by_kind = groups.group(copies["device"], copies.texts("direction").codes)
    if not by_kind.size:
        return
    exposed = exposed_by(trace, copies, by_kind)
    worst = int(np.argmax(exposed))
    alike = copies.take(by_kind.ids == worst)
    span_ns, exposed_ns = steady_span_ns(trace), int(exposed[worst])
    severity = severity_of(exposed_ns, span_ns)
    if severity is None:
        return
    row = next(copies_by_kind(trace, alike).rows())
    yield Finding(
        severity,
        "{calls:prefetch|prefetches} of unified memory ({direction}, {bytes}) "
        f"{'takes' if len(alike) == 1 else 'take'} {{total_ns}} at {{bytes_per_s}}. No kernel runs "
        "for {exposed_ns} of it.",
        "Prefetch earlier and on a stream of its own, while kernels run, and keep on the GPU what "
        "it uses again.",
        exposed_ns,
        RECORDING,
        _evidence(alike, row, {**row, "exposed_ns": exposed_ns}),
        share_pct(exposed_ns, span_ns),
        work=time_of(alike),
    )


def outer_finding(trace: Trace, copies: Table, chosen: Mask) -> Iterator[Finding]:
    """Pages that move before and after all work of their GPU, where that takes long beside it.

    A run pays for them once, so the severity is medium at most, with no share of its steady time.
    """
    outer = outer_migrations(trace)[chosen]
    if trace.selection or not outer.any():
        return
    device, moved = max(outer_migration_time(trace).items(), key=lambda each: each[1].total())
    moved_ns, work_ns = moved.total(), steady_span_ns(trace)
    fraction = moved_ns / (moved_ns + work_ns)
    if moved_ns < _OUTER_LEAST_NS or fraction < _OUTER_LEAST:
        return
    own = copies.take(outer & (copies["device"] == device))
    row = next(copies_by_kind(trace, own).rows())
    directions = own.texts("direction")
    up, down = (own.take(directions.isin([each])) for each in ("UVM H2D", "UVM D2H"))
    sums: dict[str, Cell] = {"outer_ns": moved_ns, "work_ns": work_ns}
    parts, remedies = [], []
    if len(up):
        sums["up_bytes"] = int(up["bytes"].sum())
        parts.append("{up_bytes} to the GPU before its work")
        remedies.append(_BEFORE)
    if len(down):
        sums["down_bytes"] = int(down["bytes"].sum())
        parts.append(
            "{down_bytes} to the CPU after it"
            if len(up)
            else "{down_bytes} to the CPU after the GPU's work"
        )
        remedies.append(_AFTER)
    severity: Severity = "medium" if fraction >= _MOST else "low"
    remedy = ", and ".join(remedies)
    yield Finding(
        severity,
        f"Unified memory moves {' and '.join(parts)}. This takes {{outer_ns}}, the work itself "
        "{work_ns}.",
        f"{remedy[:1].upper()}{remedy[1:]}.",
        moved_ns,
        RECORDING,
        _evidence(own, row, sums),
    )


def _in_use(trace: Trace, moved: LostTime) -> Intervals:
    """The parts of migrations between the first and the last work of their GPU."""
    ops = operations(trace)
    own = ops.device == moved.device
    if not own.any():
        return intervals.EMPTY
    used = intervals.union(ops.start_ns[own].min(keepdims=True), ops.end_ns[own].max(keepdims=True))
    return intervals.intersection(moved.time, used)


def _evidence(copies: Table, row: Mapping[str, Cell], values: Mapping[str, Cell]) -> Evidence:
    """The evidence: values, the table row with most of the time, and its longest migration."""
    keys = {name: row[name] for name in _KEYS}
    return Evidence({**keys, **values}, "copies", keys, *longest_of(copies, row))
