"""`traceview report`: what goes where, and what is refused before any work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import traceview
from tests.render.example_report import a_long_report, a_report
from traceview.api.traces import AnalysisOptions
from traceview.cli import run
from traceview.cli.report import print_summary
from traceview.traces.timeline.timeline import timeline


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Answer every report with a made one, in an empty folder; gives what was asked for."""
    calls = []

    def analyze(trace, options, *, tables=True, beside=None):
        assert type(tables) is bool
        calls.append((trace.name, options))
        return a_report()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(traceview, "load", lambda path: path)
    monkeypatch.setattr("traceview.api.traces.analyzed", analyze)
    return calls


def test_without_options_one_screen_is_printed(asked, capsys):
    assert run(["report", "run.sqlite"]) == 0
    shown = capsys.readouterr()
    assert "What to do first" in shown.out
    assert "Which kernels take the time?" not in shown.out
    assert len(shown.out.splitlines()) <= 40
    assert "\x1b" not in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("option", [["--all"], ["--only", "memory"]])
def test_all_and_only_print_tables(asked, capsys, option):
    assert run(["report", "run.sqlite", *option]) == 0
    assert "Which kernels take the time?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "shows"),
    [
        ([], False),
        (["--all"], True),
        (["--only", "memory"], True),
        (["--json"], True),
        (["--markdown"], True),
        (["--html", "page.html"], True),
        (["--csv", "tables"], True),
    ],
)
def test_tables_are_computed_where_something_shows_them(monkeypatch, tmp_path, options, shows):
    computed = []

    def analyze(trace, only=(), *, tables, **others):
        computed.append(tables)
        return a_report()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(traceview, "load", lambda path: path)
    monkeypatch.setattr("traceview.api.traces.analyzed", analyze)
    assert run(["report", "run.sqlite", *options]) == 0
    assert computed == [shows]


