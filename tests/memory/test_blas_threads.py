"""numpy without threads of its own, in a process that has not imported it yet."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from traceview.base.memory import import_numpy
import_numpy()
threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
print("numpy" in sys.modules, threads, os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def printed(**environment: str) -> list[str]:
    unset = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=unset | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_numpy_starts_no_thread_and_the_variable_does_not_stay() -> None:
    assert printed() == ["True", "1", "None"]


def test_a_number_of_threads_that_the_user_set_stays() -> None:
    assert printed(OPENBLAS_NUM_THREADS="3")[-1] == "3"
