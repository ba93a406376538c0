"""Real programs recorded by torch.profiler on the CPU: how they run, end and are bounded."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

import traceview
from tests.headless.forked_python import run_python, run_script, start_script
from tests.places import REPOSITORY
from tests.recorders import fake_nsys
from tests.recorders import torch_programs as programs
from traceview import analyze, cli
from traceview.traces.recorders import nsys, torch_recording
from traceview.traces.recorders.injected.traceview_injected.torch_profile.session import TRACE
from traceview.traces.recorders.options import RecordOptions
from traceview.traces.trace.schema import OPERATORS

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.programs


def without_nsys() -> dict[str, str]:
    """The environment, in which nsys is not found."""
    return {**os.environ, "TRACEVIEW_NSYS": "/nowhere/nsys"}


@pytest.fixture
def record(tmp_path, monkeypatch, capfd):
    """Record a program by the command line, in this process; returns that and the output's path.

    The program is a fork of a Python that has imported PyTorch, which the hooks do not notice.
    """
    monkeypatch.setattr(nsys, "subprocess", Forking())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEVIEW_NSYS", "/nowhere/nsys")

    def run(program, *options, backend="torch"):
        (tmp_path / "train.py").write_text(program)
        words = ["record", "--backend", backend, *options, "train.py"]
        status = cli.run(words)
        done = subprocess.CompletedProcess(words, status, *capfd.readouterr())
        assert not list(tmp_path.glob(".traceview-*"))
        return done, tmp_path / "train.sqlite"

    return run


class Forking:
    """As much of `subprocess` as a recording takes; Python runs scripts in forks."""

    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def Popen(command, process_group, env):  # noqa: N802
        assert process_group == 0
        return start_script(command, env)


def own_ranges(trace):
    """Name, domain and kind of the ranges that are no operators, in order of time."""
    rows = [row for row in trace.ranges.rows() if row["domain"] != OPERATORS]
    rows.sort(key=lambda row: row["start_ns"])
    return [
        (row["name"], row["domain"], row["kind"])
        for row in rows
        if not row["name"].startswith("Optimizer.")
    ]


def in_program(program, folder, options):
    """Run a program with the hooks alone. Returns the folder of what it left."""
    gathered = folder / "gathered"
    gathered.mkdir()
    script = folder / "program.py"
    script.write_text(program)
    added = torch_recording._environment(options, gathered, has_gpu=False)
    done = run_script([sys.executable, str(script)], {**os.environ, **added}, folder=folder)
    assert done.returncode == 0, done.stderr
    return gathered


@pytest.fixture(scope="module")
def exited(tmp_path_factory):
    """A program that ends with status 3, recorded by the backend that is found, with secrets."""
    folder = tmp_path_factory.mktemp("exited")
    (folder / "train.py").write_text(programs.EXITS)
    secret = {**without_nsys(), "API_TOKEN": "hunter2-hunter2"}
    words = ("record", "train.py", "--token", "hunter2-hunter2")
    return fake_nsys.traceview(*words, cwd=folder, environment=secret), folder / "train.sqlite"


def run_plainly(program):
    """The output of a program that is not recorded."""
    done = run_python(program, [], os.environ, folder=REPOSITORY, timeout_s=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tables_hold_what_kineto_wrote(tmp_path):
    pytest.importorskip("nvtx")
    gathered = in_program(programs.RANGES, tmp_path, RecordOptions())
    events = json.loads((gathered / TRACE).read_text())["traceEvents"]
    kineto = [e for e in events if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation")]
    torch_recording.write_recording(
        gathered, tmp_path / "t.sqlite", {}, folders=(), source_lines=False, keep_env=False
    )
    trace = traceview.load(tmp_path / "t.sqlite")
    assert len(trace.ranges) == len(kineto) > 300
    operators = Counter(e["name"] for e in kineto if e["name"].startswith("aten::"))
    names = trace.ranges.texts("name").decode()
    assert Counter(name for name in names if name.startswith("aten::")) == operators
    nanoseconds = sum(round(e["dur"] * 1000) for e in kineto)
    assert int(trace.ranges.duration_ns.sum()) == nanoseconds
    assert len(own_ranges(trace)) == sum("traceview:nvtx:" in e["name"] for e in kineto)


def test_ranges_of_torch(record):
    done, path = record(programs.TORCH_NVTX)
    assert done.returncode == 0, done.stderr
    assert own_ranges(traceview.load(path)) == [
        ("outer 1", None, "push-pop"),
        ("inner", None, "push-pop"),
        ("free", None, "start-end"),
        ("moment", None, "mark"),
    ]


def test_steps_samples_and_the_run_are_there(record):
    program = f"{programs.MODEL}\nimport time\nfor _ in range(40): step()\ntime.sleep(3)\nstep()\n"
    done, path = record(program, "--annotate", "auto", "--python-samples", "--shapes")
    assert done.returncode == 0, done.stderr
    trace = traceview.load(path)
    assert trace.recorder == "torch.profiler"
    assert trace.run["backend"] == "torch"
    assert trace.run["torch"] == trace.recorder_version == torch.__version__
    assert trace.run["command_line"] == "train.py"
    report = analyze(trace)
    assert [name for name, _, _ in own_ranges(trace)].count("optimizer") == 41
    # No optimizer worked in the step that began after the last one.
    assert report.verdict.steps == 41
    frames = trace.table("python_frames")
    sources = set(frames.texts("source").decode())
    assert "time.sleep(3)" in sources
    assert any("sizes = [[" in str(name) for name in trace.ranges.texts("name").values)
    times = trace.table("python_samples")["time_ns"]
    assert 0 <= times.min() <= times.max() <= trace.ranges["end_ns"].max()
    assert report["steps"].summary["steps_from"] == "added-ranges"
    # Without a GPU the rest says how it is recorded, and nothing is wrong.
    assert report["kernel-share"].remedy
    assert torch.cuda.is_available() or not report.findings


def test_a_program_that_compiles_nothing_does_not_import_the_compiler(record, monkeypatch):
    monkeypatch.setattr(nsys, "subprocess", subprocess)
    seen = "print('torch._inductor' in sys.modules, torch._inductor.config is not None)"
    done, path = record(f"{programs.GRADIENTS}\nstep()\n{seen}\n")
    assert done.stdout.startswith("False True\n"), done.stderr
    assert traceview.load(path).ranges.texts("name").isin(["aten::linear"]).sum() == 2


def test_a_program_that_exits_is_recorded(exited):
    assert_failed(*exited, 3)


@pytest.mark.parametrize(
    ("program", "status"),
    [(programs.RAISES, 1), (programs.LEAVES, 4)],
    ids=["raises", "os._exit"],
)
def test_a_program_that_fails_is_recorded(record, program, status):
    assert_failed(*record(program), status)


def assert_failed(done, path, status):
    assert done.returncode == status
    assert f"the script failed with exit status {status}; its trace is kept" in done.stderr
    assert ("on purpose" in done.stderr) == (status == 1)
    trace = traceview.load(path)
    assert trace.run["exit_status"] == str(status)
    assert trace.ranges.texts("name").isin(["aten::linear"]).sum() == 2


def test_workers_and_subprocesses_run_as_without_recording(record):
    done, path = record(programs.WORKERS)
    assert done.returncode == 0, done.stderr
    # What the subprocess prints is known.
    plain = run_plainly(
        programs.WORKERS.replace(programs.CHILD, "print('tensor(3.)')")
    ).splitlines()
    assert [line for line in done.stdout.splitlines() if line in plain] == plain
    assert len(plain) == 5
    trace = traceview.load(path)
    assert len(trace.processes) == 1
    assert trace.ranges.texts("name").isin(["aten::linear"]).sum() == 8


def test_compiled_programs_compute_the_same(record):
    pytest.importorskip("nvtx")
    done, path = record(programs.COMPILED, "--annotate", "auto")
    assert done.returncode == 0, done.stderr
    # The script that was recorded, in a fork of a Python that has imported torch.compile.
    plain = run_script([sys.executable, "train.py"], os.environ, folder=path.parent)
    assert (plain.returncode, bool(plain.stdout)) == (0, True), plain.stderr
    assert done.stdout.startswith(plain.stdout)
    assert [name for name, _, _ in own_ranges(traceview.load(path))].count("backward") == 3


def test_a_profiler_of_the_program_ends_the_recording(record):
    done, path = record(programs.OWN_PROFILER)
    assert done.returncode == 0, done.stderr
    assert "events True" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "torch.profiler itself" in line]
    assert len(lines) == 1
    trace = traceview.load(path)
    assert trace.ranges.texts("name").isin(["aten::linear"]).sum() == 2


def test_auto_says_which_backend_and_why(exited):
    done, path = exited
    chosen = [line for line in done.stderr.splitlines() if "recording with" in line]
    assert len(chosen) == 1
    assert "recording with torch.profiler, since" in chosen[0]
    assert "nsys" in chosen[0]
    assert path.exists()


def test_auto_does_not_ignore_options_of_nsys(record):
    done, path = record(programs.EXITS, "--gpu-metrics", backend="auto")
    assert done.returncode == 1
    assert "nsys" in done.stderr
    assert not path.exists()


def test_private_values_are_not_in_the_file(exited):
    assert b"hunter2" not in exited[1].read_bytes()


def test_steps_bound_the_recording(record):
    done, path = record(programs.STEPS, "--steps", "2:4")
    assert done.returncode == 0, done.stderr
    trace = traceview.load(path)
    names = [name for name, domain, _ in own_ranges(trace) if domain == "traceview"]
    assert [name for name in names if name.startswith("step_")] == ["step_2", "step_3"]
    assert trace.ranges.texts("name").isin(["aten::linear"]).sum() == 4
    assert trace.run["steps"] == "2:4"


def test_a_range_bounds_the_recording(record):
    pytest.importorskip("nvtx")
    done, path = record(programs.RANGES, "--range", "mine_3", "--annotate", "off")
    assert done.returncode == 0, done.stderr
    trace = traceview.load(path)
    assert own_ranges(trace) == [("mine_3", "program", "push-pop")]
    assert trace.ranges.texts("name").isin(["aten::linear"]).sum() == 2


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        (programs.STEPS, ("--steps", "70:80"), "did not reach step 70"),
        (programs.RANGES, ("--range", "nobody"), "no NVTX range named 'nobody'"),
        (programs.NO_TORCH, (), "the program did not import torch"),
    ],
)
def test_nothing_recorded_is_one_line(record, program, options, message):
    done, path = record(program, *options)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert not path.exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--gpu-metrics",),
        ("--nsys-option=--delay=5",),
        ("--keep-rep",),
        ("--backtrace", "all"),
        ("--steps", "5"),
        ("--steps", "5:5"),
        ("--steps", "1:2", "--range", "x"),
    ],
)
def test_misuse_exits_with_2(tmp_path, monkeypatch, options):
    (tmp_path / "train.py").write_text(programs.EXITS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEVIEW_NSYS", "/nowhere/nsys")
    assert cli.run(["record", "--backend", "torch", *options, "train.py"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
