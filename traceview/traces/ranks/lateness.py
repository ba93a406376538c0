"""Aligned steps of the ranks, the time each rank needs for one, and what explains its lateness.

A rank that arrives after the median rank is late. It is to blame only as far as it worked or idled
longer than the median rank since its own last collective: a rank that a collective of another group
kept waiting arrives late without fault. The blame is also limited to the excess of work and idle
time in its whole step over the median rank: where collectives overlap compute, one delay shows in
several collectives, and those queued behind a late one begin at once.

A message delays only its receiver. Its sender, another stage of a pipeline, is judged by the whole
step alone.

If the CPU is the limit, a rank whose CPU paused once stays late, as nothing makes it catch up. Then
the CPU's own time per step shows in which steps the time is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask
from traceview.base.vocabulary.causes import CAUSE_NAMES, DEPENDENCY
from traceview.traces.ranks.clocks import Reals, column_of, exposed_waits, values_at
from traceview.traces.ranks.figures import POINT_TO_POINT, RankCollectives, RankFigures
from traceview.traces.ranks.job import MatchedCommunicator


@record
class CommonSteps:
    """The steps of all ranks by number in the job.

    `row` is each step's row in the RankSteps of each rank, −1 where the rank lacks it; shape
    (ranks, steps). `steady` is True for steps that are warm-up on no rank. `shift`, by rank, is the
    number of a step in the job minus its row in RankSteps.
    """

    names: tuple[str, ...]
    row: Integers
    steady: Mask
    shift: Integers

    def of_collectives(
        self, ranks: Sequence[RankFigures], members: Sequence[int], rows: Integers
    ) -> Integers:
        """The number in the job of the step of each collective on each member, −1 for none.

        `rows` are rows of RankCollectives, shape (members, collectives).
        """
        step = column_of(ranks, members, rows, "step")
        return np.where(step >= 0, step + self.shift[list(members)][:, None], -1)


def common_steps(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator]
) -> CommonSteps:
    """Align the steps of the ranks by their collectives, else by their numbers."""
    counts = np.array([len(figures.steps) for figures in ranks], np.int64)
    if not counts.any():
        none = np.zeros((len(ranks), 0), np.int64)
        return CommonSteps((), none, np.zeros(0, bool), np.zeros(len(ranks), np.int64))
    # The number in the job of the first step of each rank, relative to the first rank's.
    reference = int(np.argmax(counts > 0))
    first = [int(rank.steps.number[0]) if len(rank.steps) else None for rank in ranks]
    shift = np.array([0 if n is None else n - (first[reference] or 0) for n in first], np.int64)
    placed = {reference}
    waiting = list(matched)
    while ready := [of for of in waiting if placed & set(of.ranks)]:
        for of in ready:
            waiting.remove(of)
            leader = next(rank for rank in of.ranks if rank in placed)
            step = column_of(ranks, of.ranks, of.rows, "step")
            of_leader = step[of.ranks.index(leader)]
            for rank, of_rank in zip(of.ranks, step, strict=True):
                both = (of_leader >= 0) & (of_rank >= 0)
                if rank not in placed and both.any():
                    # The most common difference of steps.
                    apart, times = np.unique((of_leader - of_rank)[both], return_counts=True)
                    shift[rank] = shift[leader] + apart[np.argmax(times)]
                    placed.add(rank)
    shift -= shift[counts > 0].min()
    total = int((counts + shift)[counts > 0].max())
    number = np.arange(total)
    row = number[None, :] - shift[:, None]
    row = np.where((row >= 0) & (row < counts[:, None]), row, -1)
    of_step = zip((row >= 0).argmax(axis=0).tolist(), row.T, strict=True)
    names = tuple(ranks[rank].steps.names[int(rows[rank])] for rank, rows in of_step)
    warm = np.zeros(total, bool)
    for figures, rows in zip(ranks, row, strict=True):
        present = rows >= 0
        warm[present] |= figures.steps.warm_up[rows[present]]
    return CommonSteps(names, row, ~warm, shift)


# The time that each rank itself needs for a step: CPU time, and GPU time without waits.
#
# A step lasts as long as the slower of the two on the slowest rank. A CPU that runs ahead evens
# out steps of different length, and a rank that fell behind once stays behind, so the ranks that
# wait in a step do not show which rank lost time in it. Lost time is therefore sought in the
# needs of ranks.

_MOST_OF_STEP = 0.9


@record
class Needs:
    """Needs in ns by rank and steady step of the job, NaN where a rank lacks the step.

    `gpu_ns` is work, exposed transfers without waits, and waits for other streams; `cpu_ns` is the
    CPU's time outside of waits for the GPU. `duration_ns` is the duration of the step.
    """

    cpu_ns: Reals
    gpu_ns: Reals
    duration_ns: Reals

    @property
    def launch_bound(self) -> bool:
        """Whether the CPU of some rank is busy for nearly all of the step, and the GPU of none is.

        Such a CPU runs free: time lost once is not made up. A CPU that waits for the GPU in each
        step loses time on top of the GPU's, and a busy CPU costs nothing where a GPU, or one that
        its own GPU waits for in a collective, is as busy.
        """
        nearly_all = _MOST_OF_STEP * self.mean_ns(self.duration_ns)
        cpu, gpu = (self.mean_ns(needed) >= nearly_all for needed in (self.cpu_ns, self.gpu_ns))
        return bool(cpu.any() and not gpu.any())

    def mean_ns(self, values: Reals) -> Reals:
        """The mean over the steps of each rank; NaN for a rank without steps."""
        there = ~np.isnan(values)
        total = np.where(there, values, 0.0).sum(axis=1)
        return np.where(there.any(axis=1), total / np.maximum(there.sum(axis=1), 1), np.nan)


def needs_of(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], steps: CommonSteps
) -> Needs | None:
    """The needs of all ranks; None without common steps, or where the CPU was not recorded."""
    numbers = np.flatnonzero(steps.steady)
    recorded = (figures.steps.cpu_ns is not None for figures in ranks if len(figures.steps))
    if not len(numbers) or not all(recorded):
        return None
    waited = waits_in_steps(ranks, matched)
    row = steps.row[:, numbers]
    cpu, gpu, duration = (np.full(row.shape, np.nan) for _ in range(3))
    for place, figures in enumerate(ranks):
        at, steps_of = np.flatnonzero(row[place] >= 0), figures.steps
        transfers = np.maximum(steps_of.exposed_ns - waited[place, : len(steps_of)], 0)
        needed = steps_of.compute_ns + steps_of.copies_ns + transfers
        needed += steps_of.idle_ns[:, DEPENDENCY]
        present = row[place, at]
        gpu[place, at], duration[place, at] = needed[present], steps_of.duration_ns[present]
        if steps_of.cpu_ns is not None:
            cpu[place, at] = steps_of.cpu_ns[present]
    return Needs(cpu, gpu, duration)


def waits_in_steps(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator]
) -> Integers:
    """The time that each rank waited in each of its own steps without computing meanwhile."""
    most = max((len(figures.steps) for figures in ranks), default=0)
    result = np.zeros((len(ranks), most), np.int64)
    for of in matched:
        step = column_of(ranks, of.ranks, of.rows, "step")
        wait = np.maximum(exposed_waits(ranks, of), 0)
        for rank, steps, waits in zip(of.ranks, step, wait, strict=True):
            result[rank] += groups.added(steps, waits, most)
    return result


GPU_WORK = "gpu-work"
LATE_CAUSES = (GPU_WORK, *CAUSE_NAMES)
_OF_CPU = [
    LATE_CAUSES.index(cause)
    for cause in CAUSE_NAMES
    if cause not in ("dependency", "copy-wait", "lost-work", "unknown")
]


@record
class LateRows:
    """The late arrivals of a communicator, one row each.

    `rank` is a place in the list of ranks, `row` a row of the rank's RankCollectives, `column` the
    collective in the communicator. `blame_ns` is how long the median rank waited through this
    rank's fault; `parts_ns` splits it by LATE_CAUSES. `step` is the number of the step in the job,
    −1 outside of steps.
    """

    rank: Integers
    row: Integers
    column: Integers
    step: Integers
    blame_ns: Integers
    parts_ns: Reals


@record
class Lateness:
    """Lateness by rank and step of the job.

    `late_ns` is the time by which each rank is late through its own fault, shape (ranks, steps);
    the steps are the steady ones, or a single one for all collectives without steps. `parts_ns`
    splits it by LATE_CAUSES. `rows` are the late arrivals by communicator, in the order of
    `matched`. `step_rows` has the row in RankSteps of each step, −1 where a rank lacks it.
    """

    late_ns: Integers
    parts_ns: Reals
    steps: Integers
    rows: tuple[LateRows, ...]
    step_rows: Integers


def lateness(
    ranks: Sequence[RankFigures],
    matched: Sequence[MatchedCommunicator],
    steps: CommonSteps,
    needs: Needs | None = None,
) -> Lateness:
    """The late arrivals of all ranks in steady steps."""
    numbers = np.flatnonzero(steps.steady)
    rows = tuple(_late_rows(ranks, of, steps, messages=len(numbers) > 0) for of in matched)
    shape = (len(ranks), max(len(numbers), 1))
    late, parts = np.zeros(shape, np.int64), np.zeros((*shape, len(LATE_CAUSES)))
    place = np.full(len(steps.steady) + 1, -1 if len(numbers) else 0, np.int64)
    place[numbers] = np.arange(len(numbers))
    for arrivals in rows:
        column = place[arrivals.step]
        inside = column >= 0
        cell = arrivals.rank[inside] * shape[1] + column[inside]
        late += _sums(cell, arrivals.blame_ns[inside], shape).astype(np.int64)
        for cause in np.flatnonzero(arrivals.parts_ns.any(axis=0)).tolist():
            parts[:, :, cause] += _sums(cell, arrivals.parts_ns[inside, cause], shape)
    if len(numbers):
        more, longer = _longer_steps(ranks, steps, numbers)
        if needs is not None and needs.launch_bound:
            late, parts = _by_cpu(late, needs, longer)
        else:
            # At most the excess time of the step, divided among its causes.
            parts = _backed_by_cpu(longer, needs)
            whole = parts.sum(axis=2)
            limited = np.minimum(late, np.minimum(more, whole))
            late = limited.astype(np.int64)
            parts = parts * (limited / np.where(whole > 0, whole, 1.0))[:, :, None]
    return Lateness(late, parts, numbers, rows, steps.row[:, numbers])


def _sums(cell: Integers, values: Array, shape: tuple[int, int]) -> Reals:
    """Sums of values by cell of a table; `cell` is the row-major index."""
    total: Reals = np.bincount(cell, values, minlength=shape[0] * shape[1])  # type: ignore[assignment]
    return total.reshape(shape)


def _backed_by_cpu(parts: Reals, needs: Needs | None) -> Reals:
    """`parts` with CPU-caused idle time limited to what the rank's CPU needs beyond the median."""
    if needs is None:
        return parts
    more = _longer(needs.cpu_ns, ~np.isnan(needs.cpu_ns)).sum(axis=1)
    idle, result = parts[:, :, _OF_CPU].sum(axis=(1, 2)), parts.copy()
    share = np.minimum(more / np.where(idle > 0, idle, 1.0), 1.0)
    result[:, :, _OF_CPU] *= share[:, None, None]
    return result


