"""The page decoder in C does what the one of numpy does, on sound pages and on damaged ones."""

import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.sqlite_pages import decode
from traceview.base.tables import Texts
from traceview.traces.trace.sqlite.file import opened
from traceview.traces.trace.sqlite.page_reader import (
    PAD,
    Chunk,
    PageDecoder,
    WantedColumn,
    read_pages,
)
from traceview.traces.trace.sqlite.row_reader import Columns, DeclinedError, Kind, Piece, read_rows

KINDS: dict[str, Kind] = {"c": "integer", "a": "integer", "t": "text", "b": "integer", "u": "text"}
COLUMNS = "a INTEGER, t TEXT, b INTEGER, r REAL, u TEXT, x BLOB"
# How numpy declines what it would be slow at.
SLOW = "hardly any two rows share a layout"
widths = [
    st.integers(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) for size in (1, 2, 3, 4, 6, 8)
]
integers = st.one_of(st.none(), st.sampled_from([0, 1]), *widths)
texts = st.one_of(st.none(), st.sampled_from([b"layer", b""]), st.binary(max_size=200))
blobs = st.one_of(st.none(), st.binary(max_size=30))
reals = st.one_of(st.none(), st.floats(allow_nan=False))
lines = st.lists(st.tuples(integers, texts, integers, reals, texts, blobs, integers), max_size=40)
Cells = dict[str, list[object]]


def connect(path: Path, page_bytes: int = 4096, reserved: int = 0) -> sqlite3.Connection:
    """An empty database; SQLite keeps the reserved bytes that its first page asks for."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    connection.execute("VACUUM")
    connection.close()
    content = bytearray(path.read_bytes())
    content[20] = reserved
    content[105:107] = ((page_bytes - reserved) & 0xFFFF).to_bytes(2, "big")
    path.write_bytes(content)
    return sqlite3.connect(path, isolation_level=None)


def fill(connection: sqlite3.Connection, rows: Sequence[Sequence[object]], rowid: bool) -> None:
    """A table of the columns of KINDS, of which c is added when half of the rows are there."""
    key = "" if rowid else ", PRIMARY KEY (a, b, t)) WITHOUT ROWID"
    connection.execute(f"CREATE TABLE s ({COLUMNS}{key or ')'}")
    connection.execute("BEGIN")
    half = len(rows) // 2
    values = "(?, CAST(? AS TEXT), ?, ?, CAST(? AS TEXT), ?"
    store = "INSERT OR IGNORE INTO s VALUES"
    connection.executemany(f"{store} {values})", [row[:-1] for row in rows[:half]])
    connection.execute("ALTER TABLE s ADD COLUMN c INTEGER DEFAULT 5")
    connection.executemany(f"{store} {values}, ?)", rows[half:])
    connection.execute("COMMIT")
    connection.close()


def cells(columns: Columns) -> Cells:
    found: Cells = {}
    for name, column in columns.items():
        if isinstance(column, Texts):
            # In their order, too: it decides between what is otherwise equal in a report.
            found[name] = [list(column.values), list(column.decode())]
        else:
            null = [False] * len(column) if column.null is None else column.null.tolist()
            pairs = zip(column.values.tolist(), null, strict=True)
            found[name] = [None if absent else value for value, absent in pairs]
    return found


def read(path: Path, kinds: dict[str, Kind], way: str) -> Cells | str:
    """The columns, or why they were declined."""
    with opened(path) as database, pytest.MonkeyPatch.context() as patch:
        if way == "sqlite3":
            return cells(read_rows(database._connection, "s", kinds, 1 << 30))
        if way == "numpy":
            plain = lambda decoder, chunk: decode(chunk, decoder._wanted)  # noqa: E731
            patch.setattr(PageDecoder, "decode", plain)
        assert database._pages is not None
        stored = database.describe("s")
        places = {name: stored.places[name] for name in kinds}
        try:
            return cells(read_pages(database._pages, stored.root_page, places, kinds))
        except DeclinedError as error:
            return str(error)


@settings(max_examples=150)
@given(
    rows=lines,
    page_bytes=st.sampled_from([512, 1024, 4096, 65536]),
    reserved=st.sampled_from([0, 0, 1, 32]),
    rowid=st.sampled_from([True, True, True, False]),
    added=st.booleans(),
)
def test_random_tables(
    rows: list[tuple[object, ...]], page_bytes: int, reserved: int, rowid: bool, added: bool
) -> None:
    kinds = KINDS if added else {name: kind for name, kind in KINDS.items() if name != "c"}
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.sqlite")
        fill(connect(path, page_bytes, reserved), rows, rowid)
        assert path.read_bytes()[20] == reserved
        compiled, numpy = (read(path, kinds, way) for way in ("compiled", "numpy"))
        assert (compiled == numpy) or numpy == SLOW or (type(compiled) is type(numpy) is str)
        if not isinstance(compiled, str):
            assert compiled == read(path, kinds, "sqlite3")
        assert rowid or isinstance(compiled, str)


def test_rows_that_are_all_laid_out_differently_are_read(tmp_path: Path) -> None:
    rows = [(at, b"x" * (at % 90), 1, None, b"y" * (at // 90), None, 3) for at in range(4000)]
    fill(connect(tmp_path / "t.sqlite"), rows[:1] + rows, rowid=True)
    kinds: dict[str, Kind] = {"a": "integer", "t": "text", "u": "text"}
    assert read(tmp_path / "t.sqlite", kinds, "numpy") == SLOW
    found = read(tmp_path / "t.sqlite", kinds, "compiled")
    assert found == read(tmp_path / "t.sqlite", kinds, "sqlite3")


def test_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageDecoder, "chunk_bytes", 512 << 10)
    # Texts of which many begin as others do.
    texts = [b"%d" % (at % 10 ** (at % 6)) for at in range(90_000)]
    rows = [(at, text, -at * at, 0.5, None, b"", at % 200) for at, text in enumerate(texts)]
    fill(connect(tmp_path / "t.sqlite"), [rows[0]] * 2 + rows, rowid=True)
    kinds: dict[str, Kind] = {"a": "integer", "b": "integer", "t": "text", "u": "text"}
    assert (tmp_path / "t.sqlite").stat().st_size > 4 * PageDecoder.chunk_bytes
    found = read(tmp_path / "t.sqlite", kinds, "compiled")
    assert found == read(tmp_path / "t.sqlite", kinds, "numpy")
    assert found == read(tmp_path / "t.sqlite", kinds, "sqlite3")


def leaves(path: Path, page_bytes: int) -> Iterator[bytes]:
    content = path.read_bytes()
    pages = (content[at : at + page_bytes] for at in range(page_bytes, len(content), page_bytes))
    yield from (page for page in pages if page[0] == 13)


def chunk_of(pages: Sequence[bytes], usable_bytes: int) -> Chunk:
    content = np.frombuffer(b"".join(pages) + bytes(PAD), np.uint8)
    return Chunk(content, np.arange(len(pages)) * len(pages[0]), usable_bytes)


def plain(piece: Piece) -> object:
    if piece.texts is not None:
        texts = list(piece.texts)
        assert len(set(texts)) == len(texts)
        return texts, piece.values.tolist()
    assert [piece.least, piece.greatest] == (
        [piece.values.min(), piece.values.max()] if len(piece) else [0, 0]
    )
    null = np.zeros(len(piece), bool) if piece.null is None else piece.null
    return piece.values.tolist(), null.tolist()


def decoded(chunk: Chunk, wanted: Sequence[WantedColumn], decoder: PageDecoder | None) -> object:
    """All columns, or None where they are declined, or SLOW."""
    try:
        pieces = decoder.decode(chunk) if decoder else decode(chunk, wanted)
    except DeclinedError as error:
        return SLOW if str(error) == SLOW else None
    return [plain(piece) for piece in pieces]


def damaged(page: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, rather those that say where and how long things are."""
    content = bytearray(page)
    cells = int.from_bytes(page[3:5], "big")
    for _ in range(chance.choice([1, 1, 2, 6])):
        where = chance.random()
        at = chance.randrange(len(page))
        if where < 0.2:
            at = chance.randrange(8 + 2 * cells)
        elif where < 0.8 and cells:
            cell = 8 + 2 * chance.randrange(cells)
            start = int.from_bytes(content[cell : cell + 2], "big")
            at = min(start + chance.randrange(16), len(page) - 1)
        content[at] = chance.choice([0, 1, 8, 9, 10, 13, 127, 128, 255, chance.randrange(256)])
    return bytes(content)


