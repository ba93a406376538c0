"""Recording for real, under an nsys that needs no GPU, and under ones that fail."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.recorders import fake_nsys
from tests.recorders.fake_nsys import leftovers, traceview
from traceview.api import recordings as api
from traceview.base.version import __version__
from traceview.render.report.document import header_facts
from traceview.traces.recorders.nsys import incompatibility, probe
from traceview.traces.reporting import analyze
from traceview.traces.trace.load import load

SCRIPT = """
import os, sys, time
import nvtx
with nvtx.annotate("step_0"):
    with nvtx.annotate("forward"):
        time.sleep(0.01)
print("said", sys.argv[1:], sys.stdin.read(), os.environ["SECRET_TOKEN"], os.getcwd())
sys.exit(3)
"""
ENDLESS = """
import pathlib, time
import nvtx
for step in range(600):
    with nvtx.annotate(f"step_{step}"):
        time.sleep(0.05)
    if step == 3:
        pathlib.Path("running").touch()
"""
QUOTED = 'it\'s "q"'
SECRET = "hunter2-\u00fcber-secret"
# A signal that a background shell had ignored for its children would stay ignored.
INTERRUPTIBLE = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('traceview', run_name='__main__', alter_sys=True)"
)


@pytest.fixture(scope="module")
def environment(nsys):
    """Of a user called alice, with a secret, where nsys works."""
    try:
        if told := incompatibility(version("nvtx"), probe(nsys)):
            pytest.skip(told)
    except PackageNotFoundError:
        pytest.skip("nvtx is not installed: pip install 'nvtx<0.2.12'")
    return {
        **os.environ,
        "TRACEVIEW_NSYS": str(nsys),
        "SECRET_TOKEN": SECRET,
        "HOME": "/home/alice",
        "PYTHONIOENCODING": "utf-8",
    }


@pytest.fixture(scope="module")
def recorded(environment, tmp_path_factory):
    """One recording that many tests look at: the folder, and how the command ended."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(SCRIPT)
    words = (
        "record",
        "--keep-rep",
        "--no-source-lines",
        "train.py",
        "a b",
        QUOTED,
        "--force",
        SECRET,
    )
    return folder, traceview(*words, cwd=folder, environment=environment, given="from stdin")


def rows(path, query):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def ranges(path):
    named = "SELECT coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s"
    found = rows(path, f"{named} ON s.id = n.textId WHERE n.eventType = 59 ORDER BY n.start")
    return [name for (name,) in found]


def run_table(path):
    return dict(rows(path, "SELECT name, value FROM TRACEVIEW_RUN"))


def test_the_exit_status_is_the_scripts(recorded):
    _, done = recorded
    assert done.returncode == 3, done.stderr
    assert "exit status 3; its trace is kept" in done.stderr
    assert done.stderr.endswith("Wrote train.sqlite\n")


def test_arguments_input_environment_and_folder_pass_through(recorded):
    folder, done = recorded
    said = f"said {['a b', QUOTED, '--force', SECRET]!r}"
    assert f"{said} from stdin {SECRET} {folder}" in done.stdout


def test_the_ranges_are_there(recorded):
    assert ranges(recorded[0] / "train.sqlite") == ["step_0", "forward"]


def test_the_exact_command_is_printed(recorded):
    _, done = recorded
    assert " profile --trace=cuda,nvtx,cublas " in done.stderr
    assert "train.py 'a b' 'it'\"'\"'s \"q\"' --force" in done.stderr


def test_the_summary_is_printed(recorded):
    assert "More: --all every table" in recorded[1].stdout


def test_the_run_is_described(recorded, nsys):
    facts = run_table(recorded[0] / "train.sqlite")
    assert facts["traceview_version"] == __version__
    assert facts["command_line"].startswith("train.py 'a b'")
    assert facts["command_line"].endswith("--force '(removed)'")
    assert facts["exit_status"] == "3"
    assert facts["nvtx"] == version("nvtx")
    assert (
        facts["nsys_version"]
        in subprocess.run([nsys, "--version"], capture_output=True, text=True).stdout
    )
    assert "profile --trace=" in facts["nsys_command"]


