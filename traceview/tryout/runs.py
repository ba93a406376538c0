"""Runs of a program: each in a process group and a scratch folder of its own, which end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from traceview.errors import InputError
from traceview.records import record
from traceview.tryout import driver
from traceview.tryout.scratch import mirror
from traceview.tryout.spec import RunResult, Spec

QUIET: Mapping[str, str] = {
    # Runs are not those of a project, and leave nothing beside the user's files.
    "WANDB_MODE": "offline",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_LONGEST_ERROR = 300


@record
class Program:
    """A Python script with its arguments, and the folder that it runs in."""

    script: Path
    arguments: tuple[str, ...]
    folder: Path

    @classmethod
    def of(cls, words: Sequence[str]) -> Program:
        """The program of a command line. Raises InputError where it is no Python script."""
        script = Path(words[0])
        if script.suffix != ".py" or not script.is_file():
            what = "does not exist" if script.suffix == ".py" else "is not a .py file"
            raise InputError(f"script {script} {what}", "pass the Python script that trains")
        return cls(script.resolve(), tuple(words[1:]), Path.cwd())


class Runs:
    """Starts runs of one program in a work folder. `linked` are folders that are not isolated."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.linked: tuple[str, ...] = ()
        self.count = 0

    def spec(self, **options: object) -> Spec:
        """The spec of the next run, whose scratch folder is made."""
        self.count += 1
        place = self.folder / str(self.count)
        scratch = place / "scratch"
        scratch.mkdir(parents=True)
        self.linked = tuple(mirror(self.program.folder, scratch))
        program = self.program
        spec = Spec(
            str(program.script),
            program.arguments,
            str(program.folder),
            str(scratch),
            str(place / "result.json"),
        )
        return replace(spec, **options)  # type: ignore[arg-type]

    def command(self, spec: Spec) -> list[str]:
        """The command of a run."""
        path = Path(spec.result).with_name("spec.json")
        spec.write(path)
        return [sys.executable, driver.__file__, str(path)]

    def run(self, spec: Spec, limit_s: float) -> RunResult:
        """Run it to the end of its steps, for at most `limit_s` seconds."""
        place = Path(spec.result).parent
        began = monotonic()
        with (place / "output.txt").open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 (the user's own program)
                self.command(spec),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **QUIET},
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(max(limit_s, 1.0))
            except subprocess.TimeoutExpired:
                status = None
            finally:
                # Loader workers, too, and everything else after Ctrl-C.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        result = RunResult.read(Path(spec.result))
        if status is None and result is None:
            seconds = round(monotonic() - began)
            return RunResult(error=f"did not finish {spec.last_step} steps in {seconds} s")
        if result is None:
            number = status or 0
            how = f"signal {-number}" if number < 0 else f"exit status {number}"
            return RunResult(error=f"ended with {how}{_last_line(place / 'output.txt')}")
        return result


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:_LONGEST_ERROR]}" if lines else ""


def work_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for all runs, private to the user, which goes with everything in it."""
    return tempfile.TemporaryDirectory(prefix="traceview-try-", ignore_cleanup_errors=True)
