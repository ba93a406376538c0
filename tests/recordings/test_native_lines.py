"""What a C++ program did between its launches, held to the times planted in it (host_loop.cu)."""

import pytest

import traceview
from tests.places import DATA

MS = 1_000_000
STEPS, LOCKS = 200, 50
# Function, what it did, and the time in ms that the source plants: 3 ms of a loop and a sleep of
# 2 ms per step, a lock held for 4 ms in every fourth step, of which 0.2 ms pass asleep before it.
PLANTED = {
    ("sim::checksum", "cpu"): 3.0 * STEPS,
    ("main", "sleep"): 2.0 * STEPS + 0.2 * LOCKS,
    ("wait_for_writer", "lock"): 3.8 * LOCKS,
}


@pytest.fixture(scope="module")
def report():
    return traceview.analyze(traceview.load(DATA / "host_loop.sqlite.xz"))


def test_each_planted_function_has_its_planted_time(report):
    found = dict.fromkeys(PLANTED, 0)
    for row in report.outcomes["gpu-idle"].tables["lines"].rows():
        key = (str(row["function"]).partition("(")[0], row["activity"])
        if key in found:
            found[key] += row["idle_ns"]
    # The operating system wakes a thread up to 0.15 ms late, and starts one for each lock.
    for key, planted_ms in PLANTED.items():
        assert 0.98 * planted_ms <= found[key] / MS <= 1.10 * planted_ms + 5, key


def test_the_findings_name_them_in_order_of_their_time(report):
    first, second, third = report.findings[:3]
    assert {each.analysis for each in (first, second, third)} == {"gpu-idle"}
    assert "did other work than launching. All of it was in sim::checksum" in first.finding.message
    # sim::throttle ends in a jump to usleep, so the stack shows its caller.
    assert "slept. All of it was in main (host_loop), calling usleep" in second.finding.message
    assert "waited for another thread" in third.finding.message
    assert "in wait_for_writer" in third.finding.message
    assert "info" not in {each.finding.severity for each in (first, second, third)}


def test_the_parts_are_no_more_than_the_idle_time(report):
    tables = report.outcomes["gpu-idle"].tables
    [device] = tables["devices"].rows()
    assert sum(row["idle_ns"] for row in tables["lines"].rows()) <= device["idle_ns"]
    steady = [each.finding for each in report.findings if each.analysis == "gpu-idle"]
    assert sum(finding.time_at_stake_ns for finding in steady) <= device["idle_ns"]
