"""Waits and clocks of simulated jobs, against what is true of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.ranks.brute_force import recorded_keys, relative_offsets, waits
from tests.ranks.job_model import BEGIN_NS, SHAPES, US
from tests.ranks.rank_programs import run, total_ns
from tests.ranks.simulated_figures import Recorded, figures, lossy, recordings
from tests.ranks.simulated_jobs import balanced, with_straggler
from tests.ranks.simulation import RankTimeline
from traceview.traces.ranks.clocks import USABLE_ERROR_NS, align_clocks, matched_communicators
from traceview.traces.ranks.job import Clocks, MatchedCommunicator
from traceview.traces.ranks.matching import match_ranks

pytestmark = pytest.mark.slow

DRIFT = 2e-4
"""Durations are on clocks that differ by up to 100 ppm; twice that for two of them."""


def job(seed: int) -> tuple[list[RankTimeline], list[Recorded]]:
    shape = SHAPES[seed % len(SHAPES)]
    drawn = with_straggler(seed, shape) if seed % 2 else balanced(seed, shape)
    lines = run(drawn)
    return lines, recordings(seed, drawn.ranks, per_host=(8, 2)[seed % 2])


def answer(
    lines: Sequence[RankTimeline], recorded: Sequence[Recorded]
) -> tuple[tuple[MatchedCommunicator, ...], Clocks]:
    ranks = [figures(line, each) for line, each in zip(lines, recorded, strict=True)]
    matched = match_ranks(ranks).matched
    clocks = align_clocks(ranks, matched)
    return matched_communicators(ranks, matched, clocks), clocks


def compared(
    lines: Sequence[RankTimeline],
    recorded: Sequence[Recorded],
    matched: Sequence[MatchedCommunicator],
    within_ns: int = 200,
) -> tuple[int, int]:
    """How many waits are given, each of which is compared, and how many there are."""
    keys = [recorded_keys(line, each) for line, each in zip(lines, recorded, strict=True)]
    true = waits(lines, recorded)
    given = 0
    for of in matched:
        for member, rank in enumerate(of.ranks):
            for column in np.flatnonzero(of.wait_ns[member] >= 0).tolist():
                key = keys[rank][of.rows[member, column]]
                wait = int(of.wait_ns[member, column])
                assert wait == pytest.approx(true[rank][key], abs=within_ns + DRIFT * wait)
                given += 1
    return given, sum(map(len, true))


# Ten seeds in a row are each shape with a straggler and without.
@pytest.mark.parametrize("seed", range(10))
def test_waits_equal_brute_force(seed: int):
    lines, recorded = job(seed)
    matched, _ = answer(lines, recorded)
    given, there = compared(lines, recorded, matched)
    assert given == there


# 33: two stages lose different messages at the end of the shorter recording.
@pytest.mark.parametrize("seed", [*range(15, 25), 33])
def test_waits_where_collectives_are_missing(seed: int):
    lines, recorded = job(seed)
    recorded = lossy(recorded, lines, seed)
    matched, clocks = answer(lines, recorded)
    # Without usable clocks a wait is the difference of durations, to the jitter of the ends.
    exact = (clocks.error_ns <= USABLE_ERROR_NS).all()
    given, there = compared(lines, recorded, matched, within_ns=200 if exact else 10 * US)
    assert given >= 0.95 * there


# 3: 100 ms from one collective to the next, so that clocks drift in between; 18: short messages.
@pytest.mark.parametrize("seed", [3, 18, *range(30, 40)])
def test_waits_without_names_of_communicators(seed: int):
    """Groups that work in step are told apart as far as their ends are: none waits for long."""
    lines, recorded = job(seed)
    recorded = [replace(each, named_communicators=False) for each in recorded]
    matched, _ = answer(lines, recorded)
    compared(lines, recorded, matched, within_ns=50 * US)


def test_clocks_are_within_their_stated_error():
    inside = []
    for seed in range(40, 60):
        lines, recorded = job(seed)
        if seed % 3 == 0:
            recorded = lossy(recorded, lines, seed)
        _, clocks = answer(lines, recorded)
        ends = np.array([BEGIN_NS, (BEGIN_NS + total_ns(lines)) // 2, total_ns(lines)])
        truth = relative_offsets(recorded, clocks.reference, ends)
        for rank, each in enumerate(recorded):
            if rank != clocks.reference and clocks.component[rank] == clocks.component[0]:
                own = each.clock(ends)
                off = np.abs(clocks.aligned_ns(rank, own) - own - truth[rank]).max()
                inside.append(off <= clocks.error_ns[rank])
    assert len(inside) > 100
    assert np.mean(inside) >= 0.95
