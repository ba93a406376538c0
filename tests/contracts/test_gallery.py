"""The pages in reports/ follow from their recordings, and their reports can be built."""

import html
import importlib
import json
import lzma
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.build import Export
from tests.places import REPOSITORY
from tests.recordings.test_shipped import PRIVATE

# The code of the gallery is not installed; its programs find it beside themselves.
sys.path.insert(0, str(REPOSITORY / "scripts"))

import build_gallery
from gallery import cases
from gallery.case import REPORTS, RecordingReport, all_cases
from gallery.five_ways import LECTURE_BYTES, VersionComparison

pytestmark = pytest.mark.slow

CASES = all_cases()
MADE = sorted(name for name, case in CASES.items() if not case.missing)
each_case = pytest.mark.parametrize("name", CASES)
each_made = pytest.mark.parametrize("name", MADE)


@pytest.fixture(scope="module")
def reports():
    """The reports of the recordings of a case, computed once."""
    return cache(lambda name: CASES[name].analyze())


@each_made
def test_the_text_between_the_marks_follows_from_the_recordings(name, reports):
    page = (REPORTS / name / "README.md").read_text()

    assert CASES[name].fill(page, reports(name)) == page, "run scripts/build_gallery.py --update"


@each_made
def test_building_writes_the_reports_that_the_page_names(name, reports, tmp_path):
    readme = (REPORTS / name / "README.md").read_text()

    build_gallery.build(name, CASES[name], reports(name), tmp_path, update=False)

    assert f"`build/gallery/{name}/`" in readme
    reported = set(
        re.findall(r"^    traceview report (\w+)\.sqlite.* --html --json$", readme, re.M)
    )
    assert reported
    files = {path.name for path in (tmp_path / name).iterdir()}
    assert files == {f"{key}.{kind}" for key in reported for kind in ("html", "json")}
    for key in reported:
        document = json.loads((tmp_path / name / f"{key}.json").read_text())
        page = (tmp_path / name / f"{key}.html").read_text()
        marks = '</?code>|<span class="brief">[.]</span>|<span class="longer">|</span>'
        shown = html.unescape(re.sub(marks, "", page))
        assert document["findings"]
        # On the page, code has a style instead of backticks.
        messages = [finding["message"].replace("`", "") for finding in document["findings"]]
        assert all(message in shown for message in messages)


