"""Damaged tables of an export: side tables are left out and named, the others are an error."""

import sqlite3
from contextlib import closing

import pytest

from tests.trace.nsys.exports import KERNEL, NVTX, RUNTIME, call, kernel, nvtx, write_export
from traceview.base.errors import TraceFormatError
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys import added_tables, cpu_calls, tables

SIDE = {
    cpu_calls.CALLCHAINS: "callchains",
    tables.MEMORY_EVENTS: "memory_events",
    tables.PROFILER_OVERHEADS: "overheads",
    tables.CUPTI_OVERHEADS: "overheads",
    cpu_calls.ON_STREAM: "host_functions",
    cpu_calls.ON_THREAD: "host_functions",
    cpu_calls.JIT: "jit_compilations",
    tables.DIAGNOSTICS: "diagnostics",
    tables.METRIC_SAMPLES: "gpu_metrics",
    cpu_calls.SCHEDULING: "thread_runs",
    cpu_calls.OS_CALLS: "os_calls",
    cpu_calls.OS_FRAMES: "native_frames",
    cpu_calls.NATIVE_SAMPLES: "native_samples",
    cpu_calls.SAMPLED_FRAMES: "native_frames",
    added_tables.OWN_SAMPLES: "python_samples",
    added_tables.OWN_FRAMES: "python_frames",
}
GLOBAL_ID = 1 << 48 | 10 << 24 | 11


def export(path, *sources):
    """An export with a kernel, a call, a range, and a row in each of these tables."""
    write_export(path, {KERNEL: [kernel(0, 9)], RUNTIME: [call(0, 5)], NVTX: [nvtx(0, 9)]})
    with closing(sqlite3.connect(path)) as connection, connection:
        for source in sources:
            names = (*source.required, *source.optional, *source.texts)
            connection.execute(f"CREATE TABLE {source.table} ({', '.join(names)})")
            ids = dict.fromkeys(("globalTid", "globalPid"), GLOBAL_ID)
            row = ["text" if name in source.texts else ids.get(name, 1) for name in names]
            marks = ", ".join("?" * len(names))
            connection.execute(f"INSERT INTO {source.table} VALUES ({marks})", row)
    return path


def damage(path, table):
    """Overwrite the first page of a table, the root of its tree."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
    content = bytearray(path.read_bytes())
    content[(root - 1) * size : root * size] = b"\xff" * size
    path.write_bytes(content)


@pytest.mark.parametrize("source", SIDE, ids=lambda source: source.table)
def test_a_side_table_is_left_out_and_named(tmp_path, source):
    needed = {cpu_calls.OS_FRAMES: cpu_calls.OS_CALLS}
    needed |= {cpu_calls.SAMPLED_FRAMES: cpu_calls.NATIVE_SAMPLES}
    needed |= {added_tables.OWN_SAMPLES: added_tables.OWN_FRAMES}
    needed |= {added_tables.OWN_FRAMES: added_tables.OWN_SAMPLES}
    path = export(tmp_path / "t.sqlite", source, *([needed[source]] if source in needed else []))
    sound = load(path)
    assert SIDE[source] in sound.tables
    assert sound.warnings == ()

    damage(path, source.table)
    trace = load(path)

    assert SIDE[source] not in trace.tables
    assert trace.warnings == (
        f"table {source.table} is damaged, as SQLite finds; the table was left out",
    )
    assert len(trace.kernels) == len(trace.api_calls) == len(trace.ranges) == 1


@pytest.mark.parametrize("table", [KERNEL, RUNTIME, NVTX])
def test_a_table_of_what_most_answers_need_is_an_error(tmp_path, table):
    path = export(tmp_path / "t.sqlite")
    damage(path, table)

    with pytest.raises(TraceFormatError, match=f"table {table} is damaged"):
        load(path)
