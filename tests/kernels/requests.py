"""Asking a Python of its own: what it prints, as JSON by lines."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from tests.conftest import REPOSITORY


def python(*arguments: str, interpret: bool = True) -> list[Any]:
    """The JSON lines that `python ARGUMENTS` writes, run at the repository's root."""
    if interpret and release("triton") < (3, 7) and release("numpy") >= (2, 4):
        pytest.skip("the interpreter of Triton 3.6 runs no loop with numpy 2.4")
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpret))}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def release(package: str) -> tuple[int, int]:
    """Of an installed package, such as (3, 6)."""
    major, minor, *_ = version(package).split(".")
    return int(major), int(minor)