@pytest.mark.parametrize(("page_bytes", "reserved"), [(512, 0), (1024, 32), (4096, 0), (65536, 8)])
def test_damaged_pages(tmp_path: Path, page_bytes: int, reserved: int) -> None:
    chance = random.Random(page_bytes)
    rows = [
        (
            chance.choice([None, 0, 1, at, -at << 20, at << 40]),
            b"t%d" % (at % 9),
            at,
            0.5,
            None,
            b"x",
            7,
        )
        for at in range(600)
    ]
    fill(connect(tmp_path / "t.sqlite", page_bytes, reserved), [*rows[:1], *rows], rowid=True)
    sound = list(leaves(tmp_path / "t.sqlite", page_bytes))
    wanted = [
        WantedColumn(2, "integer"),
        WantedColumn(0, "integer"),
        WantedColumn(1, "text"),
        WantedColumn(4, "text"),
    ]
    decoder = PageDecoder(wanted)
    declined = 0
    for _ in range(400):
        # Rows of pages in another order are declined.
        first, *second = sorted(chance.sample(range(len(sound)), min(2, len(sound))))
        pages = [damaged(sound[first], chance), *(sound[page] for page in second)]
        chunk = chunk_of(pages, page_bytes - reserved)
        expected = decoded(chunk, wanted, None)
        found = decoded(chunk, wanted, decoder)
        assert found == expected or expected == SLOW
        declined += found is None
    assert 40 < declined < 390


