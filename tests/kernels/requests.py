"""Asking a Python of its own: what it prints, as JSON by lines."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pytest

from tests.headless.forked_python import run_python
from tests.places import REPOSITORY

SECONDS = 600


def python(*arguments: str, interpret: bool = True) -> list[Any]:
    """The JSON lines that `python ARGUMENTS` writes, run at the repository's root."""
    if interpret and release("triton") < (3, 7) and release("numpy") >= (2, 4):
        pytest.skip("the interpreter of Triton 3.6 runs no loop with numpy 2.4")
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpret))}
    run = _forked if interpret else _started
    done = run(arguments, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def _started(
    arguments: Sequence[str], environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    options = {"capture_output": True, "text": True, "timeout": SECONDS}
    return subprocess.run(command, env=environment, cwd=REPOSITORY, **options)


def _forked(
    arguments: Sequence[str], environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run it as a fork of a Python that has imported Triton as an interpreter, and PyTorch."""
    kind, what, *rest = arguments
    how = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    program = how if kind == "-m" else what
    return run_python(program, rest, environment, folder=REPOSITORY, timeout_s=SECONDS)


def release(package: str) -> tuple[int, int]:
    """Of an installed package, such as (3, 6)."""
    major, minor, *_ = version(package).split(".")
    return int(major), int(minor)
