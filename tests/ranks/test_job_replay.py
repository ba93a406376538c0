"""The joint replay of simulated ranks against the simulation run again with the same change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.ranks.job_model import BEGIN_NS, MS, US
from tests.ranks.judgement import judge
from tests.ranks.simulated_export import write
from tests.ranks.simulated_figures import Recorded
from tests.ranks.simulated_jobs import with_straggler, worth_of_steady_steps
from tests.ranks.simulation import COLLECTIVE, Operation, Pause, RankProgram, RankTimeline, schedule
from traceview.traces.facts import forecast
from traceview.traces.facts.dependencies.replay import Changed, replay
from traceview.traces.ranks import job_replay as replaying
from traceview.traces.ranks.answer import job_facts
from traceview.traces.ranks.job_replay import JobReplay, job_replay
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.ranks.sent import Pool
from traceview.traces.trace.load import load

RANKS, STEPS, LATE = 4, 6, 2
WORKING = Pause("launch-late", "/job/train.py", 88, "work")
Slower = Callable[[int, int], float]
"""A factor on the work of each rank in each step."""


def programs(seed: int, pause: Slower, work: Slower) -> list[RankProgram]:
    """Four ranks that compute, wait for each other in pairs and in all, and for their own GPU."""
    draw = np.random.default_rng(seed)
    result = [RankProgram(rank) for rank in range(RANKS)]
    for step in range(STEPS):
        for place in range(5):
            kind = int(draw.integers(4))
            for rank, program in enumerate(result):
                program.step = step
                most = 3_000 if rank == LATE else 900
                program.pause(draw.integers(1, most) * US * pause(rank, step), WORKING)
                program.compute("gemm", draw.integers(10, most) * US * work(rank, step))
                if kind < 2:
                    pair = rank % 2 if kind else rank // 2
                    _all_reduce(program, (step, place, pair), 2, 10 + 2 * kind + pair)
                elif kind == 2 or not place:
                    _all_reduce(program, (step, place), RANKS, 1)
        for program in result:
            program.synchronize()
    return result


def _all_reduce(program: RankProgram, key: tuple[int, ...], parts: int, communicator: int) -> None:
    own = program.rank
    if parts == 2:
        own = program.rank // 2 if communicator >= 12 else program.rank % 2
    program.add(
        Operation(
            COLLECTIVE,
            0,
            kind="all-reduce",
            duration_ns=80 * US,
            key=key,
            parts=parts,
            communicator=communicator,
            members=parts,
            own_rank=own,
            bytes=1 << 20,
        )
    )


def as_usual(rank: int, step: int) -> float:
    return 1.0


def in_late(rank: int, step: int) -> float:
    return 0.3 if rank == LATE and step in (2, 3) else 1.0


def joint(lines: list[RankTimeline], recorded: list[Recorded], folder: Path) -> JobReplay:
    ranks = []
    for line, each in zip(lines, recorded, strict=True):
        path = write(line, each, folder / f"rank{line.program.rank}.sqlite")
        ranks += figures_of_ranks(load(path))
    facts = job_facts(ranks)
    made = job_replay(facts.ranks, facts.matched, facts.clocks, facts.steps, [LATE])
    assert isinstance(made, JobReplay)
    return made


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", ["pause", "work"])
def test_a_change_on_one_rank_is_the_job_run_again(what: str, seed: int, tmp_path: Path):
    def lines(change: Slower) -> list[RankTimeline]:
        both = {"pause": as_usual, "work": as_usual, what: change}
        return schedule(programs(seed, **both), begin_ns=BEGIN_NS)

    before, after = lines(as_usual), lines(in_late)
    made = joint(before, [Recorded(rank * 7 * MS) for rank in range(RANKS)], tmp_path)
    assert made.model.misfit == 0.0
    late = made.ranks[LATE]
    chosen = np.isin(late.step, [2, 3])
    calls = np.flatnonzero(chosen[: late.graph.calls])
    items = np.flatnonzero(chosen & (late.pool == Pool.WORK))

    def edit(changed: Changed) -> None:
        if what == "pause":
            changed.scale_pause(calls, 0.3)
        else:
            changed.scale(items, 0.3)

    times = replay(made.model.graph, [made.model.graph.on(late.part, edit)])
    for rank, (line, then) in enumerate(zip(before, after, strict=True)):
        of, ops = made.ranks[rank], line.program.operations
        rows = [place for place, op in enumerate(ops) if op.does == COLLECTIVE]
        item = of.first + of.collective[:-1]
        won = made.model.graph.end_ns[item] - times.end_ns[item]
        true = np.array([line.end_ns[row] - then.end_ns[row] for row in rows])
        assert true.max() > 0
        np.testing.assert_allclose(won, true, atol=US)


@pytest.mark.parametrize("seed", [0, 9, 12, 16, 21, 36])
def test_a_saving_is_what_the_job_wins_without_its_fault(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    """A late CPU, a slow GPU, slow kernels, and sleeps, in jobs of two and four ranks.

    No recorder makes the simulated calls longer.
    """
    monkeypatch.setattr(forecast, "RECORDER_CALL_NS", 0)
    job = with_straggler(seed)
    finding = judge(job, per_host=2, graphs=True).finding
    assert finding is not None
    assert finding.saving == "about"
    assert finding.time_at_stake_ns == pytest.approx(worth_of_steady_steps(job), rel=0.06)


def test_of_many_ranks_those_that_fit_are_replayed(monkeypatch: pytest.MonkeyPatch):
    job = with_straggler(4)
    monkeypatch.setattr(replaying, "MOST_ITEMS", 9_000)
    judged = judge(job, graphs=True)
    assert judged.finding is not None
    assert judged.finding.time_at_stake_ns == pytest.approx(worth_of_steady_steps(job), rel=0.25)
    [note] = [each for each in judged.report.result.notes if "replayed" in each]
    assert note.endswith("of 16 ranks: the late ones and those that wait least.")


def test_a_replay_that_is_off_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replaying, "MOST_MISFIT", -1.0)
    judged = judge(with_straggler(0), per_host=2, graphs=True)
    assert judged.finding is not None
    assert (judged.finding.saving, judged.finding.error_ns) == ("at-most", None)
    assert any("Savings of late ranks are bounds" in each for each in judged.report.result.notes)
