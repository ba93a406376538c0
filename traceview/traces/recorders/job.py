"""A recording to make: its program, its rank, its work folder and its output."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from traceview.base.errors import InputError, RecordingError
from traceview.base.records import record
from traceview.base.version import __version__
from traceview.traces.recorders import nsys
from traceview.traces.trace import rank_identity

Note = Callable[[str], None]
GATHERED = "gathered"
"""Name of the folder, within the work folder, for what the hooks in the program write."""
MARKER = "TRACEVIEW_RECORDED_BY"
"""Variable of the recorded program and its children: the name of the work folder."""
PATIENCE_S, RANK_PATIENCE_S = 20.0, 10.0
"""Seconds that a program, or a rank, has to end after SIGTERM.

In native code it does not see the interrupt and keeps nsys waiting, such as a rank in a collective
with one that has failed.
"""
_REMOVALS, _BETWEEN_REMOVALS_S = 20, 0.1


@record
class Recording:
    """Result of a recording.

    `path` is None if the user aborted it. `exit_status` is the program's, or 128 + n if the user
    stopped it with signal n. `report` is the .nsys-rep file, if kept. `rank` is the rank of the
    process in a distributed run, `pattern` a shell glob for the files of all its ranks.
    """

    path: Path | None
    exit_status: int
    interrupted: bool = False
    report: Path | None = None
    rank: rank_identity.RankIdentity | None = None
    pattern: str | None = None


@record
class RecordingJob:
    """A recording to make, checked before the program runs; `report` is for nsys only."""

    words: Sequence[str]
    command: list[str]
    out: Path
    report: Path | None
    keep_env: bool
    note: Note
    rank: rank_identity.RankIdentity | None = None
    ended: Callable[[int], None] = lambda _: None

    def run(
        self,
        command: list[str],
        requests: nsys.StopSignals,
        added: Mapping[str, str],
        remedy: str = "run traceview doctor",
    ) -> int:
        """Run a command with variables added to the environment. Returns its exit status."""
        self.note(shlex.join(command))
        try:
            kept = {
                name: v for name, v in os.environ.items() if name != rank_identity.STARTED_BY_RECORD
            }
            return nsys.run(command, requests, {**kept, **added})
        except OSError as error:
            reason = error.strerror or str(error)
            raise RecordingError(f"cannot start {command[0]}: {reason}", remedy) from error

    def has_enough(self, after_s: float) -> None:
        """Say that the recording ended before the program."""
        what = f"recorded the first {after_s:.0f} s and let the program run on"
        self.note(f"{what}; --whole records all, --steps A:B a part")

    @property
    def patience_s(self) -> float:
        """Seconds from the recorder's SIGTERM until the program itself is sent one."""
        return PATIENCE_S if self.rank is None else RANK_PATIENCE_S

    def run_facts(self, status: int, started: datetime) -> Mapping[str, str]:
        """The facts that every backend writes to TRACEVIEW_RUN, name to value."""
        return {
            "traceview_version": __version__,
            "command_line": shlex.join(self.words),
            "exit_status": str(status),
            "started_utc": started.isoformat(timespec="seconds"),
            **rank_facts(self.rank, keep_host=self.keep_env),
        }


def rank_facts(rank: rank_identity.RankIdentity | None, *, keep_host: bool) -> Mapping[str, str]:
    """The facts about a rank for TRACEVIEW_RUN; its host is a pseudonym unless `keep_host`.

    Hosts with the same name get different pseudonyms, containers on one host get the same.
    """
    if rank is None:
        return {}
    host = platform.node()
    if not keep_host:
        # Linux gives each boot of a host a random id.
        with suppress(OSError):
            host = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip() or host
        host = rank_identity.pseudonym(host)
    return replace(rank, host=host).as_run()


@contextmanager
def work_folder(out: Path) -> Iterator[Path]:
    """A new folder beside the output, removed at the end: a rename within it is atomic."""
    parent = out.absolute().parent
    try:
        folder = tempfile.TemporaryDirectory(dir=parent, prefix=".traceview-")
    except OSError as error:
        what = f"cannot write to {parent}: {error.strerror or error}"
        raise RecordingError(what, "choose another output file with -o") from error
    try:
        yield Path(folder.name)
    finally:
        _remove(folder)


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    # Processes of nsys may still be writing for a moment.
    for _ in range(_REMOVALS):
        try:
            folder.cleanup()
            return
        except OSError:
            time.sleep(_BETWEEN_REMOVALS_S)
    shutil.rmtree(folder.name, ignore_errors=True)


_SHEBANG_BYTES = 256
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands")


