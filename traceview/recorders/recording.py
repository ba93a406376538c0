"""Record a program under nsys into one SQLite file without private data."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from traceview.errors import RecordingError, ToolNotFoundError
from traceview.outputs import check_trace_output
from traceview.recorders import environment as surroundings
from traceview.recorders import gathering, interrupts
from traceview.recorders.export import export
from traceview.recorders.kernel_table import write_kernels
from traceview.recorders.nsys import ATTEMPTS, Nsys, find
from traceview.recorders.nvtx_compatibility import incompatibility
from traceview.recorders.options import RecordOptions, abilities, blind_spots, profile_command
from traceview.recorders.program import command_of, python_of, script_of
from traceview.recorders.python_sample_tables import write_python_samples
from traceview.recorders.run_table import write_run
from traceview.recorders.source_tables import write_source_tables
from traceview.trace.nsys.cpu.sync_sites import NOTED
from traceview.trace.scrub.scrubber import scrub
from traceview.version import __version__

Note = Callable[[str], None]
_GATHERED = "gathered"
_REMOVALS, _BETWEEN_REMOVALS_S = 20, 0.1


@dataclass(frozen=True)
class Recording:
    """Result of a recording.

    `path` is None if the user aborted it. `exit_status` is the program's, or 128 + n if the user
    stopped it with signal n. `report` is the .nsys-rep file, if kept.
    """

    path: Path | None
    exit_status: int
    interrupted: bool = False
    report: Path | None = None


@dataclass(frozen=True)
class _Job:
    """A recording to make, checked before the program runs."""

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

    `out` defaults to `<script stem>.sqlite` in the current folder. Environment, host and user names
    and home paths are removed from it unless `keep_env`; `keep_rep` keeps nsys's own report next to
    it, which contains them. `note` receives messages for the user, one line per call: the exact
    nsys command, and warnings. The program inherits environment, stdin and working folder.

    Raises InputError if there is no such program or `out` cannot be written, OutputExistsError if
    it exists and not `force`, ToolNotFoundError if no nsys works, RecordingError if nsys leaves no
    recording. Only the last can be raised after the program has run.
    """
    target = out or Path(f"{script_of(words).stem}.sqlite")
    report = target.with_suffix(".nsys-rep") if keep_rep else None
    for path in (target, report):
        if path:
            check_trace_output(path, force=force)
    command = command_of(words)
    job = _Job(_usable_nsys(), words, command, target, report, keep_env, note)
    chosen = options or RecordOptions()
    if chosen.native_samples is None:
        chosen = replace(chosen, native_samples=python_of(command) is None)
    return _recorded(job, chosen)


def _usable_nsys() -> Nsys:
    nsys = find()
    if nsys.defect:
        raise ToolNotFoundError(nsys.defect.what, nsys.defect.remedy)
    return nsys


def _recorded(job: _Job, options: RecordOptions) -> Recording:
    able = abilities(job.nsys)
    facts = dict(surroundings.describe(python_of(job.command), script_of(job.words)))
    for line in (incompatibility(facts.get("nvtx"), job.nsys), *blind_spots(options, able)):
        if line:
            job.note(f"warning: {line}")
    try:
        # In the folder of the output: a rename is atomic only within one file system.
        with interrupts.handled() as requests, _work_folder(job.out) as folder:
            report = folder / "recording.nsys-rep"
            command = profile_command(job.nsys, able, options, report, job.command)
            started = datetime.now(UTC)
            in_process = options.python_samples and not able.samples_python
            added = gathering.environment(options, folder / _GATHERED, sample_python=in_process)
            added = {**added, "TMPDIR": str(folder)}
            status = _run(command, requests, job, added)
            for _ in range(ATTEMPTS - 1):
                if requests.signals or not _never_ran(job, options, folder):
                    break
                job.note("warning: nsys failed before the program started; retrying")
                status = _run(command, requests, job, added)
            _check_report(report, status)
            for line in gathering.remarks(options, folder / _GATHERED, job.command):
                job.note(f"warning: {line}")
            ended = requests.status or status
            shown = [word.replace(str(report), report.name) for word in command]
            facts |= _run_facts(job, shown, ended, started)
            if options.sync_sites and python_of(job.command):
                # So that a recording without marks means that nothing waited.
                facts[NOTED] = "marked"
            # Python stacks, and the sizes of NCCL's collectives: 2 % more bytes for the latter.
            _export(job, report, facts, options, include_json=able.exports_json)
            _finish(job, report)
            return Recording(job.out, ended, requests.status is not None, job.report)
    except interrupts.Aborted as aborted:
        return Recording(None, aborted.status, interrupted=True)


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
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


def _run(
    command: list[str], requests: interrupts.StopSignals, job: _Job, added: Mapping[str, str]
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
    what = "nsys could not import its raw recording" if raw else "nsys left no recording"
    raise RecordingError(
        f"{what} (exit status {status}; see its message above)",
        "run traceview doctor, which tests nsys on an empty program",
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


def _export(
    job: _Job,
    report: Path,
    facts: Mapping[str, str],
    options: RecordOptions,
    *,
    include_json: bool,
) -> None:
    """Export the report to raw.sqlite next to it, and add what was gathered."""
    raw, gathered = report.with_name("raw.sqlite"), report.with_name(_GATHERED)
    export(job.nsys, report, raw, include_json=include_json)
    # Before scrubbing: the command line may contain values of the environment.
    write_run(raw, facts)
    # If no hook ran, nobody looked for kernels: write no table rather than an empty one.
    if gathering.has_started(gathered):
        write_kernels(raw, gathered)
    write_python_samples(raw, gathered)
    folders = (Path.cwd(), script_of(job.words).absolute().parent)
    write_source_tables(raw, folders, excerpts=options.source_lines)


def _finish(job: _Job, report: Path) -> None:
    raw, clean = report.with_name("raw.sqlite"), report.with_name("clean.sqlite")
    if not job.keep_env:
        scrub(raw, clean, keep_source_lines=True)
    if job.report:
        shutil.copyfile(report, report.with_name("kept"))
        # It contains the environment: readable by the user only.
        report.with_name("kept").chmod(0o600)
        report.with_name("kept").replace(job.report)
    (raw if job.keep_env else clean).replace(job.out)