def _by_cpu(late: Integers, needs: Needs, parts: Reals) -> tuple[Integers, Reals]:
    """Lateness if the CPU is the limit; `parts` is the GPU's excess time in each step.

    The GPU of a rank that fell behind once idles in all later steps, while the other GPUs wait
    inside their collectives. So the excess time of its CPU shows in which steps time was lost; its
    idle time and the waits of the others only limit the total over all steps.
    """
    more = _longer(needs.cpu_ns, ~np.isnan(needs.cpu_ns))
    result, idle = parts.copy(), parts[:, :, _OF_CPU].sum(axis=1)
    lost, whole = idle.sum(axis=1), more.sum(axis=1)
    share = np.minimum(lost / np.where(whole > 0, whole, 1.0), 1.0)
    by_cause = idle / np.where(lost > 0, lost, 1.0)[:, None]
    result[:, :, _OF_CPU] = (more * share[:, None])[:, :, None] * by_cause[:, None, :]
    total = result.sum(axis=(1, 2))
    result *= np.minimum(late.sum(axis=1) / np.where(total > 0, total, 1.0), 1.0)[:, None, None]
    return result.sum(axis=2).astype(np.int64), result


def _longer(values: Reals, there: Mask) -> Reals:
    """What exceeds the median rank, 0 where nothing does."""
    return np.clip(excess(values, there), 0, None)


