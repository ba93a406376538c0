"""The pages in reports/ say what their recordings say."""

import html
import json
import lzma
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.build import Export
from tests.places import REPOSITORY
from tests.recordings.test_shipped import PRIVATE

# The pages' programs import each other from there; nobody installs them.
sys.path.insert(0, str(REPOSITORY / "reports"))

import five_ways
import gallery
import make

REPORTS = gallery.REPORTS
CASES = gallery.cases()
MADE = sorted(name for name, case in CASES.items() if not case.missing)
each_case = pytest.mark.parametrize("name", CASES)
each_made = pytest.mark.parametrize("name", MADE)


@pytest.fixture(scope="module")
def said():
    """What the recordings of a case say, read once."""
    kept = {}
    return lambda name: kept.setdefault(name, CASES[name].said())


@each_made
def test_what_stands_between_the_marks_is_made_of_the_recordings(name, said):
    page = (REPORTS / name / "README.md").read_text()

    assert CASES[name].filled(page, said(name)) == page, "run python reports/make.py"


@each_made
def test_the_reports_are_those_of_the_recordings(name, said):
    for file, text in CASES[name].reports(said(name)):
        kept = (REPORTS / name / file).read_text()
        if file.endswith(".json"):
            assert json.loads(kept) == json.loads(text), "run python reports/make.py"
        else:
            told = json.loads((REPORTS / name / file).with_suffix(".json").read_text())
            assert all(finding["message"] in html.unescape(kept) for finding in told["findings"])


@each_made
def test_the_picture_is_one_and_has_what_the_case_draws(name, said):
    kept = (REPORTS / name / "lead.svg").read_text()
    words = [
        [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
        for svg in (kept, CASES[name].picture(said(name)))
    ]

    assert words[0] == words[1]
    assert len(words[0]) > 5


@each_made
def test_what_ships_is_scrubbed_and_small(name):
    for path in (REPORTS / name).iterdir():
        if path.is_dir():
            continue
        data = path.read_bytes()
        assert not PRIVATE.search(lzma.decompress(data) if path.suffix == ".xz" else data), path
        assert len(data) < (150_000 if path.suffix == ".xz" else 600_000), path


@each_made
def test_it_tells_of_no_host_and_no_user(name, said):
    for one in said(name).values():
        assert not [key for key in one.trace.run if re.search("host|user|home|path", key)]
        assert not Path(one.trace.path).is_absolute()


@each_made
def test_the_command_of_a_case_is_what_its_recording_says_was_run(name, said):
    for key, recording in CASES[name].recordings.items():
        words = (recording.script, *recording.arguments)
        assert said(name)[key].trace.run["command_line"] == " ".join(words)


@each_made
def test_the_machine_is_told_with_date_driver_and_versions(name, said):
    machine = next(iter(said(name).values())).run_in_words()

    assert re.search(
        r"^Recorded on one NVIDIA H200( \(the host has two\))?, driver \d+, CUDA \d+\.\d+, torch "
        r"[\d.]+, (Triton [\d.]+, )?Python [\d.]+, nsys [\d.]+, 20\d\d-\d\d-\d\d\.$",
        machine,
    )


@each_case
def test_it_is_listed_and_every_link_of_its_page_leads_somewhere(name):
    assert f"({name}/README.md)" in (REPORTS / "README.md").read_text()
    links = re.findall(r"\]\(([^)#]+)\)", (REPORTS / name / "README.md").read_text())
    there = {path for path in links if (REPORTS / name / path).exists()}
    assert name not in MADE or there == set(links)
    assert "case.py" not in links


@each_case
def test_a_page_without_its_marks_is_refused(name):
    if name not in MADE:
        pytest.skip("its recording is not here yet")
    with pytest.raises(ValueError, match="the page has marks"):
        CASES[name].filled("a page", CASES[name].said())


def test_recording_runs_what_the_page_shows(monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: ran.append(words[1:]))

    CASES["cdist-breakdown"].recordings["cdist"].record()

    record, shrink = ran
    assert record[:6] == ["-m", "traceview", "record", "--backtrace", "none", "--no-kernels"]
    assert record[-3:] == ["workloads/cdist.py", "--steps", "3"]
    assert shrink[0] == "tests/data/shrink.py"
    assert shrink[-1].endswith("tests/data/workloads/cdist.sqlite.xz")


def test_a_case_without_its_recording_is_left_out(monkeypatch, capsys):
    case = CASES["vector-width"]
    nowhere = replace(case.recordings["rates"], path="tests/data/nowhere.sqlite.xz")
    monkeypatch.setattr(make, "cases", lambda: {"lost": replace(case, recordings={"a": nowhere})})
    monkeypatch.setattr(sys, "argv", ["make.py"])

    with pytest.raises(SystemExit) as left:
        make.main()

    assert left.value.code == 1
    assert "lost: left out, no tests/data/nowhere.sqlite.xz" in capsys.readouterr().err


def test_an_unknown_case_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["make.py", "cdist"])
    with pytest.raises(SystemExit):
        make.main()
    assert "no case is named cdist; there are attention-memory, " in capsys.readouterr().err


