"""Nsight Systems exports: from an open SQLite file to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from traceview import groups, stages
from traceview.tables import Table, Texts, thrifty
from traceview.trace.impossible_rows import ImpossibleRows, warnings_of, window, without_impossible
from traceview.trace.model import Trace
from traceview.trace.nsys import absent_tables, added_tables, cpu_calls, export_info, tables
from traceview.trace.nsys.added_tables import own_samples, source_excerpts, with_sources
from traceview.trace.nsys.importer_errors import import_error, lacks_events
from traceview.trace.nsys.metrics import gpu_metrics
from traceview.trace.nsys.native_samples import native_frames, native_samples
from traceview.trace.nsys.nccl_calls import nccl_tables
from traceview.trace.nsys.python_samples import DOMAINS, PERIODIC, python_samples
from traceview.trace.nsys.ranges import RANGES, nvtx_events, ranges
from traceview.trace.nsys.rows import Export, Staged
from traceview.trace.nsys.sync_sites import split_marks
from traceview.trace.row_order import ordered
from traceview.trace.schema import TABLES
from traceview.trace.sqlite.file import Database

_READERS: Mapping[str, Callable[[tables.Reader], Staged | None]] = {
    "kernels": tables.kernels,
    "copies": tables.copies,
    "sets": tables.sets,
    "graph_launches": tables.graph_launches,
    "api_calls": tables.api_calls,
    "callchains": cpu_calls.callchains,
    "memory_events": tables.memory_events,
    "overheads": tables.overheads,
    "host_functions": cpu_calls.host_functions,
    "jit_compilations": cpu_calls.jit_compilations,
    "diagnostics": tables.diagnostics,
    "kernel_code": lambda reader: added_tables.staged(reader.export.database),
    "source_lines": lambda reader: source_excerpts(reader.export.database),
}


def read(database: Database, path: str) -> Trace:
    """Read an nsys export; `path` is the name shown to the user.

    Raises TraceFormatError if it is not an nsys export; sqlite3.Error if it is damaged.
    """
    meta = export_info.read_meta(database)
    export = Export(database)
    export.warnings += export_info.version_warnings(meta)
    # The longest tables in the order of `_staged`: while one is processed, the pages of the next
    # are decoded. Ranges take longest to process.
    export.read_ahead(RANGES, tables.KERNELS, tables.API_CALLS)
    staged, impossible = _staged(tables.Reader(export), meta)
    return Trace(
        path=path,
        recorder="nsys",
        recorder_version=meta.recorder_version,
        export_schema_version=meta.schema,
        tables=staged,
        run=_run(database, meta, staged),
        capture=meta.capture,
        warnings=(*_import_warnings(staged), *warnings_of(impossible), *export.warnings),
        impossible=impossible,
        unread=absent_tables.unread_tables(export),
    )


def _run(
    database: Database, meta: export_info.ExportMeta, staged: Mapping[str, Table]
) -> Mapping[str, str]:
    """TRACEVIEW_RUN, the start of the clock, and the rank if only one process used GPUs."""
    run = {**export_info.clock_origin(database), **meta.run}
    several = "kernels" in staged and len(groups.different(staged["kernels"]["process"])) > 1
    if several or "rank" in meta.run:
        return run
    return {**export_info.rank_of_program(database), **run}


def _import_warnings(staged: Mapping[str, Table]) -> list[str]:
    if "diagnostics" not in staged:
        return []
    messages = staged["diagnostics"]
    # Losses of a single process are reported by trace-health.
    about_all = messages.take(messages.is_null("process_id"))
    error = import_error(str(text) for text in about_all.texts("text").decode())
    if error is None or not lacks_events(staged):
        return []
    return [f"nsys failed to import all events, so every figure covers only part of them: {error}"]


def _staged(
    reader: tables.Reader, meta: export_info.ExportMeta
) -> tuple[dict[str, Table], tuple[ImpossibleRows, ...]]:
    """The tables, and the rows that they leave out."""
    unsettled = {name: _thrifty(staged) for name, staged in _of_nvtx(reader).items()}
    unsettled["ranges"], unsettled["call_sites"] = split_marks(unsettled["ranges"], meta.run)
    for name, read_table in stages.in_stage("Reading the trace", _READERS.items()):
        unsettled[name] = _thrifty(read_table(reader))
    unsettled["synchronizations"] = cpu_calls.synchronizations(reader, unsettled["api_calls"])
    unsettled["thread_runs"] = cpu_calls.thread_runs(reader)
    unsettled |= {name: _thrifty(staged) for name, staged in _native_stacks(reader).items()}
    settled = reader.owners.settle(reader.export.database, reader.names)
    reader.export.warnings += settled.warnings
    recorded: dict[str, Table] = {}
    impossible: list[ImpossibleRows] = []
    within = window(unsettled, export_info.length_of(meta.capture))
    for name in TABLES:
        staged = unsettled.pop(name, None)
        if staged is not None:
            # Rebind the name: unsorted columns can be freed only if nothing else refers to them.
            staged = ordered(name, settled.renumber(staged))
            staged, found = without_impossible(name, staged, within)
            impossible += found
            recorded[name] = Table(TABLES[name].columns, staged)
    for name in absent_tables.empty_tables(reader.export, meta, recorded):
        recorded[name] = Table.empty(TABLES[name].columns)
    sampled = gpu_metrics(reader.export, settled.tables["devices"])
    if sampled is not None:
        sampled, found = without_impossible("gpu_metrics", sampled, within)
        impossible += found
        recorded["gpu_metrics"] = Table(TABLES["gpu_metrics"].columns, sampled)
    return {**recorded, **settled.tables}, tuple(impossible)


def _of_nvtx(reader: tables.Reader) -> dict[str, Staged | None]:
    """Ranges, NCCL calls, and Python stacks: marks of nsys, or tables of `traceview record`."""
    events = nvtx_events(reader)
    staged: dict[str, Staged | None] = {"ranges": None}
    sampled = None
    if events is not None:
        staged["ranges"] = ranges(reader, events, events.of_domains(reader, DOMAINS))
        nccl = nccl_tables(reader, events)
        if nccl is not None:
            staged |= {"collective_calls": nccl.calls, "communicators": nccl.communicators}
        sampled = python_samples(reader, events.of_domains(reader, {PERIODIC}))
    sampled = sampled or own_samples(reader)
    if sampled is not None:
        staged["python_samples"] = sampled[0]
        staged["python_frames"] = with_sources(reader.export.database, sampled[1])
    return staged


def _native_stacks(reader: tables.Reader) -> dict[str, Staged | None]:
    """Samples of native code, OS runtime calls, and the stacks of both."""
    staged = {"native_samples": native_samples(reader), "os_calls": cpu_calls.os_calls(reader)}
    return {**staged, "native_frames": native_frames(reader, staged)}


def _thrifty(staged: Staged | None) -> Staged | None:
    """Store constant columns, about half of all columns in most traces, as a single value."""
    if staged is None:
        return None
    return {
        column: values.thrifty() if isinstance(values, Texts) else thrifty(values)
        for column, values in staged.items()
    }
