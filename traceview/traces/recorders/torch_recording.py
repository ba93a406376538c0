"""Record a program with torch.profiler, and add what the hooks in the program gather."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from traceview.base.errors import RecordingError
from traceview.base.tables import Array, Mask, Table, Texts, object_array, rows_of
from traceview.traces.recorders import checks as surroundings
from traceview.traces.recorders import nsys, written_tables
from traceview.traces.recorders.injected.traceview_injected import python_events
from traceview.traces.recorders.injected.traceview_injected.notes import STOPPED
from traceview.traces.recorders.injected.traceview_injected.python_sampler import SUFFIX
from traceview.traces.recorders.injected.traceview_injected.torch_profile import (
    CLAIMED,
    mirrored_ranges,
    session,
)
from traceview.traces.recorders.job import (
    GATHERED,
    MARKER,
    Recording,
    RecordingJob,
    python_of,
    script_of,
    work_folder,
)
from traceview.traces.recorders.options import (
    RecordOptions,
    bounds,
    environment,
    has_started,
    missed,
    remarks,
    unrecorded_step,
)
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import EVENT_TEXTS
from traceview.traces.trace.nsys.ranges import NOTED, split_marks
from traceview.traces.trace.schema import TABLES, THREADS
from traceview.traces.trace.scrub.scrubber import scrub
from traceview.traces.trace.staged import INT32, Staged, absent_texts
from traceview.traces.trace.stored_writer import write_trace


def torch_trace(gathered: Path, facts: Mapping[str, str]) -> Trace:
    """The trace in a gathered folder, with the ranges and samples beside it.

    Raises TraceFormatError or RecordingError if a file is damaged.
    """
    trace = load(gathered / session.TRACE)
    try:
        beside = json.loads((gathered / session.RANGES).read_bytes())
        ranges = [(domain, str(text), str(kind)) for domain, text, kind in beside["ranges"]]
        process = int(beside["process"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        what = f"the names of the program's ranges cannot be read ({error})"
        raise RecordingError(what, "record again") from error
    trace = replace(trace, recorder_version=facts.get("torch"))
    trace = _with_ranges(trace, ranges, facts)
    for path in sorted(gathered.glob(f"{process}-*{SUFFIX}")):
        trace = _with_samples(trace, written_tables.sampled_process(path))
    return _with_events(trace, process, gathered / f"{process}{python_events.SUFFIX}")


def _with_ranges(
    trace: Trace, texts: Sequence[tuple[str | None, str, str]], facts: Mapping[str, str]
) -> Trace:
    """The trace with the texts of mirrored ranges, and with sync marks as call sites."""
    ranges = trace.recorded("ranges")
    staged: Staged = {
        column.name: ranges.texts(column.name) if column.dtype == "text" else ranges[column.name]
        for column in ranges.columns
    }
    unmarked, sites = split_marks(_named(staged, texts), facts)
    assert unmarked is not None
    tables = dict(trace.tables)
    if "ranges" in tables:
        tables["ranges"] = Table(TABLES["ranges"].columns, unmarked)
    if sites is not None and not len(trace.recorded("call_sites")):
        tables["call_sites"] = Table(TABLES["call_sites"].columns, sites)
    return replace(trace, tables=tables)


def _named(staged: Staged, texts: Sequence[tuple[str | None, str, str]]) -> Staged:
    """The ranges, with text, domain and kind filled in where a mirrored range has a number."""
    names = staged["name"]
    assert isinstance(names, Texts)
    prefix = mirrored_ranges.PREFIX
    number_of = np.full(len(names.values) + 1, -1, np.int64)
    for code, name in enumerate(map(str, names.values)):
        digits = name.removeprefix(prefix)
        if digits != name and digits.isdecimal() and len(digits) < 10 and int(digits) < len(texts):
            number_of[code] = int(digits)
    number = number_of[names.codes]
    mirrored = number >= 0
    if not mirrored.any():
        return staged
    columns = zip(("domain", "name", "kind"), zip(*texts, strict=True), strict=True)
    return {**staged, **{c: _replaced(staged[c], mirrored, number, new) for c, new in columns}}


def _replaced(column: Array | Texts, rows: Mask, number: Array, new: Sequence[str | None]) -> Texts:
    """A text column, with `new[number]` in the selected rows."""
    assert isinstance(column, Texts)
    replaced = Texts.of(new)
    codes = np.append(replaced.codes, np.int32(-1))[number]
    shifted = np.where(codes < 0, codes, codes + len(column.values))
    merged = np.where(rows, shifted, column.codes).astype(np.int32)
    values = object_array([*column.values, *replaced.values])
    return Texts(merged, values).map([str(value) for value in values])


def _with_samples(trace: Trace, sampled: written_tables.SampledProcess) -> Trace:
    """The trace with the Python stacks that the sampler in the program took."""
    origin = int(trace.run.get("clock_origin_ns", "0"))
    clocked = ((time - origin, thread, stack) for time, thread, stack in sampled.samples)
    last = _last_ns(trace)
    kept = [sample for sample in clocked if 0 <= sample[0] <= last]
    frames = [frame for frame in sampled.frames if frame]
    if not kept or not frames:
        return trace
    time, thread, stack = np.array(kept, np.int64).T
    threads, row = _thread_rows(trace, sampled.process_id, thread)
    # New numbers of the stacks with frames that were sampled; −1 for those without frames.
    used = {frame[0] for frame in frames}.intersection(stack.tolist())
    number_of = {old: new for new, old in enumerate(sorted(used))}
    number = np.array([number_of.get(old, -1) for old in stack.tolist()], np.int32)
    samples: dict[str, Any] = {
        "time_ns": time,
        "process": threads["process"][row],
        "thread": row.astype(np.int32),
        "stack": number,
        "state": absent_texts(len(time)),
    }
    order = np.flatnonzero(number >= 0)
    order = order[np.argsort(time[order], kind="stable")]
    tables = {
        **trace.tables,
        "threads": threads,
        "python_samples": Table(
            TABLES["python_samples"].columns, {c: rows_of(v, order) for c, v in samples.items()}
        ),
        "python_frames": _frames(number_of, frames),
    }
    return replace(trace, tables=tables)


def _last_ns(trace: Trace) -> int:
    ends = [
        int(table["end_ns"].max())
        for table in trace.tables.values()
        if len(table) and any(column.name == "end_ns" for column in table.columns)
    ]
    return max(ends, default=0)


def _with_events(trace: Trace, process_id: int, path: Path) -> Trace:
    """The trace with the garbage collections and compilations of its process."""
    origin = int(trace.run.get("clock_origin_ns", "0"))
    if not path.is_file():
        return trace
    events = list(
        written_tables.recorded_events(path, lambda time_ns: time_ns - origin, _last_ns(trace))
    )
    threads, row = _thread_rows(
        trace, process_id, np.array([e["thread"] for e in events], np.int64)
    )
    process = threads["process"][row].tolist()
    rows = [
        {
            **{name: event[name] for name in EVENT_TEXTS},
            "guards_ns": event["guards"] or None,
            "line": event["line"] if 0 < event["line"] <= INT32.max else None,
            "start_ns": event["start"],
            "end_ns": event["end"],
            "thread": thread,
            "process": owner,
        }
        for event, thread, owner in zip(events, row.tolist(), process, strict=True)
    ]
    rows.sort(key=lambda each: each["start_ns"])
    table = Table.from_rows(TABLES["python_events"].columns, rows)
    return replace(trace, tables={**trace.tables, "threads": threads, "python_events": table})


def _thread_rows(trace: Trace, process_id: int, thread: Array) -> tuple[Table, Array]:
    """Threads including those known only from samples, and the row of each sample's thread."""
    process = int((trace.processes["process_id"] == process_id).argmax())
    rows = list(trace.threads.rows())
    row_of = {(cells["process"], cells["thread_id"]): number for number, cells in enumerate(rows)}
    distinct, codes = np.unique(thread, return_inverse=True)
    numbers = []
    for thread_id in distinct.tolist():
        if (process, thread_id) not in row_of:
            row_of[process, thread_id] = len(rows)
            rows.append({"process": process, "thread_id": thread_id, "name": None})
        numbers.append(row_of[process, thread_id])
    return Table.from_rows(THREADS.columns, rows), np.array(numbers, np.int64)[codes.reshape(-1)]


