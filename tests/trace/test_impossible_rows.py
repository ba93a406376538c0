"""Rows that cannot be true, in any table and of any kind, against an oracle in plain Python.

A recording is written whole; then random rows are damaged by SQL. The oracle reads the damaged file
row by row and says which rows can be true. The trace must have these, and count the others.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build import Export
from tests.oracles.plain_library import in_place_of_c
from tests.trace.kineto.traces import text, training
from traceview.traces.reporting import analyze
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load
from traceview.traces.trace.stored_writer import write_trace

LENGTH = 50_000_000
SLACK = 100_000_000 + LENGTH // 100
MOST_BYTES = 1 << 44
Row = dict[str, object]


class Source(NamedTuple):
    """A table of the file and of the trace, and the columns that make its rows possible."""

    stored: str
    table: str
    start: str
    end: str | None
    may_stay_open: bool = False
    size: str | None = None


OF_NSYS = (
    Source("CUPTI_ACTIVITY_KIND_KERNEL", "kernels", "start", "end"),
    Source("CUPTI_ACTIVITY_KIND_MEMCPY", "copies", "start", "end", size="bytes"),
    Source("CUPTI_ACTIVITY_KIND_MEMSET", "sets", "start", "end", size="bytes"),
    Source("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "synchronizations", "start", "end"),
    Source("CUPTI_ACTIVITY_KIND_RUNTIME", "api_calls", "start", "end"),
    Source("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graph_launches", "start", "end"),
    Source("NVTX_EVENTS", "ranges", "start", "end", may_stay_open=True),
    Source("OSRT_API", "os_calls", "start", "end"),
    Source("PROFILER_OVERHEAD", "overheads", "start", "end"),
    Source("CUDA_GPU_MEMORY_USAGE_EVENTS", "memory_events", "start", None, size="bytes"),
    Source("COMPOSITE_EVENTS", "native_samples", "start", None),
)
OF_STORED = tuple(
    Source(
        each.table,
        each.table,
        "start_ns" if each.end else "time_ns",
        "end_ns" if each.end else None,
        each.may_stay_open,
        each.size,
    )
    for each in OF_NSYS
)


def recording() -> Export:
    export = Export()
    export.raw("ANALYSIS_DETAILS", globalVid=1, duration=LENGTH, startTime=0, stopTime=LENGTH)
    for step in range(6):
        at = 8_000_003 * step + 17
        export.range(f"step_{step}", at, at + 7_000_001)
        export.launch((at + 11, at + 5_003), (at + 9_001, at + 900_007))
        export.copy((at + 900_107, at + 905_003), (at + 910_001, at + 990_007), bytes=4096 + step)
        export.set((at + 990_107, at + 995_003), (at + 999_001, at + 999_907), bytes=64)
        export.graph_whole((at + 1_000_003, at + 1_010_007), (at + 1_020_001, at + 2_000_003))
        export.sync("cudaStreamSynchronize", at + 2_000_101, at + 2_100_001)
        export.os_call("poll", at + 2_200_001, at + 2_300_007)
        export.memory(at + 2_400_001, bytes=512 * (step + 1))
        export.native_sample(at + 2_500_003, ("python3", "main"))
        export.overhead(at + 2_600_001, at + 2_600_107)
    return export


@pytest.fixture(scope="module", params=["nsys", "stored"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A whole file whose columns may be NULL, and its tables."""
    folder = tmp_path_factory.mktemp("whole")
    path = recording().write(folder / "nsys.sqlite")
    if request.param == "stored":
        write_trace(load(path), folder / "stored.sqlite")
        path = folder / "stored.sqlite"
    sources = OF_NSYS if request.param == "nsys" else OF_STORED
    with closing(sqlite3.connect(path)) as connection:
        for source in sources:
            connection.execute(f"CREATE TABLE nullable AS SELECT * FROM {source.stored}")
            connection.execute(f"DROP TABLE {source.stored}")
            connection.execute(f"ALTER TABLE nullable RENAME TO {source.stored}")
        connection.commit()
    return path, sources


Damage = Callable[[sqlite3.Connection, Source, int], None]


def _setting(column: Callable[[Source], str | None], value: str) -> Damage:
    def damage(connection: sqlite3.Connection, source: Source, row: int) -> None:
        if (name := column(source)) is not None:
            expression = value.format(start=source.start)
            connection.execute(
                f"UPDATE {source.stored} SET {name} = {expression} WHERE rowid = ?", (row,)
            )

    return damage


def _repeat(connection: sqlite3.Connection, source: Source, row: int) -> None:
    connection.execute(
        f"INSERT INTO {source.stored} SELECT * FROM {source.stored} WHERE rowid = ?", (row,)
    )


def start(source: Source) -> str:
    return source.start


def end(source: Source) -> str | None:
    return source.end


def size(source: Source) -> str | None:
    return source.size


