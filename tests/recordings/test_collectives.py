"""Collectives of two H200: sizes as the program names them, bandwidth as timed alone."""

import json
import sqlite3

import numpy as np
import pytest

from tests.places import DATA
from traceview import load
from traceview.traces.analyses.communication import ANALYSIS
from traceview.traces.facts.collectives import transfers
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree

# Calls of collectives.py: kind, and the larger buffer and the bus bytes by the size it names.
CALLS = {
    "all_reduce": ("all-reduce", 1, 1),
    "all_reduce_max": ("all-reduce", 1, 1),
    "all_reduce_other_group": ("all-reduce", 1, 1),
    "all_gather": ("all-gather", 2, 1),
    "reduce_scatter": ("reduce-scatter", 2, 1),
    "all_to_all": ("all-to-all", 1, 0.5),
    "broadcast": ("broadcast", 1, 1),
    "reduce": ("reduce", 1, 1),
    "ring_send_recv": ("send-receive", 1, 1),
    "one_way_send_recv": ("send-receive", 1, 1),
    "coalesced_all_gather": ("all-gather", 4, 2),
}
LARGEST = 2**28


@pytest.fixture(scope="module")
def trace(unpack):
    return load(unpack("collectives"))


def test_every_collective_has_the_size_that_the_program_names(trace):
    moved, tree = transfers(trace), range_tree(trace)
    paths = tree.paths.texts(attributed_operations(trace).path(tree)[moved.operation]).decode()
    checked = 0
    for path, kind, size, bus in zip(
        paths, moved.kind.tolist(), moved.bytes.tolist(), moved.bus_bytes.tolist(), strict=True
    ):
        call, _, asked = (path or "").partition("/nccl")[0].rpartition("/")
        if call in CALLS:
            named, whole, on_bus = CALLS[call]
            assert (moved.kinds[kind], size, bus) == (
                named,
                int(asked) * whole,
                int(asked) * on_bus,
            )
            checked += 1
    assert checked == 2 * len(CALLS) * 5 * 10
    assert set(moved.ranks.tolist()) == {2}
    assert len(np.unique(moved.communicator)) == 2


@pytest.mark.parametrize("column", ["binaryData", "jsonText"])
def test_blobs_and_json_say_the_same(trace, unpack, tmp_path, column):
    other = tmp_path / "other.sqlite"
    other.write_bytes(unpack("collectives").read_bytes())
    with sqlite3.connect(other) as connection:
        connection.execute(f"UPDATE NVTX_EVENTS SET {column} = NULL")
    connection.close()

    for table in ("collective_calls", "communicators"):
        assert load(other).table(table).to_pandas().equals(trace.table(table).to_pandas())


def test_bus_bandwidth_is_what_the_program_measured_alone(trace):
    """Kernels alone are faster than calls back to back, which have 10 to 50 µs around them."""
    measured = json.loads((DATA / "collectives.plain.json").read_text())
    sizes = ANALYSIS.run(trace).tables["sizes"].to_pandas()
    compared = 0
    for call in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
        kind, whole, bus = CALLS[call]
        [row] = sizes[(sizes.kind == kind) & (sizes.bytes == LARGEST * whole)].itertuples()
        alone = LARGEST * bus / measured[f"{call}/{LARGEST}"] * 1e9
        assert alone <= row.bus_bytes_per_s < 1.08 * alone
        assert row.link_pct == pytest.approx(100 * row.bus_bytes_per_s / 450e9)
        compared += 1
    assert compared == 6


def test_nothing_is_faster_than_the_link(trace, unpack):
    for recording in (trace, load(unpack("ddp_late"))):
        link = ANALYSIS.run(recording).tables["sizes"]["link_pct"]
        assert not (link > 100).any()


def test_the_rank_that_sleeps_is_the_one_that_the_other_waits_for(unpack):
    """5 ms in each of 30 steps; Python and a slow machine make the rest of the lateness."""
    result = ANALYSIS.run(load(unpack("ddp_late")))

    late = result.tables["ranks"].to_pandas().set_index("rank")
    assert late.late_ns[1] > 30 * 5_000_000 > 5 * late.late_ns[0]
    assert late.cause[1] == "gpu-idle"
    [finding] = result.findings
    assert "waits for GPU 1, which is idle longer" in finding.message
    assert finding.subject.name == "GPU 0"


def test_every_collective_of_the_named_communicators_is_paired(trace):
    """Both GPUs ran equally many, though small broadcasts and messages end apart."""
    rows = list(ANALYSIS.run(trace).tables["collectives"].rows())
    assert {row["group"] for row in rows if row["kind"] != "peer-copy"} == {"0, 1"}
