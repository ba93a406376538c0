"""Steps in which a rank of a job made by hand is late: which, by how much, and their heat map."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.ranks.hand_made import MS, SLEEP, Call, Made, job, late_in_every_third, rows
from traceview.base import units
from traceview.render.ranks.document import ranked_findings
from traceview.traces.ranks.answer import job_facts, job_report
from traceview.traces.ranks.job import PARTS
from traceview.traces.ranks.job_facts import loading_in_steps
from traceview.traces.ranks.lateness import excess
from traceview.traces.ranks.matching import match_ranks
from traceview.traces.ranks.rank_rows import pattern_of


def late_in(late: Sequence[int], steps: int, idle_ns: int = 12 * MS) -> list:
    """Rank 1 of 4 idles in these steps; all compute 10 ms before each of two collectives."""
    made = []
    for rank in range(4):
        pauses = [idle_ns if rank == 1 and step in late else 0 for step in range(steps)]
        calls = [[Call(10 * MS, pause), Call(10 * MS)] for pause in pauses]
        made.append(Made(calls, places=(SLEEP,)))
    return job(made)


@pytest.mark.parametrize(("what", "loading"), [("data-wait", 1), ("data-loading", 1), ("sleep", 0)])
def test_the_heat_map_has_the_late_time_in_which_data_is_loaded(what: str, loading: int):
    ranks = [
        replace(each, places=(replace(SLEEP, what=what),)) for each in late_in_every_third(4, 9)
    ]
    heat = job_report(ranks).heat

    late = [12 * MS * loading if not step % 3 else 0 for step in range(9)]
    assert heat.loading_ns.tolist() == [late if rank == 3 else [0] * 9 for rank in range(4)]


def test_loading_that_two_collectives_share_counts_once():
    [rank] = late_in_every_third(4, 9)[3:]
    found = rank.collectives
    place, time = np.zeros(len(found), np.int64), np.repeat(found.place_ns[::2], 2)
    shared = replace(found, place=place, place_ns=time)
    loads = replace(rank, places=(replace(SLEEP, what="data-wait"),), collectives=shared)

    assert loading_in_steps(loads).tolist() == [12 * MS if not n % 3 else 0 for n in range(9)]


def test_a_single_late_step_is_no_saving_of_each_step():
    report = job_report(late_in([7], 12))

    [row] = rows(report, "stragglers")
    assert (row["rank"], row["late_steps"], row["late_ns"]) == (1, 1, 12 * MS)
    finding = report.result.findings[0]
    share = units.percent(100 * 12 / sum(22 + 12 * (step == 7) for step in range(1, 12)))
    assert finding.message == (
        f"Rank 1 is late once, by 12.0 ms in step_7, {share} of the time: its CPU sleeps in "
        "data.py:40. The other 3 ranks wait 12.0 ms each in all-reduce."
    )
    assert (finding.severity, finding.share_of_step_pct) == ("low", None)
    assert finding.time_at_stake_ns == 12 * MS
    assert ranked_findings(report)[0].forecast is None
    assert "rank 1 late by 12.0 ms once, in step_7" in report.verdict.text
    assert report.verdict.limit != "straggler"


def test_a_long_stall_in_one_step_is_not_hidden_among_small_losses():
    report = job_report(late_in([7], 12, 400 * MS))

    assert report.result.findings[0].severity == "medium"
    assert report.result.findings[0].time_at_stake_ns == 400 * MS


@pytest.mark.parametrize(("late", "steps"), [([3], 4), ([4, 8], 12)])
def test_a_late_step_of_few_and_a_second_one_are_no_single_event(late: list[int], steps: int):
    [finding] = job_report(late_in(late, steps)).result.findings[:1]

    assert "once" not in finding.message
    assert finding.share_of_step_pct


def test_the_steady_time_is_that_of_the_steps_that_are_steady_on_all_ranks():
    ranks = late_in_every_third(steps=12)
    warm = np.arange(12) < 4
    ranks[0] = replace(ranks[0], steps=replace(ranks[0].steps, warm_up=warm))
    facts = job_facts(ranks)
    shared = np.flatnonzero(facts.steps.steady)
    assert len(shared) < (~ranks[1].steps.warm_up).sum()
    assert facts.span_ns == ranks[1].steps.duration_ns[shared].sum()

    found = [each for each in ranked_findings(job_report(ranks)) if each.forecast]
    assert found
    for each in found:
        assert each.forecast.step_ns == pytest.approx(facts.span_ns / len(shared), rel=1e-6)


def test_the_heat_map_splits_each_step():
    report = job_report(late_in_every_third())

    heat = report.heat
    assert heat.steps == tuple(f"step_{number}" for number in range(12))
    assert (heat.parts_ns.sum(axis=2) == heat.duration_ns).all()
    wait = heat.parts_ns[:, :, PARTS.index("wait")]
    assert wait[0, 3] == 12 * MS
    assert wait[3].sum() == 0
    assert heat.late_ns[3, 3] == 12 * MS


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_excess_is_that_over_the_others(count):
    values = np.random.default_rng(count).integers(0, 1000, (count, 20)).astype(float)
    found = excess(values, np.ones(values.shape, bool))
    expected = values - np.median(values, axis=0)
    assert np.allclose(found, values - values[::-1] if count == 2 else expected)


def test_excess_without_some_of_them():
    values = np.array([[1.0, 5.0], [4.0, 7.0], [9.0, 0.0]])
    there = np.array([[True, True], [True, True], [True, False]])
    assert excess(values, there).tolist() == [[-3.0, -2.0], [0.0, 2.0], [5.0, 0.0]]


@pytest.mark.parametrize(
    ("late", "text"),
    [
        (range(20), "every step"),
        (range(1, 20, 3), "every third step"),
        (range(0, 20, 2), "every second step"),
        ([7], "step_7"),
        ([7, 11], "step_7 and step_11"),
        ([1, 2, 7, 11, 12], "5 of 20 steps"),
    ],
)
def test_patterns(late, text):
    marked = np.zeros(20, bool)
    marked[list(late)] = True
    assert pattern_of(marked, [f"step_{number}" for number in range(20)]) == text


def steps_begin_sooner(rank, calls: int, every: int):
    """The rank, where each step begins with the last `calls` collectives of the one before."""
    place = np.arange(len(rank.collectives.step)) % every
    step = rank.collectives.step + (place >= every - calls)
    last = len(rank.steps.number) - 1
    return replace(rank, collectives=replace(rank.collectives, step=np.minimum(step, last)))


@pytest.mark.parametrize("clocks", [(), ((0, 0.0), (70 * MS, 0.0))], ids=["same", "other"])
def test_steps_that_begin_sooner_on_one_rank_are_no_disagreement(clocks):
    """Where steps are inferred, an all-reduce behind the optimizer may count for the next one."""
    sizes = [1 << 20, 1 << 18, 1 << 20, 372, 4]
    steps = [[Call(MS, bytes=size) for size in sizes] for _ in range(12)]
    one, other = job([Made(steps), Made(steps)], clocks)
    matching = match_ranks([steps_begin_sooner(one, 2, len(sizes)), other])
    assert matching.inconsistencies == ()
    [each] = matching.matched
    assert each.rows.tolist() == [[*range(60)]] * 2
