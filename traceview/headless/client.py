"""The process of a Python target, seen from outside: it runs a script, then answers questions.

On what was its stdout it says with a line that the script starts, and that it is ready. From then
on a question and its answer are a line of JSON each. The script has neither of these pipes (see
traceview.headless.worker.recompile_server).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from traceview import errors
from traceview.errors import ToolNotFoundError, TraceviewError
from traceview.headless.request import Request
from traceview.headless.run_script import STOP
from traceview.headless.worker.recompile_server import READY, STARTED

PATIENCE_S = 60.0
"""How long one recompilation may take."""
_GRACE_S = 5.0
_TICK_S = 0.05
# The process gets the package's folder for its own imports alone: a script must not see it.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from traceview.headless.worker import main; "
    "sys.path.pop(0); main.main(*sys.argv[2:])"
)
# Settings of the user's that would keep Triton from compiling, or write where it should not.
_UNSET = (
    "TRITON_INTERPRET",
    "TRITON_STORE_BINARY_ONLY",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_KERNEL_DUMP",
    "TRITON_DUMP_DIR",
    "TRITON_CACHE_MANAGER",
    "TRITON_DEFAULT_BACKEND",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_COMPILE_DEBUG",
)


class Process:
    """A started process with a folder of its own, both of which go with `close`.

    Raises ToolNotFoundError if there is no such Python as $TRACEVIEW_PYTHON.
    """

    def __init__(self, request: Request) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="traceview-")
        self.folder = Path(self._temporary.name)
        request_path = self.folder / "request.json"
        request_path.write_text(request.to_json())
        root = Path(errors.__file__).parents[1]
        arguments = [str(root), str(request_path), str(self.events)]
        try:
            self._process = _started([python(), "-P", "-c", _START, *arguments], self.folder)
        except TraceviewError:
            self._temporary.cleanup()
            raise

    @property
    def events(self) -> Path:
        """Where it writes what happens."""
        return self.folder / "events.jsonl"

    @property
    def lives(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def run(self, timeout_s: float | None) -> str | None:
        """Wait until the script has run; in words how the process ended, if it did not live on.

        A script that takes longer is interrupted, so that what it has launched can be counted and
        recompiled; a process that does not heed that is killed. Importing PyTorch does not count.
        """
        if self._says(STARTED, None) and self._says(READY, timeout_s):
            return None
        if not self.lives or timeout_s is None:
            return _in_words(self._process.wait())
        with suppress(ProcessLookupError):
            self._process.send_signal(STOP)
        if self._says(READY, _GRACE_S):
            return None
        self.stop()
        return f"did not end within {timeout_s:g} s and was stopped"

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer. Raises OSError or ValueError if it is gone, or gone after PATIENCE_S."""
        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise ValueError("no pipes")
        # What the script has left running may hang the process.
        timer = threading.Timer(PATIENCE_S, self.stop)
        timer.start()
        try:
            pipes[0].write(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = json.loads(pipes[1].readline())
            return answer
        finally:
            timer.cancel()

    def stop(self) -> None:
        """End the process and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Stop it and take its folder away."""
        self.stop()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        self._temporary.cleanup()

    def _says(self, line: str, timeout_s: float | None) -> bool:
        """Wait for a line, for the end of the process, or for the time to run out.

        The end of the process is asked for: its pipe may live on in what it has forked.
        """
        end = time.monotonic() + timeout_s if timeout_s is not None else None
        while self.lives and (end is None or time.monotonic() < end):
            stream = self._process.stdout
            if stream and select.select([stream], [], [], _TICK_S)[0]:
                return stream.readline() == line.encode() or self._ended()
        return False

    def _ended(self) -> Literal[False]:
        """Wait for a process whose pipe is closed: its status shows a moment later."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        return False


def python() -> str:
    """The Python that runs scripts: $TRACEVIEW_PYTHON, or our own."""
    return os.environ.get("TRACEVIEW_PYTHON") or sys.executable


def _started(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What is read ahead of a line would not show to `select`.
            bufsize=0,
            env=_environment(folder),
            start_new_session=True,
        )
    except OSError as error:
        what = f"{command[0]} cannot run: {error.strerror}"
        raise ToolNotFoundError(what, "correct $TRACEVIEW_PYTHON") from None


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return kept | {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        # Inductor is to compile in the process that we hear of, for Triton's own launcher.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
        # What slips through the pretence must fail here as it would without a GPU.
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _in_words(status: int) -> str | None:
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (possibly out of memory)" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"exited with status {status}" if status else None
