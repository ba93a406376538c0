"""The answer for a job on ranks made by hand: every figure is known."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ranks.hand_made import MS, SLEEP, Call, Made, job, late_in_every_third, rows
from traceview.base.findings import field_names
from traceview.traces.facts.idle.first_calls import ColdPasses
from traceview.traces.ranks import job_replay
from traceview.traces.ranks.answer import job_facts, job_report
from traceview.traces.ranks.critical_path import critical_path
from traceview.traces.ranks.figures import (
    ALL_GATHER,
    Place,
    RankCollectives,
    RankFinding,
    WorkPart,
)
from traceview.traces.ranks.job_facts import bus_rate
from traceview.traces.ranks.matching import match_ranks
from traceview.traces.ranks.tables import TABLES

TRAIN = Place("/job/train.py", 7, "step")


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


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("The GPU sat idle for 9.00 ms while the CPU allocated memory.", "the GPU sat idle"),
        ("GPU 1 sat idle for 9.00 ms at train.py:7 (`log(f'{rank} {ranks}')`).", "GPU 1 sat idle"),
    ],
)
def test_what_the_cpu_does_instead_comes_from_the_report_of_a_rank(message, said):
    """CUDA graphs help nobody whose CPU waits for memory."""
    found = RankFinding(
        analysis="gpu-idle",
        severity="high",
        message=message,
        action="Use less memory at the peak.",
        time_at_stake_ns=9 * MS,
        share_of_step_pct=None,
    )
    other = replace(found, analysis="kernel-share", message="Attention is not fused.")
    ranks = [replace(each, findings=(other, found)) for each in launch_bound(paused=False)]
    finding = job_report(ranks).result.findings[0]

    rest = message.partition("sat idle")[2].replace("{ranks}", "{ ranks }")
    assert finding.message.endswith(f"6.00 ms without waits. On rank 0: {said}{rest}")
    assert finding.action == found.action


@pytest.mark.parametrize("seed", range(16))
def test_what_makes_a_rank_late_leads_if_it_wins_more(monkeypatch, seed):
    """The late rank's CPU is late all step long; a replay says what it wins to be as the others."""
    draw = np.random.default_rng(seed)
    ranks, extra = int(draw.integers(2, 6)), int(draw.integers(8, 30)) * MS
    late, won, error = int(draw.integers(ranks)), float(draw.uniform(0.2, 1.0)), 0.05
    made = [
        Made([[Call(5 * MS, 5 * MS + (extra if rank == late else 0))] for _ in range(13)])
        for rank in range(ranks)
    ]
    span_ns = job_facts(job(made)).span_ns
    explains, share = bool(seed % 4), float(draw.uniform(20, 70))
    found = RankFinding(
        analysis="gpu-idle",
        severity="high",
        message="The GPU sat idle at train.py:7 (`log(f'{rank}')`).",
        action="Launch less often.",
        time_at_stake_ns=int(share / 100 * span_ns),
        share_of_step_pct=share,
        cause="launch-late" if explains else "sync-drain",
    )
    figures = [replace(each, findings=(found,)) for each in job(made)]
    steps = 12

    def with_savings(facts):
        saved_ns, error_ns = round(won * extra) * steps, round(error * extra) * steps
        told = (replace(each, saved_ns=saved_ns, error_ns=error_ns) for each in facts.stragglers)
        return replace(facts, stragglers=tuple(told))

    monkeypatch.setattr(job_replay, "with_savings", with_savings)

    first, *others = job_report(figures).result.findings

    own_ns = min(share / 100 * span_ns, extra * steps)
    leads = explains and own_ns > (1.2 * won + error) * extra * steps
    assert first.message.startswith(f"Rank {late}")
    assert ("is slow by itself: the GPU sat idle at train.py:7" in first.message) == leads
    assert (first.action == found.action) == leads
    assert any("waits" in each.message or "wait" in each.message for each in (first, *others))
    if leads:
        assert first.time_at_stake_ns == pytest.approx(own_ns, rel=0.02)
        assert first.saving == "at-most"


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


@pytest.mark.parametrize("work_ms", [0, 1, 20])
def test_a_gpu_that_is_busy_exchanging_data_is_said_to_be(work_ms):
    made = job([Made([[Call(work_ms * MS, 0, 2 * MS)] * 3] * 6)] * 2)
    text = job_report([replace(rank, busy_pct=100.0) for rank in made]).verdict.text
    assert ("exchanging data without computing" in text) == (work_ms < 2)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("fast", "slow_ms", "waits"), [(10, 4, True), (2, 4, True), (8, 0.02, False), (12, 0.05, False)]
)
def test_calls_far_longer_than_others_of_their_size_wait(ranks, fast, slow_ms, waits):
    """In each step `fast` calls of 2 ms or 20 µs, and three that take 4 ms or as long."""
    quick_ns = 20_000 if waits else 2 * MS
    calls = [Call(5_000, 0, quick_ns)] * fast
    calls += [Call(5_000, 0, round((slow_ms if waits else 2 + slow_ms) * MS))] * 3
    made = [replace(rank, busy_pct=99.0) for rank in job([Made([calls] * 6)] * ranks)]
    report = job_report(made)
    [found] = [each for each in report.result.findings if each.cause == "exposed-communication"]

    assert ("most likely a wait" in found.message) == waits
    assert found.action.startswith("Record several steps" if waits else "Overlap it with compute")
    assert "% exchanging data without computing" in report.verdict.text
    assert (found.time_at_stake_ns == 0) == waits


