"""Findings on communication: many small messages, and transfers that compute does not hide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.findings import Evidence, Finding, Subject, severity_of, share_pct
from traceview.ranks.figures import KINDS
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.result.group_rows import GroupCalls
from traceview.tables import Cell, Integers, Table
from traceview.units import Value

SMALL_BYTES, MANY_PER_STEP = 1 << 20, 50
"""At 1 MiB two H200 reached a quarter of the bandwidth of 256 MiB (tests/data/collectives)."""
_SMALL_SHARE, _EXPOSED_SHARE = 0.05, 0.10


def small_messages(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> Iterator[Finding]:
    """Many small collectives per step: a finding for the kind and size with most exposed time."""
    steps = max(int(job.steps.steady.sum()), 1)
    small = [(_exposed_ns(job, row, calls), row) for row in _many_small(tables["collectives"])]
    if not small:
        return
    exposed_ns, row = max(small, key=lambda each: each[0])
    exposed_ns = min(exposed_ns, job.span_ns)
    severity = severity_of(exposed_ns, job.span_ns)
    if severity is None or exposed_ns < _SMALL_SHARE * job.span_ns:
        return
    values: dict[str, Value] = {
        "calls": round(float(row["calls_per_step"] or 0)),
        "kind": row["kind"],
        "group": row["group"],
        "bytes": row["bytes"],
        "exposed_ns": exposed_ns // steps,
        "bus_bytes_per_s": row["bus_bytes_per_s"],
    }
    template = (
        "{calls:call} of {kind} with {bytes} each take {exposed_ns} of a step without computing"
    )
    template += ", at {bus_bytes_per_s}." if row["bus_bytes_per_s"] else "."
    yield Finding(
        severity,
        template,
        "Exchange more per call: bucket_cap_mb of DistributedDataParallel, larger units of FSDP, "
        "or one call for several tensors.",
        exposed_ns,
        Subject("collective", str(row["kind"])),
        Evidence(
            values,
            "collectives",
            {"group": row["group"], "kind": row["kind"], "bytes": row["bytes"]},
        ),
        share_pct(exposed_ns, job.span_ns),
        cause="small-messages",
    )


def _many_small(collectives: Table) -> Iterator[dict[str, Cell]]:
    """Rows of the table for small collectives that are called often in each step."""
    for row in collectives.rows():
        size, per_step = row["bytes"], row["calls_per_step"]
        if size is None or per_step is None or row["transfer_ns"] is None:
            continue
        if int(size) <= SMALL_BYTES and float(per_step) >= MANY_PER_STEP:
            yield row


def _exposed_ns(job: JobFacts, row: dict[str, Cell], calls: Sequence[GroupCalls]) -> int:
    """The exposed time of the collectives of a row in steady steps, per rank."""
    of = calls[next(place for place, each in enumerate(job.groups) if each.label == row["group"])]
    own = (of.bytes == row["bytes"]) & (of.kind == KINDS.index(str(row["kind"])))
    own &= np.isin(of.step, np.flatnonzero(job.steps.steady))
    ranks = max(len(set(of.rank[own].tolist())), 1)
    return int(_exposed_transfers(of)[own].sum()) // ranks


def _exposed_transfers(calls: GroupCalls) -> Integers:
    """An upper bound of each call's time without compute and without waiting."""
    return np.minimum(calls.exposed_ns, calls.duration_ns - np.maximum(calls.wait_ns, 0))


def exposed_communication(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> Iterator[Finding]:
    """Exposed communication of the median rank, without waits, as a finding."""
    row = _median_rank(tables)
    if row is None:
        return
    place = next(p for p, each in enumerate(job.ranks) if each.name.rank == row["rank"])
    steps, transfer_ns = job.steady_count(place), _transfer_ns(row)
    whole_ns = job.ranks[place].span_ns // steps
    severity = severity_of(transfer_ns * steps, job.ranks[place].span_ns)
    if severity is None or transfer_ns < _EXPOSED_SHARE * whole_ns:
        return
    which = "Both ranks exchange data" if len(job.ranks) == 2 else "Most ranks exchange data"
    of = "of a mean step of" if job.steps.names else "of"
    most, values = _most_exposed(job, tables, calls)
    yield Finding(
        severity,
        f"{which} for {{transfer_ns}} or more {of} {{step_ns}} without computing{most}.",
        "Overlap it with compute: start each collective as soon as its data is ready, on a stream "
        "of its own. Or exchange fewer bytes.",
        transfer_ns * max(int(job.steps.steady.sum()), 1),
        Subject("rank", f"rank {row['rank']}"),
        Evidence(
            {"rank": row["rank"], "transfer_ns": transfer_ns, "step_ns": whole_ns, **values},
            "ranks",
            {"rank": row["rank"]},
        ),
        share_pct(transfer_ns, whole_ns),
        cause="exposed-communication",
        general=True,
    )


def _median_rank(tables: dict[str, Table]) -> dict[str, Cell] | None:
    """The row of the rank with the median exposed transfer time; None if waits are unknown."""
    known = [row for row in tables["ranks"].rows() if row["wait_ns"] is not None]
    ordered = sorted(known, key=_transfer_ns)
    return ordered[(len(ordered) - 1) // 2] if ordered and len(tables["collectives"]) else None


def _transfer_ns(row: dict[str, Cell]) -> int:
    return max(int(row["exposed_ns"] or 0) - int(row["wait_ns"] or 0), 0)


def _most_exposed(
    job: JobFacts, tables: dict[str, Table], calls: Sequence[GroupCalls]
) -> tuple[str, dict[str, Value]]:
    """The kind with most exposed time and its group's bandwidth, as the end of a sentence."""
    exposed = [np.bincount(each.kind, _exposed_transfers(each), len(KINDS)) for each in calls]
    of = int(np.argmax([each.max() for each in exposed]))
    group = next(row for row in tables["groups"].rows() if row["group"] == job.groups[of].label)
    values: dict[str, Value] = {"kind": KINDS[int(np.argmax(exposed[of]))]}
    if group["link_pct"] is None:
        return ", most of it in {kind}", values
    values |= {name: group[name] for name in ("bus_bytes_per_s", "link_pct", "link")}
    return ", most of it in {kind} at {bus_bytes_per_s}, {link_pct} of {link}", values
