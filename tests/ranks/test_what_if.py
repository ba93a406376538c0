"""Edits of simulated jobs against the simulation run again with the same change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import traceview
from tests.places import DATA
from tests.ranks.job_model import BEGIN_NS, MS, US
from tests.ranks.simulated_export import write
from tests.ranks.simulated_figures import Recorded
from tests.ranks.simulation import COLLECTIVE, COMPUTE, RankTimeline, schedule
from tests.ranks.test_job_replay import LATE, RANKS, STEPS, Slower, as_usual, programs
from traceview.base.errors import InputError
from traceview.traces.edits.answer import WhatIfReport

SLEEP = [DATA / "ranks" / f"ddp_sleep.rank{rank}.sqlite.xz" for rank in range(2)]


def lines(seed: int, **changes: Slower) -> list[RankTimeline]:
    both = {"pause": as_usual, "work": as_usual, **changes}
    return schedule(programs(seed, **both), begin_ns=BEGIN_NS)


def recordings(job: list[RankTimeline], folder: Path) -> list[Path]:
    """The files of the ranks, whose clocks are 7 ms apart each."""
    return [
        write(line, Recorded(rank * 7 * MS), folder / f"rank{rank}.sqlite")
        for rank, line in enumerate(job)
    ]


def step_ends(job: list[RankTimeline]) -> np.ndarray:
    """When the last GPU work of each step ends on any rank."""
    end = np.zeros(STEPS, np.int64)
    for line in job:
        for op, time in zip(line.program.operations, line.end_ns, strict=True):
            if op.does in (COMPUTE, COLLECTIVE):
                end[op.step] = max(end[op.step], time)
    return end


def won(before: list[RankTimeline], after: list[RankTimeline], answer: WhatIfReport) -> float:
    """What the change wins per measured step, which are the last ones."""
    first, last = STEPS - 1 - answer.steps, STEPS - 1
    took = [ends[last] - ends[first] for ends in (step_ends(before), step_ends(after))]
    return float(took[0] - took[1]) / answer.steps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ranks", [(LATE,), ()])
def test_faster_kernels_of_ranks_are_the_job_run_again(
    seed: int, ranks: tuple[int, ...], tmp_path: Path
):
    def faster(rank: int, step: int) -> float:
        return 0.3 if not ranks or rank in ranks else 1.0

    before, after = lines(seed), lines(seed, work=faster)
    paths = recordings(before, tmp_path)
    answer = traceview.what_if(paths, "kernel nvjet*=0.3", ranks=ranks)
    assert answer.quality.is_exact
    assert answer.ranks == tuple(range(RANKS))
    expected = won(before, after, answer)
    assert expected > 0
    assert answer.forecast.saved_ns == pytest.approx(expected, abs=US)
    # The GPUs of the other ranks wait as much less.
    assert answer.after.step_ns < answer.before.step_ns
    for time in (answer.before, answer.after):
        assert sum(time.idle_ns.values()) + time.busy_ns == pytest.approx(time.step_ns)


def test_a_rank_that_waits_wins_nothing_for_the_job(tmp_path: Path):
    """Each edit is on top of those before it; one that no rank waits for adds little."""
    paths = recordings(lines(1), tmp_path)
    late, other = (traceview.what_if(paths, "kernel nvjet*=0.3", ranks=rank) for rank in (LATE, 0))
    assert late.forecast.saved_ns > 4 * max(other.forecast.saved_ns, 0)


def test_the_answer_says_whose_work_is_edited():
    answer = traceview.what_if(SLEEP, "cpu data.py:24=0", ranks=1)
    assert answer.forecast.saved_ns > 3 * MS
    assert "2 ranks were replayed as one job, rank 1 with the edits." in answer.to_markdown()
    told = json.loads(answer.to_json())
    assert (told["ranks"], told["edited_ranks"]) == ([0, 1], [1])
    assert "and 1 more" in answer.to_html()


def test_what_cannot_be_replayed_as_one_job_is_refused():
    with pytest.raises(InputError, match="no recording of rank 3"):
        traceview.what_if(SLEEP, "no-recorder", ranks=3)
    with pytest.raises(InputError, match="cannot be replayed as one job"):
        traceview.what_if(SLEEP[:1], "no-recorder", ranks=0)
    with pytest.raises(InputError, match="two recordings are of rank 0"):
        traceview.what_if(SLEEP[:1] * 2, "no-recorder")
    with pytest.raises(InputError, match="nothing"):
        traceview.what_if(SLEEP, "kernel nothing*=0.5")