@pytest.mark.programs
def test_the_state_of_the_gpu_before_and_after_is_in_the_recording(environment, tmp_path):
    fake_nsys.script(tmp_path / "bin/nvidia-smi", fake_nsys.SMI)
    (tmp_path / "quick.py").write_text("import nvtx\nwith nvtx.annotate('step_0'):\n    pass\n")
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "0"}
    done = traceview("record", "quick.py", cwd=tmp_path, environment={**environment, **path})
    assert done.returncode == 0, done.stderr
    facts = run_table(tmp_path / "quick.sqlite")
    assert facts["temperature_c_before"] == facts["temperature_c_after"] == "41"
    assert facts["clock_reasons_after"] == "0x0000000000000000"
    assert facts["other_processes_before"] == "1"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_nothing_tells_of_the_user(recorded, encoding):
    content = (recorded[0] / "train.sqlite").read_bytes()
    for private in (SECRET, "SECRET_TOKEN", "alice", "from stdin"):
        assert private.encode(encoding) not in content


def test_the_kept_report_is_whole(recorded):
    report = recorded[0] / "train.nsys-rep"
    assert report.stat().st_size > 0
    assert "train.nsys-rep (contains the environment)" in recorded[1].stderr


def test_nothing_else_is_left(recorded):
    found = {path.name for path in recorded[0].iterdir()}
    assert found == {"train.py", "train.sqlite", "train.nsys-rep"}