def test_a_color_asked_for_is_given_to_a_pipe(asked, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["report", "run.sqlite", "--color", "always"]) == 0
    assert "\x1b[1;31mhigh" in capsys.readouterr().out
    assert run(["report", "run.sqlite", "--color", "never"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_explain_needs_no_trace(capsys):
    assert run(["report", "--explain", "gpu-idle"]) == 0
    shown = capsys.readouterr().out
    assert "How long did the GPU have nothing to do, and why?" in shown
    assert "traceview/traces/analyses/gpu_idle/analysis.py" in shown
    assert "idle_ns" in shown


@pytest.mark.parametrize("option", ["--explain", "--only"])
def test_an_unknown_analysis_is_misuse(asked, capsys, option):
    assert run(["report", "run.sqlite", option, "gpu-idel"]) == 2
    assert "did you mean gpu-idle?" in capsys.readouterr().err


def test_the_page_is_opened_where_it_was_written(asked, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert run(["report", "run.sqlite", "--open"]) == 0
    assert opened == [(tmp_path / "run.html").as_uri()]


def test_options_reach_the_analysis(asked):
    options = [
        "--only",
        "gpu-idle,steps",
        "--only",
        "memory",
        "--range",
        "step_*",
        "--exclude-range",
        "step_0",
    ]
    assert run(["report", "run.sqlite", *options]) == 0
    assert run(["report", "run.sqlite", "--strict"]) == 0
    assert run(["report", "run.sqlite", "--peak", "bf16=9e14", "--peak", "link=64e9"]) == 0
    assert asked == [
        (
            "run.sqlite",
            AnalysisOptions(("gpu-idle", "steps", "memory"), ("step_*",), ("step_0",)),
        ),
        ("run.sqlite", AnalysisOptions(strict=True)),
        ("run.sqlite", AnalysisOptions(peaks=("bf16=9e14", "link=64e9"))),
    ]


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        ("speed=1", "no figure 'speed'"),
        ("bandwidth=fast", "bandwidth is 'fast'"),
        ("sms=1.5", "sms is 1.5"),
        ("bf16", "bf16 is ''"),
    ],
)
def test_a_bad_peak_is_misuse(asked, capsys, peak, said):
    assert run(["report", "run.sqlite", "--peak", peak]) == 2
    assert said in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize("path", ["run.sqlite", "in/run.sqlite.xz", "run.nsys-rep"])
def test_html_takes_the_stem_of_the_trace(asked, tmp_path, capsys, path):
    assert run(["report", path, "--html"]) == 0
    shown = capsys.readouterr()
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")
    assert shown.err == "Wrote run.html\n"
    assert "What to do first" in shown.out
    assert "Which kernels" not in shown.out


def test_the_timeline_of_a_page_is_drawn_once(monkeypatch, tmp_path, unpack):
    drawn = []

    def timeline_of(trace, *limits):
        drawn.append(trace.path)
        return timeline(trace, *limits)

    monkeypatch.setattr("traceview.render.timeline.timeline", timeline_of)
    page = tmp_path / "page.html"
    assert run(["report", str(unpack("mlp_sync")), "--html", str(page)]) == 0
    assert len(drawn) == 1
    assert 'id="timeline' in page.read_text("utf-8")


def test_a_bug_in_the_timeline_is_reported_once(monkeypatch, tmp_path, capsys, unpack):
    def broken(trace, *limits):
        raise KeyError("bug")

    monkeypatch.setattr("traceview.render.timeline.timeline", broken)
    path = str(unpack("mlp_sync"))
    assert run(["report", path, "--html", str(tmp_path / "page.html")]) == 1
    said = capsys.readouterr().err
    assert said.count("KeyError") == 1
    assert "Exception in thread" not in said


def test_html_and_json_to_named_files(asked, tmp_path, capsys):
    assert run(["report", "run.sqlite", "--html", "a.html", "--json", "b.json"]) == 0
    assert (tmp_path / "a.html").exists()
    assert json.loads((tmp_path / "b.json").read_text())["schema_version"] == 1
    assert capsys.readouterr().err == "Wrote a.html\nWrote b.json\n"


def test_an_output_file_names_the_page_that_an_option_asks_for(tmp_path, monkeypatch, unpack):
    path = str(unpack("mlp_sync"))
    monkeypatch.chdir(tmp_path)

    assert run(["report", path, "--html", "-o", "page.html"]) == 0
    assert run(["report", path, "--html", "a.html", "-o", "b.html"]) == 2

    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    "option", [["--json"], ["--json", "-"], ["--json", "-", "--html", "a.html"]]
)
def test_json_alone_on_stdout(asked, capsys, option):
    assert run(["report", "run.sqlite", *option]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["traceview_version"] == traceview.__version__


def test_markdown_alone_on_stdout(asked, capsys):
    assert run(["report", "run.sqlite", "--markdown"]) == 0
    shown = capsys.readouterr()
    assert "### What to do first" in shown.out
    assert "--explain" not in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.html", "<!doctype html>"), ("a.json", "{"), ("a.md", "**run 1"), ("A.HTM", "<!doctype")],
)
def test_o_writes_what_the_name_ends_in(asked, tmp_path, capsys, name, start):
    assert run(["report", "run.sqlite", "-o", name]) == 0
    assert (tmp_path / name).read_text().startswith(start)
    assert capsys.readouterr().err == f"Wrote {name}\n"


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "a.txt"],
        ["-o", "a.html", "--html", "b.html"],
        ["--json", "--markdown"],
        ["--all-rows"],
        ["--color", "sometimes"],
    ],
)
def test_options_that_contradict_are_misuse(asked, tmp_path, options):
    assert run(["report", "run.sqlite", *options]) == 2
    assert list(tmp_path.iterdir()) == []
    assert asked == []


def test_csv_writes_a_folder_and_overwrites_nothing(asked, tmp_path, capsys):
    assert run(["report", "run.sqlite", "--csv", "out"]) == 0
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "findings.csv" in written
    assert capsys.readouterr().err == f"Wrote out ({len(written)} tables)\n"
    (tmp_path / "out" / "findings.csv").write_text("mine")
    assert run(["report", "run.sqlite", "--csv", "out"]) == 1
    assert "exists already; pass --force" in capsys.readouterr().err
    assert (tmp_path / "out" / "findings.csv").read_text() == "mine"
    assert run(["report", "run.sqlite", "--csv", "out", "--force"]) == 0
    assert (tmp_path / "out" / "findings.csv").read_text() != "mine"


@pytest.mark.parametrize("folder", ["taken", "no/such/folder"])
def test_csv_into_no_folder_is_refused_before_any_work(asked, tmp_path, capsys, folder):
    (tmp_path / "taken").write_text("a file")
    assert run(["report", "run.sqlite", "--csv", folder]) == 1
    assert asked == []
    assert "folder" in capsys.readouterr().err


