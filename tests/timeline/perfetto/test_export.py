"""The Perfetto trace of small and of real recordings, read back by Perfetto's own messages."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Export
from traceview import export, load
from traceview.base.intervals import Intervals
from traceview.traces.facts.operations import operations
from traceview.traces.timeline.perfetto import (
    crossing,
    edge_order,
    interleaved,
    perfetto_pieces,
    varint,
    varints,
)
from traceview.traces.timeline.timeline import timeline

messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
BEGIN, END, COUNTER = 1, 2, 4


def parsed(content):
    trace = messages.Trace()
    trace.ParseFromString(content)
    return trace.packet


def bytes_of(trace):
    return b"".join(perfetto_pieces(trace, timeline(trace)))


class Read:
    """The tracks, slices and flows of a Perfetto trace, put together as a viewer does."""

    def __init__(self, content):
        self.names, self.tracks, self.values = {}, {}, defaultdict(list)
        self.slices, self.starts, self.ends = [], {}, {}
        stacks = defaultdict(list)
        packets = parsed(content)
        for packet in packets:
            self.names |= {each.iid: each.name for each in packet.interned_data.event_names}
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        events = [packet for packet in packets if packet.HasField("track_event")]
        for packet in sorted(events, key=lambda each: each.timestamp):
            event, stack = packet.track_event, stacks[packet.track_event.track_uuid]
            if event.type == BEGIN:
                stack.append((self.names[event.name_iid], packet.timestamp))
                self.starts |= dict.fromkeys(event.flow_ids, packet.timestamp)
                self.ends |= dict.fromkeys(event.terminating_flow_ids, packet.timestamp)
            elif event.type == END:
                name, start = stack.pop()
                depth, uuid = len(stack), event.track_uuid
                self.slices.append((uuid, depth, name, start, packet.timestamp))
            elif event.type == COUNTER:
                self.values[event.track_uuid].append((packet.timestamp, event.counter_value))
        assert not any(stacks.values())

    def on(self, name):
        """Depth, name, start and end of the slices of the tracks of that name."""
        found = [
            u for u, track in self.tracks.items() if name in (track.name, track.thread.thread_name)
        ]
        return sorted((s[3], s[4], s[1], s[2]) for s in self.slices if s[0] in found)


@pytest.fixture
def small(tmp_path):
    export = (
        Export()
        .named_thread(0, "main")
        .range("step", 0, 100)
        .range("forward", 0, 50)
        .launch((5, 10), (20, 40), name="gemm")
        .launch((50, 55), (40, 60), name="add")
        .copy((60, 65), (70, 80))
        .call("cudaDeviceSynchronize_v3020", 70, 90)
    )
    return export.load(tmp_path)


def test_threads_hold_ranges_and_calls_nested(small):
    assert Read(bytes_of(small)).on("main") == [
        (0, 50, 1, "forward"),
        (0, 100, 0, "step"),
        (5, 10, 2, "cudaLaunchKernel"),
        (50, 55, 1, "cudaLaunchKernel"),
        (60, 65, 1, "cudaMemcpyAsync"),
        (70, 90, 1, "cudaDeviceSynchronize"),
    ]


def test_streams_hold_work_and_flows_lead_there(small):
    read = Read(bytes_of(small))
    assert [(start, end) for start, end, *_ in read.on("Stream 7")] == [
        (20, 40),
        (40, 60),
        (70, 80),
    ]
    assert sorted((read.starts[flow], end) for flow, end in read.ends.items()) == [
        (5, 20),
        (50, 40),
        (60, 70),
    ]


def test_queue_depth_counts_what_was_launched_and_has_not_ended(small):
    read = Read(bytes_of(small))
    (uuid,) = [u for u, track in read.tracks.items() if track.name == "Queue depth"]
    assert read.values[uuid] == [(5, 1), (40, 0), (50, 1), (60, 1), (80, 0)]


def test_ranges_that_overlap_without_nesting_get_a_track_below(tmp_path):
    trace = (
        Export()
        .named_thread(0, "main")
        .range("a", 0, 50)
        .range("b", 30, 80, kind="start-end")
        .launch((1, 2), (3, 4))
        .load(tmp_path)
    )
    read = Read(bytes_of(trace))
    assert (30, 80, 0, "b") in read.on("Overlapping ranges")
    assert (0, 50, 0, "a") in read.on("main")


@pytest.mark.parametrize("name", ["mlp_sync", "two_processes", "graph_nodes", "jax", "two_gpus"])
def test_every_row_of_a_recording_is_a_slice(name, unpack):
    trace = load(unpack(name))
    whole, read = timeline(trace), Read(bytes_of(trace))
    expected = sorted(
        (start, max(end, start + 1))
        for track in whole.tracks
        for start, end in zip(track.start_ns.tolist(), track.end_ns.tolist(), strict=True)
    )
    assert sorted((start, end) for *_, start, end in read.slices) == expected
    ops, calls = operations(trace), trace.api_calls["start_ns"]
    known = np.flatnonzero(ops.launched)
    assert read.ends == {row + 1: int(ops.start_ns[row]) for row in known.tolist()}
    assert read.starts == {row + 1: int(calls[ops.call[row]]) for row in known.tolist()}


def test_hostile_names_stay_text(tmp_path):
    name = "</script>\x1b[31m" + "ä" + "x" * 10_000
    trace = Export().named_thread(0, name).launch((1, 2), (3, 4)).load(tmp_path)
    assert Read(bytes_of(trace)).slices


def test_an_empty_recording_is_a_valid_trace(tmp_path):
    assert not Read(bytes_of(Export().load(tmp_path))).slices


def test_compressed_by_name_and_never_overwritten(unpack, tmp_path):
    import gzip

    source = unpack("mlp_sync")
    plain = export(source, perfetto=tmp_path / "a.pftrace")
    packed = export(load(source), perfetto=tmp_path / "a.pftrace.gz")
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pftrace", "a.pftrace.gz"]


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 15)), max_size=14)


@given(spans)
def test_rows_without_crossings_nest(drawn):
    drawn = sorted((start, start + length) for start, length in drawn)
    drawn.sort(key=lambda span: (span[0], -span[1]))
    start, end = (np.array([span[side] for span in drawn], np.int64) for side in (0, 1))
    crossed = crossing(Intervals(start, end))
    truly = [
        any(a < start[row] < b < end[row] for a, b in drawn[:row]) for row in range(len(drawn))
    ]
    assert crossed.any() == any(truly)
    if any(truly):
        return
    stack = []
    for edge in edge_order(start, end, disjoint=False).tolist():
        if edge < len(drawn):
            stack.append(edge)
        else:
            assert stack.pop() == edge - len(drawn)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_wide_varints_are_their_numbers(values):
    from google.protobuf.internal.decoder import _DecodeVarint

    for row, value in zip(varints(8, np.array(values)), values, strict=True):
        assert _DecodeVarint(row.tobytes(), 1)[0] == value
        assert row[:1].tobytes() == varint(8 << 3)


def test_shapes_are_interleaved():
    wide, narrow = np.full((2, 3), 1, np.uint8), np.full((1, 1), 2, np.uint8)
    parts = [(np.array([0, 2]), wide), (np.array([1]), narrow)]
    assert interleaved(parts, 3) == bytes([1, 1, 1, 2, 1, 1, 1])
