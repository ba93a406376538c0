"""Recordings without most of their kernels: their idle time is unknown, and no cause is named."""

import lzma
import sqlite3

import pytest

import traceview
from tests.places import DATA, REPOSITORY

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
MIDDLE = REPOSITORY / "reports" / "printing-the-loss" / "middle_with.sqlite.xz"
NANOGPT = DATA / "foreign" / "nanogpt.sqlite.xz"
PLACES = {
    "at the end": "place > 0.1",
    "in the middle": "place > 0.05 AND place < 0.95",
    "all over": "row % 10 != 0",
    "all": "1",
}
IDLE = ("gpu-idle", "sync-stalls", "launch-overhead", "run-ahead", "steps", "memory")


def without(source, folder, where):
    """The report on a copy without the kernels that `where` names by `row` or `place` (0 to 1)."""
    path = folder / "lost.sqlite"
    path.write_bytes(lzma.decompress(source.read_bytes()))
    with sqlite3.connect(path) as file:
        file.execute(
            f"DELETE FROM {KERNELS} WHERE rowid IN (SELECT id FROM (SELECT rowid AS id, "
            f"globalPid AS process, row_number() OVER (ORDER BY start) AS row, "
            f"percent_rank() OVER (ORDER BY start) AS place FROM {KERNELS}) WHERE {where})"
        )
    file.close()
    return traceview.analyze(traceview.load(path))


@pytest.mark.parametrize(
    ("source", "place"),
    [*((MIDDLE, place) for place in PLACES), (NANOGPT, "at the end"), (NANOGPT, "in the middle")],
)
def test_the_idle_time_is_unknown(tmp_path, source, place):
    report = without(source, tmp_path, PLACES[place])
    assert "idle time unknown: the work of " in report.verdict.text
    assert "%" not in report.verdict.text
    assert (report.verdict.limit, report.verdict.gpu_busy_pct) == ("unknown", None)
    assert (report.scoreboard.launch, report.scoreboard.gpu_busy_pct) == ("unknown", None)
    idle = [each.finding for each in report.findings if each.analysis in IDLE]
    assert [each.message.partition(":")[0] for each in idle] == [
        "How long the GPU sat idle is unknown"
    ]
    first = report.findings[0]
    assert (first.analysis, first.finding.severity) == ("trace-health", "high")
    unknown = "none of it was recorded" if place == "all" else "That leaves idle time unknown."
    assert unknown in first.finding.message


def test_a_process_beside_it_on_the_same_gpu(tmp_path):
    source = DATA / "two_processes.sqlite.xz"
    last = f"process = (SELECT max(globalPid) FROM {KERNELS})"
    report = without(source, tmp_path, last)
    assert "idle time unknown: the work of " in report.verdict.text
    assert report.verdict.limit == "unknown"
