"""The programs in workloads/: they run without a GPU and leave the ranges they promise."""

import ast
import importlib.util
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.headless.forked_python import run_python
from tests.places import REPOSITORY
from tests.recorders.fake_nsys import traceview
from traceview.traces.analyses import steps
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.trace.load import load

WORKLOADS = REPOSITORY / "workloads"
SMALL = ("--device", "cpu", "--dim", "16", "--layers", "2", "--batch", "4", "--steps", "2")
STEP = ["forward", "layer_0", "layer_1", "backward", "optimizer"]


@pytest.fixture(scope="module")
def torch_and_nvtx():
    missing = [name for name in ("torch", "nvtx") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; pip install 'traceview[workloads]'")


# Modules that the programs share.
SHARED = {WORKLOADS / name for name in ("arguments.py", "ranges.py")}
PROGRAMS = sorted(set(WORKLOADS.glob("*.py")) - SHARED)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_each_names_the_finding_to_expect(path):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    expected = [line for line in docstring.splitlines() if line.startswith("Expect: ")]
    assert len(expected) == 1


@pytest.mark.programs
@pytest.mark.usefixtures("torch_and_nvtx")
def test_mlp_prints_a_loss_that_falls_and_repeats():
    first, second = run_with([("mlp.py", *SMALL, "--print-loss")] * 2)
    code, said, _ = first
    losses = [float(line.rpartition(" ")[2]) for line in said.splitlines()]
    assert code == 0
    assert first[:2] == second[:2]
    assert len(losses) == 2
    assert losses[1] < losses[0]


@pytest.mark.programs
@pytest.mark.usefixtures("torch_and_nvtx")
def test_mlp_recorded_on_the_cpu(nsys, tmp_path):
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys)}
    words = ("record", "--backtrace", "none", WORKLOADS / "mlp.py", *SMALL)
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


# Of the ranges that each leaves on a CPU in two steps, some of every kind, in order of appearance;
# and what it says where a CPU cannot do all of it.
RANGES = {
    "sleep": "step_0 step_0/work step_0/sleep step_1 step_1/work step_1/sleep",
    "add": "step_0 step_0/add_256 step_1 step_1/add_256 step_0/add_4096 step_1/add_4096",
    "matmul": "step_0 step_0/float32_16 step_1/float32_16 step_0/bfloat16_33 step_1/bfloat16_33",
    "cdist": "step_0 step_0/cdist step_1 step_1/cdist",
    "gelu": "warm_up warm_up/manual warm_up/torch step_0 step_0/manual step_1/torch",
    "softmax": "warm_up warm_up/manual warm_up/torch step_0 step_0/manual step_1/torch",
    "coalescing": "warm_up warm_up/torch step_0 step_0/torch step_1/torch",
    "divergence": "warm_up step_0 step_1",
    "mlp_sweep": "warm_up warm_up/step_0 layers_1/step_1 layers_2/step_0 dim_32/step_1 batch_8",
    "fusion": "warm_up step_0 step_0/eager step_1/eager",
    "low_precision": "warm_up step_0/float32 step_0/bfloat16 step_1/float16",
    "recomputation": "warm_up/keep/forward warm_up/recompute/forward "
    "step_0/keep/forward step_0/keep/backward step_1/recompute",
    "attention": "warm_up step_0/naive_32 step_0/flash_32 step_1/naive_64 step_1/flash_64",
    "transformer": "step_0/forward/embed step_0/forward/layer_1/attention "
    "step_0/forward/layer_1/mlp step_0/forward/head step_1/backward step_1/optimizer",
    "data_loader": "pageable/batch_0/load pageable/batch_1/upload pinned/batch_1/compute",
    "unified_memory": "",
}
# In seconds without a compiler.
QUICK = ["sleep", "add", "matmul", "cdist", "unified_memory"]
SAYS = {
    "divergence": "divergence cuda-parity: needs a GPU",
    "coalescing": "strided_copy triton-stride-32: needs a GPU",
    "gelu": "gelu torch.compile: left out on a CPU",
    "unified_memory": "this workload needs a GPU",
    "low_precision": "tf32, float8: products of these need a GPU's tensor cores",
}
# All in one process, as importing torch takes longer than all of them. The ranges are written down
# instead of being handed to NVTX, which a torch without CUDA does not have.
RUN_ALL = """
import contextlib, io, json, runpy, sys
import torch

folder = sys.argv[1]
sys.path.insert(0, folder)
torch.version.cuda = "none"
open_ranges, seen = [], []

@contextlib.contextmanager
def written_down(text, *arguments):
    # As torch does: what is meant literally must not be the format.
    open_ranges.append(text.format(*arguments).partition(" {")[0])
    seen.append("/".join(open_ranges))
    yield
    open_ranges.pop()

torch.cuda.nvtx.range = written_down
for name in sys.argv[2:]:
    for _ in range(2):
        seen.clear()
        sys.argv = [name, "--steps", "2"]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
        print(json.dumps([name, seen, said.getvalue()]))
"""


