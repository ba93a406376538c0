"""The Python API: public types, and how they show themselves in a shell and in a notebook."""

import json
import re
import subprocess
import sys
import typing
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

import traceview
from tests.comparison.sides import a_comparison, a_difference, a_run
from tests.places import DATA, REPOSITORY
from tests.render.example_report import CONTROLS, HOSTILE, a_report
from tests.render.ranks.jobs import Shape, a_job
from tests.render.report.test_html import Page
from traceview.api import traces
from traceview.base.errors import InputError, OutputExistsError, ToolNotFoundError
from traceview.base.findings import Evidence, Finding, Subject
from traceview.base.tables import Column, Table
from traceview.traces.analyses.base import Result

TYPES = (
    "Finding",
    "JobReport",
    "Operation",
    "Report",
    "Result",
    "RunComparison",
    "Selection",
    "Skipped",
    "Table",
    "Trace",
    "WhatIfReport",
)
SCREEN = (100, 40)
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


@pytest.fixture(scope="module")
def trace():
    return traceview.load(DATA / "training.sqlite.xz")


@pytest.fixture(scope="module")
def report(trace):
    return traceview.analyze(trace)


@pytest.fixture(scope="module")
def values(trace, report):
    """One of each type that shows itself, by name; the hostile ones hold names to beware of."""
    hostile = a_report([HOSTILE, CONTROLS, "x" * 1_000_000])
    return {
        "trace": trace,
        "report": report,
        "result": report["gpu-idle"],
        "skipped": report["load-widths"],
        "table": trace.kernels,
        "code": trace.kernel_code,
        "finding": report.findings[0].finding,
        "findings": report.findings_table(),
        "job": a_job(Shape(2, late=1)),
        "hostile job": a_job(Shape(name=HOSTILE)),
        "hostile report": hostile,
        "hostile result": hostile["share-of-all"],
        "hostile table": hostile["share-of-all"].tables["shares"],
        "hostile finding": hostile.findings[1].finding,
        "bare result": Result({"shares": hostile["share-of-all"].tables["shares"]}),
        "no columns": Table((), {}),
        "no rows": Table.empty((Column("name", "text", "its name"),)),
        "binary": Table((Column("cubin", "bytes", "code", nullable=True),), {"cubin": [b"ab"]}),
        "comparison": a_comparison(),
        "hostile comparison": a_comparison(
            [a_difference(each, 10, 20, place=each) for each in (HOSTILE, CONTROLS, "x" * 9_999)],
            before=(a_run(CONTROLS),),
        ),
        "what if": traceview.what_if(trace, "kernel *=0.5", "graph step"),
        "no findings": traceview.analyze(trace, "launch-overhead"),
    }


@pytest.mark.parametrize("name", TYPES)
def test_types_are_public(name):
    assert name in traceview.__all__
    assert name in dir(traceview)
    assert getattr(traceview, name).__name__ == name


@pytest.mark.parametrize("name", [name for name in TYPES if name != "Table"])
def test_nothing_assigns_to_a_public_value(name):
    assert getattr(traceview, name).__dataclass_params__.frozen


def test_a_name_that_is_not_there_raises_as_in_any_module():
    with pytest.raises(AttributeError, match="no attribute 'Tracee'"):
        _ = traceview.Tracee


