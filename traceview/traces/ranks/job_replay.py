"""What a job wins without the lateness of a rank: the graphs of all ranks replayed as one.

As in the report of one recording, that is the share of a step that is won where the recorder's cost
is taken off each call.

In the steps in which a rank is late, what makes it late becomes as much as on the median other
rank: the time of its CPU, the longest calls and pauses first; the work of its GPU, all by one
factor; or what its queued work waits for. A rank that has more work than the others shares it with
them instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from traceview.base import groups, units
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, row_numbers
from traceview.base.vocabulary.causes import CAUSE_NAMES, DEPENDENCY
from traceview.traces.analyses.verdict.verdict import DIFFERS
from traceview.traces.facts.dependencies.graph import Dependencies, Edge
from traceview.traces.facts.dependencies.replay import Changed, Edit
from traceview.traces.ranks.clocks import TOGETHER
from traceview.traces.ranks.figures import RankFigures
from traceview.traces.ranks.job import Clocks, MatchedCommunicator
from traceview.traces.ranks.job_facts import JobFacts
from traceview.traces.ranks.joint import Exchanges, JointModel, joined
from traceview.traces.ranks.lateness import GPU_WORK, CommonSteps
from traceview.traces.ranks.sent import Pool, RankGraph
from traceview.traces.ranks.stragglers import Straggler

MOST_ITEMS = 500_000
"""Items of all graphs, of 8 ranks at least. All then takes 0.35 s; in larger jobs the late
ranks are replayed beside those that wait least."""
MOST_MISFIT = 0.01
"""Nothing is replayed where the unchanged replay is further from the recordings."""
_PAUSES = (Edge.THREAD, Edge.HAND_OVER)


@record
class ReplayedRank:
    """A rank in the joint graph: which of its parts it is, and what its items are spent on.

    `first` is the part's first item. `step` is the number in the job of the step of each item, −1
    for none; `collective` the item of each row of RankCollectives, −1 for none and at the end.
    """

    part: int
    first: int
    graph: Dependencies
    step: Integers
    pool: Array
    collective: Integers


@record
class JobReplay:
    """The joint graph of ranks, by place in the list of ranks, with the job's `steps` in it."""

    model: JointModel
    ranks: Mapping[int, ReplayedRank]
    steps: Integers

    def saved_ns(self, late: Straggler, numbers: Integers, others: Sequence[int]) -> Straggler:
        """The late rank with what the job wins without its lateness.

        It is late in the steps `numbers`; `others` are the ranks that are not late.
        """
        inside = numbers[np.isin(numbers, self.steps)]
        others = [rank for rank in others if rank in self.ranks]
        if not len(inside) or not others:
            return late
        if late.more_work:
            edits = [*self._shared(inside)]
        else:
            edits = [*self._as_usual(late, inside, others)]
        first = row_numbers(np.flatnonzero(np.isin(self.steps, inside)))
        forecast = self.model.forecast(*edits, alike=first)
        steps = len(self.model.recorded) * len(numbers) / len(inside)
        return replace(
            late,
            saved_ns=max(round(forecast.saved_ns * steps), 0),
            error_ns=round(forecast.error_ns * steps),
        )

    @property
    def unrecorded(self) -> float:
        """The time of a step without the recorder, as a part of that with it."""
        recorded = max(float(self.model.recorded.mean()), 1.0)
        return float(self.model.before_cheaper.mean()) / recorded

    def _as_usual(
        self, late: Straggler, numbers: Integers, others: Sequence[int]
    ) -> Iterator[Edit]:
        late_cpu = late.cause not in (GPU_WORK, CAUSE_NAMES[DEPENDENCY])
        spend = _cpu if late_cpu else _work if late.cause == GPU_WORK else _held
        own, usual = spend(self.ranks[late.rank]), [spend(self.ranks[rank]) for rank in others]
        new = _capped if late_cpu else _evened
        yield self._on(late.rank, own.edit(new(own, usual, numbers)))

    def _shared(self, numbers: Integers) -> Iterator[Edit]:
        for spend in (_work, _cpu):
            each = [spend(of) for of in self.ranks.values()]
            for rank, own in zip(self.ranks, each, strict=True):
                yield self._on(rank, own.edit(_evened(own, each, numbers, np.mean)))

    def _on(self, rank: int, edit: Edit) -> Edit:
        return self.model.graph.on(self.ranks[rank].part, edit)


@record
class _Spent:
    """Time that a rank spends, by item or by edge: own times of items, and lags beyond a base."""

    time_ns: Integers
    step: Integers
    item: Array
    edge: Array
    base_ns: Integers

    @cached_property
    def by_step(self) -> dict[int, Integers]:
        """Rows of each step of the job, in order."""
        order = np.argsort(self.step, kind="stable")
        first = np.flatnonzero(groups.opens(self.step[order]))
        return dict(zip(self.step[order[first]].tolist(), np.split(order, first[1:]), strict=True))

    def in_step(self, step: int) -> Integers:
        """The times in a step."""
        return self.time_ns[self.by_step.get(step, groups.NO_ROWS)]

    def edit(self, time_ns: Integers) -> Edit:
        """The edit after which it spends these times, less what other edits take off."""
        items, less_ns = len(self.item), self.time_ns - time_ns

        def edit(changed: Changed) -> None:
            own, lag = changed.own_ns[self.item], changed.begin_ns[self.edge]
            changed.own_ns[self.item] = np.maximum(own - less_ns[:items], 0)
            changed.begin_ns[self.edge] = np.maximum(lag - less_ns[items:], self.base_ns)

        return edit