def run_on_the_cpu(names: Sequence[str]) -> dict[str, list[tuple[list[str], str]]]:
    """For each workload, the ranges and the output of two runs."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    arguments = [str(WORKLOADS), *names]
    done = run_python(RUN_ALL, arguments, environment, folder=Path.cwd(), timeout_s=120)
    assert done.returncode == 0, done.stderr
    runs = {name: [] for name in names}
    for line in done.stdout.splitlines():
        name, ranges, said = json.loads(line)
        runs[name].append((ranges, said))
    return runs


@pytest.mark.parametrize(
    "names",
    [QUICK, pytest.param([*RANGES], marks=pytest.mark.programs)],
    ids=["quick", "all"],
)
def test_the_rest_run_on_the_cpu_leave_the_ranges_they_promise_and_repeat(names):
    missing = [name for name in ("torch", "triton") if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; pip install 'traceview[workloads,ptx]'")
    promised = {name: text.split() for name, text in RANGES.items() if name in names}

    runs = run_on_the_cpu(names)

    assert {name: first for name, (first, _) in runs.items()} == {
        name: second for name, (_, second) in runs.items()
    }
    assert {
        name: [path for path in dict.fromkeys(ranges) if path in promised[name]]
        for name, ((ranges, _), _) in runs.items()
    } == promised
    silent = [name for name, ((_, said), _) in runs.items() if SAYS.get(name, "\n") not in said]
    assert not silent


@pytest.mark.programs
@pytest.mark.usefixtures("torch_and_nvtx")
def test_the_others_run_on_the_cpu_and_repeat():
    names = ("queue_full.py", "streams.py", "cuda_graphs.py")
    calls = [(name, "--device", "cpu", "--steps", "2") for name in names]
    runs = run_with(calls * 2)
    for name, first, second in zip(names, runs[: len(names)], runs[len(names) :], strict=True):
        assert first[:2] == second[:2], name
        assert (first[0], bool(first[1])) == (0, True), name


# Each on a thread of its own, and so with steps of its own, as importing torch takes longest.
RECORDED = {
    "training.py": ("--workers", "0", "--batches", "6", "--slow", "4"),
    "threads.py": ("--steps", "4", "--dim", "16"),
    "threads.py again": ("--steps", "4", "--dim", "16", "--main-ranges"),
}
RUN_RECORDED = """
import json, runpy, sys, threading

folder, programs = sys.argv[1:]
sys.path.insert(0, folder)
for name, words in json.loads(programs).items():
    path = f"{folder}/{name.split()[0]}"
    sys.argv = [path, "--device", "cpu", *words]
    thread = threading.Thread(target=lambda: runpy.run_path(path, run_name="__main__"))
    thread.start()
    thread.join()
"""


@pytest.fixture(scope="module")
def recorded_series(torch_and_nvtx, nsys, tmp_path_factory):
    """The tables of steps of workloads recorded on the CPU, in one recording."""
    folder = tmp_path_factory.mktemp("workloads")
    (folder / "run.py").write_text(RUN_RECORDED)
    environment = {**os.environ, "TRACEVIEW_NSYS": str(nsys), "OMP_NUM_THREADS": "1"}
    words = ("record", "--backtrace", "none", "run.py", WORKLOADS, json.dumps(RECORDED))
    done = traceview(*words, cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    return steps.compute(with_steps(load(folder / "run.sqlite"))).tables


@pytest.mark.programs
def test_batches_of_training_are_its_steps(recorded_series):
    # On a busy machine the epochs may differ so much that each is a row.
    found = {
        row["series"]: row["steps"]
        for row in recorded_series["series"].rows()
        if row["series"].startswith("epoch")
    }
    assert found in ({"epoch_#/batch_#": 12}, {"epoch_0/batch_#": 6, "epoch_1/batch_#": 6})
    took = {row["step"]: row["duration_ns"] for row in recorded_series["steps"].rows()}
    assert min(took["epoch_0/batch_4"], took["epoch_1/batch_4"]) >= 50_000_000


@pytest.mark.programs
def test_threads_have_the_ranges_they_promise(recorded_series):
    """Three threads one series each; with ranges on the main thread only, that one."""
    rows = list(recorded_series["series"].rows())
    found = [(row["series"], row["steps"]) for row in rows if not row["series"].startswith("epoch")]
    assert sorted(found) == [("step_#", 4), *[("thread_#_step_#", 4)] * 3]
    assert len({row["thread_id"] for row in rows if "thread" in row["series"]}) == 3


# As each is called on its command line, all in one process; its status and what it said.
RUN_WITH = """
import contextlib, io, json, runpy, sys

