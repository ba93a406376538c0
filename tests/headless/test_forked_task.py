"""Functions in processes of their own: what they return, and that they end with their parent."""

import os
import signal
import subprocess
import sys
import time

import pytest

from traceview.kernels.headless.worker.forked_task import ForkedTask, cores

# It begins a task that begins a program, as Triton begins ptxas, and says who they are.
PARENT = """
import os, subprocess, sys, time
from traceview.kernels.headless.worker.forked_task import ForkedTask

def task():
    program = subprocess.Popen(["sleep", "600"])
    os.write(3, f"{os.getpid()} {program.pid}\\n".encode())
    program.wait()

os.dup2(1, 3)
ForkedTask(lambda: None).result(60)
ForkedTask(task), ForkedTask(lambda: time.sleep(600))
time.sleep(600)
"""


def test_the_result_of_a_function():
    assert ForkedTask(lambda: {"a": [1]}).result(60) == {"a": [1]}


def test_a_crash_and_a_hang_are_told_apart():
    with pytest.raises(ChildProcessError):
        ForkedTask(lambda: os.kill(os.getpid(), signal.SIGKILL)).result(60)
    with pytest.raises(TimeoutError):
        ForkedTask(lambda: time.sleep(600)).result(0.1)


def test_a_task_and_its_program_end_with_a_parent_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    with parent:
        pids = [int(each) for each in parent.stdout.readline().split()]
        parent.kill()
        # Its end is the end of all that hold the pipe open.
        assert parent.stdout.read() == ""
    assert len(pids) == 2
    assert not any(map(_lives, pids))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="pins to a core")
def test_a_process_pinned_to_one_core_has_one():
    def pinned() -> int:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        return cores()

    assert ForkedTask(pinned).result(60) == 1
    assert cores() == len(os.sched_getaffinity(0))


def _lives(pid: int) -> bool:
    """Whether a process runs: one that nobody has waited for is a zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")
