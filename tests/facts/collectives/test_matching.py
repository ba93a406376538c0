"""Streams of GPUs that belong together, where the recordings name no communicator."""

from dataclasses import replace

import numpy as np
import pytest

from traceview.base.tables import NULL
from traceview.traces.facts.collective_alignment import CollectiveTimes
from traceview.traces.facts.collectives import matched_rows

MS = 1_000_000
SENT, RECEIVED = 1, -1


def times(ends: list[np.ndarray], directions: list[np.ndarray] | None = None) -> CollectiveTimes:
    """One stream per member, each with a clock of its own; messages where directions are given."""
    counts = [len(each) for each in ends]
    end, total = np.concatenate(ends), sum(counts)
    unknown = np.full(total, -1)
    return CollectiveTimes(
        member=np.repeat(np.arange(len(ends)), counts),
        lane=np.full(total, 7),
        start_ns=end - 10_000,
        end_ns=end,
        kind=np.zeros(total, np.int64),
        is_message=np.full(total, directions is not None),
        direction=np.zeros(total, np.int64) if directions is None else np.concatenate(directions),
        bytes=unknown,
        communicator=np.full(total, NULL),
        step=unknown,
        clock=np.arange(len(ends)),
    )


@pytest.mark.parametrize("drift", [-1.8e-4, 0.0, 1.8e-4])
def test_a_drift_of_the_clocks_is_no_difference(drift: float):
    """Up to 18 µs from one collective to the next, 100 ms later."""
    ends = np.arange(1, 17) * 100 * MS + np.random.default_rng(1).integers(0, 5 * MS, 16)
    other = (ends * (1 + drift)).astype(np.int64) + 77 * MS
    (matched,) = matched_rows(times([ends, other]))
    assert matched.rows.tolist() == [[*range(16)], [*range(16, 32)]]


def test_what_one_sends_another_receives():
    ends = np.cumsum(np.random.default_rng(2).integers(MS, 5 * MS, 12))
    sent, received = np.full(12, SENT), np.full(12, RECEIVED)
    assert len(matched_rows(times([ends, ends + 9 * MS], [sent, received]))) == 1
    assert not matched_rows(times([ends, ends + 9 * MS], [sent, sent]))


def test_a_message_has_two_ends():
    ends = np.cumsum(np.random.default_rng(3).integers(MS, 5 * MS, 12))
    sent, received = np.full(12, SENT), np.full(12, RECEIVED)
    three = times([ends, ends + 9 * MS, ends + 11 * MS], [sent, received, received])
    assert [each.members for each in matched_rows(three)] == [(0, 1)]


def test_messages_with_two_neighbours_are_not_those_of_one():
    """Every other message is with the other neighbour, and ends 20 to 40 µs from its own."""
    draw = np.random.default_rng(4)
    ends = np.cumsum(draw.integers(MS, 5 * MS, 24))
    off = np.where(np.arange(24) % 2, draw.integers(20_000, 40_000, 24), 0)
    assert not matched_rows(times([ends, ends + off], [np.zeros(24, np.int64)] * 2))


def test_a_last_message_without_its_partner_stays_alone():
    """One recording lacks a message, and the other one ends with it."""
    ends = np.cumsum(np.random.default_rng(5).integers(MS, 5 * MS, 24))
    shorter, other = ends[:21], np.delete(ends, 20) + 9 * MS
    (matched,) = matched_rows(times([shorter, other]))
    assert (matched.rows[:, :20] == [[*range(20)], [*range(21, 41)]]).all()
    assert not (matched.rows[:, 20:] >= 0).all(axis=0).any()


def expert_layers(draw, ranks: int, calls: int, jitter_ns: int) -> list[np.ndarray]:
    """Ends on each rank, on a clock of its own: each call ends with the last rank, and jitter."""
    work = draw.integers(150_000, 700_000, (ranks, calls))
    ends = np.cumsum(work.max(axis=0) + draw.integers(20_000, 80_000, calls))
    clock = draw.integers(0, 10**9, (ranks, 1))
    return list(ends + clock + draw.integers(-jitter_ns, jitter_ns, (ranks, calls)))


@pytest.mark.parametrize("seed", range(12))
def test_ends_that_scatter_about_one_difference_belong_together(seed):
    """Collectives of all experts under one CUDA graph, whose names say nothing of their group."""
    draw = np.random.default_rng(seed)
    ranks, calls = int(draw.integers(2, 9)), int(draw.integers(60, 400))
    (matched,) = matched_rows(times(expert_layers(draw, ranks, calls, 15_000)))
    assert matched.members == tuple(range(ranks))
    assert matched.rows.tolist() == np.arange(ranks * calls).reshape(ranks, calls).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_groups_at_their_own_pace_stay_apart(seed):
    """The same calls of two groups, whose work differs by a tenth of what it takes."""
    draw = np.random.default_rng(seed)
    calls = int(draw.integers(60, 400))
    usual = draw.integers(150_000, 700_000, calls)
    groups = [
        np.cumsum(usual + draw.normal(0, 30_000, calls).astype(np.int64)) + draw.integers(-9, 9)
        for _ in range(2)
    ]
    ends = [group + draw.integers(-2_000, 2_000, calls) for group in groups for _ in range(2)]
    assert [each.members for each in matched_rows(times(ends))] == [(0, 1), (2, 3)]


def late_in_turn(seed: int, scatter_ns: int) -> tuple[CollectiveTimes, np.ndarray]:
    """30 collectives of four ranks, some of which begin late, and end apart by a scatter."""
    draw = np.random.default_rng(seed)
    begin = np.cumsum(draw.integers(5 * MS, 40 * MS, 30))
    # The first three ranks begin together, the fourth one early or late.
    late = np.where(draw.random(30) < 0.5, draw.integers(-9 * MS, 9 * MS, 30), 0)
    begins = begin + np.array([[0], [1], [1], [1]]) * draw.integers(0, 20_000, (4, 30))
    begins[3] += late
    ends = begins.max(axis=0) + draw.integers(50_000, 2 * MS, 30)
    scattered = ends + draw.normal(0, scatter_ns, (4, 30)).astype(np.int64)
    each = times(list(scattered))
    return replace(each, start_ns=begins.ravel()), begins


@pytest.mark.parametrize("seed", range(8))
def test_who_waits_for_another_ends_with_it(seed):
    """Ends that scatter by 25 µs tell nothing by themselves; but who began early waited."""
    (matched,) = matched_rows(late_in_turn(seed, 25_000)[0])

    assert matched.members == (0, 1, 2, 3)
    paired = matched.rows >= 0
    assert (matched.rows == np.arange(120).reshape(4, 30))[paired].all()
    assert np.mean(paired) >= 0.95


@pytest.mark.parametrize("seed", range(8))
def test_who_waits_for_nobody_stays_alone(seed):
    """The work of each collective takes its own time on the ranks of two groups."""
    of_one, begins = late_in_turn(seed, 25_000)
    took = np.random.default_rng(seed).integers(50_000, 2 * MS, 30)
    own = replace(of_one, end_ns=(begins + took).ravel())

    assert all(3 not in each.members for each in matched_rows(own))