def _frames(number_of: Mapping[int, int], frames: Sequence[tuple[int, int, str, str]]) -> Table:
    rows: list[dict[str, Any]] = []
    depth: dict[int, int] = {}
    for old, line, file, function in frames:
        stack = number_of.get(old)
        if stack is not None:
            place = depth[stack] = depth.get(stack, -1) + 1
            where = {"file": file, "line": line if 0 < line <= INT32.max else None}
            named = {**where, "function": function, "source": None}
            rows.append({"stack": stack, "depth": place, **named})
    rows.sort(key=lambda row: (row["stack"], row["depth"]))
    return Table.from_rows(TABLES["python_frames"].columns, rows)


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
        with nsys.handled(job.patience_s) as requests, work_folder(job.out) as folder:
            requests.marker = f"{MARKER}={folder.name}"
            gathered = folder / GATHERED
            gathered.mkdir()
            written, writing = gathered / session.TRACE, gathered / session.WRITING
            requests.is_writing = lambda: writing.exists() and not written.exists()
            # Other ranks, which may be running, are not foreign processes.
            facts |= surroundings.gpu_state("before", processes=job.rank is None)
            started = datetime.now(UTC)
            has_gpu, is_rank = "gpu" in facts, job.rank is not None
            added = _environment(options, gathered, has_gpu=has_gpu, is_rank=is_rank)
            status = job.run(job.command, requests, {**added, MARKER: folder.name})
            job.ended(status)
            facts |= surroundings.gpu_state("after")
            notes = remarks(options, gathered, job.command)
            _check_trace(gathered, options, status, notes)
            for line in notes:
                job.note(f"warning: {line}")
            ended = requests.status or status
            facts |= {**job.run_facts(ended, started), "backend": "torch", **bounds(options)}
            facts |= unrecorded_step(gathered)
            if (after_s := _stopped_after_s(gathered)) is not None:
                facts["first_s"] = str(round(after_s))
                job.has_enough(after_s)
            facts["torch"] = facts.get("torch", torch_version)
            if options.sync_sites:
                # Then a recording without marks means that nothing waited.
                facts[NOTED] = "marked"
            write_recording(
                gathered,
                job.out,
                facts,
                folders=(Path.cwd(), script_of(job.words).absolute().parent),
                source_lines=options.source_lines,
                keep_env=job.keep_env,
            )
            return Recording(job.out, ended, requests.status is not None)
    except nsys.Aborted as aborted:
        return Recording(None, aborted.status, interrupted=True)


