"""Record a program with nsys or torch.profiler into one SQLite file without private data."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from traceview.base.errors import InputError, RecordingError, ToolNotFoundError
from traceview.base.outputs import check_output, check_trace_output
from traceview.traces.recorders import checks as surroundings
from traceview.traces.recorders import options as profile
from traceview.traces.recorders import torch_recording, written_tables
from traceview.traces.recorders.job import (
    GATHERED,
    MARKER,
    Note,
    Recording,
    RecordingJob,
    command_of,
    python_of,
    rank_output,
    script_of,
    work_folder,
)
from traceview.traces.recorders.nsys import (
    ATTEMPTS,
    Aborted,
    Nsys,
    SizeLimit,
    StopSignals,
    export,
    find,
    handled,
    incompatibility,
)
from traceview.traces.recorders.options import (
    Backend,
    RecordOptions,
    environment,
    has_started,
    never_ran,
    nsys_only,
    remarks,
)
from traceview.traces.trace.nsys.ranges import NOTED
from traceview.traces.trace.scrub.scrubber import scrub


def record_with_nsys(job: RecordingJob, nsys: Nsys, options: RecordOptions) -> Recording:
    """Run the program of a job under nsys. Raises RecordingError if nsys leaves no recording."""
    if options.native_samples is None:
        options = replace(options, native_samples=python_of(job.command) is None)
    if options.steps and options.annotate == "off":
        # The hooks that add a range to each step also count the steps.
        options = replace(options, annotate="auto")
    able = profile.abilities(nsys)
    facts = dict(surroundings.describe(python_of(job.command), script_of(job.words)))
    for line in (incompatibility(facts.get("nvtx"), nsys), *profile.blind_spots(options, able)):
        if line:
            job.note(f"warning: {line}")
    try:
        # In the folder of the output: a rename is atomic only within one file system.
        with handled(job.patience_s) as requests, work_folder(job.out) as folder:
            requests.marker = f"{MARKER}={folder.name}"
            report = folder / "recording.nsys-rep"
            command = profile.profile_command(nsys, able, options, report, job.command, job.rank)
            added = {**environment(options, folder / GATHERED), "TMPDIR": str(folder)}
            # Other ranks, which may be running, are not foreign processes.
            facts |= surroundings.gpu_state("before", processes=job.rank is None)
            started = datetime.now(UTC)
            session = profile.session_of(options, able, report)
            with SizeLimit(nsys, session, folder, requests) as limit:
                status = _run(job, command, limit, requests, added, options)
            job.ended(status)
            if limit.reached_s is not None:
                facts["first_s"] = str(round(limit.reached_s))
                job.has_enough(limit.reached_s)
            facts |= surroundings.gpu_state("after")
            _import_again(job, nsys, report, requests)
            _check_report(report, options, status, job.out)
            for line in remarks(options, folder / GATHERED, job.command):
                job.note(f"warning: {line}")
            ended = requests.status or status
            shown = [word.replace(str(report), report.name) for word in command]
            facts |= {**job.run_facts(ended, started), **profile.bounds(options)}
            facts |= profile.unrecorded_step(folder / GATHERED)
            facts |= {"nsys_version": nsys.version_text, "nsys_command": shlex.join(shown)}
            if options.sync_sites and python_of(job.command):
                # Then a recording without marks means that nothing waited.
                facts[NOTED] = "marked"
            # For the sizes of NCCL collectives, which add 2 % to the file, and nsys's own stacks.
            _export(job, nsys, report, facts, options, include_json=able.exports_json)
            _finish(job, report)
            return Recording(job.out, ended, requests.status is not None, job.report)
    except Aborted as aborted:
        return Recording(None, aborted.status, interrupted=True)


def _run(
    job: RecordingJob,
    command: list[str],
    limit: SizeLimit,
    requests: StopSignals,
    added: Mapping[str, str],
    options: RecordOptions,
) -> int:
    """Run the program under nsys, again where nsys failed before it started. Its exit status."""
    folder, session = Path(added["TMPDIR"]), limit.session
    status = job.run(command, requests, added)
    for attempt in range(2, ATTEMPTS + 1):
        absent = never_ran(options, folder / GATHERED, job.command)
        if requests.signals or not absent or any(folder.glob("recording.*")):
            break
        job.note("warning: nsys failed before the program started; retrying")
        if limit.session:
            # The session of an nsys that lost its agent may still be there, and its name in use.
            new = f"{session}-{attempt}"
            command = profile.renamed_session(command, limit.session, new)
            limit.session = new
        status = job.run(command, requests, added)
    return status


def _import_again(job: RecordingJob, nsys: Nsys, report: Path, requests: StopSignals) -> None:
    """Retry a failed import of the raw recording: its cause is a race in nsys's importer."""
    for _ in range(ATTEMPTS - 1):
        raw = _raw_recording(report)
        if report.is_file() or raw is None or nsys.importer is None:
            return
        job.note("warning: nsys could not import its raw recording; retrying")
        job.run([str(nsys.importer), "-i", str(raw), "-o", str(report)], requests, {})


