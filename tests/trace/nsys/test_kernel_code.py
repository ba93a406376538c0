"""Gathered code in a trace: what is read, and what a hostile table can do."""

import sqlite3
import tracemalloc
import zlib
from contextlib import closing

import numpy as np
import pytest

from tests.build import Export
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import KERNELS_TABLE, MOST_BYTES, packed, unpacked

PTX = ".version 8.0\n.target sm_90\n"


def test_absent_empty_and_full_are_three_things(tmp_path):
    assert "kernel_code" not in Export().drop(KERNELS_TABLE).load(tmp_path).tables
    (tmp_path / "built.sqlite").unlink()
    assert len(Export().load(tmp_path).kernel_code) == 0


def test_what_is_read(tmp_path):
    trace = Export().code("k", PTX, b"cubin", num_warps=4, source_line=7).code("l").load(tmp_path)
    table = trace.kernel_code
    assert table.cells("name") == ["k", "l"]
    assert table.cells("num_warps") == [4, None]
    assert [unpacked(blob) for blob in table["ptx"]] == [PTX.encode(), None]
    assert [unpacked(blob) for blob in table["cubin"]] == [b"cubin", None]
    assert table.is_null("cubin").tolist() == [False, True]
    assert table.take(np.array([1])).cells("name") == ["l"]
    assert table.to_pandas()["source_line"].iloc[0] == 7


def test_code_larger_than_a_page_of_the_file(tmp_path):
    noise = np.random.default_rng(0).bytes(100_000)
    trace = Export().code("k", cubin=noise).load(tmp_path)
    assert unpacked(trace.kernel_code["cubin"][0]) == noise


def test_a_bomb_is_not_unpacked():
    bomb = zlib.compress(bytes(4 * MOST_BYTES), 9)
    tracemalloc.start()
    try:
        assert unpacked(bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("blob", [None, b"", b"x", packed(b"code")[:-1], "text", 7])
def test_what_is_no_code_is_none(blob):
    assert unpacked(blob) is None


def test_cells_of_a_wrong_kind_count_as_absent(tmp_path):
    path = Export().code("k", PTX).write(tmp_path / "odd.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DROP TABLE {KERNELS_TABLE}")
        columns = "name, num_warps, ptx, source_text, signature"
        connection.execute(f"CREATE TABLE {KERNELS_TABLE} ({columns})")
        odd = [("k", "four", "text", 7, None), (None, 1, b"x", "", ""), ("l", 1 << 40, 1.5, b"", 2)]
        connection.executemany(f"INSERT INTO {KERNELS_TABLE} VALUES (?, ?, ?, ?, ?)", odd)
    table = load(path).kernel_code
    assert table.cells("name") == ["k", "l"]
    assert table.cells("num_warps") == [None, None]
    assert table.cells("ptx") == [None, None]
    assert table.cells("source_text") == [None, None]
    assert table.cells("signature") == ["", ""]
    assert table.cells("cubin") == [None, None]