def _spent(rank: ReplayedRank, item: Array, edge: Array, base_ns: Integers) -> _Spent:
    own, lag = rank.graph.own_ns[item], rank.graph.begin.lag_ns[edge] - base_ns
    step = np.concatenate([rank.step[item], rank.step[rank.graph.begin.of[edge]]])
    return _Spent(np.concatenate([own, lag]), step, item, edge, base_ns)


def _work(rank: ReplayedRank) -> _Spent:
    """The work of its GPU, without communication."""
    none = np.zeros(0, np.int64)
    return _spent(rank, np.flatnonzero(rank.pool == Pool.WORK), none, none)


def _cpu(rank: ReplayedRank) -> _Spent:
    """The calls of its CPU without waits, and the time between them."""
    edges, cpu = rank.graph.begin, rank.pool == Pool.CPU
    between = np.isin(edges.kind, _PAUSES) & (edges.lag_ns > 0) & (edges.on >= 0) & cpu[edges.of]
    edge = np.flatnonzero(between)
    return _spent(rank, np.flatnonzero(cpu), edge, np.zeros(len(edge), np.int64))


def _held(rank: ReplayedRank) -> _Spent:
    """What its work waits for beyond the latency of a launch and the pitch of its stream."""
    graph, edges = rank.graph, rank.graph.begin
    base = np.where(edges.kind == Edge.LAUNCH, graph.latency_ns, graph.pitch_ns)
    edge = np.flatnonzero(
        (rank.pool[edges.of] == Pool.WORK) & (edges.on >= 0) & (edges.lag_ns > base)
    )
    return _spent(rank, np.zeros(0, np.int64), edge, base[edge])


def _evened(
    own: _Spent,
    others: Sequence[_Spent],
    numbers: Integers,
    middle: Callable[..., Array] | None = None,
) -> Integers:
    """The times of these steps as `middle` of all has them; else no more than the median other.

    Where all have as many they are so one by one, otherwise in all, scaled by one factor.
    """
    result = own.time_ns.copy()
    for step in numbers.tolist():
        rows, there = own.by_step.get(step, groups.NO_ROWS), [of.in_step(step) for of in others]
        mine, alike = result[rows], {len(times) for times in there} == {len(rows)}
        sums = [int(times.sum()) for times in there]
        usual = (middle or np.median)(there if alike else sums, axis=0)
        times = usual if alike else mine * (usual / max(int(mine.sum()), 1))
        if middle or times.sum() < mine.sum():
            result[rows] = np.round(times)
    return result


def _capped(own: _Spent, others: Sequence[_Spent], numbers: Integers) -> Integers:
    """The times with the longest of each step capped so that all are as much as the median other.

    What makes a CPU late is a pause or some long calls, seldom all of them.
    """
    result = own.time_ns.copy()
    for step in numbers.tolist():
        rows = own.by_step.get(step, groups.NO_ROWS)
        usual = np.median([int(of.in_step(step).sum()) for of in others])
        longest = np.sort(result[rows])[::-1]
        # The cap where so many are capped; the first that the next longest keeps within.
        less = longest.sum() - usual
        cap = (np.cumsum(longest) - less) / np.arange(1, len(rows) + 1)
        if less > 0:
            least = cap[np.argmax(cap >= np.append(longest[1:], 0))]
            result[rows] = np.minimum(result[rows], round(max(float(least), 0.0)))
    return result


def with_savings(job: JobFacts) -> JobFacts:
    """The job, each late rank with what the job wins without its lateness, and a note on how."""
    late = {each.rank for each in job.stragglers}
    if not late:
        return job
    replayed = job_replay(job.ranks, job.matched, job.clocks, job.steps, [*late])
    if replayed is None:
        return job
    if replayed.model.misfit > MOST_MISFIT:
        off = units.percent(100 * replayed.model.misfit)
        note = (
            f"Savings of late ranks are bounds: a replay of all ranks is {off} off the recordings."
        )
        return replace(job, replay_note=note)
    others = [rank for rank in range(len(job.ranks)) if rank not in late]
    saved = (replayed.saved_ns(each, job.late.steps[each.late], others) for each in job.stragglers)
    count, note = len(replayed.ranks), ""
    known = all(rank.recorder == "nsys" for rank in job.ranks)
    share = replayed.unrecorded if known else 1.0
    if count < len(job.ranks):
        note = (
            f"Savings are replayed on {count} of {len(job.ranks)} ranks: the late ones and those "
            "that wait least."
        )
    unrecorded = share if share <= 1 - DIFFERS else None
    return replace(job, stragglers=tuple(saved), replay_note=note, unrecorded=unrecorded)


