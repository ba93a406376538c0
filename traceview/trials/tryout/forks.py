"""Runs as forks of a process that has imported the program's libraries, but not used CUDA.

It is run as `python forks.py MODULES`, with a socket as stdin, and imports nothing of traceview.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

_NUMBER = struct.Struct("i")
_MOST_BYTES = 1 << 16
_USABLE = 1
_STARTS_S = 120.0
_NO_CUDA = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With it, libraries that ask torch for a GPU as they are imported do not initialize CUDA."""


class Fork:
    """A run in progress, as much of `subprocess.Popen` as `Runs` takes."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        pid = _number(server)
        if pid is None:
            raise ChildProcessError("the process that forks has ended")
        self.pid = pid
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        if self._status is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
            status = _number(self._server)
            self._status = -signal.SIGKILL if status is None else status
        return self._status


class Forks:
    """The process that forks, for one run at a time. `modules` is a file of what it imports.

    It does so meanwhile: the first run waits for it.
    """

    def __init__(self, modules: Path, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (of the interpreter itself)
                [sys.executable, __file__, str(modules)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, _NO_CUDA: "1"},
                start_new_session=True,
            )
        self._is_usable = False

    def start(self, command: Sequence[str], output: IO[bytes]) -> Fork:
        """Run a Python file with its arguments; what it prints goes to `output`.

        Raises OSError where a fork would lack something, or the process has ended.
        """
        if not self._is_usable:
            has_told = bool(select.select([self._socket], [], [], _STARTS_S)[0])
            self._is_usable = has_told and _number(self._socket) == _USABLE
        if not self._is_usable:
            raise ChildProcessError("a fork would lack threads, or the GPU")
        socket.send_fds(self._socket, [json.dumps(command).encode()], [output.fileno()])
        return Fork(self._socket)

    def close(self) -> None:
        """End it."""
        self._socket.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _number(connection: socket.socket) -> int | None:
    told = connection.recv(_NUMBER.size)
    return int(_NUMBER.unpack(told)[0]) if told else None


# The process itself.


def main() -> None:
    """Import the modules of a file, then fork for each request until nobody asks any more."""
    folder = sys.path.pop(0)  # Its modules are not those of the program.
    client = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in json.loads(Path(sys.argv[1]).read_text("utf-8")):
        with suppress(Exception):
            import_module(name)
    os.environ.pop(_NO_CUDA, None)
    sys.path.insert(0, folder)
    client.send(_NUMBER.pack(_USABLE if _can_fork() else 0))
    gc.freeze()
    while True:
        request, outputs, *_ = socket.recv_fds(client, _MOST_BYTES, 1)
        if not request:
            return
        process = os.fork()
        if not process:
            os.setsid()
            client.send(_NUMBER.pack(os.getpid()))
            client.close()
            _become(json.loads(request), outputs[0])
        os.close(outputs[0])
        _, status = os.waitpid(process, 0)
        client.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _can_fork() -> bool:
    """Whether a fork has all that this process has: no thread is lost, and CUDA not begun."""
    process = os.fork()  # As a process forks, OpenBLAS ends its threads, which it starts anew.
    if not process:
        torch = sys.modules.get("torch")
        os._exit(int(torch is not None and torch.cuda._is_in_bad_fork()))
    _, status = os.waitpid(process, 0)
    opened = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened.append(str(each.readlink()))
    alone = len(list(Path("/proc/self/task").iterdir())) == 1
    return alone and not status and "/dev/nvidia-uvm" not in opened


def _become(arguments: list[str], output: int) -> NoReturn:
    """Become a Python that runs a file, but for the imports."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.argv = arguments
    status = 1
    try:
        import runpy

        runpy.run_path(arguments[0], run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0) if isinstance(ended.code, int | None) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