# What the pages say in words, each held against its recording.


def program(name: str):
    return gallery.module_of(REPORTS / name)


def test_printing_the_loss_drains_the_lead(said):
    """The `Expect:` line of workloads/mlp.py, on its own recordings."""
    answers = program("printing-the-loss").answers
    found = {key: answers(one) for key, one in said("printing-the-loss").items()}
    ahead, drained = found["large_without"], found["large_with"]

    assert ahead["verdict"] == "gpu-bound"
    assert ahead["steps_ahead"] > 1
    assert ahead["leads_ns"][-1] > ahead["period_ns"]
    assert drained["verdict"] == "sync-drained"
    assert drained["steps_ahead"] == 0
    assert all(lead < 0 for lead in drained["leads_ns"])
    assert drained["benign_pct"] > 95
    # Steps shrink more than that price, and at last the GPU is idle either way.
    shrunk = ahead["period_ns"] / found["middle_without"]["period_ns"]
    assert drained["idle_after_ns"] / found["middle_with"]["idle_after_ns"] < shrunk / 2
    assert found["small_with"]["idle_after_ns"] is None
    assert found["small_with"]["wait_ns"] < 50_000
    assert {found[f"small_{run}"]["verdict"] for run in ("with", "without")} == {"launch-bound"}


def test_the_narrow_kernel_is_slow_for_its_width_alone(said):
    rates = said("vector-width")["rates"]
    costs = program("vector-width").costs(rates)
    narrow, wide, copy = (costs[name] for name in ("gelu_scalar", "gelu_vector", "copy_kernel"))
    flop = {row["short_name"]: row["flop"] for row in rates.rows("roofline", "kernels")}

    assert (narrow["load_bits"], wide["load_bits"], narrow["level"]) == (32, 128, "sass")
    assert narrow["total_ns"] > 1.5 * wide["total_ns"]
    assert abs(wide["total_ns"] / copy["total_ns"] - 1) < 0.02
    assert narrow["bytes"] == wide["bytes"] == 3 * 2 * 4 * 16384**2
    assert flop["gelu_scalar"] == flop["gelu_vector"]


def test_the_staircase_is_sharp_for_one_kernel_and_none_for_the_other(said):
    sizes = program("wave-sawtooth").sizes
    waves = said("wave-sawtooth")["waves"]
    alone = {row["blocks"]: row for row in sizes(waves, "spin_alone")}
    compete = {row["blocks"]: row for row in sizes(waves, "compete")}

    assert alone[133]["measured"] == "step"
    assert alone[133]["median_ns"] > 1.9 * alone[132]["median_ns"]
    assert alone[1]["median_ns"] > 0.95 * alone[132]["median_ns"]
    assert compete[1057]["measured"] == "no step"
    assert compete[1057]["median_ns"] < 1.1 * compete[1056]["median_ns"]


def test_every_kernel_of_cdist_is_explained_and_the_product_is_most(said):
    case, cdist = program("cdist-breakdown"), said("cdist-breakdown")["cdist"]
    parts = case.parts(cdist)

    assert parts[0]["work"] == case.PRODUCT
    assert "ffma" in parts[0]["name"]
    assert parts[0]["ns"] > 0.5 * sum(part["ns"] for part in parts)
    # The same kernels by another way: those of the ranges, step by step.
    steps = cdist.in_ranges(r"step_\d+/cdist")
    assert sum(part["each"] for part in parts) == steps[0]["calls"]
    assert sum(part["ns"] for part in parts) == pytest.approx(
        sum(row["total_ns"] for row in steps) / len(steps)
    )


def test_naive_attention_is_quadratic_in_memory_and_flash_is_linear(said):
    case, attention = program("attention-memory"), said("attention-memory")["attention"]
    naive, flash = (case.peaks(attention)[way] for way in case.WAYS)

    assert sorted(naive) == sorted(flash) == [1024, 2048, 4096, 8192]
    assert naive[8192] == 2 * case.scores(8192) + case.result(8192)
    assert naive[8192] / naive[4096] == pytest.approx(4, rel=0.02)
    assert flash[8192] / flash[4096] == pytest.approx(2, rel=0.02)
    # The result, a number per row and head, and what rounding to blocks of memory adds.
    assert 0 <= flash[8192] - case.result(8192) - 4 * case.HEADS * 8192 < 4096
    assert case.softmax_share(attention, 8192) > 0.5


