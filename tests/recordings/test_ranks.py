"""Two ranks on two H200, against sums that SQL takes from their exports.

The programs are in tests/data/ranks; the recordings hold some of their steps.
"""

import lzma
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.places import DATA
from traceview.render.ranks.document import ranked_findings
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.job import JobReport
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.trace.load import load

NAMES = ("ddp_sleep", "expert_parallel", "moe", "pipeline", "symmetric")
KERNELS = """
    SELECT s.value, k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON s.id = k.shortName
    WHERE s.value LIKE 'nccl%' OR s.value LIKE '%shot_all_reduce%' ORDER BY s.value, k.start
"""
ORIGIN = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
HOST_CLOCK_ERROR_NS = 20_000
"""nsys relates the clock of a recording to that of the host by some microseconds."""
CUT = {"pipeline": 1}
"""Kernels whose call is not in the recording to the end."""
Paths = Callable[[str], list[Path]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """The recordings of the two ranks of a program, unpacked."""
    folder = tmp_path_factory.mktemp("ranks")

    def unpacked(name: str) -> list[Path]:
        found = []
        for rank in (0, 1):
            path = folder / f"{name}.rank{rank}.sqlite"
            if not path.exists():
                packed = DATA / "ranks" / f"{path.name}.xz"
                path.write_bytes(lzma.decompress(packed.read_bytes()))
            found.append(path)
        return found

    return unpacked


@pytest.fixture(scope="module")
def reports(paths: Paths) -> Callable[[str], JobReport]:
    known: dict[str, JobReport] = {}

    def report(name: str) -> JobReport:
        if name not in known:
            known[name] = job_report([*map(_only_rank, paths(name))])
        return known[name]

    return report


def _only_rank(path: Path):
    (rank,) = figures_of_ranks(load(path))
    return rank


def _rows(path: Path, query: str) -> list[tuple]:
    with sqlite3.connect(path) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("name", NAMES)
def test_waits_are_those_of_sql(name: str, paths: Paths, reports: Callable[[str], JobReport]):
    """The duration of each kernel less that of the other rank's, name by name in order."""
    one, other = (_rows(path, KERNELS) for path in paths(name))
    one, other = one[CUT.get(name, 0) :], other[CUT.get(name, 0) :]
    assert [row[0] for row in one] == [row[0] for row in other]
    durations = np.array([[end - start for _, start, end in rows] for rows in (one, other)])
    expected = (durations - durations.min(axis=0)).sum(axis=1)
    waits = np.sum(
        [np.maximum(each.wait_ns, 0).sum(axis=1) for each in reports(name).matched], axis=0
    )
    assert sum(each.rows.shape[1] for each in reports(name).matched) == len(one)
    np.testing.assert_allclose(waits, expected, rtol=2e-3, atol=5_000)


@pytest.mark.parametrize("name", NAMES)
def test_clocks_are_those_of_the_host(name: str, paths: Paths, reports: Callable[[str], JobReport]):
    """Both ranks ran on one host: what aligns their collectives is known from its clock too."""
    origins = [int(_rows(path, ORIGIN)[0][0]) for path in paths(name)]
    clocks = reports(name).clocks
    assert clocks.offset_ns[0] == 0
    off = int(clocks.offset_ns[1]) - (origins[1] - origins[0])
    assert abs(off) <= int(clocks.error_ns[1]) + HOST_CLOCK_ERROR_NS
    assert clocks.error_ns[1] < 50_000


def test_no_straggler_where_both_ranks_do_the_same(reports: Callable[[str], JobReport]):
    assert not len(reports("symmetric").result.tables["stragglers"])


def _straggler(report: JobReport) -> dict:
    (row,) = report.result.tables["stragglers"].rows()
    return row


def test_the_sleep_of_rank_1_is_named_with_its_steps_and_line(
    reports: Callable[[str], JobReport],
):
    """12.5 ms in every third step; its CPU stays behind in the steps between."""
    report = reports("ddp_sleep")
    row = _straggler(report)
    assert (row["rank"], row["steps"], row["place"]) == (1, "every third step", "data.py:24")
    assert 12e6 < row["late_median_ns"] < 16e6
    finding = next(each for each in report.result.findings if "sleeps" in each.message)
    # Without a profiler the sleep costs 12.5 ms in three steps at most.
    told = report.verdict
    ratio = told.step_unrecorded_ns / told.step_median_ns
    assert finding.time_at_stake_ns * ratio <= row["late_ns"]


def test_a_saving_is_of_the_step_without_the_recorder(
    reports: Callable[[str], JobReport],
):
    """The share of it that is won; the report states both times, and claims of the shorter one."""
    report = reports("ddp_sleep")
    told = report.verdict
    assert told.step_unrecorded_ns is not None
    assert told.step_unrecorded_ns < 0.95 * told.step_median_ns
    assert "without nsys" in told.text
    [ranked] = [each for each in ranked_findings(report) if "sleeps" in each.finding.message]
    ratio = told.step_unrecorded_ns / told.step_median_ns
    step = ranked.forecast.saved_per_step_ns / (ranked.finding.share_of_step_pct / 100)
    of_recorded = ranked.finding.time_at_stake_ns / told.steps
    assert ranked.forecast.saved_per_step_ns == pytest.approx(of_recorded * ratio, rel=0.01)
    assert ranked.forecast.step_ns == pytest.approx(step, rel=0.01)


@pytest.mark.parametrize(("name", "cause"), [("moe", "gpu-work"), ("pipeline", "launch-late")])
def test_who_has_more_work_is_named_and_half_of_it_stays(
    name: str, cause: str, reports: Callable[[str], JobReport]
):
    """Rank 1 has three quarters of the tokens, or twice the layers."""
    report = reports(name)
    row = _straggler(report)
    assert (row["rank"], row["steps"], row["cause"]) == (1, "every step", cause)
    finding = next(each for each in report.result.findings if each.subject.name == "rank 1")
    assert finding.action.startswith("Share the work evenly")
    assert (finding.saving, finding.error_ns is None) == ("about", False)
    assert 0.3 < finding.time_at_stake_ns / row["late_ns"] < 0.7


def test_collectives_of_symmetric_memory_are_matched(reports: Callable[[str], JobReport]):
    report = reports("symmetric")
    assert [row["kinds"] for row in report.result.tables["groups"].rows()] == ["all-reduce"]


def test_a_rank_that_sleeps_in_every_third_step(reports: Callable[[str], JobReport]):
    """`ddp.py --sleep-ms 12.5 --every 3`: both CPUs need all of a step, so nothing is made up."""
    (row,) = reports("ddp_sleep").result.tables["stragglers"].rows()
    assert (row["rank"], row["place"], row["steps"]) == (1, "data.py:24", "every third step")
    assert row["late_median_ns"] == pytest.approx(12.5e6, rel=0.25)
    finding = reports("ddp_sleep").result.findings[0]
    assert "sleeps" in finding.message
    assert finding.saving == "about"  # the recorder slows CPUs that run free


def test_a_rank_with_three_quarters_of_the_tokens(reports: Callable[[str], JobReport]):
    (row,) = reports("moe").result.tables["stragglers"].rows()
    assert (row["rank"], row["cause"], row["kernel_class"]) == (1, "gpu-work", "gemm")
    assert row["steps"] == "every step"


def test_a_rank_that_its_experts_keep_busy_while_the_cpu_of_the_other_is(
    reports: Callable[[str], JobReport],
):
    """Rank 0 has three quarters of the tokens; the CPU of rank 1 is busy and delays nobody."""
    report = reports("expert_parallel")
    (row,) = report.result.tables["stragglers"].rows()
    assert (row["rank"], row["cause"], row["kernel_class"]) == (0, "gpu-work", "gemm")
    assert report.verdict.limit == "straggler"
    finding = next(each for each in report.result.findings if each.subject.name == "rank 0")
    # Half of what it works longer than rank 1: six experts by 221 µs in each of 38 steps.
    assert finding.time_at_stake_ns == pytest.approx(38 * 6 * 221e3 / 2, rel=0.1)


def test_the_longer_stage_of_a_pipeline(reports: Callable[[str], JobReport]):
    (row,) = reports("pipeline").result.tables["stragglers"].rows()
    assert row["rank"] == 1