DAMAGES: dict[str, Damage] = {
    "no start": _setting(start, "NULL"),
    "no end": _setting(end, "NULL"),
    "ends early": _setting(end, "max({start}, -9223372036854775807) - 1"),
    "before": _setting(start, "-1000000000000"),
    "the least start": _setting(start, "-9223372036854775808"),
    "after": _setting(end, "1000000000000000"),
    "the greatest end": _setting(end, "9223372036854775807"),
    "a little early": _setting(start, "-1000"),
    "no bytes": _setting(size, "NULL"),
    "fewer than no bytes": _setting(size, "-1"),
    "too many bytes": _setting(size, "1152921504606846976"),
    "twice": _repeat,
}


def rows_of(connection: sqlite3.Connection, source: Source) -> list[Row]:
    cursor = connection.execute(f"SELECT * FROM {source.stored} ORDER BY rowid")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, line, strict=True)) for line in cursor]


def is_possible(row: Row, source: Source) -> bool:
    begin, stop = row[source.start], row[source.end] if source.end else row[source.start]
    if stop is None and source.may_stay_open:
        stop = begin
    if not isinstance(begin, int) or not isinstance(stop, int):
        return False
    if not -SLACK <= begin <= stop <= LENGTH + SLACK:
        return False
    if source.size is None:
        return True
    amount = row[source.size]
    return isinstance(amount, int) and 0 <= amount <= MOST_BYTES


def possible(rows: list[Row], source: Source) -> Iterator[tuple[object, object]]:
    """Start and end of each row that can be true; a repeated one once."""
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        if not is_possible(row, source):
            continue
        begin = row[source.start]
        stop = row[source.end] if source.end else begin
        takes_time = isinstance(begin, int) and isinstance(stop, int) and stop > begin
        numbered = row.get("correlationId", row.get("correlation_id")) or 0
        one = tuple(row.values())
        if source.end and (takes_time or numbered) and one in seen:
            continue
        seen.add(one)
        yield begin, stop


def times(trace: Trace, source: Source) -> Counter[tuple[object, object]]:
    columns = ("start_ns", "end_ns") if source.end else ("time_ns", "time_ns")
    first, last = columns
    return Counter((row[first], row[last]) for row in trace.tables[source.table].rows())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    seed=st.integers(0, 1 << 30),
    kinds=st.lists(st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=6),
)
def test_only_possible_rows_are_in_the_trace(whole, tmp_path, seed, kinds):
    path, sources = whole
    damaged, random = tmp_path / "damaged.sqlite", Random(seed)
    damaged.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(damaged)) as connection:
        for kind in kinds:
            DAMAGES[kind](connection, random.choice(sources), random.randint(1, 6))
        connection.commit()
        stored = {source: rows_of(connection, source) for source in sources}

    trace = load(damaged)

    lost = 0
    for source, rows in stored.items():
        expected = Counter(possible(rows, source))
        assert times(trace, source) == expected, source.table
        lost += len(rows) - expected.total()
    assert sum(each.rows for each in trace.impossible) == lost
    assert any("cannot be true" in text for text in trace.warnings) == bool(lost)


@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_each_kind_in_each_table_is_said_and_changes_no_sum(whole, tmp_path, kind):
    path, sources = whole
    for source in sources:
        damaged = tmp_path / "damaged.sqlite"
        damaged.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(damaged)) as connection:
            DAMAGES[kind](connection, source, 3)
            connection.commit()
            rows = rows_of(connection, source)
            kernels = possible(rows_of(connection, sources[0]), sources[0])
            total = sum(last - first for first, last in kernels)  # type: ignore[operator]

        report = analyze(load(damaged))

        lost = len(rows) - len(list(possible(rows, source)))
        assert bool(report.trace.warnings) == bool(lost), (kind, source.table)
        share = report["kernel-share"]
        assert sum(row["total_ns"] for row in share.tables["kernels"].rows()) == total


HOUR_NS = 3_600_000_000_000


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    damages=st.lists(
        st.tuples(
            st.integers(0, 30),
            st.sampled_from(["ts", "dur"]),
            st.sampled_from(["-1", "-1e15", "1e15", "0", "9e17", "-7.5"]),
        ),
        min_size=1,
        max_size=4,
    )
)
@pytest.mark.parametrize("compiled", [True, False])
def test_times_of_torch_profiler(tmp_path, compiled, damages):
    """A trace of the profiler has no length: an hour from the other events is too far."""
    events = [event for event in training() if event["ph"] == "X" and event["cat"] != "Trace"]
    for place, field, value in damages:
        events[place % len(events)][field] = float(value)
    spans = [
        (round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000), event["cat"])
        for event in events
    ]
    path = tmp_path / "t.json"
    path.write_text(text(events))

    with nullcontext() if compiled else in_place_of_c():
        trace = load(path)

    middle = sorted(begin for begin, _, _ in spans)[len(spans) // 2]
    possible_kernels = sum(
        category == "kernel"
        and begin <= end
        and abs(begin - middle) <= HOUR_NS
        and abs(end - middle) <= HOUR_NS
        for begin, end, category in spans
    )
    assert len(trace.kernels) == possible_kernels
