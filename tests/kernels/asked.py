"""Asking a Python of its own: what it prints, as JSON by lines."""

import json
import os
import subprocess
import sys
from typing import Any

from tests.conftest import REPOSITORY


def python(*arguments: str, interpret: bool = True) -> list[Any]:
    """The JSON lines that `python ARGUMENTS` writes, run at the repository's root."""
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
