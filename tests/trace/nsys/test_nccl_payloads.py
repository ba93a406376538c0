"""Payloads of NCCL's ranges: bytes and communicators, by blob, by JSON, damaged and absent."""

import sqlite3

import pytest

from tests.build import Export, nccl_payload
from traceview.base.tables import NULL
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.nccl_calls import decoded, parsed

HASH = 0xF123_4567_89AB_CDEF
WRAPPED = HASH - 2**64
SENT = {"NCCL communicator ID": HASH, "Message size [bytes]": 4096, "Peer rank": 3}
CREATED = {"NCCL communicator ID": HASH, "No. of ranks": 8, "Rank": 5, "CUDA device": 1}


def rows(trace, table, *columns):
    frame = trace.table(table).to_pandas()
    return [tuple(row) for row in frame[list(columns)].itertuples(index=False)]


@pytest.mark.parametrize("stored", ["blob", "json", "by id"])
@pytest.mark.parametrize("described", [True, False])
def test_payloads_however_they_are_stored(tmp_path, stored, described):
    trace = (
        Export()
        .nccl("ncclCommInitRankConfig", 0, 50, CREATED, stored=stored, described=described)
        .nccl("ncclGroupStart", 100, 101)
        .nccl("ncclSend", 102, 103, SENT, stored=stored, described=described)
        .nccl("ncclGroupEnd", 104, 150)
        .load(tmp_path)
    )

    assert rows(trace, "communicators", "communicator", "ranks", "rank") == [(WRAPPED, 8, 5)]
    calls = trace.table("collective_calls")
    assert calls.texts("kind").decode().tolist() == ["group-start", "send", "group-end"]
    assert calls["bytes"].tolist() == [NULL, 4096, NULL]
    assert calls["communicator"].tolist() == [NULL, WRAPPED, NULL]
    assert calls["peer"].tolist()[1] == 3
    assert not trace.warnings


def test_a_communicator_is_listed_once(tmp_path):
    trace = (
        Export()
        .nccl("ncclCommInitRank", 0, 5, CREATED)
        .nccl("ncclCommDestroy", 10, 15, CREATED)
        .load(tmp_path)
    )

    assert rows(trace, "communicators", "ranks", "rank") == [(8, 5)]


def test_ranges_without_payloads_still_tell_the_calls(tmp_path):
    trace = Export().nccl("ncclAllReduce", 0, 10).nccl("ncclCommInitRank", 20, 30).load(tmp_path)

    calls = trace.table("collective_calls")
    assert calls.texts("kind").decode().tolist() == ["all-reduce"]
    assert calls.is_null("bytes").all()
    assert not len(trace.table("communicators"))


def test_a_recording_without_nccl_has_no_such_tables(tmp_path):
    trace = Export().range("ncclAllReduce", 0, 10).load(tmp_path)

    assert "collective_calls" not in trace.tables


def test_damaged_payloads_are_absent(tmp_path):
    file = Export().nccl("ncclSend", 0, 10, SENT).nccl("ncclSend", 20, 30, SENT).write
    path = file(tmp_path / "damaged.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET binaryData = x'00ff' WHERE start = 0 AND end")
        connection.execute("UPDATE NVTX_EVENTS SET end = 40 WHERE start = 20")
    connection.close()

    assert load(path).table("collective_calls")["bytes"].tolist() == [NULL, 4096]


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\0" * 31,
        b"\0" * 40,
        nccl_payload("ncclSend", SENT)[:-16],
        b"\xff" * 64,
        "text",
        7,
        None,
    ],
)
def test_odd_blobs_decode_to_nothing(blob):
    assert decoded([blob], {}, ["Peer rank"])["Peer rank"].tolist() == [NULL]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"Message size [bytes]": 64}', 64),
        ('{"AllReduce": {"Message size [bytes]": "64"}}', 64),
        ('{"Message size [bytes]": 18446744073709551615}', -1),
        ('{"Message size [bytes]": true}', NULL),
        ('{"Message size [bytes]": "6e4"}', NULL),
        ('{"Message size [bytes]": 1e999}', NULL),
        ("[" * 100_000, NULL),
        ("[1]", NULL),
        ("{", NULL),
        (None, NULL),
    ],
)
def test_json_payloads(text, size):
    assert parsed([text], ["Message size [bytes]"])["Message size [bytes]"].tolist() == [size]