@each_made
def test_the_picture_shows_what_the_case_draws(name, reports):
    kept = (REPORTS / name / "lead.svg").read_text()
    labels = [
        [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
        for svg in (kept, CASES[name].picture(reports(name)))
    ]

    assert labels[0] == labels[1]
    assert len(labels[0]) > 5


@each_made
def test_update_rewrites_the_page_and_the_picture(name, reports, tmp_path, monkeypatch):
    monkeypatch.setattr(type(CASES[name]), "files", lambda case, reports: ())
    monkeypatch.setattr(build_gallery, "REPORTS", tmp_path / "reports")
    page = (REPORTS / name / "README.md").read_text()
    (tmp_path / "reports" / name).mkdir(parents=True)
    emptied = re.sub(r"(<!-- \w+ -->\n).*?(<!-- end -->)", r"\1\2", page, flags=re.DOTALL)
    (tmp_path / "reports" / name / "README.md").write_text(emptied)

    build_gallery.build(name, CASES[name], reports(name), tmp_path / "out", update=True)

    assert (tmp_path / "reports" / name / "README.md").read_text() == page
    assert (tmp_path / "reports" / name / "lead.svg").read_text().startswith("<?xml")


def test_a_case_folder_holds_a_page_a_picture_and_recordings_alone():
    assert {path.name for path in REPORTS.iterdir()} == {"README.md", *CASES}
    for name, case in CASES.items():
        own = {one.file for one in case.recordings.values() if one.path.startswith("reports/")}
        files = {REPORTS / name / "README.md", REPORTS / name / "lead.svg"} | own
        assert set((REPORTS / name).iterdir()) == files


@each_made
def test_shipped_files_are_scrubbed_and_small(name):
    for path in (REPORTS / name).iterdir():
        data = path.read_bytes()
        assert not PRIVATE.search(lzma.decompress(data) if path.suffix == ".xz" else data), path
        assert len(data) < 150_000, path


@each_made
def test_recordings_name_no_host_and_no_user(name, reports):
    for one in reports(name).values():
        assert not [key for key in one.trace.run if re.search("host|user|home|path", key)]
        assert not Path(one.trace.path).is_absolute()


@each_made
def test_the_command_of_a_case_is_the_one_its_recording_holds(name, reports):
    for key, recording in CASES[name].recordings.items():
        command = (recording.script, *recording.arguments)
        assert reports(name)[key].trace.run["command_line"] == " ".join(command)


@each_made
def test_the_machine_has_a_date_a_driver_and_versions(name, reports):
    machine = next(iter(reports(name).values())).machine()

    assert re.search(
        r"^Recorded on one NVIDIA H200( \(the host has two\))?, driver \d+, CUDA \d+\.\d+, torch "
        r"[\d.]+, (Triton [\d.]+, )?Python [\d.]+, nsys [\d.]+, 20\d\d-\d\d-\d\d\.$",
        machine,
    )


@each_case
def test_it_is_listed_and_every_link_of_its_page_resolves(name):
    assert f"({name}/README.md)" in (REPORTS / "README.md").read_text()
    links = re.findall(r"\]\(([^)#]+)\)", (REPORTS / name / "README.md").read_text())
    existing = {path for path in links if (REPORTS / name / path).exists()}
    assert name not in MADE or existing == set(links)


@each_case
def test_a_page_without_its_marks_is_refused(name, reports):
    if name not in MADE:
        pytest.skip("its recording is not here yet")
    with pytest.raises(ValueError, match="the page has marks"):
        CASES[name].fill("a page", reports(name))


def test_recording_runs_what_the_page_shows():
    ran = []

    recording = CASES["cdist-breakdown"].recordings["cdist"]
    recording.record(run=lambda command, **_: ran.append(command[1:]))

    record, shrink = ran
    assert record[:4] == ["-m", "traceview", "record", "-o"]
    assert record[-3:] == ["workloads/cdist.py", "--steps", "3"]
    assert shrink[0] == "tests/data/shrink.py"
    assert shrink[-1].endswith("tests/data/workloads/cdist.sqlite.xz")


def test_a_case_without_its_recording_is_skipped(monkeypatch, capsys):
    case = CASES["vector-width"]
    nowhere = replace(case.recordings["rates"], path="tests/data/nowhere.sqlite.xz")
    lost = {"lost": replace(case, recordings={"a": nowhere})}
    monkeypatch.setattr(build_gallery, "all_cases", lambda: lost)
    monkeypatch.setattr(sys, "argv", ["build_gallery.py"])

    with pytest.raises(SystemExit) as left:
        build_gallery.main()

    assert left.value.code == 1
    assert "lost: skipped, no tests/data/nowhere.sqlite.xz" in capsys.readouterr().err


def test_an_unknown_case_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["build_gallery.py", "cdist"])
    with pytest.raises(SystemExit):
        build_gallery.main()
    assert "unknown case cdist; cases: attention-memory, " in capsys.readouterr().err


# The claims of the pages, each checked against its recording.


def module_of(name: str):
    return importlib.import_module(f"{cases.__name__}.{name.replace('-', '_')}")


def test_printing_the_loss_drains_the_lead(reports):
    """The `Expect:` line of workloads/mlp.py, on its own recordings."""
    figures = module_of("printing-the-loss").figures
    runs = {key: figures(one) for key, one in reports("printing-the-loss").items()}
    ahead, drained = runs["large_without"], runs["large_with"]

    assert ahead["verdict"] == "gpu-bound"
    assert ahead["steps_ahead"] > 1
    assert ahead["leads_ns"][-1] > ahead["period_ns"]
    assert drained["verdict"] == "sync-drained"
    assert drained["steps_ahead"] == 0
    assert all(lead < 0 for lead in drained["leads_ns"])
    assert drained["benign_pct"] > 95
    # Steps shrink more than that price, and at last the GPU is idle either way.
    shrunk = ahead["period_ns"] / runs["middle_without"]["period_ns"]
    assert drained["idle_after_ns"] / runs["middle_with"]["idle_after_ns"] < shrunk / 2
    assert runs["small_with"]["idle_after_ns"] < runs["small_with"]["wait_ns"]
    assert runs["small_with"]["wait_ns"] < 50_000
    assert {runs[f"small_{run}"]["verdict"] for run in ("with", "without")} == {"launch-bound"}


