"""Three process groups of the same two ranks on two H200: tensor and data parallel, a pipeline.

Pairs of collectives are held to those that a search of the exports finds: each kernel of NCCL was
launched inside a range of NCCL, or of a group of its calls, that notes the communicator.
"""

import json
import lzma
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest

from tests.places import DATA
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.job import JobReport
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.trace.load import load

KERNELS = """
    SELECT k.start, r.start, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON s.id = k.shortName
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
    WHERE s.value LIKE 'nccl%' ORDER BY k.start
"""
CALLS = """
    SELECT n.start, n.end, n.globalTid, COALESCE(n.text, s.value), n.jsonText FROM NVTX_EVENTS n
    LEFT JOIN StringIds s ON s.id = n.textId
    WHERE n.eventType = 59 AND COALESCE(n.text, s.value) LIKE 'nccl%' ORDER BY n.start
"""
Calls = dict[tuple[str, int], list[int]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, found = tmp_path_factory.mktemp("groups"), []
    for rank in (0, 1):
        path = folder / f"groups.rank{rank}.sqlite"
        path.write_bytes(lzma.decompress((DATA / "ranks" / f"{path.name}.xz").read_bytes()))
        found.append(path)
    return found


@pytest.fixture(scope="module")
def report(paths: list[Path]) -> JobReport:
    return job_report([rank for path in paths for rank in figures_of_ranks(load(path))])


def _of_communicator(path: Path) -> Calls:
    """The starts of NCCL's kernels by communicator and call, in order; of groups the first call.

    NCCL launches what a group holds when the outermost one ends.
    """
    with sqlite3.connect(path) as connection:
        kernels = connection.execute(KERNELS).fetchall()
        ranges = connection.execute(CALLS).fetchall()
    found: Calls = defaultdict(list)
    for start, called, thread in kernels:
        around = [each for each in ranges if each[0] <= called < each[1] and each[2] == thread]
        (within,) = around
        if within[3] == "ncclGroupEnd":
            within = _first_of_group(ranges, within)
        found[_name(within[3]), json.loads(within[4])["NCCL communicator ID"]].append(start)
    return found


def _first_of_group(ranges: list[tuple], end: tuple) -> tuple:
    """The first call between the end of a group and its begin; groups inside it close first."""
    depth, first = 0, end
    for each in reversed([each for each in ranges if each[2] == end[2] and each[0] <= end[0]]):
        depth += (each[3] == "ncclGroupEnd") - (each[3] == "ncclGroupStart")
        first = each if each[4] else first
        if not depth:
            return first
    raise AssertionError("a group without a begin")


def _name(call: str) -> str:
    """What both ends of a message have in common."""
    return "message" if call in ("ncclSend", "ncclRecv") else call


def test_collectives_are_matched_pair_by_pair(paths: list[Path], report: JobReport):
    one, other = map(_of_communicator, paths)
    assert one.keys() == other.keys()
    expected = set()
    for key, starts in one.items():
        assert len(starts) == len(other[key])
        expected |= set(zip(starts, other[key], strict=True))

    matched = set()
    for each in report.matched:
        assert each.ranks == (0, 1)
        assert (each.rows >= 0).all()
        starts = [
            report.ranks[rank].collectives.start_ns[rows]
            for rank, rows in zip(each.ranks, each.rows, strict=True)
        ]
        matched |= set(zip(*(each.tolist() for each in starts), strict=True))
    assert matched == expected
    assert len(expected) == 7 * 15  # 8 tensor, 4 + 1 data, and 2 of the pipeline in each step


def test_each_group_has_its_calls_and_bytes(report: JobReport):
    """Nothing in an nsys recording says which of the two is tensor and which data parallel."""
    rows = {row["group"]: row for row in report.result.tables["groups"].rows()}
    calls = {name: (row["calls"], row["bytes"] >> 20) for name, row in rows.items()}
    assert calls == {
        "pipeline": (7 * 2, 7 * 64),
        "all ranks #1": (7 * 8, 7 * 8 * 32),
        "all ranks #2": (7 * 5, 7 * (4 * 16 + 32)),
    }
    assert {row["ranks"] for row in rows.values()} == {"0,1"}


def test_the_sleep_makes_the_other_rank_wait_in_data_parallel_alone(report: JobReport):
    waits = {row["group"]: row["wait_ns"] for row in report.result.tables["groups"].rows()}
    data = waits.pop("all ranks #2")
    assert sum(waits.values()) < 0.05 * data

    (row,) = report.result.tables["stragglers"].rows()
    assert (row["rank"], row["steps"], row["place"]) == (1, "every second step", "groups.py:22")
    # 12 ms less what the CPU of the rank is ahead.
    assert 10e6 < row["late_median_ns"] < 12.2e6
    finding = report.result.findings[0]
    assert finding.subject.line == 22
    assert finding.saving == "about"  # the ranks are stages of a pipeline
    assert 5e6 < finding.time_at_stake_ns / report.verdict.steps < 6.1e6
