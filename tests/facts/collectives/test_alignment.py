"""Streams of two ranks whose recordings do not hold the same collectives."""

import numpy as np
import pytest

from traceview.traces.facts.collective_alignment import ABSENT, CollectiveStream, places_in

WITHIN_NS = 50_000
COUNT = 200


def stream(rows: np.ndarray, *, offset_ns: int = 0, drift: float = 0.0) -> CollectiveStream:
    """Those of `rows` of 200 collectives some 300 µs apart, in steps of five, on a clock."""
    draw = np.random.default_rng(3)
    ends = np.cumsum(draw.normal(300_000, 20_000, COUNT)).astype(np.int64)
    noise = np.random.default_rng(len(rows)).integers(0, 2_000, len(rows))
    kind = np.arange(COUNT) % 5 == 4
    own = ends[rows] + noise
    return CollectiveStream(
        own + offset_ns + np.rint(drift * own).astype(np.int64),
        kind[rows].astype(np.int64),
        np.full(len(rows), -1),
        np.full(len(rows), -1),
    )


@pytest.mark.parametrize(
    "lost",
    [[], [0], [100], [199], [40, 41, 42, 150], list(range(90)), list(range(120, 200))],
    ids=["none", "first", "middle", "last", "several", "late start", "early end"],
)
@pytest.mark.parametrize("drift", [0.0, 50e-6])
def test_places_of_what_was_not_lost(lost: list[int], drift: float):
    every = np.arange(COUNT)
    kept = np.setdiff1d(every, lost)
    other = stream(kept, offset_ns=-7_000_000_000, drift=drift)
    places = places_in(stream(every), other, WITHIN_NS, same_clock=False)
    np.testing.assert_array_equal(places, kept)


def test_both_lost_some():
    one, other = np.setdiff1d(np.arange(COUNT), [30]), np.setdiff1d(np.arange(COUNT), [60, 61])
    places = places_in(stream(one), stream(other), WITHIN_NS, same_clock=True)
    assert places is not None
    partner = np.searchsorted(one, other)
    np.testing.assert_array_equal(places, np.where(other == 30, ABSENT, partner))


def test_a_sender_that_leaves_early_keeps_its_place():
    one, other = stream(np.arange(COUNT)), stream(np.arange(COUNT), offset_ns=1_000_000_000)
    other.end_ns[77] -= 200_000
    places = places_in(one, other, WITHIN_NS, same_clock=False)
    np.testing.assert_array_equal(places, np.arange(COUNT))


def test_a_collective_that_ends_before_earlier_ones():
    """Messages to several ranks may run at the same time, so that ends do not ascend."""
    ours, theirs = np.setdiff1d(np.arange(COUNT), [160]), np.setdiff1d(np.arange(COUNT), [150])
    one, other = stream(ours), stream(theirs)
    one.end_ns[150] -= 15_000_000
    places = places_in(one, other, WITHIN_NS, same_clock=True)
    assert places is not None
    partner = np.searchsorted(ours, theirs)
    np.testing.assert_array_equal(places, np.where(theirs == 160, ABSENT, partner))


def test_streams_that_have_nothing_in_common():
    draw = np.random.default_rng(5)
    other = stream(np.arange(COUNT))
    ends = np.cumsum(draw.integers(10_000, 3_000_000, COUNT))
    unrelated = CollectiveStream(ends, other.kind, other.bytes, other.step)
    places = places_in(other, unrelated, WITHIN_NS, same_clock=False)
    assert places is None or (places != ABSENT).mean() < 0.5


def test_steps_that_are_all_alike_are_told_apart_by_their_number():
    """Without noise any step fits: the late recording would be matched with the first ones."""
    every = np.arange(COUNT)
    ends, kind, unknown = 300_000 * every, (every % 5 == 4).astype(np.int64), np.full(COUNT, -1)
    one = CollectiveStream(ends, kind, unknown, every // 5)
    late = every[50:180]
    other = CollectiveStream(ends[late] - 5, kind[late], unknown[late], late // 5)
    np.testing.assert_array_equal(places_in(one, other, WITHIN_NS, same_clock=False), late)