def test_load_width_alone_explains_the_slow_kernel(reports):
    rates = reports("vector-width")["rates"]
    costs = module_of("vector-width").costs(rates)
    narrow, wide, copy = (costs[name] for name in ("gelu_scalar", "gelu_vector", "copy_kernel"))
    flop = {row["short_name"]: row["flop"] for row in rates.rows("roofline", "kernels")}

    assert (narrow["load_bits"], wide["load_bits"], narrow["level"]) == (32, 128, "sass")
    assert narrow["total_ns"] > 1.5 * wide["total_ns"]
    assert abs(wide["total_ns"] / copy["total_ns"] - 1) < 0.02
    assert narrow["bytes"] == wide["bytes"] == 3 * 2 * 4 * 16384**2
    assert flop["gelu_scalar"] == flop["gelu_vector"]


def test_one_kernel_steps_with_waves_and_the_other_does_not(reports):
    grids = module_of("wave-sawtooth").grids
    waves = reports("wave-sawtooth")["waves"]
    alone = {row["blocks"]: row for row in grids(waves, "spin_alone")}
    compete = {row["blocks"]: row for row in grids(waves, "compete")}

    assert alone[133]["measured"] == "step"
    assert alone[133]["median_ns"] > 1.9 * alone[132]["median_ns"]
    assert alone[1]["median_ns"] > 0.95 * alone[132]["median_ns"]
    assert compete[1057]["measured"] == "no step"
    assert compete[1057]["median_ns"] < 1.1 * compete[1056]["median_ns"]


def test_every_kernel_of_cdist_is_explained_and_the_gemm_dominates(reports):
    case, cdist = module_of("cdist-breakdown"), reports("cdist-breakdown")["cdist"]
    parts = case.kernels(cdist)

    assert parts[0]["purpose"] == case.GEMM
    assert "ffma" in parts[0]["name"]
    assert parts[0]["ns"] > 0.5 * sum(part["ns"] for part in parts)
    # The same kernels counted another way: per range, step by step.
    steps = cdist.range_rows(r"step_\d+/cdist")
    assert sum(part["launches"] for part in parts) == steps[0]["calls"]
    assert sum(part["ns"] for part in parts) == pytest.approx(
        sum(row["total_ns"] for row in steps) / len(steps)
    )


def test_naive_attention_is_quadratic_in_memory_and_flash_is_linear(reports):
    case, attention = module_of("attention-memory"), reports("attention-memory")["attention"]
    naive, flash = (case.peaks(attention)[version] for version in case.VERSIONS)

    assert sorted(naive) == sorted(flash) == [1024, 2048, 4096, 8192]
    assert naive[8192] == 2 * case.scores_bytes(8192) + case.output_bytes(8192)
    assert naive[8192] / naive[4096] == pytest.approx(4, rel=0.02)
    assert flash[8192] / flash[4096] == pytest.approx(2, rel=0.02)
    # The output, one number per row and head, and what rounding up to memory blocks adds.
    assert 0 <= flash[8192] - case.output_bytes(8192) - 4 * case.HEADS * 8192 < 4096
    assert case.softmax_fraction(attention, 8192) > 0.5


class BuiltReport(RecordingReport):
    """The report of a trace built here instead of a recording."""

    def __init__(self, trace) -> None:
        self.trace = trace


def versions_of(operation: str, tmp_path) -> VersionComparison:
    """An operation whose `manual` version is four kernels of 10 ns, its `torch` version one."""
    work = '{"bytes": 4000, "flop": 1}'
    export = Export().gpu(0)
    for step in (0, 1):
        start = 1000 * step
        export.range(f"step_{step}", start, start + 900)
        export.range(f"manual {work}", start + 1, start + 100)
        for index in range(4):
            call = start + 10 + 20 * index
            export.launch(call=(call, call + 2), kernel=(call + 3, call + 13 + step))
        export.range(f"torch {work}", start + 200, start + 300)
        export.launch(call=(start + 210, start + 212), kernel=(start + 220, start + 230))
    lecture = module_of(f"{operation}-five-ways").LECTURE_NS
    return VersionComparison(BuiltReport(export.load(tmp_path)), lecture, 8)


