"""The answer for a job on ranks made by hand: every figure is known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.ranks.hand_made import MS, WORLD, Call, Made, job
from traceview import units
from traceview.findings import field_names
from traceview.ranks.answer import job_facts, job_report
from traceview.ranks.critical_path import critical_path
from traceview.ranks.figures import ALL_GATHER, Place, RankCollectives, WorkPart
from traceview.ranks.job import PARTS
from traceview.ranks.lateness import excess
from traceview.ranks.matching import match_ranks
from traceview.ranks.process_groups import ranks_text, stride_of
from traceview.ranks.result.group_rows import bus_rate
from traceview.ranks.result.heat import loading_in_steps
from traceview.ranks.result.step_pattern import pattern_of
from traceview.ranks.tables import TABLES
from traceview.render.ranks.figures import ranked_findings

SLEEP = Place("/job/data.py", 40, "load", what="sleep")
TRAIN = Place("/job/train.py", 7, "step")


def late_in_every_third(ranks: int = 8, steps: int = 12, late: int = 3) -> list:
    """Rank 3 idles 12 ms in every third step; all compute 10 ms before each of two collectives."""
    made = []
    for rank in range(ranks):
        calls = [
            [Call(10 * MS, 12 * MS if rank == late and not step % 3 else 0), Call(10 * MS)]
            for step in range(steps)
        ]
        made.append(Made(calls, places=(SLEEP,)))
    return job(made)


def rows(report, table: str) -> list[dict]:
    return list(report.result.tables[table].rows())


def test_a_straggler_with_its_pattern_cause_and_place():
    report = job_report(late_in_every_third())

    [row] = rows(report, "stragglers")
    assert (row["rank"], row["steps"], row["late_steps"]) == (3, "every third step", 3)
    assert (row["late_median_ns"], row["late_ns"]) == (12 * MS, 36 * MS)
    assert row["others_wait_ns"] == 7 * 36 * MS
    assert (row["cause"], row["place"]) == ("launch-late", "data.py:40")
    finding = report.result.findings[0]
    assert finding.message == (
        "Rank 3 is late by 12.0 ms in every third step: its CPU sleeps in data.py:40. The other 7 "
        "ranks wait 12.0 ms each in all-reduce."
    )
    assert finding.time_at_stake_ns == 36 * MS
    assert (finding.subject.file, finding.subject.line) == ("/job/data.py", 40)
    assert report.verdict.limit == "straggler"
    assert report.verdict.steps == 11
    assert [row["wait_ns"] for row in rows(report, "ranks")] == [
        0 if rank == 3 else 36 * MS // 11 for rank in range(8)
    ]


def test_a_wait_under_compute_costs_nobody_anything():
    """Rank 3 arrives 12 ms late; the others compute for 10 of their 13 ms in the call."""
    ranks = [
        each
        if each.name.rank == 3
        else replace(each, collectives=_hidden(each.collectives, 10 * MS))
        for each in late_in_every_third()
    ]
    report = job_report(ranks)

    [row] = rows(report, "stragglers")
    assert (row["rank"], row["steps"], row["late_median_ns"]) == (3, "every third step", 3 * MS)
    assert row["others_wait_ns"] == 7 * 9 * MS


def _hidden(calls: RankCollectives, hidden_ns: int) -> RankCollectives:
    """The collectives with part of their waits under compute."""
    waits = calls.duration_ns > hidden_ns
    return replace(calls, exposed_ns=calls.duration_ns - np.where(waits, hidden_ns, 0))


def test_a_balanced_job_names_nobody():
    draw = np.random.default_rng(5)
    made = [
        Made([[Call(10 * MS + int(draw.normal(0, 80_000))) for _ in range(3)] for _ in range(20)])
        for _ in range(8)
    ]
    report = job_report(job(made))

    assert not rows(report, "stragglers")
    assert not [each for each in report.result.findings if each.cause == "gpu-work"]
    assert "no rank stands out as late" in report.verdict.text


def test_a_rank_that_works_longer_names_the_kernels():
    part = WorkPart("gemm", 100, 180 * MS, 1_000)
    slow = WorkPart("gemm", 100, 270 * MS, 1_000)
    same = WorkPart("elementwise", 50, 40 * MS, 500)
    made = [
        Made([[Call(15 * MS if rank == 1 else 10 * MS)] for _ in range(10)], work=work)
        for rank, work in enumerate([(part, same), (slow, same), (part, same), (part, same)])
    ]
    report = job_report(job(made))

    [row] = rows(report, "stragglers")
    assert (row["rank"], row["steps"], row["cause"]) == (1, "every step", "gpu-work")
    assert row["kernel_class"] == "gemm"
    finding = report.result.findings[0]
    assert "its gemm kernels take 10.0 ms more per step" in finding.message
    assert finding.time_at_stake_ns == 9 * 5 * MS
    assert finding.action.startswith("Check the clock")


def test_more_work_is_shared_evenly_and_not_gone():
    usual, more = WorkPart("gemm", 100, 90 * MS, 1_000), WorkPart("gemm", 100, 135 * MS, 1_500)
    made = [
        Made([[Call(15 * MS if rank == 1 else 10 * MS)] for _ in range(10)], work=(work,))
        for rank, work in enumerate([usual, more])
    ]
    finding = job_report(job(made)).result.findings[0]

    assert finding.action.startswith("Share the work evenly")
    # Of 5 ms per step half remains, on the other rank.
    assert finding.time_at_stake_ns == pytest.approx(9 * 2.5 * MS, abs=10)


def launch_bound(paused: bool) -> list:
    """The CPUs of both ranks need 20 ms per step, the GPUs 5; rank 1's sleeps 12 ms now and then.

    It stays behind: the GPU of rank 0 gets its work earlier ever after, and waits in all-reduce.
    """
    made = []
    for rank in range(2):
        cpu, behind, calls, slept = [], 0, [], []
        for step in range(13):
            sleeps = 12 * MS if paused and step % 3 == 2 else 0
            idle = 15 * MS + sleeps if rank else max(15 * MS - behind, 0)
            behind += sleeps
            cpu.append(20 * MS + (sleeps if rank else 0))
            slept.append([sleeps if rank else 0, 15 * MS])
            calls.append([Call(5 * MS, idle)])
        made.append(Made(calls, cpu, (SLEEP, TRAIN), slept))
    return job(made)


def test_time_lost_on_the_cpu_counts_in_the_step_that_lost_it():
    report = job_report(launch_bound(paused=True))

    [row] = rows(report, "stragglers")
    assert (row["rank"], row["steps"], row["late_median_ns"]) == (1, "every third step", 12 * MS)
    assert row["place"] == "data.py:40"
    finding = next(each for each in report.result.findings if "sleeps" in each.message)
    assert finding.time_at_stake_ns <= 4 * 12 * MS


def test_a_job_whose_cpus_set_the_pace_says_so():
    report = job_report(launch_bound(paused=False))

    assert not rows(report, "stragglers")
    finding = report.result.findings[0]
    assert finding.message == (
        "The CPU sets the pace on both ranks: it needs 20.0 ms of a mean step of 21.0 ms, the GPU "
        "6.00 ms without waits."
    )
    assert report.verdict.limit == "cpu-launch"


def test_ranks_that_disagree_are_a_finding_and_match_no_further():
    work = np.random.default_rng(1).integers(MS, 3 * MS, 12).tolist()
    made = [
        Made(
            [
                [
                    Call(work[step], kind=ALL_GATHER, bytes=2 << 20)
                    if (rank, step) == (3, 8)
                    else Call(work[step], bytes=4 << 20)
                ]
                for step in range(12)
            ]
        )
        for rank in range(4)
    ]
    ranks = job(made)
    matching = match_ranks(ranks)

    [each] = matching.inconsistencies
    assert (each.at, each.ranks, each.others) == (8, (0, 1, 2), (3,))
    finding = job_report(ranks).result.findings[0]
    assert finding.message == (
        "Ranks 0-2 call all-reduce of 4.19 MB as number 9 of a communicator, rank 3 calls "
        "all-gather of 2.10 MB."
    )
    assert finding.severity == "high"


def test_a_storm_of_small_messages():
    """400 all-reduces of 64 KiB per step, each after 5 µs of work."""
    made = [Made([[Call(5_000, 0, 20_000, bytes=1 << 16)] * 400 for _ in range(6)])] * 2
    findings = job_report(job(made)).result.findings

    assert findings[0].cause == "small-messages"
    assert findings[0].message == (
        "400 calls of all-reduce with 65.5 kB each take 8.00 ms of a step without computing, at "
        "3.28 GB/s."
    )
    assert findings[0].time_at_stake_ns == 5 * 8 * MS


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


def grid() -> list:
    """Four ranks: pairs (0, 1) and (2, 3) of tensor parallelism, (0, 2) and (1, 3) of data."""
    made = []
    for rank in range(4):
        tensor, data = 100 + rank // 2, 200 + rank % 2
        groups = {tensor: (2, rank % 2), data: (2, rank // 2)}
        work = 3 * MS + rank * 10_000
        step = [*(Call(work, communicator=tensor) for _ in range(3)), Call(work, communicator=data)]
        made.append(Made([step] * 8, groups=groups))
    return made


def test_process_groups_are_named_by_their_ranks():
    report = job_report(job(grid()))

    named = {row["name"]: row for row in rows(report, "groups")}
    assert set(named) == {"tensor parallel", "data parallel"}
    assert (named["tensor parallel"]["ranks"], named["data parallel"]["ranks"]) == ("0,1", "0,2")
    assert [each["communicators"] for each in named.values()] == [2, 2]
    assert named["tensor parallel"]["calls"] == 2 * 8 * 3
    assert named["tensor parallel"]["link"] == "NVLink"


def two_purposes(groups: Sequence[dict[int, tuple[int, int]]]) -> list:
    """All-reduces of the first communicator of each rank, and half as many of its second one."""
    made = []
    for own in groups:
        often, seldom = own
        step = [
            *(Call(3 * MS, communicator=often) for _ in range(2)),
            Call(3 * MS, communicator=seldom),
        ]
        made.append(Made([step] * 8, groups=own))
    return made


def test_communicators_over_the_same_ranks_are_groups_of_their_own():
    both = [{100: (2, rank), 200: (2, rank)} for rank in range(2)]
    table = rows(job_report(job(two_purposes(both))), "groups")

    assert [row["group"] for row in table] == ["all ranks #1", "all ranks #2"]
    assert [row["name"] for row in table] == [None, None]
    assert [(row["ranks"], row["calls"], row["communicators"]) for row in table] == [
        ("0,1", 2 * 8, 1),
        ("0,1", 8, 1),
    ]


def test_the_same_two_purposes_in_several_pairs_are_two_groups():
    pairs = [{10 + rank // 2: (2, rank % 2), 20 + rank // 2: (2, rank % 2)} for rank in range(4)]
    table = rows(job_report(job(two_purposes(pairs))), "groups")

    assert [(row["calls"], row["communicators"]) for row in table] == [(2 * 2 * 8, 2), (2 * 8, 2)]


def test_a_recorded_name_of_a_group_wins():
    ranks = [replace(each, group_names={WORLD: "my_group"}) for each in late_in_every_third(4)]

    assert [row["name"] for row in rows(job_report(ranks), "groups")] == ["my_group"]


def test_clocks_are_chained_through_the_groups():
    clocks = [(0, 0.0), (5_000_000_000, 2e-5), (-3_000_000, 0.0), (77, -1e-5)]
    found = job_facts(job(grid(), clocks)).clocks

    for rank, (offset, drift) in enumerate(clocks):
        for true in (0, 100 * MS):
            shown = true + offset + round(drift * true)
            aligned = int(found.aligned_ns(rank, np.array([shown]))[0])
            assert abs(aligned - true) <= found.error_ns[rank]


def test_the_critical_path_goes_through_the_rank_that_arrives_last():
    facts = job_facts(late_in_every_third(ranks=2, steps=5, late=1))
    path = critical_path(facts.ranks, facts.matched, facts.steps)

    assert path is not None
    # From the first collective of a step to that of the next: transfer, work, transfer, work.
    assert [each.what for each in path.segments][:3] == ["all-reduce", "gpu-work", "all-reduce"]
    assert path.duration_ns in (22 * MS, 34 * MS)


def test_avoidable_time_ends_where_the_second_rank_arrives():
    made = [
        Made([[Call(10 * MS, idle * MS)] for _ in range(4)], places=(SLEEP,)) for idle in (0, 5, 12)
    ]
    rows_ = rows(job_report(job(made)), "critical_path")

    [held] = [row for row in rows_ if row["what"] == "launch-late"]
    assert (held["rank"], held["duration_ns"], held["avoidable_ns"]) == (2, 12 * MS, 7 * MS)
    assert held["place"] == "data.py:40"
    assert held["offset_ns"] == sum(row["duration_ns"] for row in rows_[: rows_.index(held)])


def test_a_rate_above_the_peak_of_the_link_is_unknown():
    bus, duration, wait = np.array([100]), np.array([30]), np.array([10])
    assert bus_rate(bus, duration, wait, 5_000_000_000) == 5_000_000_000
    assert bus_rate(bus, duration, wait, 4_999_999_999) is None
    assert bus_rate(bus, duration, wait, None) == 5_000_000_000


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


def test_every_table_and_every_finding_holds():
    report = job_report(late_in_every_third())

    assert set(report.result.tables) == {each.name for each in TABLES}
    for spec in TABLES:
        assert report.result.tables[spec.name].columns == spec.columns
        assert set(spec.brief) <= {column.name for column in spec.columns}
    for each in report.result.findings:
        assert set(field_names(each.template + each.remedy)) <= set(each.evidence.values)
        if each.evidence.table:
            found = rows(report, each.evidence.table)
            assert any(each.evidence.row.items() <= row.items() for row in found)


def test_one_rank_and_none_have_an_answer():
    alone = job_report(late_in_every_third(ranks=1, late=0))
    assert (alone.verdict.ranks, len(alone.result.tables["stragglers"])) == (1, 0)
    assert job_report([]).verdict.ranks == 0


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


@pytest.mark.parametrize(
    ("ranks", "text", "stride"),
    [((0, 1, 2, 3), "0-3", 1), ((0, 4, 8), "0,4,8", 4), ((0, 1, 5), "0,1,5", None)],
)
def test_ranks_in_words(ranks, text, stride):
    assert (ranks_text(ranks), stride_of(ranks)) == (text, stride)


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
