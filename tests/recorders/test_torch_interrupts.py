"""Recordings by torch.profiler that a signal ends."""

import os
import queue
import signal
import subprocess
import sys
import time

import pytest

import traceview
from tests.recorders import torch_programs as programs
from traceview.traces.recorders.nsys import StopSignals

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow


@pytest.mark.programs
def test_an_interrupt_keeps_what_was_recorded(tmp_path):
    (tmp_path / "train.py").write_text(programs.ENDLESS)
    words = [sys.executable, "-m", "traceview", "record", "--backend", "torch", "train.py"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "interrupted; the trace ends there" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py", "train.sqlite"]
    linear = traceview.load(tmp_path / "train.sqlite").ranges.texts("name").isin(["aten::linear"])
    assert linear.sum() >= 8


@pytest.mark.programs
def test_a_recording_in_the_background_of_a_script_ends_on_sigterm(tmp_path):
    # Where a shell has no job control, it starts `command &` with SIGINT ignored.
    (tmp_path / "train.py").write_text(programs.ENDLESS)
    words = f"{sys.executable} -m traceview record --backend torch train.py"
    script = f"{words} & echo $!; wait $!; echo ended $?"
    shell = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert shell.stdout
    recorder = int(shell.stdout.readline())
    assert shell.stdout.readline() == "running\n"
    os.kill(recorder, signal.SIGTERM)
    output, _ = shell.communicate(timeout=300)
    assert output.endswith("\nended 143\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py", "train.sqlite"]


IMPATIENT = (
    "from traceview.traces.recorders import job; job.PATIENCE_S = 1.0; "
    "from traceview.cli import main; main(['record', '--backend', 'torch', 'train.py'])"
)


@pytest.mark.programs
@pytest.mark.parametrize("program", [programs.DEAF, programs.DEAF_TO_ALL], ids=["INT", "all"])
def test_sigterm_ends_a_recording_in_bounded_time(tmp_path, program):
    (tmp_path / "train.py").write_text(program)
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    names = [path.name for path in tmp_path.iterdir()]
    if program == programs.DEAF:
        assert process.returncode == 143, errors
        assert sorted(names) == ["train.py", "train.sqlite"]
        trace = traceview.load(tmp_path / "train.sqlite")
        assert trace.ranges.texts("name").isin(["aten::linear"]).sum() >= 8
    else:
        assert process.returncode == 1, errors
        assert "nothing was recorded: the program was killed; exit status 137" in errors
        assert names == ["train.py"]


@pytest.mark.parametrize(("writes", "least_s"), [(False, 0.05), (True, 0.3)])
def test_a_recording_that_is_being_written_has_more_time(writes, least_s):
    sent = queue.Queue()

    # Not StopSignals itself, which threads of tests before this one may still use.
    class Told(StopSignals):
        def send(self, number):
            sent.put((number, time.monotonic()))

    requests = Told(0.05, is_writing=lambda: writes, running=[Sleeping()])
    started = time.monotonic()
    requests.take(signal.SIGTERM, None)
    for number, factor in ((signal.SIGTERM, 1), (signal.SIGKILL, 1.5)):
        was_sent, at = sent.get(timeout=60)
        assert was_sent == number
        assert at - started >= factor * least_s


class Sleeping:
    """A program that does not mind an interrupt."""

    def send_signal(self, number: int) -> None:
        assert number == signal.SIGINT
