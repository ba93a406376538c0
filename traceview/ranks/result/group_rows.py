"""The tables with a row per process group, and per kind and size of its collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview import groups
from traceview.ranks.figures import KINDS, UNKNOWN
from traceview.ranks.process_groups import ProcessGroups, ranks_text
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.tables import COLLECTIVES, GROUPS
from traceview.ranks.waits import column_of
from traceview.records import record
from traceview.tables import Cell, Integers, Table

NVLINK, PCIE, NETWORK = "NVLink", "PCIe", "network"


@record
class GroupCalls:
    """The collectives of one shape of group on all ranks, one row per collective and rank.

    `call` is the number of the collective. `skew_ns` is the wait of the first rank to arrive; it
    and `wait_ns` are −1 where waits are unknown.
    """

    call: Integers
    rank: Integers
    kind: Integers
    bytes: Integers
    bus_bytes: Integers
    duration_ns: Integers
    exposed_ns: Integers
    wait_ns: Integers
    skew_ns: Integers
    step: Integers


def group_calls(job: JobFacts, of: ProcessGroups) -> GroupCalls:
    """The collectives of all groups of one shape."""
    parts = [_calls(job, place) for place in of.members]
    number = np.cumsum([0, *(int(part["call"].max(initial=-1)) + 1 for part in parts)])
    for part, first in zip(parts, number.tolist(), strict=False):
        part["call"] += first
    names = parts[0]
    return GroupCalls(**{name: np.concatenate([part[name] for part in parts]) for name in names})


def _calls(job: JobFacts, place: int) -> dict[str, Integers]:
    of = job.matched[place]
    present = of.rows >= 0
    member, column = np.nonzero(present)
    columns = {
        name: column_of(job.ranks, of.ranks, of.rows, name)[present]
        for name in ("bus_bytes", "start_ns", "end_ns", "exposed_ns", "step")
    }
    rank = np.array(of.ranks, np.int64)[member]
    shift = job.steps.shift[rank]
    return {
        "call": (np.cumsum(present.any(axis=0)) - 1)[column],
        "rank": rank,
        "kind": of.kind[column].astype(np.int64),
        "bytes": of.bytes[column],
        "bus_bytes": columns["bus_bytes"],
        "duration_ns": columns["end_ns"] - columns["start_ns"],
        "exposed_ns": columns["exposed_ns"],
        "wait_ns": of.wait_ns[present],
        "skew_ns": np.where(of.last >= 0, of.late_ns, UNKNOWN)[column],
        "step": np.where(columns["step"] >= 0, columns["step"] + shift, -1),
    }


def groups_table(job: JobFacts, calls: Sequence[GroupCalls]) -> Table:
    rows = [_group_row(job, *pair) for pair in zip(job.groups, calls, strict=True)]
    return Table.from_rows(GROUPS.columns, rows)


def _group_row(job: JobFacts, of: ProcessGroups, calls: GroupCalls) -> dict[str, Cell]:
    link, peak = link_of(job, of)
    rate = bus_rate(calls.bus_bytes, calls.duration_ns, calls.wait_ns, peak)
    first = groups.group(calls.call).first
    known = calls.wait_ns >= 0
    sizes = calls.bytes[first]
    return {
        "group": of.label,
        "name": of.name,
        "ranks": ranks_text(of.ranks),
        "members": of.size,
        "communicators": of.communicators,
        "kinds": ", ".join(KINDS[kind] for kind in of.kinds),
        "calls": len(first),
        "bytes": int(sizes.sum()) if (sizes >= 0).all() else None,
        "total_ns": int(calls.duration_ns.sum()),
        "exposed_ns": int(calls.exposed_ns.sum()),
        "wait_ns": int(calls.wait_ns[known].sum()) if known.any() else None,
        "bus_bytes_per_s": rate,
        "link": link,
        "link_pct": 100.0 * rate / peak if rate and peak else None,
    }


def bus_rate(bus: Integers, duration: Integers, wait: Integers, peak: int | None) -> int | None:
    """Bus bytes per second without waits; None where sizes or waits are unknown.

    Also None if the rate exceeds the link's peak: then data moved before the last rank arrived, as
    from the root of a broadcast to the ranks that are ready.
    """
    chosen = (bus > 0) & (wait >= 0)
    time = int((duration - wait)[chosen].sum())
    if not time or (bus < 0).any():
        return None
    rate = round(int(bus[chosen].sum()) / time * 1e9)
    return None if peak and rate > peak else rate


def link_of(job: JobFacts, of: ProcessGroups) -> tuple[str | None, int | None]:
    """The link between the ranks of a group, and its peak rate one way; None where unknown.

    Within a machine the link is NVLink if the GPU model has it, else PCIe. Network rates are not
    recorded.
    """
    names = [rank.name for rank in job.ranks]
    alone = len({name.clock for name in names}) == 1
    # The host, or the clock if all share one; empty if unknown.
    machine = [name.host or (name.clock if alone else "") for name in names]
    machines = [{machine[rank] for rank in job.matched[place].ranks} for place in of.members]
    if any("" in hosts for hosts in machines):
        return None, None
    if any(len(hosts) > 1 for hosts in machines):
        return NETWORK, None
    ranks = {rank for place in of.members for rank in job.matched[place].ranks}
    for link, name in ((NVLINK, "link_bytes_per_s"), (PCIE, "host_bytes_per_s")):
        rates = [getattr(job.ranks[rank], name) for rank in ranks]
        if None not in rates:
            return link, min(rates)
    return None, None


def collectives_table(job: JobFacts, calls: Sequence[GroupCalls]) -> Table:
    rows = [row for pair in zip(job.groups, calls, strict=True) for row in _sizes(job, *pair)]
    rows.sort(key=lambda row: -int(row["wait_ns"] or 0))
    return Table.from_rows(COLLECTIVES.columns, rows)


def _sizes(job: JobFacts, of: ProcessGroups, calls: GroupCalls) -> Iterator[dict[str, Cell]]:
    by = groups.group(calls.kind, calls.bytes)
    _, peak = link_of(job, of)
    order = groups.order_of(by.ids)
    for own in np.split(order, np.flatnonzero(np.diff(by.ids[order])) + 1):
        wait, known = calls.wait_ns[own], calls.wait_ns[own] >= 0
        last = own[wait == 0]
        first = groups.group(calls.call[own]).first
        skew = calls.skew_ns[own[first]]
        rate = bus_rate(calls.bus_bytes[own], calls.duration_ns[own], wait, peak)
        size = int(calls.bytes[own[0]])
        yield {
            "group": of.label,
            "kind": KINDS[int(calls.kind[own[0]])],
            "bytes": size if size >= 0 else None,
            "calls": len(first),
            "calls_per_step": _per_step(job, calls, own),
            "total_ns": int(calls.duration_ns[own].sum()),
            "median_ns": int(np.median(calls.duration_ns[own])),
            "transfer_ns": int(np.median(calls.duration_ns[last])) if len(last) else None,
            "wait_ns": int(wait[known].sum()) if known.any() else None,
            "skew_median_ns": int(np.median(skew[skew >= 0])) if (skew >= 0).any() else None,
            "bus_bytes_per_s": rate,
            "link_pct": 100.0 * rate / peak if rate and peak else None,
        }


def _per_step(job: JobFacts, calls: GroupCalls, own: Integers) -> float | None:
    """Calls of a rank in a steady step; None without steps."""
    steady = np.flatnonzero(job.steps.steady)
    if not len(steady):
        return None
    inside = own[np.isin(calls.step[own], steady)]
    ranks = len(groups.different(calls.rank[own]))
    return len(inside) / (len(steady) * ranks)
