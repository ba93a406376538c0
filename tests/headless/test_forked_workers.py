"""A forked worker does what one of a user does, which is a Python of its own."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.headless import forked_workers
from tests.headless.fork_server import NUMBER
from tests.places import TRITON_KERNELS
from traceview.base.errors import TraceviewError
from traceview.kernels.headless import client
from traceview.kernels.headless.compile_options import CompileOptions, Request
from traceview.kernels.inspect.python_targets import compile_python

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None,
    reason="runs a script that uses PyTorch and Triton",
)
# What could differ: modules, arguments, streams, the process' group, its threads, its environment.
TELLS = """\
import os, signal, sys, threading
known = sorted(sys.modules)
print(known, sys.argv, sys.path, sys.flags, sys.stdin.read(), __name__, os.getcwd())
print(os.getpid() == os.getpgid(0) == os.getsid(0), threading.active_count())
print([str(signal.getsignal(number)).partition(" at ")[0] for number in signal.valid_signals()])
print({name: value for name, value in os.environ.items() if "traceview-" not in value})
print(sorted(int(name) for name in os.listdir("/proc/self/fd")))
sys.exit("told")
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "script.py").write_text(TELLS)
    return str(tmp_path / "script.py")


def started_both_ways(monkeypatch):
    """Yield once with forked workers, once with fresh ones."""
    yield
    assert client._start != forked_workers.fresh_start
    monkeypatch.setattr(client, "_start", forked_workers.fresh_start)
    yield


@pytest.mark.programs
def test_a_script_cannot_tell_a_forked_worker_from_a_fresh_one(program, capfd, monkeypatch):
    said = []
    for _ in started_both_ways(monkeypatch):
        with pytest.raises(TraceviewError, match="exited with 'told'"):
            compile_python(program)
        said.append(capfd.readouterr().err)
    forked, fresh = said
    assert "'torch'" in forked
    assert forked == fresh


@pytest.mark.programs
def test_kernels_and_notes_are_the_same(capfd, monkeypatch):
    made = []
    for _ in started_both_ways(monkeypatch):
        monkeypatch.setenv("TRACEVIEW_CACHE_DIR", "")
        notes = []
        made.append((compile_python(str(TRITON_KERNELS / "gelu.py"), note=notes.append), notes))
    assert made[0] == made[1]
    assert made[0][0][0].cubin


@pytest.mark.programs
def test_an_environment_that_python_reads_at_its_start_needs_a_fresh_one(
    program, capfd, monkeypatch
):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with pytest.raises(TraceviewError):
        compile_python(program)
    assert "hash_randomization=0" in capfd.readouterr().err


def test_a_fork_that_is_killed_and_one_that_ends_by_itself(tmp_path, program):
    request = Request(program, None, "9.0", CompileOptions())

    def sleeping(seconds: str):
        text = "import sys, time; time.sleep(float(sys.argv[1]))"
        worker = client._start([sys.executable, "-P", "-c", text, seconds], tmp_path, request)
        worker.stdin.close()
        worker.stdout.close()
        return worker

    worker = sleeping("600")
    assert worker.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.01)
    os.killpg(worker.pid, signal.SIGKILL)
    assert worker.wait() == worker.poll() == -signal.SIGKILL
    assert [sleeping(each).wait() for each in ("0", "x")] == [0, 1]


def test_threads_that_wait_and_ask_at_once_are_told_the_same():
    for _ in range(100):
        ours, theirs = socket.socketpair()
        with theirs, ThreadPoolExecutor(4) as threads:
            theirs.send(NUMBER.pack(1))
            fork = forked_workers.Fork(ours)
            waiting = [threads.submit(fork.wait) for _ in range(4)]
            theirs.send(NUMBER.pack(-9))
            while fork.poll() is None:
                pass
            assert [each.result() for each in waiting] == [-9] * 4