@pytest.mark.programs
def test_the_environment_stays_if_asked_for(environment, tmp_path):
    words = ("--keep-env", "--backtrace", "none", "-o", "x.sqlite", "sh", "-c", "exit 0")
    done = fake_nsys.recording("record", *words, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert SECRET.encode() in (tmp_path / "x.sqlite").read_bytes()


@pytest.mark.parametrize("present", ["train.sqlite", "train.nsys-rep"])
def test_nothing_is_overwritten_and_the_script_does_not_run(environment, tmp_path, present):
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    (tmp_path / present).write_text("precious")
    words = ("record", "--keep-rep", "train.py")
    done = traceview(*words, cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{present} exists already; pass --force" in done.stderr
    assert (tmp_path / present).read_text() == "precious"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.py",), "script missing.py does not exist"),
        (("-o", "no/such/x.sqlite", "sh"), "folder no/such does not exist"),
        (("-o", ".", "sh"), "is a folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(environment, tmp_path, words, said):
    done = traceview("record", *words, cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


class Interrupted:
    """A recording of an endless script, in a group of its own as under a terminal."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        (folder / "endless.py").write_text(ENDLESS)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "record", "endless.py"],
            cwd=folder,
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._wait_until_it_runs()

    def _wait_until_it_runs(self) -> None:
        end = time.monotonic() + 300
        while not (self.folder / "running").exists() and time.monotonic() < end:
            time.sleep(0.02)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        os.killpg(self.process.pid, number)

    def finish(self) -> str:
        output, _ = self.process.communicate(timeout=300)
        return output


@pytest.mark.programs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_recorded(environment, tmp_path, number):
    recording = Interrupted(tmp_path, environment)
    recording.interrupt(number)
    output = recording.finish()
    assert recording.process.returncode == 128 + number, output
    assert "interrupted; the trace ends there" in output
    assert ranges(tmp_path / "endless.sqlite")[:3] == ["step_0", "step_1", "step_2"]
    assert run_table(tmp_path / "endless.sqlite")["exit_status"] == str(128 + number)
    assert leftovers(tmp_path) == []


@pytest.mark.programs
def test_a_second_interrupt_gives_up_and_leaves_nothing(environment, tmp_path):
    recording = Interrupted(tmp_path, environment)
    recording.interrupt()
    time.sleep(0.1)
    recording.interrupt()
    output = recording.finish()
    assert recording.process.returncode == 130, output
    assert "recording aborted; nothing was written" in output
    assert {path.name for path in tmp_path.iterdir()} == {"endless.py", "running"}


@pytest.mark.programs
def test_too_new_an_nvtx_is_told_before_the_run(environment, tmp_path):
    if (
        "2023.4"
        not in subprocess.run(
            [environment["TRACEVIEW_NSYS"], "--version"], capture_output=True, text=True
        ).stdout
    ):
        pytest.skip("this nsys records the ranges of new nvtx packages")
    described = tmp_path / "site" / "nvtx-0.2.17.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: nvtx\nVersion: 0.2.17\n")
    (tmp_path / "train.py").write_text("print('now it runs')")
    found = {**environment, "PYTHONPATH": str(described.parent)}
    done = traceview("record", "--backtrace", "none", "train.py", cwd=tmp_path, environment=found)
    assert done.returncode == 0, done.stderr
    assert "warning: nvtx 0.2.17 records no ranges under nsys 2023.4" in done.stderr
    assert "pip install 'nvtx<0.2.12'" in done.stderr
    assert run_table(tmp_path / "train.sqlite")["nvtx"] == "0.2.17"


@pytest.mark.programs
def test_a_range_bounds_what_nsys_records(environment, tmp_path):
    program = """
import nvtx
for number in range(4):
    with nvtx.annotate(f"part_{number}", domain="program"), nvtx.annotate("inner"):
        sum(range(100_000))
print("the end")
"""
    (tmp_path / "train.py").write_text(program)
    words = ("record", "--backend", "nsys", "--range", "part_2", "train.py")
    done = fake_nsys.recording(*words, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "the end" in done.stdout
    names = load(tmp_path / "train.sqlite").ranges.texts("name").decode()
    assert names.tolist() == ["part_2", "inner"]


@pytest.mark.programs
def test_a_range_that_never_comes_is_one_line(environment, tmp_path):
    (tmp_path / "train.py").write_text("print('the end')\n")
    words = ("record", "--backend", "nsys", "--range", "nobody", "train.py")
    done = fake_nsys.traceview(*words, cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    assert "opened no NVTX range named 'nobody'" in done.stderr.splitlines()[-1]
    assert leftovers(tmp_path) == []


LOUD = """
import nvtx, time
end = time.time() + 5
while time.time() < end:
    for _ in range(200):
        nvtx.end_range(nvtx.start_range("often"))
"""


@pytest.mark.programs
def test_a_long_program_runs_on_when_enough_is_recorded(nsys, tmp_path, monkeypatch):
    pytest.importorskip("nvtx")
    monkeypatch.setenv("TRACEVIEW_NSYS", str(nsys))
    monkeypatch.setattr("traceview.traces.recorders.nsys.RAW_BYTES", 2_000_000)
    monkeypatch.chdir(tmp_path)
    script, said = tmp_path / "loud.py", []
    script.write_text(LOUD + "open('ended', 'w')")

    recorded = api.record(str(script), note=said.append)

    trace = load(recorded.path)
    assert (recorded.exit_status, (tmp_path / "ended").exists()) == (0, True)
    assert any(line.startswith("recorded the first ") for line in said)
    assert 0 < int(trace.run["first_s"]) < 5
    assert not trace.warnings
    ranges = trace.table("ranges")
    assert ranges["end_ns"].max() - ranges["start_ns"].min() < 4.5e9
    assert trace.table("python_samples")["time_ns"].max() < 4.5e9
    duration = dict(header_facts(analyze(trace).trace))["duration"]
    assert duration.endswith("s, the program ran on")


RUNS_ON = """
import pathlib
import nvtx
try:
    while True:
        for _ in range(200):
            nvtx.end_range(nvtx.start_range("often"))
except KeyboardInterrupt:
    pathlib.Path("interrupted").touch()
"""
BOUNDED = """
import signal
from traceview.api import recordings
from traceview.traces.recorders import nsys
signal.signal(signal.SIGINT, signal.default_int_handler)
nsys.RAW_BYTES = 1_000_000
found = recordings.record("runs_on.py", note=lambda line: print(line, flush=True))
print(found.exit_status, found.interrupted)
"""


@pytest.mark.programs
def test_an_interrupt_reaches_a_program_that_runs_on(nsys, tmp_path):
    """nsys, once stopped, passes no signal on."""
    pytest.importorskip("nvtx")
    (tmp_path / "runs_on.py").write_text(RUNS_ON)
    process = subprocess.Popen(
        [sys.executable, "-c", BOUNDED],
        cwd=tmp_path,
        env={**os.environ, "TRACEVIEW_NSYS": str(nsys)},
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(tmp_path.glob(".*/recording.nsys-rep")):
        time.sleep(0.2)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)

    assert said.endswith("130 True\n")
    assert "let the program run on" in said
    assert (tmp_path / "interrupted").exists()
