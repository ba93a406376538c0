"""Record a program with torch.profiler, which runs inside it, into one SQLite file."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from traceview.errors import RecordingError
from traceview.recorders import environment as surroundings
from traceview.recorders import gathering, interrupts, source_tables, torch_tables, written_tables
from traceview.recorders.injected.traceview_injected.torch_profile import CLAIMED
from traceview.recorders.injected.traceview_injected.torch_profile.session import TRACE, WRITING
from traceview.recorders.job import GATHERED, MARKER, Recording, RecordingJob, work_folder
from traceview.recorders.options import RecordOptions, bounds, missed
from traceview.recorders.program import python_of, script_of
from traceview.trace.nsys.sync_sites import NOTED
from traceview.trace.scrub.scrubber import scrub
from traceview.trace.stored.writer import write_trace

# Hides the two lines that Kineto prints whenever a profiler starts and stops.
_QUIET = {"KINETO_LOG_LEVEL": "6"}


def record_with_torch(job: RecordingJob, options: RecordOptions, torch_version: str) -> Recording:
    """Run the program of a job with torch.profiler in it.

    Raises RecordingError if the profiler leaves no trace.
    """
    facts = dict(surroundings.describe(python_of(job.command), script_of(job.words)))
    if options.steps and options.annotate == "off":
        options = replace(options, annotate="auto")
    try:
        with interrupts.handled(job.patience_s) as requests, work_folder(job.out) as folder:
            requests.marker = f"{MARKER}={folder.name}"
            gathered = folder / GATHERED
            gathered.mkdir()
            written, writing = gathered / TRACE, gathered / WRITING
            requests.is_writing = lambda: writing.exists() and not written.exists()
            # Other ranks, which may be running, are not foreign processes.
            facts |= surroundings.gpu_state("before", processes=job.rank is None)
            started = datetime.now(UTC)
            has_gpu, is_rank = "gpu" in facts, job.rank is not None
            added = _environment(options, gathered, has_gpu=has_gpu, is_rank=is_rank)
            status = job.run(job.command, requests, {**added, MARKER: folder.name})
            job.ended(status)
            facts |= surroundings.gpu_state("after")
            notes = gathering.remarks(options, gathered, job.command)
            _check_trace(gathered, options, status, notes)
            for line in notes:
                job.note(f"warning: {line}")
            ended = requests.status or status
            facts |= {**job.run_facts(ended, started), "backend": "torch", **bounds(options)}
            facts["torch"] = facts.get("torch", torch_version)
            if options.sync_sites:
                # Then a recording without marks means that nothing waited.
                facts[NOTED] = "marked"
            write_recording(
                gathered,
                job.out,
                facts,
                folders=(Path.cwd(), script_of(job.words).absolute().parent),
                excerpts=options.source_lines,
                keep_env=job.keep_env,
            )
            return Recording(job.out, ended, requests.status is not None)
    except interrupts.Aborted as aborted:
        return Recording(None, aborted.status, interrupted=True)


def _environment(
    options: RecordOptions, gathered: Path, *, has_gpu: bool, is_rank: bool = False
) -> Mapping[str, str]:
    settings = {"shapes": options.shapes, "steps": options.steps, "range": options.range_name}
    settings |= {"is_rank": is_rank}
    added = gathering.environment(
        options, gathered, sample_python=options.python_samples, torch_settings=json.dumps(settings)
    )
    # With a GPU, messages from CUPTI must stay visible.
    quiet = {} if has_gpu or "KINETO_LOG_LEVEL" in os.environ else _QUIET
    return {**added, **quiet}


def _check_trace(gathered: Path, options: RecordOptions, status: int, notes: list[str]) -> None:
    if (gathered / TRACE).is_file():
        return
    again = "record with --backend nsys"
    if not (gathered / CLAIMED).exists():
        ignored = not gathering.has_started(gathered) and options.kernels
        what = "the program did not import torch"
        if ignored:
            what = "its Python ignored PYTHONPATH (python -I, -E or -S)"
        raise RecordingError(f"nothing was recorded (exit status {status}): {what}", again)
    killed = status == 128 + signal.SIGKILL
    ended = "the program was killed" if killed else "torch.profiler left no trace"
    what, remedy = missed(options) or (ended, again)
    reason = f" ({notes[0]})" if notes else ""
    raise RecordingError(f"nothing was recorded: {what}; exit status {status}{reason}", remedy)


def write_recording(
    gathered: Path,
    out: Path,
    facts: Mapping[str, str],
    *,
    folders: tuple[Path, ...],
    excerpts: bool,
    keep_env: bool,
) -> None:
    """Write the trace, kernels and source lines in a gathered folder to `out`.

    `out` is replaced atomically. Raises TraceFormatError if the trace cannot be read.
    """
    raw, clean = gathered / "raw.sqlite", gathered / "clean.sqlite"
    trace = torch_tables.torch_trace(gathered, facts)
    write_trace(trace, raw)
    written_tables.write_run(raw, {**trace.run, **facts})
    if gathering.has_started(gathered):
        written_tables.write_kernels(raw, gathered)
    source_tables.write_source_tables(raw, folders, excerpts=excerpts)
    if not keep_env:
        scrub(raw, clean, own=True, environment=dict(os.environb))
    (raw if keep_env else clean).replace(out)