def command_of(words: Sequence[str]) -> list[str]:
    """The command for SCRIPT [ARGS...]; this Python runs a `.py` file.

    Raises InputError if there is no such script or program.
    """
    script, *arguments = words
    path = Path(script)
    if path.suffix == ".py":
        if not path.is_file():
            raise InputError(f"script {script} does not exist", "check the path")
        return [sys.executable, script, *arguments]
    program = shutil.which(script)
    if program:
        return [program, *arguments]
    if path.is_file():
        raise InputError(
            f"{script} is neither a .py file nor executable", f"run: chmod +x {script}"
        )
    raise InputError(f"program {script} was not found", "check the name or pass its path")


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a module, as `python -m` does."""
    return [sys.executable, "-m", module, *arguments]


def script_of(words: Sequence[str]) -> Path:
    """The script in a command, else the module that Python runs, else the program itself."""
    script = next((Path(w) for w in words if w.endswith(".py")), None)
    if script is None and _is_python(Path(words[0]).name) and "-m" in words[1:-1]:
        return Path(words[words.index("-m") + 1].rpartition(".")[2])
    return script or Path(words[0])


def starts_ranks(words: Sequence[str]) -> bool:
    """Whether a command is a launcher, which starts a process for each GPU."""
    names = [Path(word).name for word in words[:2]]
    if names[0] in _LAUNCHERS or (_is_python(names[0]) and names[-1] in _LAUNCHERS):
        return True
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return _is_python(names[0]) and module.startswith(_LAUNCHER_MODULES)


def python_of(command: Sequence[str]) -> Path | None:
    """The Python that runs a command; None if it does not look like a Python program."""
    program = Path(shutil.which(command[0]) or command[0])
    if _is_python(program.name):
        return program
    words = _shebang(program)
    if words and Path(words[0]).name == "env":
        path = shutil.which(next((w for w in words[1:] if _is_python(w)), ""))
        return Path(path) if path else None
    return Path(words[0]) if words and _is_python(Path(words[0]).name) else None


def _is_python(name: str) -> bool:
    return bool(re.fullmatch(r"(python|pypy)[\d.]*[td]?", name))


def _shebang(program: Path) -> list[str]:
    try:
        with program.open("rb") as file:
            line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


_FIELD = "{rank}"
_VARIABLE = re.compile(r"%q\{(\w+)\}")


@record
class RankOutput:
    """The file that this process writes.

    `rank` is None for a single process, or if the program starts the ranks. `pattern` is a shell
    glob for the files of all processes, None if only one is written.
    """

    path: Path
    rank: rank_identity.RankIdentity | None = None
    pattern: str | None = None


def rank_output(words: Sequence[str], out: Path, environment: Mapping[str, str]) -> RankOutput:
    """The file of this process for the program `words`, where the user named it `out`.

    Each of several ranks adds its number, as in run.rank03.sqlite, unless the name contains {rank}
    or a variable of the launcher in nsys's notation, %q{RANK}. A task that runs torchrun is not a
    rank: it writes run.task0.sqlite. Raises InputError for a variable that is not set.
    """
    place = rank_identity.launched_rank(environment)
    label = str(place.rank).zfill(len(str(place.world_size or 0))) if place else "0"
    name = str(out).replace(_FIELD, label)
    missing = [variable for variable in _VARIABLE.findall(name) if variable not in environment]
    if missing:
        what = f"{name} names the variable {missing[0]}, which is not set"
        raise InputError(what, "set it, or use {rank}")
    path = Path(_VARIABLE.sub(lambda found: environment[found[1]], name))
    if place is None:
        return RankOutput(path)
    kind = "task" if starts_ranks(words) else "rank"
    rank = place if kind == "rank" else None
    if _FIELD in str(out) or not rank_identity.RANKS.isdisjoint(_VARIABLE.findall(str(out))):
        # A star for each part that differs between ranks.
        starred = _VARIABLE.sub(
            lambda found: "*" if found[1] in rank_identity.RANKS else environment[found[1]],
            str(out).replace(_FIELD, "*"),
        )
        return RankOutput(path, rank, _quoted(starred))
    if re.search(rf"rank[._-]?0*{place.rank}$", path.stem):
        # A shell script in each rank chose the name.
        return RankOutput(path, rank)
    named = path.with_name(f"{path.stem}.{kind}{label}{path.suffix}")
    return RankOutput(named, rank, _quoted(path.with_name(f"{path.stem}.{kind}*{path.suffix}")))


def _quoted(pattern: Path | str) -> str:
    """A pattern for the command line: its stars stay outside of quotes."""
    return "*".join(shlex.quote(part) if part else "" for part in str(pattern).split("*"))
