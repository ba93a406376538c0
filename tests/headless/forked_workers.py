"""Workers of traceview as forks of a process that has imported Triton and PyTorch already.

The import takes 2 s of each worker, and is not what most tests are about. A worker whose
environment changes what Python or a library is at its start begins afresh, as one of a user does.
"""

import atexit
import errno
import json
import os
import select
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import pytest

from tests.headless.fork_server import NUMBER
from traceview.kernels.headless import client
from traceview.kernels.headless.compile_options import Request

_SERVER = Path(__file__).with_name("fork_server.py")
_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "TRITON", "CUDA", "XLA_")
_READ_LATER = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_DEFAULT_FP_FUSION"}
_DROPPED = {*client._UNSET, *_READ_LATER}
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
# What torch.compile imports at its first call, which takes 4 s.
_INDUCTOR = ("torch._inductor.compile_fx", "torch._inductor.codegen.triton")
# There its import starts threads, and none survives a fork.
_HAS_GPU = Path("/dev/nvidiactl").exists()

fresh_start = client._start


class Fork:
    """A fork with as much of `subprocess.Popen` as traceview.kernels.headless.client takes.

    Several threads may ask for its end, as one of them kills it at a deadline: what the fork
    reports is looked at, not taken.
    """

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, report: socket.socket) -> None:
        self._report = report
        self.pid: int = self._number(socket.MSG_WAITALL)
        # Not at the exit of Python, where those who stop the servers still wait.
        weakref.finalize(self, report.close).atexit = False

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._number(socket.MSG_PEEK) if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("a fork", timeout or 0)
        return self._number(socket.MSG_PEEK)

    def send_signal(self, number: int) -> None:
        """Send a signal to it, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _has_ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._report], [], [], timeout)[0])

    def _number(self, how: int) -> int:
        (number,) = NUMBER.unpack(self._report.recv(NUMBER.size, how))
        return number


class ForkServer:
    """The process that forks, by a name; all processes of a test run share it.

    It starts with the first fork of any of them, and with the environment of that. With a `parent`
    it is a fork itself, which imports some more modules.
    """

    def __init__(
        self, name: str, parent: "ForkServer | None" = None, modules: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._parent, self._modules = parent, modules
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | Fork | None = None
        _servers[parent is not None].append(self)

    def fork(
        self,
        program: str,
        arguments: Sequence[str],
        environment: dict[str, str],
        streams: Sequence[int],
    ) -> Fork:
        """Run a program in a fork; `streams` are the descriptors of its stdin, stdout, stderr."""
        self.connect(environment)
        assert self._requests
        ours, theirs = socket.socketpair()
        request = {
            "program": program,
            "arguments": arguments,
            "folder": str(Path.cwd()),
            "environment": environment,
        }
        with theirs:
            descriptors = [*streams, theirs.fileno()]
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        return Fork(ours)

    def connect(self, environment: dict[str, str]) -> None:
        """Connect, unless that was done; the environment is for a server that starts now."""
        if self._requests is None:
            self._requests = self._connected(environment)

    def leave(self) -> None:
        """Ask for no more forks: it ends when all have left."""
        if self._requests:
            self._requests.close()

    def wait(self) -> None:
        """Wait for its end, if this process has started it."""
        if self._process:
            self._process.wait()

    def _address(self) -> str:
        """In Linux' abstract namespace: no file is left."""
        return f"\0traceview-tests-{_run()}-{self._name}"

    def _connected(self, environment: dict[str, str]) -> socket.socket:
        while True:
            self._start_unless_there(environment)
            connection = _packets()
            # Refused between the two calls by which another process starts it.
            with suppress(ConnectionRefusedError):
                connection.connect(self._address())
                return connection
            connection.close()

    def _start_unless_there(self, environment: dict[str, str]) -> None:
        with _packets() as listener:
            try:
                listener.bind(self._address())
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                return
            listener.listen()
            self._process = self._started(listener, environment)

    def _started(
        self, listener: socket.socket, environment: dict[str, str]
    ) -> "subprocess.Popen[bytes] | Fork":
        """Start it with one thread, as another one would not survive a fork."""
        # Its text is given, not its file, as `__main__` has no file in a worker.
        program = _SERVER.read_text()
        environment = environment | dict.fromkeys(_THREADS, "1")
        if self._parent:
            streams = (listener.fileno(), 1, 2)
            return self._parent.fork(program, self._modules, environment, streams)
        command = [sys.executable, "-P", "-c", program, *self._modules]
        return subprocess.Popen(command, stdin=listener, env=environment, start_new_session=True)


_servers: tuple[list[ForkServer], list[ForkServer]] = [], []
"""Those of this process; the second ones are forks, whose end the first ones report."""


@atexit.register
def _stop() -> None:
    """Leave all before waiting for one, for which another process may wait, too."""
    for servers in reversed(_servers):
        for server in servers:
            server.leave()
        for server in servers:
            server.wait()


def _run() -> str:
    """The run of pytest, which the workers of pytest-xdist share."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


def _packets() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class WorkerServer:
    """It starts the workers of traceview; those of --compile have imported Inductor, too."""

    def __init__(self) -> None:
        self._eager = ForkServer("eager")
        self._compiling = ForkServer("compiling", self._eager, _INDUCTOR)
        self._at_start = _read_at_start()

    def start(
        self, command: list[str], folder: Path, request: Request
    ) -> "subprocess.Popen[bytes] | Fork":
        """Start a worker in place of traceview.kernels.headless.client._start."""
        is_alike = _read_at_start() == self._at_start and not request.triton
        has_threads = _HAS_GPU and request.options.compile_torch
        if command[:3] != [sys.executable, "-P", "-c"] or not is_alike or has_threads:
            return fresh_start(command, folder, request)
        (stdin, to_stdin), (from_stdout, stdout) = os.pipe(), os.pipe()
        environment = client._environment(folder, request)
        server = self._compiling if request.options.compile_torch else self._eager
        forked = server.fork(command[3], command[4:], environment, (stdin, stdout, 2))
        os.close(stdin)
        os.close(stdout)
        forked.stdin, forked.stdout = os.fdopen(to_stdin, "wb", 0), os.fdopen(from_stdout, "rb", 0)
        return forked


def _read_at_start() -> dict[str, str]:
    """What this process' environment tells Python and libraries when they start."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_AT_START) and name not in _DROPPED
    }


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Start the workers of all tests as forks, where there are Triton, PyTorch and Linux."""
    if sys.platform != "linux" or not (find_spec("torch") and find_spec("triton")):
        yield
        return
    server = WorkerServer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_start", server.start)
        yield


@pytest.fixture
def fresh_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each worker as a user's is: a Python that has imported nothing."""
    monkeypatch.setattr(client, "_start", fresh_start)