def test_importing_traceview_or_asking_for_help_loads_no_numpy():
    program = (
        "import sys, traceview, traceview.cli\n"
        "status = traceview.cli.run(['report', '--help'])\n"
        "print(status, sorted({'numpy', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.endswith("0 []\n"), ran.stderr


def test_analyze_has_real_keyword_arguments():
    hints = typing.get_type_hints(traceview.analyze, {**vars(traces), **typing_names()})
    assert hints["return"] is traceview.Report
    assert "kwargs" not in hints
    for name in set(hints) - {"return"}:
        assert f"{name}:" in traceview.analyze.__doc__


def typing_names():
    return {name: getattr(traceview, name) for name in TYPES}


def test_repr_fits_a_screen_and_is_harmless(values):
    for name, value in values.items():
        lines = repr(value).split("\n")
        assert max(map(len, lines)) <= SCREEN[0], name
        assert len(lines) <= SCREEN[1], name
        assert all(line.isprintable() for line in lines), name
        if "job" not in name:  # that is the screen of the terminal
            assert lines[0].startswith("<"), name
            assert lines[-1].endswith(">"), name


def test_repr_says_what_matters(values):
    trace, report = repr(values["trace"]), repr(values["report"])
    assert re.search(r"GPU +NVIDIA H200 .*132 SMs", trace)
    assert "nsys 2025.3.2.0" in trace
    assert "kernels 656" in trace
    assert "Not answered: load-widths, roofline" in report
    assert "high  save about 9.73 ± 0.20 of 12.1 ms per step on average (81 %)" in report
    assert "[gpu-idle]" in report
    assert re.search(r"causes +7 rows, chart", repr(values["result"]))
    assert repr(values["table"]).startswith("<Table: 656 rows × 31 columns\n  label, duration_ns,")
    assert repr(values["skipped"]).startswith("<Skipped: ")
    assert "\n  → " in repr(values["skipped"])
    assert "… and 646 more rows" in repr(values["table"])
    assert "<Table: 1 row × 1 column" in repr(values["binary"])
    assert "2 B" in repr(values["binary"])


def test_a_finding_shows_its_saving_and_subject():
    finding = Finding(
        "high",
        "{gaps:gap} of {idle_ns}.",
        "Act.",
        147_000_000,
        Subject("kernel", "gemm"),
        Evidence({"gaps": 135, "idle_ns": 147_000_000}),
        38.24,
    )
    assert repr(finding).splitlines() == [
        "<Finding",
        "  high: save up to 147 ms (38.2 % of the time after warm-up)",
        "    135 gaps of 147 ms.",
        "  about kernel gemm",
        "  → Act.>",
    ]
    assert "38.2 % of the time after warm-up" in finding._repr_html_()


def test_html_is_a_self_contained_element_without_scripts(values):
    for name, value in values.items():
        snippet = value._repr_html_()
        page = Page(snippet)
        assert page.misnested == page.open == [], name
        assert page.elements[0] == ("div", {"class": "traceview"}), name
        assert not page.named("script", "link", "img", "iframe", "object", "base"), name
        assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs), name
        assert not any("href" in a for tag, a in page.elements if tag == "a"), name
        assert "http" not in snippet, name
        assert not CONTROL_CHARACTERS.search(snippet), name


def test_the_style_of_a_snippet_leaves_the_notebook_alone(report):
    style = re.search("<style>(.*?)</style>", report._repr_html_(), re.DOTALL)[1].strip()
    assert style.startswith(".traceview {")
    assert style.count("{") == style.count("}")
    assert not re.search(r":root|\bbody\b", style)


def test_html_shows_what_the_page_shows(values):
    assert "NVIDIA H200" in values["trace"]._repr_html_()
    report = values["report"]._repr_html_()
    assert "What to do first" in report
    assert report.index("save about") < report.index("How long did the GPU have nothing")
    assert "<svg" in report
    job = values["job"]._repr_html_()
    assert job.index("on average<") < job.index("Rank 1 is late by 12.5 ms") < job.index("Groups")
    result = values["result"]._repr_html_()
    assert "launch-late" in result
    assert "<svg" in result
    assert "656 rows × 31 columns" in values["table"]._repr_html_()
    assert "Not answered" in values["skipped"]._repr_html_()
    assert ".to_pandas()" in values["table"]._repr_html_()
    assert HOSTILE in "".join(Page(values["hostile result"]._repr_html_()).texts)


def test_a_notebook_may_show_a_chart_twice(trace):
    """No element has an id, which two of them would share."""
    shown = traceview.analyze(trace, "steps")._repr_html_()
    assert "<rect" in shown
    assert " id=" not in re.sub("<(style|title).*?</", "", shown, flags=re.DOTALL)


def test_outcomes_are_looked_up_by_name(report):
    assert isinstance(report["gpu-idle"], traceview.Result)
    assert isinstance(report["load-widths"], traceview.Skipped)
    assert list(report)[:2] == ["kernel-share", "phases"]
    assert "gpu-idle" in report
    with pytest.raises(InputError, match="no analysis 'gpu-idl'; did you mean gpu-idle"):
        _ = report["gpu-idl"]


