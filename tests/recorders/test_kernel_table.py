"""From the gathered folder to the table: each kernel once, and nothing that is damaged."""

import binascii
import json
import sqlite3
from contextlib import closing

import pytest

from tests.build import Export
from traceview.base.errors import RecordingError
from traceview.traces.recorders.written_tables import write_kernels
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import unpacked

KERNEL = {
    "name": "k",
    "hash": "abc",
    "arch": 90,
    "num_warps": 4,
    "num_stages": 3,
    "shared_bytes": 128,
    "options": {"num_ctas": 1},
    "ptx": ".version 8.0",
    "cubin": binascii.b2a_base64(b"cubin", newline=False).decode(),
    "arguments": [
        {"name": "x", "type": "*fp32", "divisible_by_16": True},
        {"name": "B", "type": "constexpr", "divisible_by_16": False, "value": 64},
    ],
    "source_file": "/home/alice/k.py",
    "source_line": 3,
    "source_text": "def k(): ...",
}


@pytest.fixture
def written(tmp_path):
    """Write kernels into a trace and read it."""
    folder = tmp_path / "gathered"
    folder.mkdir()

    def write(**files):
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / f"{name.replace('_loaded', '.loaded')}.json").write_text(text)
        path = Export().drop("TRACEVIEW_KERNELS").write(tmp_path / "t.sqlite")
        count = write_kernels(path, folder)
        table = load(path).kernel_code
        assert len(table) == count
        return list(table.rows())

    return write


def test_all_that_was_gathered_is_in_the_table(written):
    (row,) = written(abc=KERNEL)
    assert unpacked(row.pop("ptx")) == b".version 8.0"
    assert unpacked(row.pop("cubin")) == b"cubin"
    assert json.loads(row.pop("signature")) == [
        {"name": "x", "type": "*fp32", "divisible_by_16": True},
        {"name": "B", "type": "constexpr", "divisible_by_16": False},
    ]
    assert row == {
        "name": "k",
        "hash": "abc",
        "arch": "sm_90",
        "num_warps": 4,
        "num_stages": 3,
        "shared_memory_bytes": 128,
        "constexprs": '{"B": 64}',
        "options": '{"num_ctas": 1}',
        "source_file": "/home/alice/k.py",
        "source_line": 3,
        "source_text": "def k(): ...",
    }


def test_no_kernels_are_an_empty_table(written):
    assert written() == []


def test_what_the_compiler_told_counts_for_more_than_what_a_launcher_knew(written):
    rows = written(abc_loaded={**KERNEL, "arguments": []}, abc=KERNEL, z=KERNEL)
    assert [len(json.loads(row["signature"])) for row in rows] == [2]


def test_without_a_hash_equal_code_is_one_kernel(written):
    nameless = {**KERNEL, "hash": None}
    assert len(written(a=nameless, b=nameless, c={**nameless, "num_warps": 8})) == 2


def test_little_is_needed(written):
    (row,) = written(a={"name": "k", "hash": "h"})
    assert (row["arch"], row["ptx"], row["signature"]) == (None, None, "[]")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "7", "{}", {"name": "k", "arguments": [7]}, {"name": "k", "arch": "x"}],
)
def test_a_file_that_is_damaged_is_left_out(written, content):
    assert [row["hash"] for row in written(bad=content, good=KERNEL)] == ["abc"]


def test_a_database_that_is_none(tmp_path):
    (tmp_path / "x.sqlite").write_text("no database at all" * 10)
    with pytest.raises(RecordingError, match="SQLite cannot read"):
        write_kernels(tmp_path / "x.sqlite", tmp_path)


def test_a_table_of_another_run_is_replaced(tmp_path):
    path = Export().code("old").write(tmp_path / "t.sqlite")
    write_kernels(path, tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM TRACEVIEW_KERNELS").fetchone() == (0,)
