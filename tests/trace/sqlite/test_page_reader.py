"""The page decoder returns what sqlite3 returns, or declines."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SHIPPED
from traceview.base.tables import Texts
from traceview.traces.trace.sqlite.file import Database, opened
from traceview.traces.trace.sqlite.page_reader import read_pages
from traceview.traces.trace.sqlite.row_reader import Columns, DeclinedError, Kind, read_rows

KINDS: Mapping[str, Kind] = {"a": "integer", "b": "integer", "t": "text", "z": "integer"}
TABLE = "CREATE TABLE s (a INTEGER, b INTEGER, t TEXT, r REAL, x BLOB, z INTEGER)"
EDGES = [0, 1, -1, 2, 127, -128, 128, 2**15 - 1, -(2**15), 2**23 - 1, -(2**23), 2**31 - 1, -(2**31)]
EDGES += [2**47 - 1, -(2**47), 2**47, 2**63 - 1, -(2**63)]
integers = st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))
texts = st.one_of(st.none(), st.text(max_size=12), st.text("ab\0é", min_size=50, max_size=300))
reals = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-5, 5))
blobs = st.one_of(st.none(), st.binary(max_size=40))
rows = st.lists(st.tuples(integers, integers, texts, reals, blobs, integers), max_size=60)
Row = Sequence[object]


def plain(columns: Columns) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for name, values in columns.items():
        if isinstance(values, Texts):
            found[name] = list(values.decode())
        else:
            null = np.zeros(len(values), bool) if values.null is None else values.null
            cells = zip(values.values.tolist(), null.tolist(), strict=True)
            found[name] = [None if absent else value for value, absent in cells]
    return found


def through_pages(database: Database, table: str, kinds: Mapping[str, Kind]) -> Columns:
    stored = database.describe(table)
    assert database._pages is not None
    places = {name: stored.places[name] for name in kinds}
    return read_pages(database._pages, stored.root_page, places, kinds)


def through_sqlite(database: Database, table: str, kinds: Mapping[str, Kind]) -> Columns:
    return read_rows(database._connection, table, kinds, 1 << 30)


def write(path: Path, lines: Sequence[Row], page_bytes: int = 4096, vacuum: int = 0) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    connection.execute(f"PRAGMA auto_vacuum = {vacuum}")
    connection.execute(TABLE)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", lines)
    connection.execute("COMMIT")
    connection.close()


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def many(count: int) -> list[Row]:
    return [
        (
            at * 997,
            None if at % 7 == 0 else -at,
            f"layer_{at % 5}",
            at / 3,
            None,
            EDGES[at % 19 - 1],
        )
        for at in range(count)
    ]


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"])
def test_does_not_decline_the_large_tables(table: str, unpack: Callable[[str], Path]) -> None:
    with opened(unpack(SHIPPED[0])) as database:
        kinds = whole_columns(database, table)
        assert plain(through_pages(database, table, kinds))["start"]


def whole_columns(database: Database, table: str) -> dict[str, Kind]:
    listed = database._connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
    wanted = [r for r in listed if r[2] not in ("REAL", "BLOB")]
    return {str(r[1]): "text" if r[2] == "TEXT" else "integer" for r in wanted}


@settings(max_examples=60)
@given(
    lines=rows,
    page_bytes=st.sampled_from([512, 1024, 4096, 65536]),
    auto_vacuum=st.sampled_from([0, 1, 2]),
    deleted=st.integers(1, 9),
    vacuumed=st.booleans(),
)
def test_equals_sqlite_or_declines(
    lines: list[Row], page_bytes: int, auto_vacuum: int, deleted: int, vacuumed: bool
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.sqlite")
        write(path, lines, page_bytes, auto_vacuum)
        change(path, f"DELETE FROM s WHERE rowid % 10 >= {deleted}")
        if vacuumed:
            change(path, "VACUUM")
        with opened(path) as database:
            assert plain(database.read("s", KINDS)) == plain(through_sqlite(database, "s", KINDS))


@pytest.mark.parametrize("page_bytes", [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
@pytest.mark.parametrize("vacuum", [0, 1])
def test_reads_tables_of_many_pages_itself(tmp_path: Path, page_bytes: int, vacuum: int) -> None:
    write(tmp_path / "t.sqlite", many(6000), page_bytes, vacuum)
    with opened(tmp_path / "t.sqlite") as database:
        found = plain(through_pages(database, "s", KINDS))
        assert found == plain(through_sqlite(database, "s", KINDS))
    assert found["a"] == [at * 997 for at in range(6000)]
    assert found["t"][:3] == ["layer_0", "layer_1", "layer_2"]


def test_reads_around_deleted_rows_and_gaps_in_rowids(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    write(path, many(3000))
    change(path, "DELETE FROM s WHERE rowid BETWEEN 500 AND 1500 OR rowid % 3 = 0")
    change(path, "INSERT INTO s (rowid, a) VALUES (9223372036854775807, 5), (-9, 6)")
    with opened(path) as database:
        found = plain(through_pages(database, "s", KINDS))
        assert found == plain(through_sqlite(database, "s", KINDS))
    assert found["a"][0] == 6
    assert found["a"][-1] == 5


def test_null_is_not_zero_nor_the_least_integer(tmp_path: Path) -> None:
    lines = [(None, 0, None, 0, None, -(2**63)), (0, None, "", 0, None, None)] * 40
    write(tmp_path / "t.sqlite", lines)
    with opened(tmp_path / "t.sqlite") as database:
        found = plain(through_pages(database, "s", KINDS))
    assert found["a"] == [None, 0] * 40
    assert found["b"] == [0, None] * 40
    assert found["t"] == [None, ""] * 40
    assert found["z"] == [-(2**63), None] * 40


def test_text_with_nul_and_bad_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    write(path, [(1, 1, "a\0b", 0, None, 1)] * 50)
    change(path, "INSERT INTO s (a, b, t, z) VALUES (2, 2, CAST(x'ff41' AS TEXT), 2)")
    with opened(path) as database:
        found = plain(through_pages(database, "s", KINDS))
    assert found["t"] == ["a\0b"] * 50 + ["\ufffdA"]


@pytest.mark.parametrize("length", [57, 58, 127, 128, 3000, 20_000, 100_000])
def test_long_texts_are_right_whoever_reads_them(tmp_path: Path, length: int) -> None:
    write(tmp_path / "t.sqlite", [(at, 1, chr(97 + at) * length, 0, None, 1) for at in range(9)])
    with opened(tmp_path / "t.sqlite") as database:
        found = plain(database.read("s", KINDS))
    assert found["t"] == [chr(97 + at) * length for at in range(9)]


@pytest.mark.parametrize(
    ("create", "fill"),
    [
        ("CREATE TABLE s (a INTEGER PRIMARY KEY, b INTEGER) WITHOUT ROWID", "(3, 4)"),
        ("CREATE TABLE s (a INTEGER, b INTEGER)", "(3, 1.5)"),
        ("CREATE TABLE s (a INTEGER, b INTEGER)", "(3, x'00')"),
    ],
)
def test_declines_what_is_unusual(tmp_path: Path, create: str, fill: str) -> None:
    change(tmp_path / "t.sqlite", create, f"INSERT INTO s VALUES {fill}")
    kinds: Mapping[str, Kind] = {"a": "integer", "b": "integer"}
    with opened(tmp_path / "t.sqlite") as database, pytest.raises(DeclinedError):
        through_pages(database, "s", kinds)


def test_declines_overflow_pages(tmp_path: Path) -> None:
    write(tmp_path / "t.sqlite", [(1, 2, "x" * 9000, 0, None, 3)])
    with opened(tmp_path / "t.sqlite") as database, pytest.raises(DeclinedError):
        through_pages(database, "s", KINDS)


def test_an_alias_of_the_rowid_is_read_from_the_rowid(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    change(path, "CREATE TABLE s (id INTEGER PRIMARY KEY, b INTEGER)")
    change(path, "INSERT INTO s VALUES (7, 1), (70000, 2)")
    with opened(path) as database:
        found = plain(database.read("s", {"id": "integer", "b": "integer"}))
    assert found == {"id": [7, 70000], "b": [1, 2]}


@pytest.mark.parametrize("how", ["VIRTUAL", "STORED"])
def test_columns_beside_a_computed_one_are_those_of_their_names(tmp_path: Path, how: str) -> None:
    """A record holds no value of a virtual column: those behind it stand one place earlier."""
    path = tmp_path / "computed.sqlite"
    change(
        path,
        f"CREATE TABLE s (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1) {how}, t TEXT, z, q)",
        "INSERT INTO s (a, t, z, q) VALUES (1, 'x', 10, 100), (2, 'y', 20, 200)",
    )
    kinds: Mapping[str, Kind] = {"a": "integer", "t": "text", "z": "integer"}
    expected = {"a": [1, 2], "t": ["x", "y"], "z": [10, 20]}
    with opened(path) as database:
        assert plain(through_pages(database, "s", kinds)) == expected
        assert plain(database.read("s", kinds)) == expected
        assert plain(database.read("s", {"z": "integer", "b": "integer"}))["b"] == [2, 3]


def test_a_column_added_later_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    change(path, "CREATE TABLE s (a INTEGER)", "INSERT INTO s VALUES (1)")
    change(path, "ALTER TABLE s ADD COLUMN b INTEGER DEFAULT 9", "INSERT INTO s VALUES (2, 3)")
    with opened(path) as database:
        assert plain(database.read("s", {"b": "integer"})) == {"b": [9, 3]}


def test_utf16_is_left_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    change(path, "PRAGMA encoding = 'UTF-16le'", TABLE, "INSERT INTO s (t) VALUES ('é')")
    with opened(path) as database:
        assert database._pages is None
        assert plain(database.read("s", {"t": "text"})) == {"t": ["é"]}


def test_a_b_tree_that_bites_its_tail_is_declined(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    write(path, many(3000))
    with opened(path) as database:
        root = database.describe("s").root_page
    content = bytearray(path.read_bytes())
    content[(root - 1) * 4096 + 8 : (root - 1) * 4096 + 12] = root.to_bytes(4, "big")
    path.write_bytes(content)
    with opened(path) as database, pytest.raises(DeclinedError):
        through_pages(database, "s", KINDS)


def test_tables_read_ahead_are_those_read_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as connection:
        for table in "abc":
            connection.execute(f"CREATE TABLE {table} (n INTEGER, t TEXT)")
            rows = [(n * 7919 % 100_003, f"{table}{n % 11}") for n in range(60_000)]
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        # SQLite has to read this one.
        connection.execute("INSERT INTO b VALUES (1, ?)", ("x" * 9_000,))
    connection.close()
    wanted: dict[str, Kind] = {"n": "integer", "t": "text"}
    with opened(path) as database:
        asked = {table: plain(database.read(table, wanted)) for table in "abc"}
    with opened(path) as database:
        for table in "cab":
            database.read_ahead(table, wanted)
        assert {table: plain(database.read(table, wanted)) for table in "abc"} == asked
    with opened(path) as database:
        # Closed while it is being read.
        database.read_ahead("c", wanted)
