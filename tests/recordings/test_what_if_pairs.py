"""Replayed forecasts beside what remedies won, alone and together (docs/accuracy.md)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.places import DATA, REPOSITORY

pytestmark = pytest.mark.slow

FOLDER = DATA / "what_if"
SCRIPT = REPOSITORY / "benchmarks/error_rates/what_if_pairs.py"
MEASURED = json.loads((FOLDER / "measured.json").read_text())["programs"]
SHIPPED = sorted(path.name.removesuffix(".sqlite.xz") for path in FOLDER.glob("*.xz"))


@pytest.fixture(scope="module")
def said() -> dict[tuple[str, str], dict[str, float]]:
    """The table that the script prints, by program and version."""
    command = [sys.executable, str(SCRIPT), "forecast", str(FOLDER / "measured.json"), str(FOLDER)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names, *rows = (line.split() for line in text.splitlines())
    return {
        (row[0], row[1]): dict(zip(names[2:], map(float, row[2:]), strict=True)) for row in rows
    }


def test_all_remedies_of_the_recordings_shipped_have_a_forecast(said):
    assert said.keys() == {
        (name, version)
        for name in SHIPPED
        for version in MEASURED[name]["versions"]
        if version != "fault"
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_a_forecast_is_within_15_percent_of_the_step(name, said):
    for version, found in MEASURED[name]["versions"].items():
        if version == "fault":
            continue
        row = said[name, version]
        assert row["measured_ms"] == pytest.approx(found["ms"], abs=0.001)
        assert abs(row["said_ms"] - row["measured_ms"]) <= 0.15 * row["before_ms"]
