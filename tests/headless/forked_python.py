"""A program as a fork of a Python that has imported Triton and PyTorch, as that takes 2 s.

Where no fork can stand in, on a Mac or without Triton or PyTorch, it starts afresh.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import traceview
from tests.headless.forked_workers import Fork, ForkServer

_SCRIPT = Path(__file__).with_name("script_in_fork.py")
# Besides those of traceview, PyTorch and Triton.
_MODULES = ("nvtx", "torch._dynamo")
# What Triton reads as it is imported, so that each value has a Python of its own.
_INTERPRET = "TRITON_INTERPRET"


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
    server = _server(environment.get(_INTERPRET))
    program = f"import sys; sys.path.insert(0, '')\n{program}"
    with _streams(given) as (files, streams):
        with contextlib.chdir(folder):
            status = server.fork(program, arguments, dict(environment), streams).wait(timeout_s)
        return subprocess.CompletedProcess([program], status, *map(_written, files))


def start_script(
    command: Sequence[str], environment: Mapping[str, str], streams: Sequence[int] = (0, 1, 2)
) -> "subprocess.Popen[bytes] | Fork":
    """Start `python SCRIPT` or `-m MODULE` here, in a session of its own, on these descriptors.

    Its imports of traceview, PyTorch and torch.compile take no time; hooks see those of PyTorch.
    """
    if not _can_fork():
        source, out, err = streams
        options = {"env": environment, "start_new_session": True, "preexec_fn": _own_terminal}
        return subprocess.Popen(command, stdin=source, stdout=out, stderr=err, **options)
    return _server_of_scripts().fork(_SCRIPT.read_text(), command, dict(environment), streams)


def _own_terminal() -> None:
    """Make the terminal of stdin, if it is one, that of this session."""
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def run_script(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    given: str = "",
    timeout_s: float = 300,
) -> "subprocess.CompletedProcess[str]":
    """Run `python SCRIPT` or `python -m MODULE` in a folder, as `start_script` does."""
    with _streams(given) as (files, streams):
        with contextlib.chdir(folder):
            status = start_script(command, environment, streams).wait(timeout_s)
        return subprocess.CompletedProcess(command, status, *map(_written, files))


@contextlib.contextmanager
def _streams(given: str) -> Iterator[tuple[Sequence[IO[str]], Sequence[int]]]:
    """Files for stdout and stderr, and the descriptors of the three standard streams."""
    with TemporaryFile("w+") as source, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        source.write(given)
        source.flush()
        source.seek(0)
        yield (out, err), [file.fileno() for file in (source, out, err)]


def _written(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


@cache
def _can_fork() -> bool:
    return sys.platform == "linux" and all(map(find_spec, ("torch", "triton")))


def _modules_of_traceview() -> Iterator[str]:
    """All that are not run as programs or in recorded ones."""
    folder = Path(traceview.__file__).parent
    for path in folder.rglob("*.py"):
        if path.name != "__main__.py" and "injected" not in path.parts:
            parts = path.relative_to(folder.parent).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__")


@cache
def _server_of_scripts() -> ForkServer:
    modules = [*filter(find_spec, _MODULES), *_modules_of_traceview()]
    server = ForkServer("scripts", _server(None), modules)
    # Not with the environment of a script, which may ask for hooks.
    server.connect({name: value for name, value in os.environ.items() if name != _INTERPRET})
    return server


@cache
def _server(interpret: str | None) -> ForkServer:
    return ForkServer(f"python-{interpret}")
