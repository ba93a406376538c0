"""Damaged pages of b-trees: what SQLite finds damaged is refused; other rows are SQLite's own."""

import random
import sqlite3
from pathlib import Path

import pytest

from tests.trace.sqlite.test_page_reader import KINDS, change, many, plain, through_sqlite, write
from traceview.base.errors import TraceFormatError
from traceview.traces.trace.sqlite.file import opened
from traceview.traces.trace.sqlite.row_reader import UnreadableTableError

LEAF, INTERIOR = 13, 5


def damaged(content: bytes, page_bytes: int, chance: random.Random) -> bytes:
    """A byte or word changed in the header or the cell pointers of a page of a b-tree."""
    changed = bytearray(content)
    starts = range(page_bytes, len(content), page_bytes)
    pages = [start for start in starts if content[start] in (LEAF, INTERIOR)]
    inner = [start for start in pages if content[start] == INTERIOR]
    page = chance.choice(inner if inner and chance.random() < 0.3 else pages)
    header = 12 if content[page] == INTERIOR else 8
    cells = int.from_bytes(content[page + 3 : page + 5], "big")
    if chance.random() < 0.5:
        at = page + chance.randrange(header)
    else:
        at = page + header + 2 * chance.randrange(cells)
    if chance.random() < 0.5:
        changed[at] = chance.choice([0, 1, changed[at] ^ 1 << chance.randrange(8), 255])
    else:
        word = chance.choice([0, 1, cells - 1, cells + 1, page_bytes, chance.randrange(65536)])
        # Another pointer of the page, whose cell is then there twice.
        other = page + header + 2 * chance.randrange(cells)
        copied = bytes(content[other : other + 2])
        changed[at : at + 2] = chance.choice([word.to_bytes(2, "big"), copied])
    return bytes(changed)


def told_by_sqlite(path: Path) -> object:
    """The rows that sqlite3 reads, or its error, or what its check finds damaged in the tree."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("PRAGMA quick_check(s)").fetchall()
        if found != [("ok",)]:
            return str(found)
        connection.execute("SELECT * FROM s NOT INDEXED").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error)
    finally:
        connection.close()
    with opened(path) as database:
        return plain(through_sqlite(database, "s", KINDS))


def read(path: Path) -> object:
    try:
        with opened(path) as database:
            return plain(database.read("s", KINDS))
    except TraceFormatError as error:
        return str(error)


@pytest.mark.parametrize(("page_bytes", "seed"), [(512, 1), (1024, 2), (4096, 3)])
def test_a_damaged_page_is_refused_where_sqlite_finds_damage(
    tmp_path: Path, page_bytes: int, seed: int
) -> None:
    path, chance = tmp_path / "t.sqlite", random.Random(seed)
    write(path, many(1500), page_bytes)
    change(path, "DELETE FROM s WHERE rowid % 7 = 3")
    sound = path.read_bytes()
    refused = 0
    for _ in range(250):
        path.write_bytes(damaged(sound, page_bytes, chance))
        expected, found = told_by_sqlite(path), read(path)
        if isinstance(expected, str):
            assert isinstance(found, str), expected
            refused += 1
        else:
            assert found == expected
    assert 100 < refused < 250


def test_the_error_names_the_table_and_a_column_of_another_type(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    write(path, [*many(9), ("late", 1, "t", 0.5, None, 1)])
    with opened(path) as database, pytest.raises(UnreadableTableError) as raised:
        database.read("s", KINDS)
    assert (raised.value.table, raised.value.column) == ("s", "a")
    assert str(raised.value).startswith("column a of table s contains str values")


def test_a_leaf_without_rows_is_refused_by_the_name_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    write(path, many(3000))
    content = bytearray(path.read_bytes())
    leaf = next(at for at in range(3 * 4096, len(content), 4096) if content[at] == LEAF)
    content[leaf + 3 : leaf + 5] = bytes(2)
    path.write_bytes(content)
    with opened(path) as database, pytest.raises(UnreadableTableError, match="table s is damaged"):
        database.read("s", KINDS)
