"""Any file leads to a Trace or to one clear line, and stays as it was."""

import errno
import gzip
import hashlib
import json
import lzma
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.trace.nsys.exports import call, kernel, nvtx, write_export
from tests.zstd import compress
from traceview.base.errors import TraceFormatError
from traceview.traces.trace import Trace
from traceview.traces.trace.kineto.events import KinetoEvent
from traceview.traces.trace.load import load
from traceview.traces.trace.scrub.scrubber import scrub
from traceview.traces.trace.sqlite import file as sqlite_file

ARCHIVES: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": compress,
}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of a few pages, with texts, NULLs and three tables."""
    kernels = [kernel(at * 100, at * 100 + 50, correlationId=at) for at in range(300)]
    calls = [call(at * 100 - 40, at * 100 - 30, correlationId=at) for at in range(300)]
    ranges = [nvtx(at * 900, at * 900 + 800, f"step_{at}") for at in range(40)]
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "NVTX_EVENTS": ranges,
    }
    folder = tmp_path / "recorded"
    folder.mkdir()
    return write_export(folder / "t.sqlite", tables)


def rows_of(trace: Trace) -> dict[str, list[object]]:
    return {name: list(table.rows()) for name, table in trace.tables.items()}


def state_of(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }


def message(path: Path) -> str:
    with pytest.raises(TraceFormatError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.remedy
    return str(caught.value)


def test_reading_leaves_no_mark(export: Path) -> None:
    before = state_of(export.parent)
    trace = load(export)
    assert len(trace.kernels) == 300
    assert state_of(export.parent) == before


@pytest.mark.parametrize("name", ["a b?c#d%20é.sqlite", "x&mode=rwc.sqlite", "file:y.sqlite"])
def test_any_name_is_quoted(export: Path, name: str) -> None:
    renamed = export.rename(export.with_name(name))
    assert load(renamed).path == str(renamed)
    assert [path.name for path in export.parent.iterdir()] == [name]


def test_a_relative_path_stays_as_it_was_given(
    export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(export.parent)
    assert load("t.sqlite").path == "t.sqlite"


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_archives_hold_the_same_trace(
    export: Path, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    packed = tmp_path / f"t.sqlite{suffix}"
    packed.write_bytes(ARCHIVES[suffix](export.read_bytes()))
    assert rows_of(load(packed)) == rows_of(load(export))
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_an_archive_cut_short_is_an_error_and_leaves_nothing(
    export: Path, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    content = ARCHIVES[suffix](export.read_bytes())
    cut = tmp_path / f"cut.sqlite{suffix}"
    for length in (7, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        assert "damaged or truncated" in message(cut)
    assert list(scratch.iterdir()) == []


def test_a_zstandard_archive_of_several_frames(export: Path, tmp_path: Path) -> None:
    content, pack = export.read_bytes(), ARCHIVES[".zst"]
    packed = tmp_path / "t.sqlite.zst"
    packed.write_bytes(pack(content[:9000]) + pack(content[9000:]))
    assert rows_of(load(packed)) == rows_of(load(export))


def test_an_archive_is_known_by_its_content(export: Path, tmp_path: Path) -> None:
    packed = tmp_path / "t.sqlite"
    packed.write_bytes(gzip.compress(export.read_bytes()))
    assert len(load(packed).kernels) == 300


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.sqlite", b"", "empty"),
        ("t.sqlite", b"hello", "not an SQLite file, nor JSON (it starts with 'hello')"),
        ("t.txt", b"some notes\n" * 99, "not an SQLite file"),
        ("t.nsys-rep", b"\x00\x01binary", "nsys export"),
        ("t.qdrep", b"\x00\x01binary", "nsys export"),
        ("t.json", json.dumps({"traceEvents": []}).encode(), "torch.profiler"),
        ("t.json.gz", gzip.compress(b'{"traceEvents": []}', mtime=0), "torch.profiler"),
        ("t.sqlite.gz", b"not packed at all", "is not a gzip archive"),
        ("t.sqlite.gz", gzip.compress(b"", mtime=0), "not an SQLite file"),
        ("t.sqlite", b"SQLite format 3\x00", "truncated"),
        ("t.sqlite", b"SQLite format 3\x00" + b"\xff" * 5000, "read"),
    ],
)
def test_what_is_no_export_is_told_in_one_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said in message(path)


def test_a_missing_path_and_a_folder(tmp_path: Path) -> None:
    assert "No such file" in message(tmp_path / "none.sqlite")
    assert "folder" in message(tmp_path)
    assert "No such file" in message(tmp_path / "none" / "none.sqlite")


def test_a_pipe_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one would wait for who writes it."""
    os.mkfifo(tmp_path / "pipe")
    assert "not read from a pipe; write it to a file first" in message(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    assert "not read from a pipe" in message(Path("-"))


def test_a_full_temporary_folder(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(export.read_bytes()))
    opened = Path.open

    def full(self: Path, mode: str = "r", *rest: object) -> object:
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return opened(self, mode, *rest)

    monkeypatch.setattr(Path, "open", full)
    said = message(packed)
    assert f"no space left to unpack it into {tempfile.gettempdir()}; free some" in said
    assert "TMPDIR" in said


def test_no_permission(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    # Tests may run as root, whom no permission bit stops.
    monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in message(export)


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE a (title TEXT)")
        connection.execute("CREATE TABLE books (title TEXT)")
    connection.close()
    assert "not an nsys export (its tables: a, books)" in message(tmp_path / "t.sqlite")
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        for name in "cdef":
            connection.execute(f"CREATE TABLE {name} (title TEXT)")
    connection.close()
    assert "(its tables: a, books, c and 3 more)" in message(tmp_path / "t.sqlite")


def test_truncated_anywhere_is_an_error(export: Path, tmp_path: Path) -> None:
    content = export.read_bytes()
    cut = tmp_path / "cut.sqlite"
    for length in [1, 15, 16, 99, 100, 512, 4095, 4096, 4097, len(content) // 2, len(content) - 1]:
        cut.write_bytes(content[:length])
        message(cut)


def test_flipped_bytes_give_a_trace_or_an_error(export: Path, tmp_path: Path) -> None:
    content = np.frombuffer(export.read_bytes(), np.uint8)
    random = np.random.default_rng(7)
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        damaged = content.copy()
        places = random.integers(0, len(content), random.integers(1, 12))
        damaged[places] = random.integers(0, 256, len(places))
        path = tmp_path / "flipped.sqlite"
        path.write_bytes(damaged.tobytes())
        try:
            outcomes[isinstance(load(path), Trace)] += 1
        except TraceFormatError:
            outcomes[False] += 1
    assert outcomes[True] > 50
    assert outcomes[False] > 5


def test_flipped_bytes_in_the_structure_of_pages(export: Path, tmp_path: Path) -> None:
    content = np.frombuffer(export.read_bytes(), np.uint8)
    random = np.random.default_rng(8)
    pages = len(content) // 4096
    for _ in range(300):
        damaged = content.copy()
        place = random.integers(1, pages) * 4096 + random.integers(0, 40)
        damaged[place] = random.integers(0, 256)
        path = tmp_path / "flipped.sqlite"
        path.write_bytes(damaged.tobytes())
        # Nothing but a TraceFormatError may leave load(), and it has to come to an end.
        with suppress(TraceFormatError):
            assert load(path).path == str(path)


def test_a_writer_that_has_begun_does_not_hinder(export: Path) -> None:
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert len(load(export).kernels) == 300
    writer.execute("ROLLBACK")
    writer.close()


def test_a_writer_in_the_middle_is_told(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "PATIENCE_S", 0.05)
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert "another program is writing" in message(export)
    writer.execute("ROLLBACK")
    writer.close()


def test_a_write_ahead_log_is_read_and_left_alone(export: Path) -> None:
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid > 100")
    before = state_of(export.parent)
    assert {"t.sqlite", "t.sqlite-wal"} <= set(before)
    assert len(load(export).kernels) == 100
    assert state_of(export.parent) == before
    writer.close()


def test_the_log_of_a_linked_database_lies_beside_the_file_itself(
    export: Path, tmp_path: Path
) -> None:
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid > 100")
    link = tmp_path / "link.sqlite"
    link.symlink_to(export)
    assert len(load(link).kernels) == 100
    scrub(link, tmp_path / "clean.sqlite")
    assert len(load(tmp_path / "clean.sqlite").kernels) == 100
    writer.close()


def test_a_name_that_is_not_utf8(export: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"t\xff.sqlite")
    path.write_bytes(export.read_bytes())
    assert len(load(path).kernels) == 300


def test_a_finished_database_in_wal_mode_gets_no_log(export: Path) -> None:
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.close()
    before = state_of(export.parent)
    assert list(before) == ["t.sqlite"]
    assert len(load(export).kernels) == 300
    assert state_of(export.parent) == before


def test_a_journal_left_behind_is_rolled_back_in_a_copy_only(export: Path, tmp_path: Path) -> None:
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")
    writer.execute("BEGIN")
    writer.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0, end = 1")
    # What a writer that is killed here leaves: a half written file, and the journal to mend it.
    left = tmp_path / "left"
    left.mkdir()
    for path in export.parent.iterdir():
        (left / path.name).write_bytes(path.read_bytes())
    writer.execute("ROLLBACK")
    writer.close()
    before = state_of(left)
    assert {"t.sqlite", "t.sqlite-journal"} == set(before)
    assert load(left / "t.sqlite").kernels["end_ns"].max() == 299 * 100 + 50
    assert state_of(left) == before


def test_zlib_errors_inside_gzip_are_told(export: Path, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(export.read_bytes()))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "t.sqlite.gz"
    path.write_bytes(packed)
    with pytest.raises((zlib.error, gzip.BadGzipFile, EOFError)):
        gzip.decompress(packed)
    assert "damaged or truncated" in message(path)


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_an_archive_of_more_than_a_trace_is_refused_before_it_is_unpacked(
    export: Path, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr("traceview.traces.trace.archives.FREE_BYTES", 1 << 22)
    header = bytearray(export.read_bytes()[:100])
    stale = bytes(header[:92]) + b"\xff" * 8
    huge = bytes(header[:28]) + b"\x10\0\0\0" + bytes(header[32:])
    zeros = bytes(1 << 24)
    for content, said in (
        (zeros, "not an SQLite file"),
        (b" " * (1 << 24), "not an SQLite file"),
        (export.read_bytes() + zeros, "more than the"),
        (huge + zeros, "over 256 times its size"),
        (stale + zeros, "over 256 times its size"),
        (b'{"traceEvents": [' + b" " * (1 << 24), "over 256 times its size"),
    ):
        packed = tmp_path / f"t.sqlite{suffix}"
        packed.write_bytes(ARCHIVES[suffix](content))
        assert said in message(packed)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b'{"a": "', "in its first 16 MiB"),
        (b'{"traceEvents": [{"name": "', "one of its events is longer than 16 MiB"),
        (b'{"traceEvents": [{}], "a": "', "behind its events is longer than 16 MiB"),
    ],
)
def test_a_name_without_end_is_refused(start: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(start + b"a" * (40 << 20))
    assert said in message(path)


@pytest.mark.parametrize("value", ["{}", '{"ph":"X"}', "1", "[]", "null"])
@pytest.mark.parametrize("between", ["", '{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1}'])
def test_a_list_of_other_values_is_refused_early(
    value: str, between: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of a hundred bytes for two bytes of text, if all were made."""
    made = 0

    def counted(self: KinetoEvent) -> None:
        nonlocal made
        made += 1

    monkeypatch.setattr(KinetoEvent, "__post_init__", counted, raising=False)
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{between}{"," * bool(between)}{f"{value}," * 2_000_000}')
    assert "over 10,000 values that are no events" in message(path)
    assert made < 200_000
