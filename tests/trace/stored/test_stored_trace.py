"""A trace that was written to an SQLite file of ours is read back as it was."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.build import without
from tests.places import DATA
from tests.trace.kineto.traces import training, write
from traceview.base.errors import TraceFormatError
from traceview.traces.reporting import analyze
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load
from traceview.traces.trace.scrub.scrubber import scrub
from traceview.traces.trace.stored_writer import write_trace

RECORDINGS = ("two_processes", "host_loop", "ddp_late", "graph_nodes", "training")


def assert_same(first: Trace, second: Trace) -> None:
    assert first.tables.keys() == second.tables.keys()
    for name, table in first.tables.items():
        for column in table.columns:
            assert table.cells(column.name) == second.tables[name].cells(column.name), (
                name,
                column,
            )
    for name in ("run", "capture", "warnings", "recorder", "recorder_version"):
        assert getattr(first, name) == getattr(second, name)


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return path


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_trace(load(DATA / "training.sqlite.xz"), tmp_path / "stored.sqlite")
    return tmp_path / "stored.sqlite"


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_of_nsys(name: str, tmp_path: Path):
    trace = load(DATA / f"{name}.sqlite.xz")
    write_trace(trace, tmp_path / "stored.sqlite")
    assert_same(trace, load(tmp_path / "stored.sqlite"))


def test_a_trace_of_torch_profiler_gets_the_same_findings(tmp_path: Path):
    trace = load(write(tmp_path / "t.json", training()))
    write_trace(trace, tmp_path / "stored.sqlite")
    again = load(tmp_path / "stored.sqlite")
    assert_same(trace, again)
    assert [str(f) for f in analyze(again).findings] == [str(f) for f in analyze(trace).findings]


def test_sql_finds_the_kernels_by_name(stored: Path):
    trace = load(DATA / "training.sqlite.xz")
    query = (
        "SELECT t.value, count(*), sum(k.end_ns - k.start_ns) FROM kernels AS k "
        "JOIN TRACEVIEW_TEXTS AS t ON t.id = k.short_name GROUP BY 1"
    )
    with closing(sqlite3.connect(stored)) as connection:
        found = {name: (calls, total) for name, calls, total in connection.execute(query)}
    names = trace.kernels.texts("short_name").decode()
    for name, (calls, total) in found.items():
        mine = names == name
        assert (calls, total) == (mine.sum(), trace.kernels.duration_ns[mine].sum())
    assert sum(calls for calls, _ in found.values()) == len(trace.kernels)


def test_an_absent_table_stays_absent_and_an_empty_one_empty(tmp_path: Path):
    trace = without(load(DATA / "training.sqlite.xz"), "copies")
    none = trace.kernels.take(trace.kernels["start_ns"] < 0)
    trace = trace.but(tables={**trace.tables, "kernels": none})
    write_trace(trace, tmp_path / "stored.sqlite")
    again = load(tmp_path / "stored.sqlite")
    assert "copies" not in again.tables
    assert len(again.kernels) == 0


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE TRACEVIEW_TRACE SET value = '2' WHERE name = 'format'", "reads up to 1"),
        ("UPDATE TRACEVIEW_TRACE SET value = 'x' WHERE name = 'format'", "names no format"),
        ("UPDATE kernels SET short_name = 1000000", "names unknown texts"),
        ("UPDATE kernels SET short_name = NULL", "has no value"),
        ("UPDATE kernels SET grid_x = 1 << 40", "out of range"),
        ("UPDATE kernels SET process = 77", "a process is not in table processes"),
        ("UPDATE kernels SET device = -1", "a device is not in table devices"),
        ("UPDATE TRACEVIEW_TEXTS SET id = 1 << 50 WHERE id = 0", "is damaged"),
        ("DROP TABLE TRACEVIEW_TEXTS", "names unknown texts"),
        ("ALTER TABLE kernels DROP COLUMN end_ns", "has no column end_ns"),
        ("ALTER TABLE TRACEVIEW_TEXTS DROP COLUMN id", "table TRACEVIEW_TEXTS has no column id"),
        ("UPDATE kernels SET start_ns = 'soon'", "instead of integers"),
        ("DROP TABLE threads", "is not in table threads"),
    ],
)
def test_damage_is_one_line(stored: Path, statement: str, message: str):
    with pytest.raises(TraceFormatError, match=message) as error:
        load(changed(stored, statement))
    assert "\n" not in str(error.value)


def test_scrubbing_keeps_names_and_removes_home_folders(stored: Path, tmp_path: Path):
    changed(
        stored,
        "INSERT INTO TRACEVIEW_RUN VALUES ('command_line2', 'train.py --key s3cr3t-t0ken')",
        "UPDATE TRACEVIEW_TEXTS SET value = '/home/someone/train.py' WHERE id = 3",
    )
    out = tmp_path / "clean.sqlite"
    scrub(stored, out, environment={b"API_KEY": b"s3cr3t-t0ken"})
    content = out.read_bytes()
    assert b"s3cr3t" not in content
    assert b"someone" not in content
    names = load(stored).kernels.texts("name").decode().tolist()
    kept = [name.replace("/home/someone", "~") for name in names]
    assert load(out).kernels.texts("name").decode().tolist() == kept
