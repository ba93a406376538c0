"""Replayed forecasts beside what remedies won, alone and together (docs/accuracy.md)."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.oracles.simulated_programs import Fused, Host, Launch, Program, Stream, Thread
from tests.oracles.simulated_recordings import exported
from tests.oracles.simulated_runs import Run, simulate
from tests.places import DATA, REPOSITORY

pytestmark = pytest.mark.slow

FOLDER = DATA / "what_if"
SCRIPT = REPOSITORY / "benchmarks/error_rates/what_if_pairs.py"
MEASURED = json.loads((FOLDER / "measured.json").read_text())["programs"]
SHIPPED = sorted(path.name.removesuffix(".sqlite.xz") for path in FOLDER.glob("*.xz"))


def forecasts(measured: Path, recordings: Path) -> dict[tuple[str, str], dict[str, float]]:
    """The table that the script prints, by program and version."""
    command = [sys.executable, str(SCRIPT), "forecast", str(measured), str(recordings)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names, *rows = (line.split() for line in text.splitlines())
    return {
        (row[0], row[1]): dict(zip(names[2:], map(float, row[2:]), strict=True)) for row in rows
    }


@pytest.fixture(scope="module")
def said() -> dict[tuple[str, str], dict[str, float]]:
    return forecasts(FOLDER / "measured.json", FOLDER)


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


def test_the_edits_are_those_that_were_expected():
    pairs = tomllib.loads((SCRIPT.parent / "what_if" / "expected.toml").read_text())
    for name, found in MEASURED.items():
        for version, each in found["versions"].items():
            if version != "fault":
                assert each["edit"][::2] == pairs[name][version]["edit"][::2]


CHAIN = ("gemm_nn<float>", "mul_kernel<float>", "softmax_forward<float>", "gemm_tn<float>")
RECORDED_NS, ALONE_NS = (5_000, 20_000), (1_666, 19_334)
"""A launch call and the pause before it. The recorder adds 4 µs, two thirds of the call at most."""


def by_hand(launch: tuple[int, int], kernel_ns: int) -> Program:
    """Three times a chain of four kernels and a kernel that is no part of it."""
    call_ns, pause_ns = launch
    names = (*CHAIN, "layer_norm<float>") * 3
    made = [(Host(pause_ns), Launch(name, Stream(7, 0), kernel_ns, call_ns)) for name in names]
    return Program(((Thread(tuple(action for both in made for action in both)),),), 8)


def step_ms(run: Run) -> float:
    return median(end - begin for begin, end in pairwise(run.step_ends_ns())) / 1e6


@pytest.mark.parametrize(("kernel_ns", "factor"), [(2_000, 0.5), (2_000, 0.1), (90_000, 0.5)])
def test_a_chain_that_becomes_one_kernel_takes_what_the_simulator_says(tmp_path, kernel_ns, factor):
    """Limited by the CPU, of whose launches nine go, and by the GPU."""
    fault = by_hand(ALONE_NS, kernel_ns)
    before, after = step_ms(simulate(fault)), step_ms(simulate(fault, [Fused(CHAIN, factor)]))
    edit = f"gemm.*float|mul_kernel|softmax_forward.*float|Memset={factor}"
    versions = {"fault": {"ms": before}, "A": {"ms": after, "edit": ["--fuse", edit]}}
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({"programs": {"by_hand": {"versions": versions}}}))
    exported(simulate(by_hand(RECORDED_NS, kernel_ns))).load(tmp_path)
    [database] = tmp_path.glob("*.sqlite")
    (tmp_path / "by_hand.sqlite.xz").write_bytes(lzma.compress(database.read_bytes(), preset=0))

    row = forecasts(measured, tmp_path)["by_hand", "A"]

    assert row["said_ms"] == pytest.approx(after, rel=0.005)
    assert after < 0.6 * before
