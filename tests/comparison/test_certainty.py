"""The run is the sampling unit; steps of one run are a lower bound of the noise."""

import pytest

from tests.comparison.runs import MS, run
from traceview.traces.comparison.decomposition import step_time_certainty


def runs(*step_ms):
    return [run(each) for each in step_ms]


def test_five_and_five_runs_apart_are_certain():
    found = step_time_certainty(runs(10, 10.1, 10.2, 10.1, 10), runs(11, 11.1, 11, 11.2, 11.1))
    assert found.basis == "runs"
    assert found.is_certain
    assert 0.8 * MS < found.low_ns < 1.0 * MS < found.high_ns < 1.2 * MS
    assert found.p_value == pytest.approx(2 / 252)


def test_equal_sides_are_not():
    found = step_time_certainty(runs(10, 10.1, 10.2, 10.3), runs(10.1, 10, 10.3, 10.2))
    assert not found.is_certain
    assert found.low_ns < 0 < found.high_ns


def test_three_and_three_runs_have_no_interval():
    found = step_time_certainty(runs(10, 10.1, 10.2), runs(12, 12.1, 12.2))
    assert found.basis == "runs"
    assert found.low_ns is None
    assert not found.is_certain


def test_one_run_per_side_tells_the_scatter_of_steps_only():
    before = run(step_ns=[10 * MS, 11 * MS, 10 * MS, 11 * MS])
    after = run(step_ns=[15 * MS, 16 * MS, 15 * MS, 16 * MS])
    found = step_time_certainty([before], [after])
    assert found.basis == "steps"
    assert found.low_ns > 0
    assert not found.is_certain
    assert found.p_value is None
    assert step_time_certainty([run(steps=1)], [run(steps=1)]).basis == "none"
