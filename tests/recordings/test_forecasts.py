"""Forecasts beside what their remedies won, measured on an H200 (docs/accuracy.md)."""

import statistics
import tomllib

import pytest

import traceview
from tests.places import DATA
from traceview import intervals
from traceview.analyses.verdict.loops import loop_times

FOLDER = DATA / "forecasts"
CASES = tomllib.loads((FOLDER / "forecasts.toml").read_text())
SHIPPED = [name for name, case in CASES.items() if case.get("shipped")]


def won_ms(case) -> float:
    """What the remedy won, by the medians of the runs."""
    return statistics.median(case["before_ms"]) - statistics.median(case["after_ms"])


@pytest.mark.parametrize("name", CASES)
def test_a_bound_is_kept_and_an_estimate_is_near(name):
    case = CASES[name]
    won = won_ms(case)
    if case["saving"] == "at-most":
        assert case["forecast_ms"] >= won
    elif case["saving"] == "at-least":
        assert case["forecast_ms"] <= won
    else:
        assert case["forecast_ms"] == pytest.approx(won, rel=0.10)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_first_finding_of_the_recording_makes_the_forecast(name):
    case = CASES[name]
    first = traceview.analyze(traceview.load(FOLDER / f"{name}.sqlite.xz")).findings[0]
    assert first.analysis == case["finding"]
    assert case["words"] in first.finding.message
    assert first.forecast is not None
    assert first.forecast.saved_per_step_ns is not None
    saved_ms = first.forecast.saved_per_step_ns / 1e6
    assert saved_ms == pytest.approx(case["forecast_ms"], rel=0.005)
    assert first.forecast.saving == case["saving"]


def test_the_recordings_shipped_are_those_named():
    files = {path.name for path in FOLDER.glob("*.xz")}
    assert files == {f"{name}.sqlite.xz" for name in SHIPPED}
    assert all(path.stat().st_size < 400_000 for path in FOLDER.glob("*.xz"))


def reported(path: str):
    report = traceview.analyze(traceview.load(DATA / f"{path}.sqlite.xz"))
    return report.recording, report.findings


def test_gaps_after_the_loop_are_no_time_of_a_step():
    """CuPy's mixture model evaluates its densities after training (gmm.py:91)."""
    _, findings = reported("foreign/cupy_gmm")
    [gaps] = [each for each in findings if "gmm.py:91" in each.finding.message]
    assert gaps.finding.time_at_stake_ns > 500_000
    assert gaps.finding.share_of_step_pct is None
    assert gaps.forecast.saved_per_step_ns is None
    assert 15 < gaps.forecast.share_of_run_pct < 25


def test_eager_steps_and_replays_have_forecasts_of_their_own():
    """Idle time of a step, added up from the gaps of its window, bounds what is said of it."""
    trace, findings = reported("cuda_graphs")
    eager, replay = loop_times(trace)
    assert "eager" in eager.name
    assert "replay" in replay.name
    [late] = [each for each in findings if "to launch work" in each.finding.message]
    [graph] = [each for each in findings if "the next CUDA graph" in each.finding.message]
    for each, loop in ((late, eager), (graph, replay)):
        assert each.forecast.step_ns == loop.median_ns
        idle_ns = intervals.intersection(loop.time, each.finding.lost.time).total()
        per_step_ns = idle_ns / loop.total_ns * loop.median_ns
        assert each.forecast.saved_per_step_ns == pytest.approx(per_step_ns, rel=0.01)
    assert (late.forecast.loop, graph.forecast.loop) == (None, replay.name)
