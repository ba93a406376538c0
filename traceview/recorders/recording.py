"""Record a program with nsys or torch.profiler into one SQLite file without private data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from traceview.errors import InputError, ToolNotFoundError
from traceview.outputs import check_output, check_trace_output
from traceview.recorders import environment as surroundings
from traceview.recorders import nsys_recording, torch_recording
from traceview.recorders.job import Note, Recording, RecordingJob
from traceview.recorders.nsys import Nsys, find
from traceview.recorders.options import Backend, RecordOptions, nsys_only
from traceview.recorders.program import command_of, python_of, script_of
from traceview.recorders.rank_output import rank_output


def record(
    words: Sequence[str],
    out: Path | None = None,
    *,
    backend: Backend = "auto",
    options: RecordOptions | None = None,
    force: bool = False,
    keep_env: bool = False,
    keep_rep: bool = False,
    note: Note = lambda _: None,
    ended: Callable[[int], None] = lambda _: None,
) -> Recording:
    """Run SCRIPT [ARGS...] under a profiler and write the recording as SQLite.

    `backend` auto is nsys where one works, else torch.profiler in the program. `out` defaults to
    `<script stem>.sqlite` in the current folder. Environment, host and user names and home paths
    are removed from it unless `keep_env`; `keep_rep` keeps nsys's own report next to it, which
    contains them. Where a launcher has started several ranks, each writes a file of its own, such
    as run.rank03.sqlite for run.sqlite. `note` receives messages for the user, one line per call:
    the backend and why, the exact command, and warnings; `ended` the exit status of the program as
    soon as it has ended. The program inherits environment, stdin and working folder.

    Raises InputError if there is no such program, `out` cannot be written or an option is not for
    this backend, OutputExistsError if it exists and not `force`, ToolNotFoundError if there is no
    profiler, RecordingError if it leaves no recording. Only the last can be raised after the
    program has run.
    """
    output = rank_output(words, out or Path(f"{script_of(words).stem}.sqlite"), os.environ)
    target = output.path
    report = target.with_suffix(".nsys-rep") if keep_rep else None
    check_trace_output(target, force=force)
    if report:
        check_output(report, force=force)
    job = RecordingJob(words, command_of(words), target, report, keep_env, note, output.rank, ended)
    chosen = options or RecordOptions()
    only_nsys = nsys_only(chosen, keep_rep=keep_rep)
    if backend == "torch" and only_nsys:
        raise InputError(f"{only_nsys[0]} needs nsys", "leave it out, or use --backend nsys")
    nsys = None if backend == "torch" else _nsys(job, required=backend == "nsys" or bool(only_nsys))
    if nsys is None:
        recording = torch_recording.record_with_torch(job, chosen, _torch_version(job))
    else:
        note(f"recording with nsys {nsys.version_text}")
        recording = nsys_recording.record_with_nsys(job, nsys, chosen)
    return replace(recording, rank=output.rank, pattern=output.pattern)


def _nsys(job: RecordingJob, *, required: bool) -> Nsys | None:
    """The nsys to use; None if none works and torch.profiler can take its place."""
    try:
        nsys = find()
        if nsys.defect:
            raise ToolNotFoundError(nsys.defect.what, nsys.defect.remedy)
    except ToolNotFoundError as error:
        if required or "torch" not in surroundings.python_versions(python_of(job.command)):
            raise
        job.note(f"recording with torch.profiler, since {error.what}")
        return None
    return nsys


def _torch_version(job: RecordingJob) -> str:
    python = python_of(job.command)
    if python is None:
        raise InputError(
            f"{job.command[0]} is not a Python program, and torch.profiler records nothing else",
            "record it with --backend nsys",
        )
    version = surroundings.python_versions(python).get("torch")
    if version is None:
        raise ToolNotFoundError(
            f"torch is not installed for {python}", "install torch there, or use --backend nsys"
        )
    return version
