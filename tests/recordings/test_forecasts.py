"""Forecasts beside what their remedies won, measured on an H200 (docs/accuracy.md)."""

import statistics
import tomllib

import pytest

import traceview
from tests.places import DATA

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
    saved_ms = case.get("steps", 1) * first.forecast.saved_per_step_ns / 1e6
    assert saved_ms == pytest.approx(case["forecast_ms"], rel=0.005)
    assert first.forecast.saving == case["saving"]


def test_the_recordings_shipped_are_those_named():
    files = {path.name for path in FOLDER.glob("*.xz")}
    assert files == {f"{name}.sqlite.xz" for name in SHIPPED}
    assert all(path.stat().st_size < 400_000 for path in FOLDER.glob("*.xz"))
