"""Rows singly and in runs: sums of runs are those of their rows, and windows are the densest."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.places import DATA
from tests.timeline.test_tracks import track_of
from traceview import load
from traceview.base import intervals
from traceview.traces.timeline.timeline import (
    FIRST_STEPS,
    densest,
    in_runs,
    opening_window,
    single,
    timeline,
    within,
)
from traceview.traces.timeline.tracks import NUMBER, Track

lengths = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=40)


def following(drawn):
    """A track whose rows follow each other: pairs of the gap before a row, and its length."""
    spans, time = [], 0
    for gap, length in drawn:
        spans.append((time + gap, length))
        time += gap + length
    return track_of(spans)


def of_some_rows(track):
    """The same as every second row of other columns."""
    start, end, name = (np.repeat(each, 2) for each in (track.start_ns, track.end_ns, track.name))
    return Track.some("ranges", start, end, name, np.arange(0, 2 * len(track), 2))


@given(lengths, st.integers(2, 7), st.data())
def test_a_run_sums_up_its_rows(drawn, run, data):
    track = following(drawn)
    last = int(track.end_ns[-1])
    times = sorted(data.draw(st.sets(st.integers(0, last), max_size=6)))
    windows = intervals.union(np.array(times[::2][: len(times) // 2]), np.array(times[1::2]))
    whole = intervals.inside(windows, track.start_ns)
    classes = np.arange(len(track)) % 3
    if data.draw(st.booleans()):
        track = of_some_rows(track)
    leaves = in_runs(track, windows, run)
    by_class = leaves.busy_by_class(classes)
    rows = [list(range(f, f + n)) for f, n in zip(leaves.first, leaves.count, strict=True)]
    assert [row for own in rows for row in own] == list(range(len(track)))
    for leaf, own in enumerate(rows):
        assert len(own) <= run
        assert len(own) == 1 or not whole[own].any()
        took = track.duration_ns[own]
        assert leaves.start_ns[leaf] == track.start_ns[own[0]]
        assert leaves.end_ns[leaf] == track.end_ns[own[-1]]
        assert leaves.busy_ns[leaf] == took.sum()
        assert track.duration_ns[leaves.name[leaf]] == took.max()
        for kind, busy in by_class.items():
            assert busy[leaf] == took[classes[own] == kind].sum()


def test_what_fits_stays_whole():
    tracks = [following([(1, 2)] * 10), following([(1, 2)] * 20)]
    assert [leaves.summed for leaves in within(tracks, 30, intervals.EMPTY)] == [False, False]
    assert single(tracks[0]).busy_ns.tolist() == [2] * 10


def test_short_tracks_stay_whole_and_long_ones_are_summed():
    short, long = following([(1, 2)] * 10), following([(1, 2)] * 5_000)
    of_short, of_long = within([short, long], 1_000, intervals.EMPTY)
    assert not of_short.summed
    assert of_long.summed
    assert int(of_long.count.sum()) == 5_000
    alone = int((of_long.count == 1).sum())
    assert 900 <= alone <= 1_000


@given(st.integers(0, 14_000), st.integers(1, 300))
def test_all_rows_of_a_kept_window_are_single(first, length):
    track, kept = (
        following([(1, 2)] * 5_000),
        intervals.union(*np.array([[first], [first + length]])),
    )
    (leaves,) = within([track], 1_000, kept)
    single_rows = leaves.first[leaves.count == 1]
    assert set(np.flatnonzero(intervals.inside(kept, track.start_ns))) <= set(single_rows.tolist())


def test_the_densest_windows_are_kept():
    start = np.concatenate((np.arange(0, 512_000, 1_000), np.arange(100_000, 104_000, 10)))
    track = track_of([(time, 1) for time in np.sort(start).tolist()])
    windows = densest([of_some_rows(track)], 405)
    assert densest([track], 405) == windows
    assert windows.total() <= 6_000
    assert 99_000 <= windows.start[0] < windows.end[-1] <= 106_000
    assert intervals.inside(windows, np.arange(100_000, 104_000, 10)).mean() > 0.95


def test_a_page_opens_at_three_steps_in_the_middle_of_the_run():
    whole = timeline(load(DATA / "training.sqlite.xz"))
    steps = next(lane.tracks[0] for lane in whole.lanes if lane.kind == "steps")
    (first, last), kept = opening_window(whole)
    inside = np.flatnonzero((steps.start_ns >= first) & (steps.end_ns <= last))
    assert inside.tolist() == list(range(inside[0], inside[0] + FIRST_STEPS))
    assert whole.names.classes[steps.name[inside[0]]] == NUMBER["step"]
    assert (kept.start.tolist(), kept.end.tolist()) == ([first], [last])