folder = sys.argv[1]
sys.path.insert(0, folder)
for name, *words in json.loads(sys.stdin.read()):
    sys.argv = [name, *words]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(f"{folder}/{name}", run_name="__main__")
        except SystemExit as left:
            code = left.code
        except Exception as error:
            code = 1
            sys.excepthook(type(error), error, error.__traceback__)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def run_with(calls: list[tuple[str, ...]]) -> list[tuple[int, str, str]]:
    """Status, output and errors of each call (a program and its words), where no GPU is seen."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = run_python(
        RUN_WITH,
        [str(WORKLOADS)],
        environment,
        given=json.dumps(calls),
        folder=Path.cwd(),
        timeout_s=120,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def operation_named():
    """What `versions.py` needs to be a program like the others."""
    for name in ("torch", "triton"):
        pytest.importorskip(name)
    return lambda path: ["add"] if path.stem == "versions" else []


def test_help_of_each_tells_what_to_expect_and_its_options(operation_named):
    answers = run_with([(path.name, *operation_named(path), "--help") for path in PROGRAMS])
    for path, (code, said, _) in zip(PROGRAMS, answers, strict=True):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        [expected] = [line for line in docstring.splitlines() if line.startswith("Expect: ")]
        assert code == 0
        assert " ".join(expected.split()) in " ".join(said.split()), path.name
        assert "--steps" in said
        assert f"traceview report {path.stem}.sqlite --html" in " ".join(said.split())
        assert "--device {auto,cuda,cpu}" in said


# In a complaint the option has all its names.
STEPS_OF = {"training.py": "--steps/--batches"}
REFUSED_BY_ALL = {
    ("--steps", "0"): "argument --steps: give a whole number, 1 or more, not 0",
    ("--steps", "-1"): "argument --steps: give a whole number, 1 or more, not -1",
    ("--steps", "many"): "argument --steps: give a whole number, 1 or more, not many",
    ("--device", "cuda"): "argument --device: torch sees no GPU here that CUDA can use",
    ("--device", "tpu"): "argument --device: invalid choice: 'tpu'",
}


def test_each_refuses_what_cannot_be_in_one_line(operation_named):
    calls = [
        (path.name, *operation_named(path), *words) for path in PROGRAMS for words in REFUSED_BY_ALL
    ]
    for call, (code, said, error) in zip(calls, run_with(calls), strict=True):
        complaint = REFUSED_BY_ALL[call[-2:]].replace("--steps", STEPS_OF.get(call[0], "--steps"))
        assert (code, said) == (2, ""), call
        assert complaint in error.splitlines()[-1]
        assert error.count("error:") == 1


REFUSED = {
    ("add.py", "--sizes", "8", "0"): (2, "argument --sizes: give a whole number, 1 or more, not 0"),
    ("sleep.py", "--milliseconds", "-1"): (2, "give milliseconds, such as 20 or 0.5, not -1"),
    ("sleep.py", "--milliseconds", "nan"): (2, "give milliseconds, such as 20 or 0.5, not nan"),
    ("low_precision.py", "--size", "17"): (2, "float8 needs 16 to divide it"),
    ("training.py", "--slow", "8"): (2, "of 8 batches, the last is 7"),
    ("training.py", "--workers", "-1"): (2, "give a whole number, 0 or more, not -1"),
    ("cdist.py", "--size", "100000000"): (1, "cdist.py: error: too large for this machine: "),
    # Three threads wait for each other: one that fails may not leave the others waiting.
    ("threads.py", "--dim", "100000000"): (1, "threads.py: error: too large for this machine: "),
}


def test_sizes_that_cannot_be_are_told_in_one_line():
    pytest.importorskip("torch")
    told = zip(REFUSED.items(), run_with(list(REFUSED)), strict=True)
    for (call, (code, complaint)), (status, _, error) in told:
        assert status == code, call
        assert complaint in error.splitlines()[-1]
        assert "Traceback" not in error


def test_a_type_that_an_operation_does_not_take_is_refused():
    """It would run all the same, and be wrong: of float16 the steps are rounded away."""
    for name in ("torch", "triton"):
        pytest.importorskip(name)
    ((status, _, said),) = run_with([("versions.py", "divergence", "--dtype", "float16")])
    assert status == 2
    assert said.endswith("error: divergence does not take float16: float32\n")
