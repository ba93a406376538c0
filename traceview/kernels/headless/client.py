"""The client side of the worker process, which runs a script and then recompiles its kernels.

The worker writes a line to its original stdout when the script starts, one with the deadline of all
trials when it has ended, and one when it is ready. From then on requests and answers are one line
of JSON each. The script has neither pipe (see traceview.kernels.headless.worker.recompile_server).
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from traceview.base import errors
from traceview.base.errors import ToolNotFoundError, TraceviewError
from traceview.base.outputs import cache_folder, private_file, private_folder
from traceview.kernels.headless.compile_options import Deadline, Request
from traceview.kernels.headless.run_script import STOP
from traceview.kernels.headless.worker.recompile_server import RAN, READY, STARTED

# The folder in which compiled kernels are kept from one run to the next.
#
# Triton files each kernel under a hash of its source, its arguments, its options and the
# compiler, but not of the file that it stands in, which the code names. So each target has a
# folder of its own. Triton writes by renaming: runs at the same time do not disturb each other.

MOST_BYTES = 1 << 30
"""The size to which the folder is reduced."""
# Younger kernels stay, as another run may be reading them.
_YOUNG_S = 3600.0


def kernel_cache(target: str) -> Path | None:
    """The folder of a target (an absolute path, or a module), created if needed.

    It is in $TRACEVIEW_CACHE_DIR, else in the user's cache, and private. None if that variable is
    empty, or if the folder cannot be written or is not the user's own.
    """
    named = os.environ.get("TRACEVIEW_CACHE_DIR")
    if named == "":
        return None
    parts = ("triton", hashlib.sha256(os.fsencode(target)).hexdigest()[:32])
    try:
        folder = private_folder(Path(named), *parts) if named else cache_folder(*parts)
        _shrink(folder.parent)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _shrink(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the kernels that were used longest ago until the rest fits."""
    entries = []
    for path in folder.glob("*/*"):
        with suppress(OSError):
            # Triton makes folders and files as the umask says.
            private_folder(path.parent, path.name)
            for file in path.iterdir():
                private_file(file)
            size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            entries.append((path.stat().st_mtime, size, path))
    excess = sum(size for _, size, _ in entries) - most_bytes
    for used, size, path in sorted(entries):
        if excess <= 0 or used > time.time() - _YOUNG_S:
            return
        shutil.rmtree(path, ignore_errors=True)
        excess -= size


RECOMPILE_TIMEOUT_S = 60.0
"""Time limit of one recompilation."""
_GRACE_S = 8.0
_TICK_S = 0.05
# The package's folder is on sys.path for the worker's own imports alone, not for the script.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from traceview.kernels.headless.worker import main; "
    "sys.path.pop(0); main.main(*sys.argv[2:])"
)
# User settings that would keep Triton from compiling, or make it write elsewhere.
_UNSET = (
    "TRITON_INTERPRET",
    "TRITON_STORE_BINARY_ONLY",
    "TRITON_ALWAYS_COMPILE",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_KERNEL_DUMP",
    "TRITON_DUMP_DIR",
    "TRITON_CACHE_MANAGER",
    "TRITON_DEFAULT_BACKEND",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_COMPILE_DEBUG",
)


