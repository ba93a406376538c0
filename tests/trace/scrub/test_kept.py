"""The list of what a scrubbed trace keeps: all that the readers read, and nothing private."""

import importlib
import pkgutil
import re
import sqlite3
import zlib
from contextlib import closing

import pytest

import traceview.traces.trace.nsys
from tests.build import Export
from tests.contracts.report_numbers import recordings
from tests.places import PTX_FILES
from traceview.base.tables import Texts
from traceview.base.vocabulary.libraries import readable
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.rows import ExportTable
from traceview.traces.trace.schema import TABLES
from traceview.traces.trace.scrub.kept import KEPT, PAIRS, STRINGS, TextKind, is_public
from traceview.traces.trace.scrub.scrubber import scrub
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.stored import NUMBERED
from traceview.traces.trace.stored_writer import write_trace

# What a program printed is read for its error alone, and no scrubbed trace has it.
PRINTED = ("ProcessStreams", "contentId")


def is_kept(table, columns):
    if table in (*PAIRS, *STRINGS):
        return set(columns) <= {"id", "name", "value"}
    return set(columns) <= set(KEPT.get(table, {}))


def test_every_table_that_a_module_declares_is_on_the_list():
    found = []
    for info in pkgutil.walk_packages(
        traceview.traces.trace.nsys.__path__, "traceview.traces.trace.nsys."
    ):
        module = importlib.import_module(info.name)
        found += [each for each in vars(module).values() if isinstance(each, ExportTable)]
    assert len(found) > 15
    for each in found:
        assert is_kept(each.table, (*each.required, *each.optional, *each.texts)), each.table


@pytest.mark.parametrize("name", sorted(recordings()))
def test_every_column_that_a_reader_reads_is_on_the_list(name, monkeypatch):
    read = set()

    def noting(method):
        original = getattr(Database, method)

        def noted(self, table, columns, *rest):
            names = (columns, *rest[:1]) if method == "lookup" else columns
            read.update((table, column) for column in names)
            return original(self, table, columns, *rest)

        monkeypatch.setattr(Database, method, noted)

    for method in ("read", "read_ahead", "lines", "lines_of", "lookup", "spread"):
        noting(method)
    load(recordings()[name])
    assert len(read) > 20
    assert [each for each in sorted(read - {PRINTED}) if not is_kept(each[0], [each[1]])] == []


@pytest.mark.parametrize("name", sorted(recordings()))
def test_the_words_of_recorders_are_public(name):
    trace = load(recordings()[name])
    for table in NUMBERED:
        for column in trace.recorded(table).columns:
            if column.dtype == "text" and KEPT[table][column.name].kind is TextKind.WORDS:
                words = set(trace.recorded(table).texts(column.name).decode()) - {None}
                assert [word for word in words if not is_public(word)] == [], (table, column.name)


def test_every_text_of_a_stored_trace_has_a_kind():
    for name in NUMBERED:
        for column in TABLES[name].columns:
            assert KEPT[name][column.name].by_number == (column.dtype == "text")


# Each kind of private text, in words that occur nowhere else.
CANARIES = {
    "user": "user alicezq",
    "mount": "/mnt/nfs/alicezq",
    "remote": "git@github.com:alicezq/secretproj",
    "value": "hunterpassword",
    "digits": "12345678901",
    "host": "gpuhostzq",
    "domain": "gpuhostzq.corp.example",
    "folder": "/srv/projects/secretproj",
    "address": "10.77.3.12",
    "mac": "02:42:ac:1f:77:03",
    "unc": r"\\fileserverzq\share\alicezq",
    "option": "--api-key=hunterpassword",
    "home": "/home/alicezq/train",
    "temporary": "/tmp/alicezq-5123/x",
    "installed": "/opt/secretproj/bin/run",
}
MARKS = ("alicezq", "secretproj", "hunterpassword", "12345678901", "gpuhostzq", "10.77.3.12")
MARKS += ("02:42:ac:1f", "fileserverzq")
NAMES = {TextKind.KERNEL, TextKind.RANGE}
# A word is a possible name of a function, which stays a name without --names.
FUNCTIONS = {TextKind.FUNCTION, TextKind.SYMBOL}


def names_for(canary):
    return NAMES | (FUNCTIONS if re.fullmatch(r"-*[a-z][\w.=-]*", canary) else set())


def busy_export():
    ptx = (PTX_FILES / "gelu-3.7.1-sm90.ptx").read_text()
    export = Export().range("step 1", 0, 900).launch((0, 2), (10, 20)).launch((3, 5), (30, 40))
    export.native_sample(7, ("/usr/lib/libc.so.6", "read")).diagnostic("CUDA injection")
    export.source_line("train.py", 3, "x = 1").code("gelu", ptx, source_file="train.py")
    return export.run(command_line="train.py --lr 1", torch="2.9.0").capture("A", "b")


