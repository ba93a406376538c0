"""Runs over time: the recordings and baselines of a folder."""

import json
import os
import shutil
import socket
import sys
import time
from importlib.util import find_spec
from itertools import pairwise
from types import SimpleNamespace

import pytest

import traceview
from tests.places import DATA
from traceview.base import units
from traceview.base.errors import InputError
from traceview.cli import run
from traceview.traces.comparison import tracking

NAMES = ("mlp_sync", "mlp_nosync", "mlp_print_loss")


@pytest.fixture
def folder(tmp_path):
    """Three recordings, of which two say when they were made, a damaged file and a note."""
    for number, name in enumerate(NAMES):
        copy = shutil.copy(DATA / f"{name}.sqlite.xz", tmp_path)
        os.utime(copy, (number, number))
    (tmp_path / "bad.sqlite").write_text("no recording")
    (tmp_path / "notes.txt").write_text("not looked at")
    return tmp_path


def test_each_run_has_the_figures_of_its_own_report(folder):
    history = traceview.history(folder)
    rows = {row["run"]: row for row in history.runs.rows()}
    assert set(rows) == set(NAMES)
    assert [row["recorded_utc"] for row in history.runs.rows()] == sorted(
        row["recorded_utc"] for row in rows.values()
    )
    for name in NAMES:
        report = traceview.report(DATA / f"{name}.sqlite.xz")
        serious = [each for each in report.findings if each.severity != "info"]
        assert rows[name]["findings"] == len(serious)
        assert rows[name]["first_finding"] == serious[0].message
        assert rows[name]["gpu_busy_pct"] == pytest.approx(report.scoreboard.gpu_busy_pct, abs=0.5)
        assert rows[name]["step_ns"] == pytest.approx(report.verdict.step_median_ns, rel=0.05)
    steps = [row["step_ns"] for row in history.runs.rows()]
    changes = [row["change_pct"] for row in history.runs.rows()]
    assert changes[0] is None
    assert changes[1:] == [100 * (b - a) / a for a, b in pairwise(steps)]
    assert [each.name for each in history.failed] == ["bad.sqlite"]


def test_a_baseline_counts_with_its_runs(folder):
    traceview.baseline(folder / f"{NAMES[0]}.sqlite.xz", out=folder / "base.json")
    for name in NAMES:
        (folder / f"{name}.sqlite.xz").unlink()
    [row] = traceview.history(folder).runs.rows()
    assert (row["findings"], row["steps"] > 0, row["gpu"]) == (None, True, "NVIDIA H200")


def test_every_output_has_every_run(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["history", str(folder), "--html", "h.html", "--json", "h.json", "-o", "h.md"]) == 0
    shown = capsys.readouterr()
    files = [(tmp_path / f"h.{end}").read_text() for end in ("html", "json", "md")]
    for text in (shown.out, *files):
        text = text.replace("\\", "")
        assert all(name in text for name in NAMES)
        assert "bad.sqlite" in text
    document = json.loads((tmp_path / "h.json").read_text())
    assert [row["run"] for row in document["runs"]] == [
        row["run"] for row in traceview.history(folder).runs.rows()
    ]
    assert "<svg" in (tmp_path / "h.html").read_text()
    assert run(["history", str(folder), "--html", "h.html"]) == 1


def test_mlflow_has_the_runs_with_the_same_figures_once(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="needs pip install '.[tracking]'")
    uri = (tmp_path / "mlruns").as_uri()
    for logged in (3, 0):
        assert run(["history", str(folder), "--mlflow", uri]) == 0
        assert f"Logged to MLflow: {logged} runs" in capsys.readouterr().err
    client = mlflow.MlflowClient(uri)
    where = client.get_experiment_by_name(folder.name).experiment_id
    there = {each.info.run_name: each for each in client.search_runs([where])}
    assert set(there) == set(NAMES)
    for row in traceview.history(folder).runs.rows():
        data = there[row["run"]].data
        numbers = {name: each for name, each in row.items() if isinstance(each, (int, float))}
        assert data.metrics == numbers
        assert data.params["gpu"] == "NVIDIA H200"
        assert data.tags["mlflow.note.content"] == row["first_finding"]