def test_existing_output_is_refused_before_any_work(asked, tmp_path, capsys):
    (tmp_path / "run.html").write_text("mine")
    assert run(["report", "run.sqlite", "--html"]) == 1
    assert asked == []
    assert "run.html exists already; pass --force" in capsys.readouterr().err
    assert run(["report", "run.sqlite", "--html", "--force"]) == 0
    assert (tmp_path / "run.html").read_text() != "mine"


def test_the_page_of_the_same_recording_is_written_anew(asked, tmp_path, capsys):
    """Pages of others are kept, and so are pages that are no longer as they were written."""
    words = ["report", Path(a_report().trace.path).name, "--html", "run.html"]
    assert run(words) == run(words) == 0
    page = (tmp_path / "run.html").read_text()
    for other in (page.replace("<title>", "<title>other "), page.replace('name="generator"', "")):
        (tmp_path / "run.html").write_text(other)
        assert run(words) == 1
        assert "run.html exists already; pass --force" in capsys.readouterr().err


def test_a_trace_taken_for_the_page_is_explained(asked, capsys):
    assert run(["report", "--html", "run.sqlite"]) == 2
    shown = capsys.readouterr().err
    assert "--html took 'run.sqlite' as its output file" in shown
    assert "traceview report run.sqlite --html" in shown


def test_a_second_trace_is_never_overwritten(asked, tmp_path, capsys):
    (tmp_path / "a.sqlite").write_text("precious")
    assert run(["report", "--html", "a.sqlite", "b.sqlite", "--force"]) == 1
    assert (tmp_path / "a.sqlite").read_text() == "precious"
    assert "named like a trace" in capsys.readouterr().err


def test_summary_has_findings_and_no_tables(asked, capsys, tmp_path):
    print_summary(tmp_path / "run.sqlite")
    shown = capsys.readouterr().out
    assert "What to do first" in shown
    assert "→ Act." in shown
    assert "short name" not in shown


def test_a_real_recording_from_a_pipe_in_a_plain_locale(unpack):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    environment.pop("COLUMNS", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "traceview", "report", unpack("mlp_sync")],
        capture_output=True,
        env=environment,
        check=True,
    )
    assert done.stderr == b""
    assert b"NVIDIA H200" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_real_recording_answers_an_unknown_name_and_range(unpack, capsys):
    trace = str(unpack("mlp_sync"))
    assert run(["report", trace, "--only", "kernel-shares"]) == 2
    assert "did you mean kernel-share?" in capsys.readouterr().err
    assert run(["report", trace, "--range", "no_such_range"]) == 1
    assert "no range matches 'no_such_range'" in capsys.readouterr().err


def test_a_real_recording_restricted_to_a_step_counts_less(unpack, capsys):
    def calls(*options):
        arguments = ["report", str(unpack("mlp_sync")), "--json", "--only", "kernel-share"]
        assert run([*arguments, *options]) == 0
        told = json.loads(capsys.readouterr().out)
        rows = told["analyses"]["kernel-share"]["tables"]["kernels"]
        return sum(row["calls"] for row in rows)

    one, rest, whole = calls("--range", "step_3"), calls("--exclude-range", "step_3"), calls()
    assert 0 < one < whole
    assert one + rest == whole


def test_all_rows_are_written_where_they_are_asked_for(asked, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "traceview.api.traces.analyzed", lambda *given, **options: a_long_report(10_001)
    )
    for options, rows in ([], 10_000), (["--all-rows"], 10_001):
        assert run(["report", "run.sqlite", "--json", *options]) == 0
        told = json.loads(capsys.readouterr().out)["analyses"]["places"]
        assert len(told["tables"]["places"]) == rows
        assert ("left_out" in told) == (not options)
    assert run(["report", "run.sqlite", "--html", "a.html"]) == 0
    assert run(["report", "run.sqlite", "--html", "b.html", "--all-rows"]) == 0
    assert "place 1234" not in (tmp_path / "a.html").read_text()
    assert "place 9999" in (tmp_path / "b.html").read_text()


def test_all_rows_of_the_terminal_are_refused(asked, capsys):
    assert run(["report", "run.sqlite", "--all-rows"]) == 2
    assert "--all-rows needs --html or --json" in capsys.readouterr().err
    assert asked == []