class Told(gallery.Said):
    """Of a trace that is made here, not of a recording."""

    def __init__(self, trace) -> None:
        self.trace = trace


def versions_of(operation: str, tmp_path) -> five_ways.FiveWays:
    """An operation of 4 bytes at least, whose manual version takes four kernels of 10 ns."""
    work = '{"bytes": 4000, "flop": 1}'
    export = Export().gpu(0)
    for step in (0, 1):
        start = 1000 * step
        export.range(f"step_{step}", start, start + 900)
        export.range(f"manual {work}", start + 1, start + 100)
        for place in range(4):
            call = start + 10 + 20 * place
            export.launch(call=(call, call + 2), kernel=(call + 3, call + 13 + step))
        export.range(f"torch {work}", start + 200, start + 300)
        export.launch(call=(start + 210, start + 212), kernel=(start + 220, start + 230))
    lecture = program(f"{operation}-five-ways").LECTURE_NS
    return five_ways.FiveWays(Told(export.load(tmp_path)), lecture, 8)


@pytest.mark.parametrize("operation", ["gelu", "softmax"])
def test_versions_are_compared_by_their_least_traffic(operation, tmp_path):
    found = versions_of(operation, tmp_path)

    manual, torch = found.ways["manual"], found.ways["torch"]
    assert (manual.kernels, manual.ns, torch.kernels, torch.ns) == (4, 42, 1, 10)
    assert torch.bytes_per_s == 400e9
    assert found.manual_rate() == pytest.approx(4 * 4000 / 42e-9)
    assert list(found.ways) == ["manual", "torch"]
    assert found.table().count("\n") == 3


@pytest.mark.parametrize(
    ("operation", "passes", "rate"), [("gelu", 22, 2916), ("softmax", 8, 2322)]
)
def test_the_lectures_rate_follows_from_its_formula(operation, passes, rate, tmp_path):
    """Bytes of its manual version over its time: more than an A100 could move."""
    case, found = program(f"{operation}-five-ways"), versions_of(operation, tmp_path)
    moved = five_ways.LECTURE_BYTES * passes / 2

    assert sum(case.MANUAL_PASSES) == passes
    assert moved / case.LECTURE_NS["manual"] == pytest.approx(rate, rel=0.001)  # bytes a ns
    told = " ".join(replace(found, manual_passes=passes).beside_the_lecture())
    assert f"{rate / 1000:.2f} TB/s: more than an A100 has (2.04 TB/s)" in told
    assert f"{rate / 33.5:.0f} % of what an H100 has (3.35 TB/s)" in told
    assert "An H100 at its peak needs 641 µs" in told


@pytest.mark.parametrize("operation", ["gelu", "softmax"])
def test_the_passes_that_a_page_counts_are_the_kernels_that_ran(operation, said):
    """The traffic that the formula is said to make stays under the peak of the memory."""
    case = program(f"{operation}-five-ways")
    found = case.compared(said(f"{operation}-five-ways"))

    assert found.ways["manual"].kernels == len(case.MANUAL_PASSES)
    assert 0.5 * found.peak < found.manual_rate() < found.peak
    assert all(way.bytes_per_s < found.peak for way in found.ways.values())
    # Kernel times once more, from the rows of the kernels and the clock of the ranges alone.
    trace = found.said.trace
    start, end = next(
        (row["start_ns"], row["end_ns"])
        for row in trace.ranges.rows()
        if row["name"].startswith("triton {")
    )
    launches = [
        row["correlation_id"] for row in trace.api_calls.rows() if start <= row["start_ns"] < end
    ]
    (took,) = [
        row["end_ns"] - row["start_ns"]
        for row in trace.kernels.rows()
        if row["correlation_id"] in launches
    ]
    assert took == pytest.approx(found.ways["triton"].ns, rel=0.05)


@pytest.mark.parametrize("operation", ["gelu", "softmax"])
def test_the_legend_stands_where_no_figure_could(operation, tmp_path):
    """In the axes its marker would be taken for one more time of the lecture."""
    axes = Figure(figsize=(7, 2.8), layout="constrained").add_subplot()
    versions_of(operation, tmp_path).draw(axes)
    axes.figure.draw_without_rendering()

    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1


def test_gelu_is_bound_by_its_bytes_and_their_width(said):
    ways = program("gelu-five-ways").compared(said("gelu-five-ways")).ways

    assert ways["cuda-scalar"].ns > 1.5 * ways["cuda-vector"].ns
    assert ways["manual"].ns > 8 * ways["torch"].ns


def test_softmax_by_a_thread_a_row_is_the_slowest(said):
    ways = program("softmax-five-ways").compared(said("softmax-five-ways")).ways

    assert next(iter(ways)) == "cuda-row-per-thread"
    assert ways["triton"].ns < ways["torch"].ns < ways["manual"].ns
