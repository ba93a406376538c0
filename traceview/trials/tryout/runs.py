"""Runs of a program: each in a process group and a scratch folder of its own, which end with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import IO

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.trials.tryout import driver
from traceview.trials.tryout.forks import Fork, Forks
from traceview.trials.tryout.scratch import mirror, to_keep
from traceview.trials.tryout.spec import RunResult, Spec

QUIET: Mapping[str, str] = {
    # Runs are not those of a project, and leave nothing beside the user's files.
    "WANDB_MODE": "offline",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_LONGEST_ERROR = 300


@record
class Program:
    """A Python script with its arguments, and the folder that it runs in.

    `module` is its name where it is run by that.
    """

    script: Path
    arguments: tuple[str, ...]
    folder: Path
    module: str = ""

    @property
    def label(self) -> str:
        """The script below the name of its folder: many are called train.py."""
        script, folder = self.script, self.folder
        inside = script.relative_to(folder) if script.is_relative_to(folder) else script.name
        return (Path(folder.name) / inside).as_posix()

    @classmethod
    def of(cls, words: Sequence[str]) -> Program:
        """The program of a command line. Raises InputError where it is no Python script."""
        folder = Path.cwd()
        if words[0] == "-m":
            name = words[1] if len(words) > 1 else ""
            path = folder / name.replace(".", "/")
            if (path / "__main__.py").is_file():
                name, path = f"{name}.__main__", path / "__main__"
            if not path.with_name(f"{path.name}.py").is_file():
                what = f"module {name} is not in this folder"
                raise InputError(what, "go to the folder that python -m would find it in")
            return cls(path.with_name(f"{path.name}.py"), tuple(words[2:]), folder, name)
        script = Path(words[0])
        if script.suffix != ".py" or not script.is_file():
            what = "does not exist" if script.suffix == ".py" else "is not a .py file"
            raise InputError(
                f"script {script} {what}",
                "pass the Python script that trains, or -m and its module",
            )
        return cls(script.resolve(), tuple(words[1:]), folder)


class Runs:
    """Starts runs of one program in a work folder."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.count = 0
        self._forks: Forks | None = None
        self._may_fork = sys.platform == "linux"
        if setuid := shutil.which("nvidia-modprobe"):
            # CUDA starts it on a machine's first use of a GPU; with Landlock it has no rights.
            subprocess.run([setuid, "-u", "-c=0"], check=False, stderr=subprocess.DEVNULL)  # noqa: S603

    def spec(self, **options: object) -> Spec:
        """The spec of the next run, whose scratch folder is made; that of the last one goes."""
        shutil.rmtree(self.folder / str(self.count) / "scratch", ignore_errors=True)
        self.count += 1
        place = self.folder / str(self.count)
        scratch = place / "scratch"
        scratch.mkdir(parents=True)
        program = self.program
        linked = to_keep(mirror(program.folder, scratch))
        spec = Spec(
            str(program.script),
            program.arguments,
            str(program.folder),
            str(scratch),
            str(place / "result.json"),
            module=program.module,
            linked=linked,
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
            process = self._started(self.command(spec), output)
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
        if result and not result.error:
            self.prepare(spec, result)
        if status is None and result is None:
            seconds = round(monotonic() - began)
            what = f"it did not finish {spec.last_step} steps in {seconds} s"
            return RunResult(error=what, is_late=True)
        if result is None:
            number = status or 0
            how = f"signal {-number}" if number < 0 else f"exit status {number}"
            return RunResult(error=f"it ended with {how}{_last_line(place / 'output.txt')}")
        return result

    def _started(self, command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes] | Fork:
        if self._forks:
            try:
                return self._forks.start(command[1:], output)
            except OSError:
                self.close()
        return _start(command, output, {**os.environ, **QUIET})

    def prepare(self, spec: Spec, first: RunResult) -> None:
        """Let further runs be forks of a process that has imported what the first one did."""
        if self._may_fork and first.modules:
            self._may_fork = False
            path = Path(spec.result).with_name("modules.json")
            path.write_text(json.dumps(first.modules), "utf-8")
            self._forks = Forks(path, {**os.environ, **QUIET})

    def close(self) -> None:
        """End the process that forks, if there is one."""
        if self._forks:
            self._forks.close()
        self._forks = None

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(
    command: list[str], output: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 (the user's own program)
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:_LONGEST_ERROR]}" if lines else ""


def work_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for all runs, private to the user, which goes with everything in it."""
    return tempfile.TemporaryDirectory(prefix="traceview-try-", ignore_cleanup_errors=True)
