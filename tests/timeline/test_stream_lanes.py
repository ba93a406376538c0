"""Lanes of streams: each has the tracks that its own operations need."""

import random

from tests.build import Export
from traceview.traces.facts.launches import rows_by_stream
from traceview.traces.facts.operations import operations
from traceview.traces.timeline.lanes import launch_configurations, stream_lanes
from traceview.traces.timeline.tracks import RowNames, Track, spread


def test_streams_have_the_tracks_of_their_own_operations(tmp_path):
    """Of 12 streams some have operations side by side, of no length, or beginning together."""
    export, chance = Export(), random.Random(7)
    for number in range(400):
        stream = chance.randrange(12)
        most = 4 if stream < 6 else 30
        start = 10 * number + chance.randrange(3)
        end = start + chance.randrange(most)
        export.launch((start - 8, start - 6), (start, end), stream=stream)
    trace = export.load(tmp_path)
    ops, found = operations(trace), {}
    for lane in stream_lanes(trace, RowNames(), launch_configurations(trace)):
        found[lane.stream] = [each.source.tolist() for each in lane.tracks]

    for stream, rows in enumerate(rows_by_stream(trace)):
        name = rows * 0
        track = Track.of("operations", ops.start_ns[rows], ops.end_ns[rows], name, rows)
        expected = [each.source.tolist() for each in spread(track)]
        assert found[int(ops.streams[stream, 3])] == expected
    assert len(found) == 12
    assert {len(tracks) > 1 for tracks in found.values()} == {True, False}
