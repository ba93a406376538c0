"""A program as a fork of a Python that has imported Triton and PyTorch, as that takes 2 s.

Where no fork can stand in, on a Mac or without Triton or PyTorch, it starts afresh.
"""

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from tests.headless.forked_workers import Fork, ForkServer

_SCRIPT = Path(__file__).with_name("script_in_fork.py")
# Those of it that the server does not import anyway.
_PACKAGES = ("nvtx", "torch._dynamo")
# What Triton and PyTorch read as they are imported, so that each value has a Python of its own.
_READ_AT_IMPORT = ("TRITON_INTERPRET", "OMP_NUM_THREADS")


def run_python(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    given: str = "",
    folder: Path,
    timeout_s: float,
) -> "subprocess.CompletedProcess[str]":
    """Run the text of a program in a folder, with `given` as its input."""
    if not _can_fork():
        command = [sys.executable, "-c", program, *arguments]
        options = {"capture_output": True, "text": True, "timeout": timeout_s}
        return subprocess.run(command, input=given, env=environment, cwd=folder, **options)
    server = _server(*(environment.get(name) for name in _READ_AT_IMPORT))
    with TemporaryFile("w+") as source, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        source.write(given)
        source.flush()
        source.seek(0)
        streams = [file.fileno() for file in (source, out, err)]
        program = f"import sys; sys.path.insert(0, '')\n{program}"
        with contextlib.chdir(folder):
            status = server.fork(program, arguments, dict(environment), streams).wait(timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([program], status, out.read(), err.read())


def start_script(
    command: Sequence[str], environment: Mapping[str, str], streams: Sequence[int] = (0, 1, 2)
) -> "subprocess.Popen[bytes] | Fork":
    """Start `python SCRIPT [ARGS...]` here, in a session of its own, on these descriptors.

    It takes none of the time of its imports of PyTorch and of torch.compile, which hooks see.
    """
    if not _can_fork():
        source, out, err = streams
        options = {"env": environment, "start_new_session": True}
        return subprocess.Popen(command, stdin=source, stdout=out, stderr=err, **options)
    return _server_of_scripts().fork(_SCRIPT.read_text(), command, dict(environment), streams)


def run_script(
    command: Sequence[str], environment: Mapping[str, str], *, folder: Path, timeout_s: float = 300
) -> "subprocess.CompletedProcess[str]":
    """Run `python SCRIPT [ARGS...]` in a folder, as `start_script` does."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err, Path(os.devnull).open() as none:
        streams = [file.fileno() for file in (none, out, err)]
        with contextlib.chdir(folder):
            status = start_script(command, environment, streams).wait(timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


@cache
def _can_fork() -> bool:
    return sys.platform == "linux" and all(map(find_spec, ("torch", "triton")))


@cache
def _server_of_scripts() -> ForkServer:
    packages = [name for name in _PACKAGES if find_spec(name)]
    server = ForkServer("scripts", _server(*(None for _ in _READ_AT_IMPORT)), packages)
    # Not with the environment of a script, which may ask for hooks.
    server.connect({k: v for k, v in os.environ.items() if k not in _READ_AT_IMPORT})
    atexit.register(_leave_and_wait, server)
    return server


def _leave_and_wait(server: ForkServer) -> None:
    """End a server that is a fork itself: before `_stop`, as the other one reports its end."""
    server.leave()
    server.wait()


@cache
def _server(*read: str | None) -> ForkServer:
    _servers.append(ForkServer(f"python-{read}"))
    return _servers[-1]


_servers: list[ForkServer] = []


@atexit.register
def _stop() -> None:
    """Leave all before waiting for one, for which another process may wait, too."""
    for server in _servers:
        server.leave()
    for server in _servers:
        server.wait()
