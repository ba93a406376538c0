"""Record a program under nsys, into one SQLite file that tells nothing of its user."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from traceview.errors import RecordingError, ToolNotFoundError
from traceview.outputs import check_trace_output
from traceview.recorders import environment as surroundings
from traceview.recorders import gathering, interrupts
from traceview.recorders.export import export
from traceview.recorders.kernel_table import write_kernels
from traceview.recorders.nsys import ATTEMPTS, Nsys, find
from traceview.recorders.nvtx_compatibility import clash
from traceview.recorders.options import RecordOptions, abilities, blind_spots, profile_command
from traceview.recorders.program import command_of, python_of, script_of
from traceview.recorders.run_table import write_run
from traceview.trace.nsys.sync_sites import NOTED
from traceview.trace.scrub.scrubber import scrub
from traceview.version import __version__

Note = Callable[[str], None]
_GATHERED = "gathered"
_REMOVALS, _BETWEEN_REMOVALS_S = 20, 0.1


@dataclass(frozen=True)
class Recording:
    """What came of it.

    `path` is None if the user gave the recording up. `exit_status` is that of the program, or
    128 + n if the user asked with signal n to end it.
    """

    path: Path | None
    exit_status: int
    interrupted: bool = False
    report: Path | None = None


@dataclass(frozen=True)
class _Job:
    """One recording to make, all of it checked before the program runs."""

    nsys: Nsys
    words: Sequence[str]
    command: list[str]
    out: Path
    report: Path | None
    keep_env: bool
    note: Note


def record(
    words: Sequence[str],
    out: Path | None = None,
    *,
    options: RecordOptions | None = None,
    force: bool = False,
    keep_env: bool = False,
    keep_rep: bool = False,
    note: Note = lambda _: None,
) -> Recording:
    """Run SCRIPT [ARGS...] under nsys and write the SQLite export of the recording.

    `out` is `<script stem>.sqlite` in the current folder unless given. The environment, host and
    user names and home paths that nsys stores are removed unless `keep_env`; `keep_rep` keeps
    nsys's own report beside the output, which holds them. `note` gets one line at a time for the
    user: the exact command, and warnings. The program's arguments, environment, input and
    working folder are those of the caller.

    Raises InputError if there is no such program, OutputExistsError if `out` exists and not
    `force`, ToolNotFoundError if no nsys can do it, RecordingError if nsys leaves no recording.
    Of these, only the last can come after the program has run.
    """
    target = out or Path(f"{script_of(words).stem}.sqlite")
    report = target.with_suffix(".nsys-rep") if keep_rep else None
    for path in (target, report):
        if path:
            check_trace_output(path, force=force)
    command = command_of(words)
    job = _Job(_usable_nsys(), words, command, target, report, keep_env, note)
    return _recorded(job, options or RecordOptions())


def _usable_nsys() -> Nsys:
    nsys = find()
    if nsys.lack:
        raise ToolNotFoundError(nsys.lack.what, nsys.lack.remedy)
    return nsys


def _recorded(job: _Job, options: RecordOptions) -> Recording:
    able = abilities(job.nsys)
    facts = dict(surroundings.describe(python_of(job.command), script_of(job.words)))
    for line in (clash(facts.get("nvtx"), job.nsys), *blind_spots(options, able)):
        if line:
            job.note(f"warning: {line}")
    try:
        # Beside the output: moving a file into place is one step only within a file system.
        with interrupts.watched() as requests, _workplace(job.out) as folder:
            report = folder / "recording.nsys-rep"
            command = profile_command(job.nsys, able, options, report, job.command)
            started = datetime.now(UTC)
            added = gathering.environment(options, folder / _GATHERED)
            added = {**added, "TMPDIR": str(folder)}
            status = _run(command, requests, job, added)
            for _ in range(ATTEMPTS - 1):
                if requests.signals or not _never_ran(job, options, folder):
                    break
                job.note("warning: nsys failed before the program started; trying again")
                status = _run(command, requests, job, added)
            _check_report(report, status)
            for line in gathering.remarks(options, folder / _GATHERED, job.command):
                job.note(f"warning: {line}")
            ended = requests.status or status
            shown = [word.replace(str(report), report.name) for word in command]
            facts |= _run_facts(job, shown, ended, started)
            if options.sync_sites and python_of(job.command):
                # None of our marks in the recording then means that nothing was marked.
                facts[NOTED] = "marked"
            _finish(job, report, facts)
            return Recording(job.out, ended, requests.status is not None, job.report)
    except interrupts.GivenUp as wish:
        return Recording(None, wish.status, interrupted=True)


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    parent = out.absolute().parent
    try:
        folder = tempfile.TemporaryDirectory(dir=parent, prefix=".traceview-")
    except OSError as error:
        what = f"cannot write into {parent}: {error.strerror or error}"
        raise RecordingError(what, "choose another place with -o") from error
    try:
        yield Path(folder.name)
    finally:
        _remove(folder)


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    # Agents of nsys that were told to end may write on for a moment.
    for _ in range(_REMOVALS):
        try:
            folder.cleanup()
            return
        except OSError:
            time.sleep(_BETWEEN_REMOVALS_S)
    shutil.rmtree(folder.name, ignore_errors=True)


def _run(
    command: list[str], requests: interrupts.Requests, job: _Job, added: Mapping[str, str]
) -> int:
    job.note(shlex.join(command))
    try:
        return interrupts.run(command, requests, {**os.environ, **added})
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordingError(
            f"cannot start {command[0]}: {reason}", "run traceview doctor"
        ) from error


def _never_ran(job: _Job, options: RecordOptions, folder: Path) -> bool:
    recorded = any(folder.glob("recording.*"))
    return not recorded and gathering.never_ran(options, folder / _GATHERED, job.command)


def _check_report(report: Path, status: int) -> None:
    if report.is_file():
        return
    raw = any(report.parent.glob("*.qdstrm"))
    what = "nsys could not import what it recorded" if raw else "nsys left no recording"
    raise RecordingError(
        f"{what} (exit status {status}; its own message stands above)",
        "traceview doctor tries nsys on an empty program and says more",
    )


def _run_facts(
    job: _Job, command: Sequence[str], status: int, started: datetime
) -> Mapping[str, str]:
    return {
        "traceview_version": __version__,
        "command_line": shlex.join(job.words),
        "nsys_version": job.nsys.version_text,
        "nsys_command": shlex.join(command),
        "exit_status": str(status),
        "started_utc": started.isoformat(timespec="seconds"),
    }


def _finish(job: _Job, report: Path, facts: Mapping[str, str]) -> None:
    raw, clean = report.with_name("raw.sqlite"), report.with_name("clean.sqlite")
    export(job.nsys, report, raw)
    # Before the cleaning: a command line, too, can hold what the environment holds.
    write_run(raw, facts)
    gathered = report.with_name(_GATHERED)
    # Without a Python of ours in the program nobody looked: the table stays away.
    if gathering.has_started(gathered):
        write_kernels(raw, gathered)
    if not job.keep_env:
        scrub(raw, clean)
    if job.report:
        shutil.copyfile(report, report.with_name("kept"))
        # It holds the environment: for the user's own eyes.
        report.with_name("kept").chmod(0o600)
        report.with_name("kept").replace(job.report)
    (raw if job.keep_env else clean).replace(job.out)