def _longer_steps(
    ranks: Sequence[RankFigures], steps: CommonSteps, numbers: Integers
) -> tuple[Reals, Reals]:
    """Work and idle time of each rank per step beyond the median rank: total and by cause."""
    row = steps.row[:, numbers]
    spent = np.zeros((*row.shape, len(LATE_CAUSES)))
    for figures, rows, to in zip(ranks, row, spent, strict=True):
        present = rows >= 0
        to[present, 0] = (figures.steps.compute_ns + figures.steps.copies_ns)[rows[present]]
        to[present, 1:] = figures.steps.idle_ns[rows[present]]
    parts = np.zeros(spent.shape)
    for cause in np.flatnonzero(spent.any(axis=(0, 1))).tolist():
        parts[:, :, cause] = _longer(spent[:, :, cause], row >= 0)
    return _longer(spent.sum(axis=2), row >= 0), parts


def _late_rows(
    ranks: Sequence[RankFigures], of: MatchedCommunicator, steps: CommonSteps, *, messages: bool
) -> LateRows:
    columns = np.flatnonzero((of.last >= 0) & (messages | ~np.isin(of.kind, POINT_TO_POINT)))
    rows = of.rows[:, columns]
    wait = exposed_waits(ranks, of)[:, columns]
    present = (rows >= 0) & (wait >= 0)
    collectives = [ranks[rank].collectives for rank in of.ranks]
    spent = values_at([_spent_ns(of_rank) for of_rank in collectives], rows)
    late = excess(wait.max(axis=0) - wait, present)
    # The work before the first collective was not recorded, so it explains nothing.
    extra = np.where(rows > 0, excess(spent, present), 0.0)
    message = np.isin(of.kind[columns], POINT_TO_POINT)
    blame = np.where(present, np.clip(np.where(message, late, np.minimum(late, extra)), 0, None), 0)
    rank, column = np.nonzero(blame > 0)
    return LateRows(
        rank=np.array(of.ranks, np.int64)[rank],
        row=rows[rank, column],
        column=columns[column],
        step=steps.of_collectives(ranks, of.ranks, rows)[rank, column],
        blame_ns=blame[rank, column].astype(np.int64),
        parts_ns=_parts(collectives, rows, blame, rank, column),
    )


