"""The facts of a job, from which its sentences are made, and its rows per process group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import NULL, Cell, Integers, Table
from traceview.base.vocabulary.causes import LAUNCH_LATE
from traceview.traces.ranks import critical_path, matching, tables
from traceview.traces.ranks.clocks import column_of
from traceview.traces.ranks.figures import KINDS, UNKNOWN, RankFigures
from traceview.traces.ranks.job import PARTS, Clocks, HeatMap, MatchedCommunicator
from traceview.traces.ranks.lateness import GPU_WORK, LATE_CAUSES, CommonSteps, Lateness, Needs
from traceview.traces.ranks.process_groups import ProcessGroups, ranks_text
from traceview.traces.ranks.stragglers import Straggler


@record
class JobFacts:
    """The ranks, by number, and the facts derived from their collectives.

    `span_ns` is the median rank's time in the steady steps that all ranks share, or without steps
    its whole steady time. `wait_ns` has an array per rank: the wait in each of its collectives, −1
    where unknown. `replay_note` says what the savings of late ranks rest on where not on all ranks.
    `unrecorded` is the step without the recorder as a part of the recorded one, None where that is
    about the same or not known.
    """

    ranks: tuple[RankFigures, ...]
    matched: tuple[MatchedCommunicator, ...]
    inconsistencies: tuple[matching.Inconsistency, ...]
    clocks: Clocks
    steps: CommonSteps
    late: Lateness
    stragglers: tuple[Straggler, ...]
    groups: tuple[ProcessGroups, ...]
    path: critical_path.CriticalPath | None
    span_ns: int
    wait_ns: tuple[Integers, ...]
    needs: Needs | None = None
    replay_note: str = ""
    unrecorded: float | None = None

    @property
    def has_waits(self) -> bool:
        """Whether any wait is known."""
        return any((of.last >= 0).any() for of in self.matched)

    @property
    def unmatched(self) -> int:
        """The number of collectives of all ranks whose wait is unknown."""
        return sum(int((wait < 0).sum()) for wait in self.wait_ns)

    @property
    def unnamed(self) -> int:
        """The number of collectives of all ranks whose communicator is unknown."""
        return sum(int((rank.collectives.communicator == NULL).sum()) for rank in self.ranks)

    def steady_count(self, rank: int) -> int:
        """The number of a rank's steady steps, at least 1 as times are divided by it."""
        return max(int((~self.ranks[rank].steps.warm_up).sum()), 1)

    def exposed_wait_ns(self, rank: int) -> Integers:
        """The part of the wait in each collective of a rank in which it does not compute."""
        exposed = self.ranks[rank].collectives.exposed_ns
        return np.minimum(np.maximum(self.wait_ns[rank], 0), exposed)

    def steady_ns(self, rank: int, times: Integers) -> int:
        """The sum of times of a rank's collectives in its steady steps, or without steps of all."""
        step, warm = self.ranks[rank].collectives.step, self.ranks[rank].steps.warm_up
        return int((times[(step >= 0) & ~warm[step]] if len(warm) else times).sum())


def waits_by_row(
    ranks: tuple[RankFigures, ...], matched: tuple[MatchedCommunicator, ...]
) -> tuple[Integers, ...]:
    """The wait of each collective of each rank, −1 where it is unknown."""
    waits = tuple(np.full(len(rank.collectives), -1, np.int64) for rank in ranks)
    for of in matched:
        for place, rank in enumerate(of.ranks):
            present = of.rows[place] >= 0
            waits[rank][of.rows[place, present]] = of.wait_ns[place, present]
    return waits


_LOADS = ("data-wait", "data-loading")


def heat_map(job: JobFacts) -> HeatMap:
    """The heat map of a job, without columns if it has no steps."""
    row = job.steps.row
    count, total = row.shape
    parts = np.zeros((count, total, len(PARTS)), np.int64)
    duration, warm = np.full((count, total), NULL), np.zeros((count, total), bool)
    loading = np.zeros((count, total), np.int64)
    for rank, figures in enumerate(job.ranks):
        present = np.flatnonzero(row[rank] >= 0)
        own, steps = row[rank, present], figures.steps
        duration[rank, present], warm[rank, present] = steps.duration_ns[own], steps.warm_up[own]
        waits = groups.added(figures.collectives.step, job.exposed_wait_ns(rank), len(steps))
        wait = np.minimum(waits[own], steps.exposed_ns[own])
        parts[rank, present, 0] = steps.compute_ns[own]
        parts[rank, present, 1] = steps.exposed_ns[own] - wait
        parts[rank, present, 2] = wait
        parts[rank, present, 3] = steps.copies_ns[own]
        parts[rank, present, 4:] = steps.idle_ns[own]
        loading[rank, present] = np.minimum(
            loading_in_steps(figures)[own], steps.idle_ns[own, LAUNCH_LATE]
        )
    late, more = np.zeros((count, total), np.int64), np.zeros((count, total), np.int64)
    if len(job.late.steps):
        late[:, job.late.steps] = job.late.late_ns
        more[:, job.late.steps] = job.late.parts_ns[:, :, LATE_CAUSES.index(GPU_WORK)]
    return HeatMap(job.steps.names, duration, warm, parts, late, more, loading)


def loading_in_steps(figures: RankFigures) -> Integers:
    """Idle time in each step of a rank in which its CPU waited for data or loaded it.

    Idle time that several collectives share, as they start after the same one, counts once.
    """
    collectives, count = figures.collectives, len(figures.steps)
    loads = np.array([place.what in _LOADS for place in figures.places] + [False])
    rows = np.flatnonzero(loads[collectives.place] & (collectives.step >= 0))
    if not len(rows):
        return np.zeros(count, np.int64)
    by = groups.group(collectives.step[rows], collectives.place[rows], collectives.place_ns[rows])
    once = rows[by.first]
    return groups.added(collectives.step[once], collectives.place_ns[once], count)


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
    return Table.from_rows(tables.GROUPS.columns, rows)


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
    return Table.from_rows(tables.COLLECTIVES.columns, rows)


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