@pytest.mark.parametrize("operation", ["gelu", "softmax"])
def test_versions_are_compared_by_minimum_traffic(operation, tmp_path):
    compared = versions_of(operation, tmp_path)

    manual, torch = compared.versions["manual"], compared.versions["torch"]
    assert (manual.kernels, manual.ns, torch.kernels, torch.ns) == (4, 42, 1, 10)
    assert torch.bytes_per_s == 400e9
    assert compared.manual_rate() == pytest.approx(4 * 4000 / 42e-9)
    assert list(compared.versions) == ["manual", "torch"]
    assert compared.table().count("\n") == 3


@pytest.mark.parametrize(
    ("operation", "passes", "rate"), [("gelu", 22, 2916), ("softmax", 8, 2322)]
)
def test_the_lectures_bandwidth_follows_from_its_formula(operation, passes, rate, tmp_path):
    """Bytes of its manual version ÷ its time: more than an A100 could move."""
    case, compared = module_of(f"{operation}-five-ways"), versions_of(operation, tmp_path)
    moved = LECTURE_BYTES * passes / 2

    assert sum(case.MANUAL_PASSES) == passes
    assert moved / case.LECTURE_NS["manual"] == pytest.approx(rate, rel=0.001)  # bytes per ns
    text = " ".join(replace(compared, manual_passes=passes).lecture_comparison())
    assert f"{rate / 1000:.2f} TB/s. That is more than an A100's peak (2.04 TB/s)" in text
    assert f"{rate / 33.5:.0f} % of an H100's (3.35 TB/s)" in text
    assert "An H100 at peak bandwidth needs 641 µs" in text


@pytest.mark.parametrize("operation", ["gelu", "softmax"])
def test_the_passes_counted_on_a_page_match_the_kernels_that_ran(operation, reports):
    """The traffic that the formula implies stays below peak bandwidth."""
    case = module_of(f"{operation}-five-ways")
    compared = case.compare(reports(f"{operation}-five-ways"))

    assert compared.versions["manual"].kernels == len(case.MANUAL_PASSES)
    assert 0.5 * compared.peak < compared.manual_rate() < compared.peak
    assert all(version.bytes_per_s < compared.peak for version in compared.versions.values())
    # The kernel time again, from kernel rows and range times alone.
    trace = compared.recorded.trace
    start, end = next(
        (row["start_ns"], row["end_ns"])
        for row in trace.ranges.rows()
        if row["name"].startswith("triton {")
    )
    launches = [
        row["correlation_id"] for row in trace.api_calls.rows() if start <= row["start_ns"] < end
    ]
    (kernel_ns,) = [
        row["end_ns"] - row["start_ns"]
        for row in trace.kernels.rows()
        if row["correlation_id"] in launches
    ]
    assert kernel_ns == pytest.approx(compared.versions["triton"].ns, rel=0.05)


@pytest.mark.parametrize("operation", ["gelu", "softmax"])
def test_the_legend_is_outside_the_axes(operation, tmp_path):
    """Inside, its marker would look like one more of the lecture's points."""
    axes = Figure(figsize=(7, 2.8), layout="constrained").add_subplot()
    versions_of(operation, tmp_path).draw(axes)
    axes.figure.draw_without_rendering()

    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1


def test_gelu_is_bound_by_traffic_and_load_width(reports):
    versions = module_of("gelu-five-ways").compare(reports("gelu-five-ways")).versions

    assert versions["cuda-scalar"].ns > 1.5 * versions["cuda-vector"].ns
    assert versions["manual"].ns > 8 * versions["torch"].ns


def test_softmax_with_one_thread_per_row_is_slowest(reports):
    versions = module_of("softmax-five-ways").compare(reports("softmax-five-ways")).versions

    assert next(iter(versions)) == "cuda-row-per-thread"
    assert versions["triton"].ns < versions["torch"].ns < versions["manual"].ns