def _stopped_after_s(gathered: Path) -> float | None:
    """When the recording was long enough, in seconds from its start; None if it never was."""
    try:
        return float((gathered / STOPPED).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _environment(
    options: RecordOptions, gathered: Path, *, has_gpu: bool, is_rank: bool = False
) -> Mapping[str, str]:
    settings = {"shapes": options.shapes, "steps": options.steps, "range": options.range_name}
    settings |= {"is_rank": is_rank, "whole": options.whole}
    added = environment(options, gathered, torch_settings=json.dumps(settings))
    # With a GPU, messages from CUPTI must stay visible.
    quiet = {} if has_gpu or "KINETO_LOG_LEVEL" in os.environ else _QUIET
    return {**added, **quiet}


def _check_trace(gathered: Path, options: RecordOptions, status: int, notes: list[str]) -> None:
    if (gathered / session.TRACE).is_file():
        return
    again = "record with --backend nsys"
    if not (gathered / CLAIMED).exists():
        ignored = not has_started(gathered) and options.kernels
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
    source_lines: bool,
    keep_env: bool,
) -> None:
    """Write the trace, kernels and source lines in a gathered folder to `out`.

    `out` is replaced atomically. Raises TraceFormatError if the trace cannot be read.
    """
    raw, clean = gathered / "raw.sqlite", gathered / "clean.sqlite"
    trace = torch_trace(gathered, facts)
    write_trace(trace, raw)
    written_tables.write_run(raw, {**trace.run, **facts})
    if has_started(gathered):
        written_tables.write_kernels(raw, gathered)
    if source_lines:
        written_tables.write_source_tables(raw, folders)
    if not keep_env:
        scrub(raw, clean, own=True, environment=dict(os.environb))
    (raw if keep_env else clean).replace(out)
