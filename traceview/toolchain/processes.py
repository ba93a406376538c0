"""External programs: where they are installed, and running one to its end with a time limit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from traceview.records import record

TIMEOUT_S = 20.0
LONGEST_LINE = 300


@record
class ProcessResult:
    """Exit status and output of a program that has ended.

    `status` is negative for a signal, and None if the program could not start or was stopped at
    the time limit; `err` then says which. `written` is the content of the file it was to write.
    """

    status: int | None
    out: str
    err: str = ""
    written: bytes | None = None
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True for exit status 0."""
        return self.status == 0

    @property
    def text(self) -> str:
        """Everything that the program printed."""
        return f"{self.out}\n{self.err}"

    @property
    def evidence(self) -> str:
        """The line that best explains a failure: the first with an error, else the first."""
        if self.status is not None and self.status < 0:
            return f"it crashed (signal {-self.status})"
        lines = [line.strip() for line in f"{self.err}\n{self.out}".splitlines() if line.strip()]
        errors = (line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE))
        silent = f"it printed nothing and exited with status {self.status}"
        return next(errors, lines[0] if lines else silent)[:LONGEST_LINE]


def run_process(
    command: Sequence[str | Path],
    *,
    timeout_s: float = TIMEOUT_S,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ProcessResult:
    """Run a command without input in `folder` and wait at most `timeout_s` for it.

    `environment` is added to the current one. Never raises: a command that cannot run, or does
    not end, is a result with status None.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (the whole purpose)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            errors="replace",
            # Ctrl-C is for us to handle: a terminal would send it to the program, too.
            process_group=0,
        )
    except OSError as error:
        return ProcessResult(None, "", f"it cannot run: {error.strerror or error}")
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return ProcessResult(None, "", f"it did not end within {timeout_s:g} s", timed_out=True)
        except BaseException:
            _kill(process)
            raise
    return ProcessResult(process.returncode, out, err)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a program and the processes that it started, which are in its process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def variable_of(program: str) -> str:
    """The environment variable by which a user chooses a program: TRACEVIEW_PTXAS for ptxas."""
    return f"TRACEVIEW_{program.upper()}"


def chosen_by_user(program: str) -> Path | None:
    """The path in the program's environment variable, whether or not there is a file."""
    path = os.environ.get(variable_of(program))
    return Path(path).absolute() if path else None


def on_path(program: str) -> Iterator[Path]:
    """The program on PATH, if it is there."""
    path = shutil.which(program)
    if path:
        yield Path(path).absolute()


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Install paths in descending order of the version numbers in them: 12.10 before 12.9."""
    return sorted(paths, key=_numbers, reverse=True)


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]