def job_replay(
    ranks: Sequence[RankFigures],
    matched: Sequence[MatchedCommunicator],
    clocks: Clocks,
    steps: CommonSteps,
    late: Sequence[int],
    whole: Mapping[int, Dependencies] = MappingProxyType({}),
) -> JobReplay | None:
    """The joint graph of the ranks, the late ones first of all; None if it cannot be had.

    `whole` holds the graphs of ranks that edits need unpacked; of the others the packed ones are
    used. None where the launches of a rank were not recorded, nothing relates the clocks, or no
    steady steps follow each other on all ranks.
    """
    chosen = _chosen(ranks, matched, late)
    graphs = {rank: graph for rank in chosen if (graph := ranks[rank].graph) is not None}
    if len(graphs) < len(chosen) or len(set(clocks.component[chosen].tolist())) != 1:
        return None
    replayed = _replayed(graphs, clocks, steps, whole)
    parts = {of.part: of.graph for of in replayed.values()}
    joint = joined([*parts.values()], _exchanges(matched, replayed))
    count = len(steps.names)
    common = np.ones(count, bool)
    for rank in replayed.values():
        common &= np.bincount(rank.step[_operations(rank)], minlength=count)[:count] > 0
    number = np.flatnonzero(common)
    follows = steps.steady[number] & np.append(False, common)[number]
    if not follows.any():
        return None
    place = np.full(len(common) + 1, -1)
    place[number] = np.arange(len(number))
    last, step = [], []
    for of in replayed.values():
        rows = np.flatnonzero(_operations(of) & (place[of.step] >= 0))
        last.append(of.first + rows)
        step.append(place[of.step[rows]])
    ends, step_of_end = row_numbers(np.concatenate(last)), np.concatenate(step)
    costs = {of.part: graphs[rank].packed.call_ns for rank, of in replayed.items()}
    model = JointModel(joint, ends, step_of_end, follows, [*costs.values()])
    return JobReplay(model, replayed, number[follows])


def _chosen(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], late: Sequence[int]
) -> list[int]:
    """Ranks that are replayed: as many as fit, of the others those that wait least."""
    waited = np.zeros(len(ranks))
    for of in matched:
        waited[list(of.ranks)] += np.maximum(of.wait_ns, 0).sum(axis=1)
    order = [*late, *(rank for rank in np.argsort(waited).tolist() if rank not in late)]
    sizes = [graph.packed.items if (graph := ranks[rank].graph) else 0 for rank in order]
    count = max(int(np.searchsorted(np.cumsum(sizes), MOST_ITEMS, side="right")), 2)
    return sorted(order[:count])


def _replayed(
    graphs: Mapping[int, RankGraph],
    clocks: Clocks,
    steps: CommonSteps,
    whole: Mapping[int, Dependencies],
) -> dict[int, ReplayedRank]:
    """The ranks with their graphs on a common clock; ranks of one recording share a part."""
    parts: dict[int, tuple[int, int, Dependencies]] = {}
    result, first = {}, 0
    for rank, graph in graphs.items():
        key = id(graph.packed)
        if key not in parts:
            own = whole.get(rank) or graph.packed.unpacked()
            start, end = (clocks.aligned_ns(rank, each) for each in (own.start_ns, own.end_ns))
            parts[key] = len(parts), first, replace(own, start_ns=start, end_ns=end)
            first += len(own)
        step, collective = graph.step.unpacked(), graph.collective.unpacked()
        result[rank] = ReplayedRank(
            *parts[key],
            np.where(step >= 0, step + steps.shift[rank], -1),
            graph.pool.unpacked(),
            np.append(collective.astype(np.int64), -1),
        )
    return result


def _operations(rank: ReplayedRank) -> Mask:
    """True for its operations that are in a step."""
    result: Mask = rank.step >= 0
    result[: rank.graph.calls] = False
    return result


def _exchanges(
    matched: Sequence[MatchedCommunicator], ranks: Mapping[int, ReplayedRank]
) -> Exchanges:
    """The parts of matched collectives that are in the graphs, of those whose waits are known."""
    none = np.zeros(0, np.int64)
    numbers, items, together, count = [none], [none], [none.astype(bool)], 0
    for of in matched:
        for rank, rows in zip(of.ranks, of.rows, strict=True):
            if rank in ranks:
                item = ranks[rank].collective[rows]
                used = np.flatnonzero((of.last >= 0) & (rows >= 0) & (item >= 0))
                numbers.append(count + used)
                items.append(item[used] + ranks[rank].first)
                together.append(np.isin(of.kind[used], TOGETHER))
        count += of.rows.shape[1]
    # Numbers without gaps: none of a collective that no graph has.
    number: Integers = np.unique(np.concatenate(numbers), return_inverse=True)[1]
    return Exchanges(number, row_numbers(np.concatenate(items)), np.concatenate(together))