def columns_of(connection):
    """All (table, column) of a file that can hold another value."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for _, column, *_, key in connection.execute(f'PRAGMA table_info("{table}")').fetchall():
            if not key:
                yield table, column


def plant(path, canary):
    """Put a text into every column: in a row of its own, as text and as blob."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE NEW_TABLE (secret TEXT)")
        connection.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN newColumn TEXT")
        known = set(columns_of(connection))
        for table, column in sorted(known):
            kept = KEPT.get(table, {}).get(column)
            if (kept and kept.kind in NAMES and not kept.by_number) or table == "StringIds":
                continue
            for value in (canary, canary.encode()):
                insert = f'INSERT OR IGNORE INTO "{table}" ("{column}") VALUES (?)'
                try:
                    connection.execute(insert, (value,))
                except sqlite3.IntegrityError:
                    update = f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = 1'
                    connection.execute(update, (value,))
        connection.execute("INSERT INTO StringIds VALUES (77001, ?)", (canary,))
        connection.execute("INSERT INTO StringIds VALUES (77002, ?)", (canary,))
        for table, column in sorted(known):
            kept = KEPT.get(table, {}).get(column)
            if kept and kept.by_number and kept.kind not in names_for(canary):
                connection.execute(f'UPDATE "{table}" SET "{column}" = 77001 WHERE rowid = 1')


def surviving(path):
    """The marks of canaries in the bytes of a file, and in the code stored in it."""
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        blobs = connection.execute("SELECT ptx, cubin FROM TRACEVIEW_KERNELS").fetchall()
    content += b"".join(zlib.decompress(blob) for row in blobs for blob in row if blob)
    forms = (form for form in ("utf-8", "utf-16-le", "utf-16-be"))
    return {mark for form in forms for mark in MARKS if mark.encode(form) in content}


@pytest.mark.parametrize("kind", sorted(CANARIES))
def test_no_private_text_survives_in_any_column(kind, tmp_path):
    source = busy_export().write(tmp_path / "in.sqlite")
    plant(source, CANARIES[kind])
    assert surviving(source)
    scrub(source, tmp_path / "out.sqlite")
    assert surviving(tmp_path / "out.sqlite") == set()


@pytest.mark.parametrize("kind", sorted(CANARIES))
def test_code_loses_texts_and_keeps_its_instructions(kind, tmp_path):
    ptx = (PTX_FILES / "gelu-3.7.1-sm90.ptx").read_text()
    canary = CANARIES[kind].replace("\\", "/")
    spelt = ", ".join(str(byte) for byte in canary.encode())
    dirty = (
        ptx.replace("kernels.py", f"{canary}/kernels.py")
        + f'\n// made by {canary}\n.file 9 "{canary}/x.py"\n'
        + f".global .b8 where[{len(canary) + 1}] = {{{spelt}, 0}};\n"
    )
    scrub(Export().code("gelu", dirty).write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite")
    assert surviving(tmp_path / "out.sqlite") == set()
    assert surviving(tmp_path / "in.sqlite")


@pytest.mark.parametrize("kind", sorted(CANARIES))
def test_names_become_pseudonyms(kind, tmp_path):
    canary = CANARIES[kind]
    library = "ampere_sgemm_128x64_nn"
    export = Export().range(f"{canary} 7", 0, 900).launch((0, 2), (10, 20), name=canary)
    export.launch((3, 5), (30, 40), name=library).code(canary, "// ptx")
    source = export.write(tmp_path / "in.sqlite")
    scrub(source, tmp_path / "out.sqlite", is_known=readable)
    assert surviving(tmp_path / "out.sqlite") == set()
    before, after = (load(tmp_path / name) for name in ("in.sqlite", "out.sqlite"))
    assert library in after.kernels.texts("name").decode().tolist()
    assert _pattern(after.kernels.texts("name")) == _pattern(before.kernels.texts("name"))
    scrub(tmp_path / "out.sqlite", tmp_path / "again.sqlite", is_known=readable)
    again = load(tmp_path / "again.sqlite")
    assert again.kernels.texts("name").decode().tolist() == (
        after.kernels.texts("name").decode().tolist()
    )


def _pattern(names: Texts):
    """The names, each as the row in which it first occurs."""
    texts = names.decode().tolist()
    return [texts.index(each) for each in texts]


@pytest.mark.parametrize("kind", sorted(CANARIES))
def test_a_stored_trace_is_scrubbed_by_the_same_list(kind, tmp_path):
    plain = busy_export().load(tmp_path)
    write_trace(plain, tmp_path / "in.sqlite")
    numbers = {}
    with closing(sqlite3.connect(tmp_path / "in.sqlite")) as connection, connection:
        connection.execute("ALTER TABLE kernels ADD COLUMN note TEXT")
        connection.execute("UPDATE kernels SET note = ?", (CANARIES[kind],))
        for name in set(NUMBERED) & {table for table, _ in columns_of(connection)}:
            for column, kept in KEPT[name].items():
                if kept.by_number and kept.kind not in names_for(CANARIES[kind]):
                    found = connection.execute(f"SELECT DISTINCT {column} FROM {name}").fetchall()
                    numbers.update(((number,), None) for (number,) in found if number is not None)
        update = "UPDATE TRACEVIEW_TEXTS SET value = ? WHERE id = ?"
        connection.executemany(update, [(CANARIES[kind], number) for (number,) in numbers])
        connection.execute("UPDATE TRACEVIEW_RUN SET value = ?", (CANARIES[kind],))
        connection.execute("INSERT INTO TRACEVIEW_RUN VALUES ('new', ?)", (CANARIES[kind],))
    assert surviving(tmp_path / "in.sqlite")
    scrub(tmp_path / "in.sqlite", tmp_path / "out.sqlite")
    assert surviving(tmp_path / "out.sqlite") == set()
    assert len(load(tmp_path / "out.sqlite").kernels) == len(plain.kernels)
