"""Rows on tracks: none overlap, none are lost, and there are no more tracks than needed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.traces.timeline.tracks import MOST_TRACKS, Track, first_track, spread

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=25)


def track_of(drawn):
    start = np.array([first for first, _ in drawn], np.int64)
    end = start + np.array([length for _, length in drawn], np.int64)
    rows = np.arange(len(drawn))
    return Track.of("operations", start, end, rows.astype(np.int32), rows)


@given(spans)
def test_spread_rows_never_overlap_and_all_remain(drawn):
    tracks = spread(track_of(drawn))
    for track in tracks:
        assert (track.start_ns[1:] >= track.end_ns[:-1]).all()
    assert sorted(row for track in tracks for row in track.source.tolist()) == list(
        range(len(drawn))
    )


@given(spans)
def test_spread_needs_no_more_tracks_than_rows_are_open_at_once(drawn):
    real = [(first, length) for first, length in drawn if length]
    most = max((sum(a <= at < a + n for a, n in real) for at, _ in real), default=0)
    assert len(spread(track_of(real))) == most


@given(spans)
def test_first_track_takes_the_next_row_to_start(drawn):
    drawn = sorted((first, length) for first, length in drawn if length)
    start = np.array([first for first, _ in drawn], np.int64)
    end = start + np.array([length for _, length in drawn], np.int64)
    taken, free_at = [], -1
    for first, length in drawn:
        taken.append(first >= free_at)
        free_at = first + length if first >= free_at else free_at
    assert first_track(start, end).tolist() == taken


def test_rows_beyond_the_last_track_stay_on_it():
    tracks = spread(track_of([(0, 10)] * (MOST_TRACKS + 5)))
    assert [len(track) for track in tracks] == [1] * (MOST_TRACKS - 1) + [6]