def _raw_recording(report: Path) -> Path | None:
    """The .qdstrm file that nsys wrote while the program ran; None without one or if empty."""
    return next((raw for raw in report.parent.glob("*.qdstrm") if raw.stat().st_size), None)


def _check_report(report: Path, options: RecordOptions, status: int, out: Path) -> None:
    if report.is_file():
        return
    if bound := profile.missed(options, " on a GPU"):
        what = f"nothing was recorded: {bound[0]} (exit status {status})"
        raise RecordingError(what, bound[1])
    doctor = "run traceview doctor, which tests nsys on an empty program"
    raw = _raw_recording(report)
    if raw is None:
        what = f"nsys left no recording (exit status {status}; see its message above)"
        raise RecordingError(what, doctor)
    # Moved beside the output, because the program may have run for hours.
    names = (f"{out.stem}{number or ''}.qdstrm" for number in count())
    kept = next(path for path in map(out.with_name, names) if not path.exists())
    # It contains the environment: readable by the user only.
    raw.chmod(0o600)
    raw.replace(kept)
    raise RecordingError(
        f"nsys could not import its raw recording (see its message above), kept as {kept}",
        f"{doctor}, then import it: QdstrmImporter -i {shlex.quote(str(kept))}",
    )


def _export(
    job: RecordingJob,
    nsys: Nsys,
    report: Path,
    facts: Mapping[str, str],
    options: RecordOptions,
    *,
    include_json: bool,
) -> None:
    """Export the report to raw.sqlite next to it, and add what the hooks gathered."""
    raw, gathered = report.with_name("raw.sqlite"), report.with_name(GATHERED)
    export(nsys, report, raw, include_json=include_json)
    # Before scrubbing: the command line may contain values of the environment.
    written_tables.write_run(raw, facts)
    # If no hook ran, nobody looked for kernels: write no table rather than an empty one.
    if has_started(gathered):
        written_tables.write_kernels(raw, gathered)
    elif options.kernels and python_of(job.command) is None:
        from traceview.traces.recorders.program_code import write_program_code

        write_program_code(raw, job.command)
    written_tables.write_python_samples(raw, gathered)
    written_tables.write_python_events(raw, gathered)
    if options.source_lines:
        folders = (Path.cwd(), script_of(job.words).absolute().parent)
        written_tables.write_source_tables(raw, folders)


def _finish(job: RecordingJob, report: Path) -> None:
    raw, clean = report.with_name("raw.sqlite"), report.with_name("clean.sqlite")
    if not job.keep_env:
        scrub(raw, clean, own=True)
    if job.report:
        shutil.copyfile(report, report.with_name("kept"))
        # It contains the environment: readable by the user only.
        report.with_name("kept").chmod(0o600)
        report.with_name("kept").replace(job.report)
    (raw if job.keep_env else clean).replace(job.out)


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
        recording = record_with_nsys(job, nsys, chosen)
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
