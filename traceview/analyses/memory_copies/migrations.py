"""Pages of unified memory: moved on demand, by late prefetches, or outside GPU work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview import groups, intervals
from traceview.analyses.memory_copies.copies import (
    chosen_copies,
    copies_by_kind,
    copy_claim,
    exposed_by,
    time_of,
)
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.copies import outer_migration_time
from traceview.facts.operations.operations import operations
from traceview.findings import LostTime, severity_of
from traceview.intervals import Intervals
from traceview.rules.engine import FindingRule, TimeClaim
from traceview.tables import Cell, Table
from traceview.trace import Trace

_ON_DEMAND, _PREFETCH = ("page fault", "speculative prefetch"), "user prefetch"
_OUTER_LEAST_NS, _OUTER_LEAST, _MOST = 1_000_000, 0.1, 0.5
_BEFORE = "create the data on the GPU where that is possible"
_AFTER = (
    "prefetch to the CPU what it reads (cudaMemPrefetchAsync to cudaCpuDeviceId), or compute on "
    "the GPU what it needs of it"
)


def _used(trace: Trace, early: bool, causes: tuple[str, ...]) -> Table:
    """The selected migrations of these causes, of warm-up or not, during their GPU's work."""
    chosen = chosen_copies(trace)
    copies = chosen.copies.take(~chosen.outer & (chosen.early == early))
    return copies.take(copies.texts("migration_cause").isin(causes))


def _on_demand(trace: Trace, early: bool) -> Iterator[TimeClaim]:
    """Pages of one direction that the driver moved after faults, or with such pages."""
    copies, span_ns = _used(trace, early, _ON_DEMAND), steady_span_ns(trace)
    directions = copies.texts("direction")
    for direction in groups.different(directions.codes):
        alike = copies.take(directions.codes == direction)
        moved, total_ns = time_of(alike), int(alike.duration_ns.sum())
        saved_ns = total_ns if early else _in_use(trace, moved).total()
        if severity_of(saved_ns, span_ns):
            sums: dict[str, Cell] = {
                "calls": len(alike),
                "bytes": int(alike["bytes"].sum()),
                "total_ns": total_ns,
                "median_bytes": int(np.median(alike["bytes"])),
            }
            row = next(copies_by_kind(trace, alike).rows())
            yield replace(
                copy_claim(alike, row, sums, saved_ns, figures=()),
                span_ns=0 if early else span_ns,
                work=moved,
                severity="info" if early else None,
                words={"of_warm_up": " of warm-up" if early else ""},
            )


def _in_use(trace: Trace, moved: LostTime) -> Intervals:
    """The parts of migrations between the first and the last work of their GPU."""
    ops = operations(trace)
    own = ops.device == moved.device
    if not own.any():
        return intervals.EMPTY
    used = intervals.union(ops.start_ns[own].min(keepdims=True), ops.end_ns[own].max(keepdims=True))
    return intervals.intersection(moved.time, used)


def _prefetched(trace: Trace) -> Iterator[TimeClaim]:
    """Prefetches that no kernel hides, of the GPU and direction with most of that time."""
    copies = _used(trace, False, (_PREFETCH,))
    by_kind = groups.group(copies["device"], copies.texts("direction").codes)
    if by_kind.size:
        exposed = exposed_by(trace, copies, by_kind)
        worst = int(np.argmax(exposed))
        alike, exposed_ns = copies.take(by_kind.ids == worst), int(exposed[worst])
        row = next(copies_by_kind(trace, alike).rows())
        claim = copy_claim(alike, row, {**row, "exposed_ns": exposed_ns}, exposed_ns, figures=())
        yield replace(claim, span_ns=steady_span_ns(trace), work=time_of(alike))


def _outer(trace: Trace) -> Iterator[TimeClaim]:
    """Pages that move before and after all work of their GPU, where that takes long beside it.

    A run pays for them once, so the severity is medium at most, with no share of its steady time.
    """
    chosen = chosen_copies(trace)
    if trace.selection or not chosen.outer.any():
        return
    device, moved = max(outer_migration_time(trace).items(), key=lambda each: each[1].total())
    moved_ns, work_ns = moved.total(), steady_span_ns(trace)
    fraction = moved_ns / (moved_ns + work_ns)
    if moved_ns < _OUTER_LEAST_NS or fraction < _OUTER_LEAST:
        return
    own = chosen.copies.take(chosen.outer & (chosen.copies["device"] == device))
    directions = own.texts("direction")
    up, down = (own["bytes"][directions.isin([way])] for way in ("UVM H2D", "UVM D2H"))
    values: dict[str, Cell] = {"outer_ns": moved_ns, "work_ns": work_ns}
    values |= {"up_bytes": int(up.sum())} if len(up) else {}
    values |= {"down_bytes": int(down.sum())} if len(down) else {}
    remedies = [text for text, moves in ((_BEFORE, up), (_AFTER, down)) if len(moves)]
    remedy = ", and ".join(remedies)
    yield replace(
        copy_claim(own, next(copies_by_kind(trace, own).rows()), values, moved_ns, figures=()),
        severity="medium" if fraction >= _MOST else "low",
        remedy=f"{remedy[:1].upper()}{remedy[1:]}.",
        words={
            "up": "{up_bytes}" if len(up) else "",
            "and": " and" if len(remedies) > 1 else "",
            "down": "{down_bytes}" if len(down) else "",
            "it": "it" if len(up) else "the GPU's work",
        },
    )


_ON_DEMAND_MESSAGE = (
    "{calls:migration} of unified memory by page faults ({direction}) {calls?takes|take} "
    "{total_ns}{of_warm_up} for {bytes}, half of them {median_bytes} or less each."
)
_PREFETCH_THEM = (
    "Prefetch what is used next (cudaMemPrefetchAsync), or keep it on the GPU and copy it."
)
RULES = (
    FindingRule(lambda trace: _on_demand(trace, False), _ON_DEMAND_MESSAGE, _PREFETCH_THEM),
    FindingRule(
        _prefetched,
        "{calls:prefetch|prefetches} of unified memory ({direction}, {bytes}) {calls?takes|take} "
        "{total_ns} at {bytes_per_s}. No kernel runs for {exposed_ns} of it.",
        "Prefetch earlier and on a stream of its own, while kernels run, and keep on the GPU what "
        "it uses again.",
    ),
    FindingRule(lambda trace: _on_demand(trace, True), _ON_DEMAND_MESSAGE, _PREFETCH_THEM),
    FindingRule(
        _outer,
        "Unified memory moves[ {up} to the GPU before its work]{and}[ {down} to the CPU after "
        "{it}]. This takes {outer_ns}, the work itself {work_ns}.",
    ),
)
