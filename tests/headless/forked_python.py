"""A program as a fork of a Python that has imported Triton and PyTorch, as that takes 2 s."""

import atexit
import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from tests.headless.forked_workers import ForkServer

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
    """Run the text of a program in a folder, with `given` as its input.

    It starts afresh where no fork can stand in: on a Mac, or without Triton or PyTorch.
    """
    if sys.platform != "linux" or not (find_spec("torch") and find_spec("triton")):
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
