"""Asking a Python of its own: what it prints, as JSON by lines."""

import atexit
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from tests.headless.forked_workers import ForkServer
from tests.places import REPOSITORY

SECONDS = 600
Streams = tuple[int, int]


def python(*arguments: str, interpret: bool = True) -> list[Any]:
    """The JSON lines that `python ARGUMENTS` writes, run at the repository's root."""
    if interpret and release("triton") < (3, 7) and release("numpy") >= (2, 4):
        pytest.skip("the interpreter of Triton 3.6 runs no loop with numpy 2.4")
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpret))}
    run = _forked if interpret and sys.platform == "linux" else _started
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err, contextlib.chdir(REPOSITORY):
        status = run(arguments, environment, (out.fileno(), err.fileno()))
        out.seek(0)
        err.seek(0)
        assert status == 0, err.read()[-3000:]
        return [json.loads(line) for line in out]


def _started(arguments: Sequence[str], environment: dict[str, str], streams: Streams) -> int:
    out, err = streams
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, stdout=out, stderr=err, timeout=SECONDS)
    return done.returncode


def _forked(arguments: Sequence[str], environment: dict[str, str], streams: Streams) -> int:
    """Run it as a fork of a Python that has imported Triton as an interpreter, and PyTorch."""
    kind, what, *rest = arguments
    how = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    program = "import sys; sys.path.insert(0, '')\n" + (how if kind == "-m" else what)
    with Path(os.devnull).open("rb") as nothing:
        forked = _interpreter().fork(program, rest, environment, (nothing.fileno(), *streams))
        return forked.wait(SECONDS)


@cache
def _interpreter() -> ForkServer:
    server = ForkServer()
    atexit.register(server.stop)
    return server


def release(package: str) -> tuple[int, int]:
    """Of an installed package, such as (3, 6)."""
    major, minor, *_ = version(package).split(".")
    return int(major), int(minor)