def test_the_findings_table_has_one_row_per_finding(report):
    frame = report.findings_table().to_pandas()
    assert len(frame) == len(report.findings)
    first = report.findings[0].finding
    assert frame["message"][0] == first.message
    assert frame["time_at_stake_ns"].tolist()[0] == first.time_at_stake_ns == 146_859_021


def test_documents_are_texts_or_files(report, tmp_path):
    page, document = report.to_html(), report.to_json()
    assert page.startswith("<!doctype html>")
    assert json.loads(document)["schema_version"] == 1
    for write, name, text in (
        (report.to_html, "page.html", page),
        (report.to_json, "report.json", document),
    ):
        target = tmp_path / name
        assert write(target) == target
        assert target.read_text("utf-8") == text
        with pytest.raises(OutputExistsError):
            write(str(target))
        target.write_text("old")
        assert write(target, force=True).read_text("utf-8") == text


def test_a_chart_is_a_matplotlib_figure(report):
    figure = report["gpu-idle"].figure("causes")
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts][:2] == ["launch-late", "dependency"]
    assert figure._repr_svg_().count("<svg") == 1


def test_without_matplotlib_the_error_says_how_to_get_it(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ToolNotFoundError, match=r"needs matplotlib; .* pip install matplotlib"):
        report["gpu-idle"].figure("causes")


@pytest.mark.parametrize("analysis", ["steps", "run-ahead", "sync-stalls", "kernel-share"])
def test_every_chart_that_has_data_can_be_drawn(report, analysis):
    for chart in report[analysis].analysis.charts:
        assert report[analysis].figure(chart.table).axes


def test_a_table_without_a_chart_raises(report):
    with pytest.raises(InputError, match=r"no chart .* 'gaps'; tables with one: causes"):
        report["gpu-idle"].figure("gaps")
    with pytest.raises(InputError, match="tables with one: none"):
        Result({}).figure("gaps")


def test_a_path_is_no_trace():
    with pytest.raises(InputError, match=r"'a.sqlite' is not a Trace; pass what traceview.load"):
        traceview.analyze("a.sqlite")


def test_a_finding_of_a_report_shows_its_analysis_and_its_part_of_a_step(report):
    ranked = report.findings[0]
    shown = repr(ranked)
    saved = "save about 9.73 ± 0.20 of 12.1 ms per step on average (81 %)"
    assert shown.startswith(f"<RankedFinding\n  high: {saved}")
    assert "[gpu-idle]" in shown
    assert ranked.finding.action[:40] in shown
    assert "save about" in ranked._repr_html_()


def test_repr_of_kernels_has_their_figures_and_not_their_code():
    """A notebook shows the value of a cell's last line: 88 kB of PTX and instructions once."""
    ptx = str(DATA / "gelu-nvrtc-12.9-sm90.ptx")
    inspected = traceview.inspect_ptx(ptx)
    many = replace(inspected, kernels=inspected.kernels * 20)
    diff = traceview.diff_ptx(ptx, ptx)
    named = replace(inspected, target=f"{HOSTILE}{'x' * 10_000}")
    for value in (inspected, inspected.kernels[0], many, diff, named):
        lines = repr(value).splitlines()
        assert max(map(len, lines)) <= SCREEN[0]
        assert len(lines) <= SCREEN[1]
        assert all(line.isprintable() for line in lines)
        assert lines[0].startswith(f"<{type(value).__name__} of ")
        assert lines[-1].endswith(">")
        assert "gelu_scalar" in repr(value)
    assert "elements per thread 1" in repr(inspected)
    assert "Global loads at gelu.cu:5 and stores at gelu.cu:6" in repr(inspected)
    assert "… and 34 more kernels" in repr(many)
    assert "gelu_vector: 0 findings in any version" in repr(diff)


def test_repr_of_a_gate_is_its_answer():
    before, after = DATA / "mlp_nosync.sqlite.xz", DATA / "mlp_print_loss.sqlite.xz"
    report = traceview.gate([before], [after], REPOSITORY / "examples" / "gate.toml")
    shown = repr(report)
    assert "Regressed: 1 regressed" in shown
    assert len(shown.splitlines()) <= SCREEN[1]