def _spent_ns(collectives: RankCollectives) -> Integers:
    """Work and idle time before each collective of a rank."""
    total: Integers = collectives.work_ns.copy()
    # By column, in which idle time lies in memory.
    for idle in collectives.idle_ns.T:
        total += idle
    return total


def excess(values: Array, there: Mask) -> Reals:
    """The excess of each value over its column's median; of two values, over the other one.

    `values` has shape (ranks, collectives, …); `there` marks the values that count.
    """
    marked = np.where(there, values, np.nan)
    two = there.sum(axis=0) == 2
    with np.errstate(all="ignore"):
        middle = np.median(marked, axis=0) if there.all() else _nan_median(marked)
        result: Reals = marked - middle
    # The median of two values is half way to the other one.
    result[:, two] *= 2
    return np.where(there, result, 0.0)


def _nan_median(values: Reals) -> Reals:
    """The median of each column without its NaN; NaN for a column of NaN only."""
    ordered, count = np.sort(values, axis=0), (~np.isnan(values)).sum(axis=0)
    at = np.arange(values.shape[1])
    low, high = (ordered[np.maximum(place, 0), at] for place in ((count - 1) // 2, count // 2))
    high = np.where(count > 0, high, np.nan)
    return (low + high) / 2


def _parts(
    collectives: Sequence[RankCollectives],
    rows: Integers,
    blame: Reals,
    rank: Integers,
    column: Integers,
) -> Reals:
    """The blame divided by cause, in proportion to the excess over the median rank."""
    result = np.zeros((len(rank), len(LATE_CAUSES)))
    used, place = np.unique(column, return_inverse=True)
    rows = rows[:, used]
    for cause in range(len(LATE_CAUSES)) if len(used) else ():
        spent = [of.idle_ns[:, cause - 1] if cause else of.work_ns for of in collectives]
        if any(times.any() for times in spent):
            result[:, cause] = excess(values_at(spent, rows), rows >= 0)[rank, place]
    result = np.clip(result, 0, None)
    total = result.sum(axis=1, keepdims=True)
    result /= np.where(total > 0, total, 1.0)
    return result * blame[rank, column][:, None]
