"""The programs in workloads/: they run without a GPU and leave the ranges they promise."""

import ast
import importlib.util
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.recorders.fake import traceview
from traceview.analyses import steps
from traceview.trace.files import load

WORKLOADS = Path(__file__).parents[1] / "workloads"
SMALL = ("--device", "cpu", "--dim", "16", "--layers", "2", "--batch", "4", "--steps", "2")
STEP = ["forward", "layer_0", "layer_1", "backward", "optimizer"]


@pytest.fixture
def torch_and_nvtx():
    missing = [name for name in ("torch", "nvtx") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; pip install 'traceview[workloads]'")


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.py")), ids=lambda path: path.stem)
def test_each_names_the_finding_to_expect(path):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    expected = [line for line in docstring.splitlines() if line.startswith("Expect: ")]
    assert len(expected) == 1


@pytest.mark.usefixtures("torch_and_nvtx")
def test_mlp_prints_a_loss_that_falls_and_repeats():
    command = [sys.executable, WORKLOADS / "mlp.py", *SMALL, "--print-loss"]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    losses = [float(line.rpartition(" ")[2]) for line in runs[0].splitlines()]
    assert runs[0] == runs[1]
    assert len(losses) == 2
    assert losses[1] < losses[0]


@pytest.mark.usefixtures("torch_and_nvtx")
def test_mlp_recorded_on_the_cpu(nsys, tmp_path):
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys)}
    words = ("record", WORKLOADS / "mlp.py", *SMALL)
    done = traceview(*words, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    named = "SELECT coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s"
    with closing(sqlite3.connect(tmp_path / "mlp.sqlite")) as connection:
        rows = connection.execute(
            f"{named} ON s.id = n.textId WHERE n.eventType = 59 ORDER BY n.start"
        ).fetchall()
        facts = dict(connection.execute("SELECT name, value FROM TRACEVIEW_RUN").fetchall())
    assert [name for (name,) in rows] == ["define_model", "step_0", *STEP, "step_1", *STEP]
    assert {"torch", "nvtx", "python"} <= set(facts)


@pytest.mark.usefixtures("torch_and_nvtx")
@pytest.mark.parametrize("name", ["queue_full", "streams", "cuda_graphs"])
def test_the_others_run_on_the_cpu_and_repeat(name):
    command = [sys.executable, WORKLOADS / f"{name}.py", "--device", "cpu", "--steps", "2"]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert runs[0] == runs[1] != ""


def recorded(nsys, folder, script, *words):
    """A recording of a workload on the CPU, as a trace."""
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys), "OMP_NUM_THREADS": "1"}
    command = ("record", WORKLOADS / script, "--device", "cpu", *words)
    done = traceview(*command, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    return load(folder / Path(script).with_suffix(".sqlite"))


@pytest.mark.usefixtures("torch_and_nvtx")
def test_batches_of_training_are_its_steps(nsys, tmp_path):
    words = ("--workers", "0", "--batches", "6", "--slow", "4")
    trace = recorded(nsys, tmp_path, "training.py", *words)
    tables = steps.compute(trace).tables
    [series] = tables["series"].rows()
    assert (series["series"], series["steps"]) == ("epoch_#/batch_#", 12)
    took = {row["step"]: row["duration_ns"] for row in tables["steps"].rows()}
    assert min(took["epoch_0/batch_4"], took["epoch_1/batch_4"]) >= 50_000_000


@pytest.mark.usefixtures("torch_and_nvtx")
@pytest.mark.parametrize(
    ("words", "series"), [((), [("thread_#_step_#", 4)] * 3), (("--main-ranges",), [("step_#", 4)])]
)
def test_threads_have_the_ranges_they_promise(nsys, tmp_path, words, series):
    trace = recorded(nsys, tmp_path, "threads.py", "--steps", "4", "--dim", "16", *words)
    found = steps.compute(trace).tables["series"]
    assert [(row["series"], row["steps"]) for row in found.rows()] == series
