"""The error that uneven steps make of a saving: simulated programs know the truth."""

import numpy as np
import pytest

from traceview.traces.facts.forecast import spread_of

RUNS, NEIGHBOURS = 4_000, 20


def _work(random, steps):
    return 4e6 * (1 + 0.03 * random.standard_normal(steps))


def _rare(random, steps):
    """Waits of 50 ms on average in about one step of seven."""
    short = 2e5 * random.random(steps)
    return np.where(random.random(steps) < 0.15, random.exponential(5e7, steps), short)


def no_rare_waits(random, steps):
    work, wait = _work(random, steps), _rare(random, steps)
    return work + wait, wait


def half_of_rare_waits(random, steps):
    work, wait = _work(random, steps), _rare(random, steps)
    return work + wait, wait / 2


def faster_work_beside_rare_waits(random, steps):
    work, wait = _work(random, steps), _rare(random, steps)
    return work + wait, 0.3 * work * (1 + 0.05 * random.standard_normal(steps))


def two_kinds_of_steps(random, steps):
    long = np.arange(steps) % 2 == 1
    step = np.where(long, 3e7, 1e7) * (1 + 0.02 * random.standard_normal(steps))
    return step, np.where(long, 1.5e7, 1e6) * (1 + 0.05 * random.standard_normal(steps))


def no_checkpoint(random, steps):
    work, wait = _work(random, steps), 6e7 * (1 + 0.1 * random.standard_normal(steps))
    wait = np.where(np.arange(steps) % 8 == 7, wait, 0)
    return work + wait, wait


def uneven_data(random, steps):
    work, wait = _work(random, steps), 1e6 * random.lognormal(0, 1.2, steps)
    return work + wait, wait


def data_beside_work(random, steps):
    work, data = _work(random, steps), random.exponential(6e6, steps)
    return np.maximum(work, data), np.maximum(work, data) - work


def part_of_uneven_data(random, steps):
    work, wait = _work(random, steps), random.exponential(3e6, steps)
    return work + wait, wait * random.random(steps)


def even_steps(random, steps):
    work = _work(random, steps)
    return work, 0.3 * work * (1 + 0.2 * random.standard_normal(steps))


PROGRAMS = [
    *(no_rare_waits, half_of_rare_waits, faster_work_beside_rare_waits, two_kinds_of_steps),
    *(no_checkpoint, uneven_data, data_beside_work, part_of_uneven_data, even_steps),
]


@pytest.mark.parametrize("steps", [10, 14, 40])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_nine_in_ten_errors_hold_what_steps_of_that_length_save(program, steps):
    """The truth is what other runs of the program save whose mean step is as long."""
    random = np.random.default_rng(42)
    runs = [tuple(each.round() for each in program(random, steps)) for _ in range(RUNS)]
    runs.sort(key=lambda run: run[0].mean())
    saved = np.array([wins.mean() for _, wins in runs])
    width = 2 * NEIGHBOURS + 1
    truth = np.convolve(saved, np.ones(width), "valid") / width
    errors = np.array([spread_of(wins, recorded) for recorded, wins in runs])
    inner = slice(NEIGHBOURS, -NEIGHBOURS)
    assert np.mean(np.abs(saved[inner] - truth) <= errors[inner] + 1) >= 0.9


def test_the_number_of_long_steps_is_no_error_of_the_saving():
    saved = np.array([1, 0, 0, 58_000, 0, 4_000, 17_000, 1_000, 4_000, 0, 4_000, 47_000, 0, 5_000])
    recorded = saved + 2_400 + np.arange(14)
    plain = 1.96 * saved.std(ddof=1) / np.sqrt(14)
    assert plain > 9_000
    assert spread_of(saved, recorded) < 10


def test_one_long_step_alone_does_not_show_how_the_saving_grows():
    """The line through one long step is its own: the others would put it anywhere."""
    recorded = np.array([100, 101, 99, 100, 102, 98, 100, 101, 99, 900])
    saved = np.array([10, 12, 9, 11, 8, 10, 12, 9, 11, 10])
    assert spread_of(saved, recorded) == spread_of(saved, np.full(10, 100))


@pytest.mark.parametrize("steps", [3, 5, 7])
def test_few_steps_have_the_wider_error_of_student(steps):
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(2_000):
        saved = random.normal(1_000, 100, steps)
        hits += abs(saved.mean() - 1_000) <= spread_of(saved, np.full(steps, 5_000.0))
    assert hits / 2_000 >= 0.93


def test_fewer_than_three_steps_have_no_spread():
    assert spread_of(np.array([5, 7]), np.array([10, 11])) == 0