@pytest.mark.parametrize("once_ms", [(30, 40), (40, 30, 60), (30, None), (None, None)])
@pytest.mark.parametrize("uneven_ns", [(), (8 * MS, 30 * MS)])
@pytest.mark.parametrize("total_ms", [100, 0])
def test_a_job_is_cold_where_the_reports_of_all_ranks_say_so(once_ms, uneven_ns, total_ms):
    made = job([Made([[Call(9 * MS)] * 3] * 6)] * len(once_ms))
    ranks = [
        replace(rank, cold=ms and ColdPasses(2, ms * MS, total_ms * MS, uneven_ns))
        for rank, ms in zip(made, once_ms, strict=True)
    ]
    findings = job_report(ranks).result.findings
    found = [each.message for each in findings if each.cause == "first-uses"]

    text = "The recording is cold on every rank, so it does not tell how later passes run"
    told = (
        ""
        if uneven_ns or not total_ms
        else ": at least 30.0 ms of 100 ms are first uses and compilation"
    )
    assert found == (None not in once_ms) * [f"{text}{told}."]


def test_the_critical_path_goes_through_the_rank_that_arrives_last():
    facts = job_facts(late_in_every_third(ranks=2, steps=5, late=1))
    path = critical_path(facts.ranks, facts.matched, facts.steps)

    assert path is not None
    # From the first collective of a step to that of the next: transfer, work, transfer, work.
    assert [each.what for each in path.segments][:3] == ["all-reduce", "gpu-work", "all-reduce"]
    assert path.duration_ns in (22 * MS, 34 * MS)


def test_the_critical_path_names_the_place_of_the_last_rank():
    made = [
        Made([[Call(10 * MS, idle * MS)] for _ in range(4)], places=(SLEEP,)) for idle in (0, 5, 12)
    ]
    rows_ = rows(job_report(job(made)), "critical_path")

    [held] = [row for row in rows_ if row["what"] == "launch-late"]
    assert (held["rank"], held["duration_ns"]) == (2, 12 * MS)
    assert held["place"] == "data.py:40"
    assert held["offset_ns"] == sum(row["duration_ns"] for row in rows_[: rows_.index(held)])


def test_a_rate_above_the_peak_of_the_link_is_unknown():
    bus, duration, wait = np.array([100]), np.array([30]), np.array([10])
    assert bus_rate(bus, duration, wait, 5_000_000_000) == 5_000_000_000
    assert bus_rate(bus, duration, wait, 4_999_999_999) is None
    assert bus_rate(bus, duration, wait, None) == 5_000_000_000


def test_every_table_and_every_finding_holds():
    report = job_report(late_in_every_third())

    assert set(report.result.tables) == {each.name for each in TABLES}
    for spec in TABLES:
        assert report.result.tables[spec.name].columns == spec.columns
        assert set(spec.brief_names) <= {column.name for column in spec.columns}
    for each in report.result.findings:
        assert set(field_names(each.template + each.remedy)) <= set(each.evidence.values)
        if each.evidence.table:
            found = rows(report, each.evidence.table)
            assert any(each.evidence.row.items() <= row.items() for row in found)


def test_one_rank_and_none_have_an_answer():
    alone = job_report(late_in_every_third(ranks=1, late=0))
    assert (alone.verdict.ranks, len(alone.result.tables["stragglers"])) == (1, 0)
    assert job_report([]).verdict.ranks == 0


@pytest.mark.parametrize(("behind_ms", "named"), [(1, False), (12, True)])
def test_a_rank_that_stays_behind_in_a_job_of_busy_cpus_is_named(behind_ms, named):
    """CPUs are busy all the time; one fell behind in warm-up, and its GPU gets work late since."""
    made = []
    for rank in range(4):
        late = rank == 2
        calls = [[Call(5 * MS, (behind_ms if late else 0) * MS) for _ in range(2)]] * 12
        cpu = [(12 + 2 * behind_ms) * MS + (behind_ms * MS // 6 if late else 0)] * 12
        made.append(Made(calls, cpu))
    report = job_report(job(made))

    assert [row["rank"] for row in rows(report, "stragglers")] == [2] * named
