"""Programs nobody here wrote: the report held to what an expert expected before it was read."""

import tomllib
from typing import Any

import pytest

import traceview
from tests.places import DATA
from tests.recordings.reports import report_of
from traceview.traces.facts.ranges.selection import matching_ranges
from traceview.traces.reporting import Report

FOREIGN = DATA / "foreign"
KEYS: dict[str, dict[str, Any]] = tomllib.loads((FOREIGN / "keys.toml").read_text())
OPERATORS_AND_LIBRARIES = ("aten::", "cub::", "thrust::", "op_id", "DeviceScan")


@pytest.fixture(scope="module", params=sorted(KEYS))
def program(request) -> tuple[dict[str, Any], Report]:
    return KEYS[request.param], report_of(f"foreign/{request.param}")


def above_info(report: Report) -> list[Any]:
    return [each for each in report.findings if each.finding.severity != "info"]


def test_every_recording_has_a_key():
    assert sorted(path.name for path in FOREIGN.glob("*.xz")) == sorted(
        f"{name}.sqlite.xz" for name in KEYS
    )


def test_the_limit_is_one_that_the_expert_accepts(program):
    key, report = program
    assert report.verdict.limit in key.get("limit", [report.verdict.limit])


def test_steps_are_found_without_ranges(program):
    key, report = program
    assert report.verdict.steps_from == key.get("steps_from", "repetition")
    if "steps" in key:
        least, most = key["steps"]
        assert least <= report.verdict.steps <= most


def test_the_finding_that_the_expert_expects_is_in_its_place(program):
    key, report = program
    if "first" not in key:
        return
    found = above_info(report)[key.get("place", 1) - 1]
    assert found.analysis == key["first"]
    assert (found.finding.subject.file or "").endswith(key.get("line", ""))
    assert key.get("words", "") in found.finding.message


def test_nothing_is_said_of_operators_and_library_ranges(program):
    _, report = program
    said = " ".join(f"{each.finding.subject.name}" for each in above_info(report))
    assert not [name for name in OPERATORS_AND_LIBRARIES if name in said]
    assert not [
        each
        for each in above_info(report)
        if each.finding.subject.kind == "range"
        and not each.finding.subject.name.startswith("step_")
    ]


def test_no_more_than_seven_findings_ask_for_action(program):
    _, report = program
    assert 1 <= len(above_info(report)) <= 7


WAITS = {"pyg_gcn": ("pyg_gcn.py", 11), "cupy_kmeans": ("kmeans.py", 64)}


@pytest.mark.parametrize("name", WAITS)
def test_python_samples_name_the_line_that_waits(name):
    """the lines read in the programs: `int(….sum())` in PyG, the comparison that ends k-means."""
    report = report_of(f"foreign/{name}")
    first = next(each for each in report.findings if each.analysis == "sync-stalls")
    file, line = WAITS[name]
    assert (first.finding.subject.file or "").endswith(file)
    assert first.finding.subject.line == line


def test_a_pageable_upload_is_at_its_line():
    """`x.float().repeat(…).to(device)` in get_batch, planted."""
    report = report_of("foreign/fault_unpinned")
    found = next(each for each in report.findings if each.analysis == "memory-copies")
    assert (found.finding.severity, found.finding.subject.name) == ("medium", "train.py:128")


def test_steps_that_no_program_marks_have_no_name():
    report = report_of("foreign/mnist")
    [found] = [each.finding.message for each in report.findings if each.analysis == "steps"]
    assert found.startswith("10 of 99 steps are outliers")


def test_advised_ranges_select_one_step(program):
    """Names of steps that no program marks select them as well."""
    _, report = program
    for each in report.findings:
        if argument := each.finding.evidence.values.get("range_argument"):
            assert argument in each.finding.action
            assert matching_ranges(report.recording, argument.strip("'")).sum() == 1


def test_training_that_waits_for_data_is_told_so_by_phases():
    phases = traceview.analyze(traceview.load(FOREIGN / "mnist.sqlite.xz"), ["phases"])["phases"]
    verdicts = {row["phase"]: row["verdict"] for row in phases.tables["phases"].rows()}
    assert verdicts["training"] == "data-loading"


REMEDIES = {
    "hand_made_graph": ("memory-copies", "Pin the host memory"),
    "tensorboard_resnet": ("gpu-idle", "Log less often"),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_the_remedy_is_that_of_the_expert(name):
    analysis, action = REMEDIES[name]
    first = next(e for e in report_of(f"foreign/{name}").findings if e.analysis == analysis)
    assert first.finding.action.startswith(action)


def test_copies_save_no_more_than_the_time_in_which_the_gpu_only_copies():
    report = report_of("foreign/simple_streams")
    [(at, found)] = [
        (at, each.finding)
        for at, each in enumerate(report.findings)
        if each.analysis == "memory-copies" and "exposed_ns" in each.finding.evidence.values
    ]
    exposed_ns = found.evidence.values["exposed_ns"]
    assert 0 < found.time_at_stake_ns <= exposed_ns
    # Its streams overlap already: 237 of 266 ms are copies one way.
    assert found.time_at_stake_ns <= 30_000_000
    for planned in (each for each in report.plan if each.finding == at):
        assert planned.step_before_ns - planned.step_after_ns <= found.time_at_stake_ns


@pytest.mark.parametrize("name", ["cupy_kmeans", "nanogpt", "mnist"])
def test_the_first_screen_counts_the_steps_of_which_the_median_is(name):
    report = report_of(f"foreign/{name}")
    told, board = report.verdict, report.scoreboard
    after = told.steps - told.warm_up_steps
    [loop] = [each for each in told.shares.loops if each.step_median_ns == told.step_median_ns]
    assert (board.steps, board.warm_up_steps) == (told.steps, told.warm_up_steps)
    assert loop.steps == after
    assert told.text.startswith(f"{after} steps of ")
    assert ("warm-up step" in told.text) is (told.warm_up_steps > 0)