class Worker:
    """A worker process with a temporary folder; `close` ends one and removes the other.

    Raises ToolNotFoundError if $TRACEVIEW_PYTHON cannot be run.
    """

    def __init__(self, request: Request) -> None:
        self._options = request.options
        self.deadline = Deadline()
        """When trials end; known once the script has ended."""
        self.timed_out = False
        """Whether `run` killed it because it took too long."""
        self._temporary = tempfile.TemporaryDirectory(prefix="traceview-")
        self.folder = Path(self._temporary.name)
        request_path = self.folder / "request.json"
        request_path.write_text(request.to_json(), "utf-8")
        root = Path(errors.__file__).parents[2]
        arguments = [str(root), str(request_path), str(self.events)]
        try:
            self._process = _start([python(), "-P", "-c", _START, *arguments], self.folder, request)
        except TraceviewError:
            self._temporary.cleanup()
            raise

    @property
    def events(self) -> Path:
        """The path of its event log."""
        return self.folder / "events.jsonl"

    @property
    def lives(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def run(self) -> str | None:
        """Wait for the script to end; return how the process ended, or None if it is ready.

        At its limit the script is interrupted, so that its launches can be counted and its kernels
        recompiled. A process that ignores that, or that still compiles after the deadline, is
        killed. The script's limit excludes the import of PyTorch.
        """
        if self._line() == STARTED:
            limit = Deadline.after(self._options.script_s)
            ran = self._line(lambda: limit.passed and self._is_to_stop)
            if not ran and self.lives:
                with suppress(ProcessLookupError):
                    self._process.send_signal(STOP)
                grace = Deadline.after(_GRACE_S)
                ran = self._line(lambda: grace.passed)
            if ran:
                self.deadline = Deadline(float(ran.removeprefix(RAN)))
                # An attempt that has begun may take a little longer.
                end = Deadline.after(self.deadline.left_s + _GRACE_S)
                if self._line(lambda: end.passed) == READY:
                    return None
                if not self.lives:
                    return _ending(self._process.wait())
                self._time_out()
                return f"was still compiling after {self._options.trials_s:g} s"
        if not self.lives:
            return _ending(self._process.wait())
        self._time_out()
        return f"did not end within {self._options.script_s:g} s and was stopped"

    def _time_out(self) -> None:
        self.timed_out = True
        self.stop()

    @property
    def _is_to_stop(self) -> bool:
        """Whether a script at its limit is interrupted.

        It is if the limit was set by the user, or once it has compiled a kernel, unless it runs for
        the values that it computes.
        """
        options = self._options
        if options.timeout_s is not None:
            return True
        if options.emulate or options.compile_torch:
            return False
        return self.events.exists() and b'"kind": "compiled"' in self.events.read_bytes()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises OSError or ValueError if the process has ended, exceeds RECOMPILE_TIMEOUT_S, or is
        killed at the deadline.
        """
        questions = self._process.stdin
        if questions is None:
            raise ValueError("no pipe")
        # Threads that the script has left may hang the process.
        timer = threading.Timer(min(RECOMPILE_TIMEOUT_S, self.deadline.left_s), self.stop)
        timer.start()
        try:
            questions.write(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._line())
            return answer
        finally:
            timer.cancel()

    def stop(self) -> None:
        """Kill the process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Kill the process and remove its folder."""
        self.stop()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        self._temporary.cleanup()

    def _line(self, is_over: Callable[[], bool] = lambda: False) -> str:
        """Wait for a line from the process; empty if it ends or `is_over` first.

        The process itself is polled, as a fork of it may keep the pipe open.
        """
        while self.lives and not is_over():
            stream = self._process.stdout
            if stream and select.select([stream], [], [], _TICK_S)[0]:
                line = stream.readline().decode()
                if not line:
                    # The process exits a moment after it has closed its pipe.
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(_GRACE_S)
                return line
        return ""


def python() -> str:
    """The Python that runs scripts: $TRACEVIEW_PYTHON, or our own."""
    return os.environ.get("TRACEVIEW_PYTHON") or sys.executable


def _environment(folder: Path, request: Request) -> dict[str, str]:
    # The interpreter fails on the helpers of a kernel that comes from the cache.
    target = str(Path(request.file).resolve()) if request.file else request.module or "kernels"
    compiled = None if request.options.emulate else kernel_cache(target)
    path = [each for each in (request.triton, os.environ.get("PYTHONPATH")) if each]
    inherited = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return (
        inherited
        | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})
        | {
            "TRITON_CACHE_DIR": str(compiled or folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            # Inductor must compile in the worker itself, and for Triton's own launcher.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
            # What bypasses the fakes must fail as it would without a GPU.
            "CUDA_VISIBLE_DEVICES": "",
            "MPLBACKEND": "Agg",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )


def _start(command: list[str], folder: Path, request: Request) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if request.is_quiet else None,
            # `select` does not see what a buffer has read ahead.
            bufsize=0,
            env=_environment(folder, request),
            start_new_session=True,
        )
    except OSError as error:
        what = f"{command[0]} cannot run: {error.strerror}"
        raise ToolNotFoundError(what, "correct $TRACEVIEW_PYTHON") from None


def _ending(status: int) -> str | None:
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (possibly out of memory)" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    return f"exited with status {status}" if status else None
