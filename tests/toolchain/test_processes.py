"""Running external programs: results instead of exceptions, and the evidence of a failure."""

import signal
import sys
import time
from pathlib import Path

import pytest

from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.tools import ProcessResult, newest_first, run_process


def test_output_status_folder_and_environment(tmp_path):
    code = "import os; print(os.getcwd(), os.environ['ADDED']); raise SystemExit(3)"
    result = run_process([sys.executable, "-c", code], folder=tmp_path, environment={"ADDED": "1"})
    assert (result.status, result.ok) == (3, False)
    assert result.out == f"{tmp_path} 1\n"


def test_a_program_that_does_not_exist(tmp_path):
    result = run_process([tmp_path / "gone"])
    assert (result.status, result.timed_out) == (None, False)
    assert result.evidence == "it cannot run: No such file or directory"


def test_the_time_limit():
    result = run_process(["/bin/sleep", "60"], timeout_s=0.1)
    assert (result.status, result.timed_out) == (None, True)
    assert result.evidence == "it did not end within 0.1 s"


def test_what_a_program_started_ends_with_it_at_the_time_limit(tmp_path):
    command = ["/bin/sh", "-c", "sleep 60 & echo $! > child; wait"]
    assert run_process(command, timeout_s=1, folder=tmp_path).timed_out
    child = int((tmp_path / "child").read_text())
    given_up = time.monotonic() + 20
    while _is_running(child):
        assert time.monotonic() < given_up
        time.sleep(0.01)


def _is_running(process_id):
    try:
        return ") Z " not in Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("result", "evidence"),
    [
        (ProcessResult(-signal.SIGSEGV, "", "some text"), "it crashed (signal 11)"),
        (ProcessResult(1, "out", "note: 1\n  Error: disk full\n"), "Error: disk full"),
        (ProcessResult(1, "first\nsecond", "\n"), "first"),
        (ProcessResult(2, " \n", ""), "it printed nothing and exited with status 2"),
        (ProcessResult(1, "", "x" * 1000), "x" * tools.LONGEST_LINE),
    ],
)
def test_the_line_that_explains_a_failure(result, evidence):
    assert result.evidence == evidence


def test_version_numbers_are_compared_as_numbers(tmp_path):
    old, new = tmp_path / "cuda-12.9", tmp_path / "cuda-12.10"
    assert newest_first([old, new]) == [new, old]
