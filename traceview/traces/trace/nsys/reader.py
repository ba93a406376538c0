"""Nsight Systems exports: from an open SQLite file to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from traceview.base import groups, stages
from traceview.base.tables import Table
from traceview.traces.trace.model import Trace
from traceview.traces.trace.nsys import added_tables, cpu_calls, export_info, program_output, tables
from traceview.traces.trace.nsys.added_tables import DOMAINS, PERIODIC, python_samples
from traceview.traces.trace.nsys.export_info import import_error, lacks_events
from traceview.traces.trace.nsys.nccl_calls import nccl_tables
from traceview.traces.trace.nsys.ranges import (
    RANGES,
    mpi_calls,
    nvtx_events,
    ranges,
    split_marks,
)
from traceview.traces.trace.nsys.rows import Export, ExportTable, Rows
from traceview.traces.trace.schema import TABLES
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.staged import (
    ImpossibleRows,
    Staged,
    ordered,
    thrifty_columns,
    warnings_of,
    window,
    without_impossible,
)

_OF_ROWS: Mapping[str, tuple[ExportTable, Callable[[tables.Reader, Rows], Staged]]] = {
    "kernels": (tables.KERNELS, tables.kernels),
    "copies": (tables.COPIES, tables.copies),
    "sets": (tables.SETS, tables.sets),
    "graph_launches": (tables.GRAPH_LAUNCHES, tables.graph_launches),
    "api_calls": (tables.API_CALLS, tables.api_calls),
    "callchains": (cpu_calls.CALLCHAINS, cpu_calls.callchains),
    "memory_events": (tables.MEMORY_EVENTS, tables.memory_events),
    "jit_compilations": (cpu_calls.JIT, cpu_calls.jit_compilations),
    "diagnostics": (tables.DIAGNOSTICS, tables.diagnostics),
}
_OF_KNOWN_THREADS: Mapping[str, tuple[ExportTable, Callable[[tables.Reader, Rows], Staged]]] = {
    "thread_runs": (cpu_calls.SCHEDULING, cpu_calls.thread_runs),
    "os_calls": (cpu_calls.OS_CALLS, cpu_calls.os_calls),
    "native_samples": (cpu_calls.NATIVE_SAMPLES, cpu_calls.native_samples),
}
"""Tables of the whole system, of which the rows of threads in other tables are kept; of samples,
which come last, those of all threads of their processes."""
_OF_SEVERAL: Mapping[str, Callable[[tables.Reader], Staged | None]] = {
    "overheads": tables.overheads,
    "host_functions": cpu_calls.host_functions,
    "kernel_code": lambda reader: added_tables.staged(reader.export.database),
    "python_events": added_tables.own_events,
    "source_lines": lambda reader: added_tables.source_excerpts(reader.export.database),
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
    run = {**export_info.clock_origin(database), **meta.run}
    run |= export_info.call_error(database, staged)
    run |= program_output.program_error(database, staged)
    several = "kernels" in staged and len(groups.different(staged["kernels"]["process"])) > 1
    if not several and "rank" not in meta.run:
        # Of several processes that used GPUs, nothing tells which has the rank.
        run = {**export_info.rank_of_program(database), **run}
    return Trace(
        path=path,
        recorder="nsys",
        recorder_version=meta.recorder_version,
        export_schema_version=meta.schema,
        tables=staged,
        run=run,
        capture=meta.capture,
        warnings=(*_import_warnings(staged), *warnings_of(impossible), *export.warnings),
        impossible=impossible,
        unread=export_info.unread_tables(export),
    )


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


def _unsettled(reader: tables.Reader, run: Mapping[str, str]) -> dict[str, Staged | None]:
    """The staged tables, with provisional numbers of processes, threads and GPUs."""
    unsettled: dict[str, Staged | None] = {}

    def keep(name: str, staged: Staged | None) -> None:
        unsettled[name] = None if staged is None else thrifty_columns(staged)

    def read_rows(name: str, source: ExportTable, make: Callable[..., Staged], *more: Any) -> None:
        rows = reader.export.rows(source)
        keep(name, None if rows is None else make(reader, rows, *more))

    for name, staged in _of_nvtx(reader).items():
        keep(name, staged)
    unsettled["ranges"], unsettled["call_sites"] = split_marks(unsettled["ranges"], run)
    for name, (source, make) in stages.in_stage("Reading the trace", _OF_ROWS.items()):
        read_rows(name, source, make)
    for name, make_table in _OF_SEVERAL.items():
        keep(name, make_table(reader))
    name, calls = "synchronizations", unsettled["api_calls"]
    read_rows(name, cpu_calls.SYNCHRONIZATIONS, cpu_calls.synchronizations, calls)
    for name, (source, make) in _OF_KNOWN_THREADS.items():
        read_rows(name, source, make)
    stacks = {name: unsettled[name] for name in ("native_samples", "os_calls")}
    keep("native_frames", cpu_calls.native_frames(reader, stacks))
    return unsettled


def _staged(
    reader: tables.Reader, meta: export_info.ExportMeta
) -> tuple[dict[str, Table], tuple[ImpossibleRows, ...]]:
    """The tables, and the rows that they leave out."""
    export, unsettled = reader.export, _unsettled(reader, meta.run)
    settled = reader.owners.settle(export.database, reader.names)
    export.warnings += settled.warnings
    recorded: dict[str, Table] = {}
    impossible: list[ImpossibleRows] = []
    within = window(unsettled, export_info.length_of(meta.capture))

    def record(name: str, staged: Staged) -> None:
        possible, left_out = without_impossible(name, staged, within)
        impossible.extend(left_out)
        recorded[name] = Table(TABLES[name].columns, possible)

    for name in TABLES:
        staged = unsettled.pop(name, None)
        if staged is not None:
            # Rebind the name: unsorted columns can be freed only if nothing else refers to them.
            staged = ordered(name, settled.renumber(staged))
            record(name, staged)
    for name in export_info.empty_tables(export, meta, recorded):
        recorded[name] = Table.empty(TABLES[name].columns)
    if (samples := export.rows(tables.METRIC_SAMPLES)) is not None:
        devices = settled.tables["devices"]
        record("gpu_metrics", tables.gpu_metrics(samples, export.database, devices))
    return {**recorded, **settled.tables}, tuple(impossible)


def _of_nvtx(reader: tables.Reader) -> dict[str, Staged | None]:
    """Ranges, calls of MPI among them, NCCL calls, and Python stacks.

    The stacks are marks of nsys, or tables of `traceview record`.
    """
    events = nvtx_events(reader)
    staged: dict[str, Staged | None] = {"ranges": None}
    sampled, parts = None, [*mpi_calls(reader)]
    if events is not None:
        parts.insert(0, ranges(reader, events, events.of_domains(reader, DOMAINS)))
        staged |= nccl_tables(reader, events)
        sampled = python_samples(reader, events.of_domains(reader, {PERIODIC}))
    staged["ranges"] = tables.stacked(parts)
    sampled = sampled or added_tables.own_samples(reader)
    if sampled is not None:
        staged["python_samples"] = sampled[0]
        frames = added_tables.with_sources(reader.export.database, sampled[1])
        staged["python_frames"] = frames
    return staged
