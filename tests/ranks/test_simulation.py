"""The simulated jobs are what they claim: physical, repeatable, and late by their fault alone."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ranks.job_model import FAULTS, MS, SHAPES, US
from tests.ranks.rank_programs import run
from tests.ranks.simulated_figures import figures, lossy, recordings
from tests.ranks.simulated_jobs import balanced, with_straggler, worth
from tests.ranks.simulation import (
    COLLECTIVE,
    LATENCY_NS,
    LAUNCH_NS,
    Operation,
    Pause,
    RankProgram,
    schedule,
)
from traceview.base.vocabulary.causes import CAUSE_NAMES

SLEEP = Pause("launch-late", "/job/train.py", 5, "train", "time.sleep")
PART = Operation(COLLECTIVE, 0, 20, "all-reduce", 40 * US, key="sum", parts=2, members=2)


def test_two_ranks_one_asleep():
    programs = [RankProgram(0), RankProgram(1)]
    for program in programs:
        program.compute("gemm", 100 * US)
        if program.rank:
            program.pause(300 * US, SLEEP)
        reduced = program.add(replace(PART))
        program.compute("optimizer", 10 * US, after=(reduced,))
    early, late = schedule(programs)
    first = LAUNCH_NS + LATENCY_NS
    assert early.start_ns[:2] == [first, first + LAUNCH_NS]
    assert late.start_ns[1] == first + LAUNCH_NS + 300 * US
    assert early.wait_ns(1) == 300 * US
    assert late.wait_ns(1) == 0
    assert early.end_ns[1] == late.end_ns[1] == late.start_ns[1] + 40 * US
    assert early.start_ns[2] == early.end_ns[1]
    assert late.last[1]
    assert not early.last[1]


def test_ranks_that_wait_for_each_other_in_a_circle():
    programs = [RankProgram(0), RankProgram(1)]
    for program, keys in zip(programs, ("ab", "ba"), strict=True):
        for key in keys:
            program.add(replace(PART, key=key))
    with pytest.raises(RuntimeError, match="wait for each other"):
        schedule(programs)


@pytest.mark.parametrize("shape", SHAPES)
def test_collectives_end_together_and_after_the_last_start(shape: str):
    lines = run(balanced(4, shape))
    parts: dict[object, list[tuple[int, int, int]]] = {}
    for line in lines:
        for place, op in enumerate(line.program.operations):
            if op.does == COLLECTIVE:
                times = line.start_ns[place], line.end_ns[place], line.wait_ns(place)
                parts.setdefault(op.key, []).append(times)
    assert len(parts) >= 40
    for times in parts.values():
        starts, ends, waits = np.array(times).T
        assert ends.min() > starts.max()
        assert np.ptp(ends) < 50 * US
        np.testing.assert_array_equal(waits, starts.max() - starts)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_seed_is_the_same_job(shape: str):
    assert [line.end_ns for line in run(balanced(9, shape))] == [
        line.end_ns for line in run(balanced(9, shape))
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_time(name: str):
    job = with_straggler(1, name=name)
    assert job.fault is not None
    assert job.fault.name == name
    assert worth(job) > 0
    assert worth(replace(job, fault=None)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_a_step_add_up(seed: int):
    job = with_straggler(seed)
    lines = run(job)
    for recorded in (
        recordings(seed, job.ranks, per_host=2),
        lossy(recordings(seed, job.ranks), lines, seed),
    ):
        for line, each in zip(lines, recorded, strict=True):
            rank = figures(line, each)
            steps = rank.steps
            idle = steps.idle_ns.sum(axis=1)
            parts = steps.compute_ns + steps.exposed_ns + steps.copies_ns + idle
            np.testing.assert_array_equal(parts, steps.duration_ns)
            assert (rank.collectives.idle_ns >= 0).all()
            assert (rank.collectives.exposed_ns <= rank.collectives.duration_ns).all()


def test_a_planted_sleep_is_idle_time_at_its_line():
    job = with_straggler(3, "ddp", "sleep")
    assert job.fault is not None
    late = job.fault.ranks[0]
    line = run(job)[late]
    rank = figures(line, recordings(3, job.ranks)[late])
    most = rank.collectives.idle_ns.sum(axis=0).argmax()
    assert CAUSE_NAMES[most] in ("launch-late", "sync-drain")
    place = rank.collectives.place[rank.collectives.place_ns.argmax()]
    assert rank.places[place].text == "train.py:88"
    assert rank.collectives.place_ns.max() > MS