def test_a_server_of_mlflow_that_does_not_answer_takes_ten_seconds(folder, monkeypatch, capsys):
    pytest.importorskip("mlflow", reason="needs pip install '.[tracking]'")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert run(["history", str(folder), "--mlflow", uri]) == 1
        assert time.monotonic() - start < 30
    assert capsys.readouterr().err.count("\n") == 1
    assert not [name for name in os.environ if name.startswith("MLFLOW_HTTP")]


class Client:
    """A client of MLflow that notes its bounds and refuses."""

    def __init__(self, uri):
        raise OSError({name: os.environ.get(name) for name in tracking._BOUNDS})


@pytest.mark.parametrize("own", [{}, {"MLFLOW_HTTP_REQUEST_TIMEOUT": "99"}])
def test_mlflow_is_bounded_unless_the_environment_bounds_it(folder, own, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    for name in tracking._BOUNDS:
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as refused:
        traceview.history(folder).to_mlflow("http://localhost:1")
    assert str({**tracking._BOUNDS, **own}) in str(refused.value)
    assert {name: os.environ[name] for name in tracking._BOUNDS if name in os.environ} == own


@pytest.mark.parametrize("option", ["--mlflow", "--wandb"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_place_for_the_runs_is_misuse(folder, option, value, capsys):
    assert run(["history", str(folder), option, value]) == 2
    assert f"Invalid value for '{option}': it is empty" in capsys.readouterr().err
    with pytest.raises(InputError, match="is empty"):
        traceview.history(folder).to_mlflow(value)


def test_wandb_has_the_runs_with_the_same_figures(folder, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs pip install '.[tracking]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert run(["history", str(folder), "--wandb", "speed"]) == 0
    wandb.teardown()  # its service writes the files
    there = [path.read_bytes() for path in tmp_path.glob("wandb/offline-run-*/*.wandb")]
    assert len(there) == len(NAMES)
    for row in traceview.history(folder).runs.rows():
        # A row of the history is a JSON text per figure.
        [content] = [each for each in there if row["run"].encode() in each]
        numbers = [each for each in row.values() if isinstance(each, (int, float))]
        assert len(numbers) >= 5
        assert all(json.dumps(each).encode() in content for each in numbers)


@pytest.mark.skipif(bool(find_spec("mlflow")), reason="MLflow is here")
def test_without_the_library_it_says_how_to_get_it(folder, capsys):
    assert run(["history", str(folder), "--mlflow", "sqlite:///runs.db"]) == 1
    assert "pip install 'traceview[tracking]'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "damaged"])
def test_a_folder_without_runs_is_an_error_in_one_line(tmp_path, kind, capsys):
    place = tmp_path / "runs"
    if kind == "file":
        place.write_text("")
    elif kind != "missing":
        place.mkdir()
    if kind == "damaged":
        (place / "a.sqlite").write_text("x")
    with pytest.raises(InputError):
        traceview.history(place)
    assert run(["history", str(place)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("names", [("mlp_sync", "rates"), ("rates", "mlp_sync"), ("rates",)])
def test_steps_and_whole_runs_are_drawn_and_summed_up_apart(tmp_path, names):
    """What has no steps lasts as long as its work: no step is compared with it."""
    for number, name in enumerate(("mlp_nosync", *names)):
        copy = shutil.copy(DATA / f"{name}.sqlite.xz", tmp_path / f"{number}_{name}.sqlite.xz")
        os.utime(copy, (number, number))
    history = traceview.history(tmp_path)
    with_steps = {row["run"]: bool(row["steps"]) for row in history.runs.rows()}
    page, last = history.to_html(), [*with_steps.values()][-1]
    assert "Time per step" in page
    assert ("Time per run" in page) is not all(with_steps.values())
    alike = [row["step_ns"] for row in history.runs.rows() if bool(row["steps"]) is last]
    times = [units.duration(each) for each in (alike[0], alike[-1])]
    text = str(history).partition("\n")[0]
    assert f"per {'step' if last else 'run'}" in text
    assert all(time in text for time in times)
