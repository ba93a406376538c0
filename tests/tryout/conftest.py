"""Runs of programs as forks of a process that has imported torch.

The import takes 2 s of each, and that of torch._dynamo, at the first step of an optimizer, 4 s.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.headless.forked_workers import _INDUCTOR, ForkServer
from traceview.trials.tryout import runs

_DRIVER = """
import sys
sys.argv[:] = sys.argv[1:]
from traceview.trials.tryout.driver import main
main()
"""
SERVER = ForkServer("compiling", ForkServer("eager"), _INDUCTOR)
"""That of headless workers, too."""


@pytest.fixture(autouse=True)
def forked_runs(monkeypatch):
    """Start runs as forks of the server of headless workers, where there is one."""
    if sys.platform != "linux" or not (find_spec("torch") and find_spec("triton")):
        return

    def start(command, output, environment):
        with Path(os.devnull).open() as stdin:
            streams = (stdin.fileno(), output.fileno(), output.fileno())
            return SERVER.fork(_DRIVER, command[1:], environment, streams)

    monkeypatch.setattr(runs, "_start", start)
    monkeypatch.setattr(runs.Runs, "prepare", lambda *_: None)
