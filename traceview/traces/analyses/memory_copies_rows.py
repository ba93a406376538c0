"""Copies and page migrations by direction, kind of host memory and cause, as rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import RECORDING, LostTime, severity_of
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Cell, Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import Array, Integers, Mask, RowNumbers
from traceview.base.vocabulary.causes import CAUSE_NAMES, PAGE_MIGRATION
from traceview.traces.analyses import wording
from traceview.traces.facts import operations, savings
from traceview.traces.facts.copies import (
    compute_time,
    exposure,
    outer_migration_time,
    outer_migrations,
)
from traceview.traces.facts.idle.gaps import steady_span_ns
from traceview.traces.facts.ranges.selection import selected, selected_operations
from traceview.traces.facts.steps import steps
from traceview.traces.facts.work.peaks import bytes_per_s, peaks
from traceview.traces.rules import FindingRule, TimeClaim, gained
from traceview.traces.trace import Trace, fact, schema

OVER_THE_LINK = ("H2D", "D2H", f"{schema.UNIFIED}H2D", f"{schema.UNIFIED}D2H")
_FASTEST_LINK = 63e9
_LINKS = {**dict.fromkeys(("6.1", "7.5"), 16e9), **dict.fromkeys(("8.0", "8.6", "8.9"), 32e9)}
"""Bytes per second and direction of PCIe 5 where the link is not known, and by compute capability
of PCIe 3 and 4, where no GPU of it has more (data sheets)."""
_LATENCY_NS = 10_000
_START_UP_FRACTION, _LEAST_TIMES = 0.05, 8
"""A program that computes at fewer times than this makes one pass: of 14 public recordings of one
pass none has more than 5 launches."""
_KEYS = ("direction", "host_memory", "migration_cause")
_FIGURES = ("calls", "bytes", "total_ns", "bytes_per_s", "median_bytes")
COPIES = TableSpec(
    "copies",
    "one row per direction, kind of host memory and cause of migration, longest time first",
    column_list("""
        direction text: H2D, D2H, D2D, P2P, …; UVM H2D and UVM D2H for pages that unified memory
            migrated
        host_memory text?: pageable, pinned or managed; absent for copies between GPUs
        migration_cause text?: why unified memory migrated pages: page fault, user prefetch,
            eviction, …
        calls int64: copies
        bytes int64: bytes copied, all calls
        total_ns int64: time of all calls
        exposed_ns int64: time in which they run and no kernel does on the same GPU, all GPUs
        bytes_per_s int64: bytes ÷ time
        link_pct float64?: percentage of the peak rate of the link between host and GPU, per
            direction (see the note); absent where that is unknown, and for copies between GPUs
        median_bytes int64: median size per copy
    """),
    brief=(
        "direction host_memory migration_cause calls bytes total_ns exposed_ns bytes_per_s "
        "link_pct median_bytes"
    ),
)


@record
class ChosenCopies:
    """The selected copies and migrations.

    `operation` is the row in operations, −1 for migrations, which are none. `early` is True for
    those of warm-up and start-up, `outer` for pages that move while their GPU
    has no work at all.
    """

    copies: Table
    operation: RowNumbers
    early: Mask
    outer: Mask


@fact
def chosen_copies(trace: Trace) -> ChosenCopies:
    """The selected copies."""
    copies, moved = trace.copies, np.flatnonzero(operations.migrations(trace))
    chosen = chosen_rows(trace, operations.Kind.COPY, len(copies))
    chosen[moved] = selected(trace, copies["process"][moved], copies["start_ns"][moved])
    early = _early(trace, copies, moved)[chosen]
    of_kind = np.flatnonzero(operations.operations(trace).kind == operations.Kind.COPY)
    operation = np.full(len(copies), -1, np.int32)
    operation[operations.operations(trace).row[of_kind]] = of_kind
    outer = outer_migrations(trace)[chosen]
    return ChosenCopies(copies.take(chosen), operation[chosen], early, outer)


def chosen_rows(trace: Trace, kind: operations.Kind, rows: int) -> Mask:
    """True for the selected operations among the rows of the table of that kind."""
    ops = operations.operations(trace)
    of_kind = ops.kind == kind
    chosen = np.zeros(rows, bool)
    chosen[ops.row[of_kind]] = selected_operations(trace)[of_kind]
    return chosen


def _early(trace: Trace, copies: Table, moved: Integers) -> Mask:
    """True for the copies of warm-up and start-up; `moved` are the rows of page migrations."""
    early: Mask = copies["start_ns"] < steps.warm_up_end_ns(trace)
    warm, ops = steps.operations_in_warm_up_ranges(trace), operations.operations(trace)
    copied = ops.kind == operations.Kind.COPY
    if warm is not None:
        early[ops.row[copied]] |= warm[copied]
        early[moved] |= steps.in_warm_up_range(
            trace, copies["process"][moved], copies["start_ns"][moved]
        )
    rows = ops.row[copied]
    # When each device has done a twentieth of its kernel time; its start-up is over by then.
    #
    # A program uploads its weights and data before it computes; without steps nothing else tells
    # these copies from those of a loop. The least int64 for a device whose kernels are one pass:
    # what it uploads is as much of the program as what it computes.
    begins = np.full(len(trace.devices), np.iinfo(np.int64).min)
    for device, compute in compute_time(trace).items():
        so_far = np.cumsum(compute.length)
        if not is_one_pass(compute):
            begins[device] = compute.start[np.searchsorted(so_far, _START_UP_FRACTION * so_far[-1])]
    early[rows] |= copies["start_ns"][rows] < begins[copies["device"][rows]]
    return early


def is_one_pass(compute: Intervals) -> bool:
    """Whether a GPU that computes at these times makes one pass, and no loop."""
    return len(compute.start) < _LEAST_TIMES


def kept_ns(trace: Trace, copies: Table, device: int) -> int:
    """What the copies of one pass take however they are made: their bytes, less compute.

    No loop computes beside the copies of one pass: what they hide behind is its kernels alone.
    """
    compute = compute_time(trace).get(device, intervals.EMPTY)
    if not is_one_pass(compute):
        return 0
    known = peaks(trace)[device].get("link")
    capability = str(trace.devices["compute_capability"][device])
    rate = known.value if known else _LINKS.get(capability, _FASTEST_LINK)
    least = int(copies["bytes"].sum() / rate * 1e9)
    # Short copies are all latency, and faster ones than the link did not use it.
    used = _LATENCY_NS <= least <= copies.duration_ns.sum()
    return max(least - compute.total(), 0) if used else 0


def copies_by_kind(trace: Trace, copies: Table) -> Table:
    """The table of COPIES: longest time first."""
    direction, host = copies.texts("direction"), _host_memory(copies)
    cause = copies.texts("migration_cause")
    by_kind = groups.group(direction.codes, host.codes, cause.codes)
    total = groups.sums(by_kind, copies.duration_ns)
    # Least time of each copy, at the peak rate of its link; NaN without a link or its rate.
    links = [known["link"].value if "link" in known else np.nan for known in peaks(trace)]
    rates = np.array([*links, np.nan])[copies["device"]]
    crosses = copies.texts("direction").isin(OVER_THE_LINK)
    least_ns: Array = np.where(crosses, copies["bytes"] / rates * 1e9, np.nan)
    at_best = np.bincount(by_kind.ids, least_ns, by_kind.size)
    size = groups.stats(by_kind, copies["bytes"])
    # Percent of the link's peak; NaN above 100, where the copies cannot have used that link.
    pct = np.where(total > 0, 100 * at_best / np.maximum(total, 1), np.nan)
    link_pct: Array = np.where(pct <= 100, pct, np.nan)
    table = Table(
        COPIES.columns,
        {
            "direction": direction.take(by_kind.first),
            "host_memory": host.take(by_kind.first),
            "migration_cause": cause.take(by_kind.first),
            "calls": size.calls,
            "bytes": size.total,
            "total_ns": total,
            "exposed_ns": exposed_by(trace, copies, by_kind),
            "bytes_per_s": bytes_per_s(size.total, total),
            "link_pct": link_pct,
            "median_bytes": size.median,
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


def _host_memory(copies: Table) -> Texts:
    """Kind of host memory at either end of each copy; absent where both ends are on a GPU."""
    ends = [copies.texts(n) for n in ("direction", "source_memory", "destination_memory")]
    by_ends = groups.group(*(end.codes for end in ends))
    labels = [
        source
        if str(direction).removeprefix(schema.UNIFIED).startswith("H")
        else target
        if str(direction).endswith("H")
        else None
        for direction, source, target in (
            (end[row] for end in ends) for row in by_ends.first.tolist()
        )
    ]
    return Texts.of(labels).take(by_ends.ids)


def rows_of(copies: Table, row: Mapping[str, Cell]) -> Mask:
    """True for the copies that a row of the table sums."""
    texts = {
        "direction": copies.texts("direction"),
        "host_memory": _host_memory(copies),
        "migration_cause": copies.texts("migration_cause"),
    }
    matches = np.ones(len(copies), bool)
    for name, values in texts.items():
        matches &= values.codes < 0 if row[name] is None else values.isin([str(row[name])])
    return matches


def exposed_by(trace: Trace, copies: Table, by: groups.Groups) -> Integers:
    """Time of each group of copies in which no kernel runs on their device."""
    start, end = copies["start_ns"], copies["end_ns"]
    return exposure(trace, copies["device"], start, end, by).exposed_ns


def longest_of(copies: Table, row: Mapping[str, Cell]) -> tuple[int, int]:
    """Start and end of the longest of the copies that a row of the table sums."""
    longest = int(np.argmax(np.where(rows_of(copies, row), copies.duration_ns, -1)))
    return int(copies["start_ns"][longest]), int(copies["end_ns"][longest])


def copy_claim(
    copies: Table,
    row: Mapping[str, Cell],
    values: Mapping[str, Cell],
    exposed_ns: int,
    figures: Sequence[str] = _FIGURES,
    without: Sequence[str] = (),
    gain: savings.Gain | None = None,
) -> TimeClaim:
    """A claim on copies, with cells of their row of the table and the time of the longest.

    They save the time that no kernel hides, or `gain` where that was replayed.
    """
    keys = {name: row[name] for name in _KEYS}
    of_row = {name: row[name] for name in figures if name not in without}
    if figures:
        of_row |= wording.sizes(copies["bytes"][rows_of(copies, row)])
    when = longest_of(copies, row)
    claim = TimeClaim(
        RECORDING, {**keys, **of_row, **values}, "copies", keys, exposed_ns, window=when
    )
    return claim if gain is None else replace(claim, **gained(gain))


_ON_DEMAND, _PREFETCH = ("page fault", "speculative prefetch"), "user prefetch"
_OUTER_LEAST_NS, _OUTER_LEAST, _MOST = 1_000_000, 0.1, 0.5
_BEFORE = "create the data on the GPU where that is possible"
_AFTER = "compute on the GPU what the CPU needs of it"
_AFTER_FAULTS = (
    f"prefetch to the CPU what it reads (cudaMemPrefetchAsync to cudaCpuDeviceId), or {_AFTER}"
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
        moved, total_ns = wording.lost_in(alike), int(alike.duration_ns.sum())
        assert moved
        saved_ns = total_ns if early else _in_use(trace, moved).total()
        if severity_of(saved_ns, span_ns):
            sums: dict[str, Cell] = {
                "calls": len(alike),
                "bytes": int(alike["bytes"].sum()),
                "total_ns": total_ns,
                **wording.sizes(alike["bytes"]),
            }
            if len(groups.different(alike["bytes"])) > 1:
                sums["median_bytes"] = int(np.median(alike["bytes"]))
            row = next(copies_by_kind(trace, alike).rows())
            ops = operations.operations(trace)
            own = ops.device == moved.device
            busy = intervals.covered(ops, own)
            # What comes back is read by the CPU, or made room for: no kernel waits for its pages.
            up = row["direction"] == "UVM H2D"
            held_ns = up * intervals.intersection(moved.time, busy).total()
            sums |= {"held_ns": held_ns} if held_ns else {}
            yield replace(
                copy_claim(alike, row, sums, saved_ns, figures=()),
                span_ns=0 if early else span_ns,
                work=moved,
                cause=CAUSE_NAMES[PAGE_MIGRATION],
                severity="info" if early else None,
                words={"of_warm_up": " of warm-up" if early else ""},
            )


def _in_use(trace: Trace, moved: LostTime) -> Intervals:
    """The parts of migrations between the first and the last work of their GPU."""
    ops = operations.operations(trace)
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
        values = {**row, **wording.sizes(alike["bytes"]), "exposed_ns": exposed_ns}
        claim = copy_claim(alike, row, values, exposed_ns, figures=())
        yield replace(claim, span_ns=steady_span_ns(trace), work=wording.lost_in(alike))


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
    prefetched = own.texts("migration_cause").isin([_PREFETCH])[directions.isin(["UVM D2H"])]
    after = _AFTER if prefetched.all() else _AFTER_FAULTS
    values: dict[str, Cell] = {"outer_ns": moved_ns, "work_ns": work_ns}
    values |= {"up_bytes": int(up.sum())} if len(up) else {}
    values |= {"down_bytes": int(down.sum())} if len(down) else {}
    remedies = [text for text, moves in ((_BEFORE, up), (after, down)) if len(moves)]
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
    f"{{total_ns}}{{of_warm_up}} for {wording.SIZE}[, half of them {{median_bytes}} or less each]."
    "[ Work on the GPU waits for pages during {held_ns} of it.]"
)
_PREFETCH_THEM = (
    "Prefetch what is used next (cudaMemPrefetchAsync), or keep it on the GPU and copy it."
)
RULES = (
    FindingRule(lambda trace: _on_demand(trace, False), _ON_DEMAND_MESSAGE, _PREFETCH_THEM),
    FindingRule(
        _prefetched,
        f"{{calls:prefetch|prefetches}} of unified memory ({{direction}}, {wording.SIZE}) "
        "{calls?takes|take} {total_ns} ({bytes_per_s}). No kernel runs for {exposed_ns} of it.",
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