def test_texts_that_are_made_to_collide_are_declined(tmp_path: Path) -> None:
    texts = list(colliding(2000))
    rows = [(1, text, 1, None, None, None, 1) for text in [texts[0], *texts]]
    fill(connect(tmp_path / "t.sqlite", 65536), rows, rowid=True)
    assert (
        read(tmp_path / "t.sqlite", {"t": "text"}, "compiled") == "texts that are made to collide"
    )


def test_a_text_that_begins_another_one_of_its_hash(tmp_path: Path) -> None:
    mix, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    hashed = (16 * mix & mask) * mix & mask
    second = hashed ^ hashed >> 32 ^ 8 * mix & mask
    texts = [bytes(8) + second.to_bytes(8, "little"), bytes(8)] * 2
    fill(connect(tmp_path / "t.sqlite"), [(1, text, 1, 1, None, None, 1) for text in texts], True)
    found = read(tmp_path / "t.sqlite", {"t": "text"}, "compiled")
    assert found == read(tmp_path / "t.sqlite", {"t": "text"}, "sqlite3")


def colliding(count: int) -> Iterator[bytes]:
    """Texts of 16 bytes with one hash: the second word undoes what the first one did."""
    mix, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    for first in range(count):
        hashed = ((16 * mix & mask) ^ first) * mix & mask
        yield first.to_bytes(8, "little") + (hashed ^ hashed >> 32).to_bytes(8, "little")


def leaf(cell: bytes, at: int = 0) -> bytes:
    """A page of 512 bytes, 480 of them usable, with one cell at its end or at that place."""
    at = at or 480 - len(cell)
    end, start = at + len(cell), at.to_bytes(2, "big")
    block, scattered = (end, 0) if 480 - end >= 4 else (0, max(480 - end, 0))
    page = bytearray(512)
    page[:10] = bytes([13, *block.to_bytes(2, "big"), 0, 1, *start, scattered, *start])
    page[at:end] = cell
    if block:
        page[block + 2 : block + 4] = (480 - end).to_bytes(2, "big")
    return bytes(page)


def cell(
    header: Sequence[int], body: bytes = b"", length: bytes = b"", row: bytes = b"\1"
) -> bytes:
    record = bytes([len(header) + 1, *header]) + body
    return (length or bytes([len(record)])) + row + record


LONG = 445  # Of a record, the most that a page of 480 bytes keeps to itself.


def long_cell(length: int) -> bytes:
    blob = length - 5
    types = [1, 0x80 | (2 * blob + 12) >> 7, (2 * blob + 12) & 0x7F]
    size = bytes([0x80 | length >> 7, length & 0x7F])
    return cell(types, b"\5" + bytes(blob), size)


@pytest.mark.parametrize(
    ("page", "value"),
    [
        (leaf(cell([1], b"\5")), 5),
        (leaf(cell([1], b"\5"), 10), 5),
        (leaf(cell([1], b"\5"), 9), None),
        (leaf(b"\t\1\3\1\x16\5     ", 9), None),
        (leaf(b"\t\1\3\1\x16\5     ", 10), 5),
        (leaf(cell([1], b"\5") + b"\6", 476), None),
        (leaf(cell([1], b"\5", b"\x80\x80\3")), 5),
        (leaf(cell([1], b"\5", b"\x80\x80\x80\3")), None),
        (leaf(cell([1], b"\5", row=b"\xff" * 8 + b"\x7f")), 5),
        (leaf(cell([1], b"\5", row=b"\xff" * 9)), 5),
        (leaf(cell([1], b"\5", b"\4")), None),
        (leaf(cell([1], b"\5\6")), None),
        (leaf(cell([1, 10], b"\5")), None),
        (leaf(cell([1, 11], b"\5")), None),
        (leaf(cell([1, 12], b"\5")), 5),
        (leaf(cell([1, 0x80], b"\5")), None),
        (leaf(cell([1, 0x90, 0x80, 0x80, 0x80, 12], b"\5")), None),
        (leaf(cell([1, *[0] * 125], b"\5", b"\x81\0")), 5),
        (leaf(cell([1, *[0] * 126], b"\5", b"\x81\1")), None),
        (leaf(b"\0\1"), None),
        (leaf(b"\1\1\0"), None),
        (leaf(b"\1\1\1"), None),
        (leaf(b"\x80" * 4, 476), None),
        (leaf(long_cell(LONG), 10), 5),
        (leaf(long_cell(LONG + 1), 10), None),
        (leaf(cell([8])), 0),
        (leaf(cell([9])), 1),
        (leaf(cell([5], b"\x80" + bytes(5))), -(2**47)),
        (leaf(cell([7], bytes(8))), None),
        (leaf(cell([13])), None),
        (b"\5" + leaf(cell([1], b"\5"))[1:], None),
    ],
)
def test_the_edges_of_what_is_read(page: bytes, value: int | None) -> None:
    wanted = [WantedColumn(0, "integer")]
    chunk = chunk_of([page], 480)
    for decoder in (PageDecoder(wanted), None):
        found = decoded(chunk, wanted, decoder)
        assert found == (None if value is None else [([value], [False])])
