"""Loops of programs without ranges: found in launch sequences of known period."""

import numpy as np
import pytest

from tests.examples import examples
from tests.facts.steps.launch_sequences import launch_sequence
from traceview.traces.facts.steps.repetition import LEAST_STEPS, find_repetition

RANDOM = pytest.mark.parametrize("random", range(12), indirect=True)


@pytest.fixture
def random(request):
    """Draws that depend on the test alone, not on which tests ran before it."""
    return np.random.default_rng(request.param)


def pauses(launches, seams=(), long_ns=500_000):
    """Short pauses before all launches, long ones before the seams."""
    result = np.full(launches, 4_000)
    result[list(seams)] = long_ns
    return result


def a_pass(random, length):
    """A pass of some length: a few kernels that run often, and some that run once."""
    common = random.integers(0, 6, length)
    once = random.choice(length, max(length // 8, 2), replace=False)
    common[once] = 10 + np.arange(len(once))
    return common


@RANDOM
def test_a_period_behind_a_prologue(random):
    length, passes = int(random.integers(12, 400)), int(random.integers(6, 60))
    prologue = random.integers(100, 140, int(random.integers(0, 2 * length)))
    kind = np.concatenate([prologue, np.tile(a_pass(random, length), passes)])
    seams = len(prologue) + length * np.arange(passes)
    found = find_repetition(kind, pauses(len(kind), seams))
    assert found is not None
    assert found.lag == length
    # At the edge of the prologue a pass may be missed.
    assert passes - 1 <= len(found.first) <= passes
    assert set(found.first) <= set(seams)
    assert found.end == len(kind)


@RANDOM
def test_logging_every_few_steps_does_not_break_the_loop(random):
    length, passes, every = int(random.integers(90, 300)), 40, int(random.integers(3, 11))
    once, logging = a_pass(random, length), np.array([200, 201])
    parts, seams = [], []
    for number in range(passes):
        seams.append(sum(map(len, parts)))
        parts.append(once)
        if number % every == every - 1:
            parts.append(logging)
    kind = np.concatenate(parts)
    found = find_repetition(kind, pauses(len(kind), seams))
    assert found is not None
    assert passes - 2 <= len(found.first) <= passes
    assert set(found.first) <= set(seams)


@RANDOM
def test_steps_that_differ_a_little(random):
    length, passes = 120, 30
    kind = np.tile(a_pass(random, length), passes)
    changed = random.choice(len(kind), len(kind) // 50, replace=False)
    kind[changed] = random.integers(0, 6, len(changed))
    found = find_repetition(kind, pauses(len(kind), length * np.arange(passes)))
    assert found is not None
    # Passes at the start count as a prologue where they differ too much.
    assert abs(len(found.first) - passes) <= passes // 10
    assert np.median(np.diff(found.first)) == length


def test_layers_inside_a_step_are_no_steps():
    layer = np.array([1, 2, 3, 4, 5, 2])
    step = np.concatenate([[10, 11], np.tile(layer, 12), [12, 13, 14]])
    found = find_repetition(np.tile(step, 20), pauses(20 * len(step)))
    assert found is not None
    assert found.lag == len(step)


def test_a_step_ends_with_its_optimizer():
    step = np.array([0, 1, 2, 1, 3, 2, 1, 4, 5, 9, 9, 9])
    kind = np.tile(step, 10)
    found = find_repetition(kind, pauses(len(kind)), kind == 9)
    assert found is not None
    assert found.first.tolist() == list(range(0, 120, 12))
    assert found.end == 120


def test_two_optimizers_in_turn_are_one_step():
    one, two = np.arange(40), np.arange(90)
    step = np.concatenate([one, [100], two, [100]])
    kind = np.tile(step, 8)
    found = find_repetition(kind, pauses(len(kind)), kind == 100)
    assert found is not None
    assert np.unique(np.diff(found.first)).tolist() == [len(step)]


@pytest.mark.parametrize(
    "kind",
    [
        np.zeros(0, np.int64),
        np.zeros(1, np.int64),
        np.arange(5_000),
        np.tile(np.arange(50), LEAST_STEPS - 2),
        np.random.default_rng(1).integers(0, 400, 5_000),
    ],
    ids=["nothing", "one launch", "all different", "too few passes", "noise"],
)
def test_no_loop(kind):
    assert find_repetition(kind, pauses(len(kind))) is None


LAYER = np.array([1, 2, 3, 4, 5])


def nested(random, layers, steps, longer_ns):
    """Layers of a model that is called again and again: kinds and pauses, with noise of a tenth."""
    kind = np.tile(LAYER, layers * steps)
    pause = random.normal(np.tile([18_000, 19_500, 7_000, 17_500, 7_500], layers * steps), 1_500)
    pause[:: len(LAYER) * layers] += longer_ns
    return kind, np.maximum(pause, 0).astype(np.int64)


@RANDOM
def test_layers_are_grouped_into_steps_by_longer_pauses(random):
    layers, steps = int(random.integers(2, 40)), int(random.integers(40, 120))
    kind, pause = nested(random, layers, steps, 6_000)
    found = find_repetition(kind, pause)
    assert found is not None
    assert found.lag == layers * len(LAYER)
    assert found.first.tolist() == [*range(0, len(kind), found.lag)]
    assert found.end == len(kind)


@RANDOM
def test_pauses_that_do_not_fit_the_other_launches_group_nothing(random):
    """64 samples and an update per step, and Python collects garbage after every 48 samples."""
    samples, steps, update = 64, 24, np.arange(40, 43)
    kind = np.tile(np.concatenate([np.tile(LAYER, samples), update]), steps)
    pause = random.normal(8_000, 300, len(kind)).astype(np.int64)
    starts = np.flatnonzero(kind == LAYER[0])
    pause[starts[::48]] += 6_000
    found = find_repetition(kind, pause)
    assert found is not None
    assert found.lag == samples * len(LAYER) + len(update)
    assert steps - 1 <= len(found.first) <= steps


@RANDOM
def test_layers_that_nothing_groups_are_no_steps(random):
    layers, steps = int(random.integers(2, 40)), int(random.integers(40, 120))
    assert find_repetition(*nested(random, layers, steps, 0)) is None


@RANDOM
def test_passes_that_the_host_sees_are_steps(random):
    """A pause before every tenth of them, to log it, makes no group of them."""
    kind, pause = nested(random, 10, 40, 500_000)
    found = find_repetition(kind, pause, None, kind == LAYER[-1])
    assert found is not None
    assert (found.lag, len(found.first)) == (len(LAYER), 400)


@RANDOM
def test_layers_between_a_first_and_a_last_launch_are_one_step(random):
    layers, steps = int(random.integers(2, 30)), int(random.integers(8, 60))
    step = np.concatenate([[10], np.tile(LAYER, layers), [11]])
    kind = np.tile(step, steps)
    found = find_repetition(kind, pauses(len(kind), len(step) * np.arange(steps), 30_000))
    assert found is not None
    assert found.lag == len(step)
    assert steps - 2 <= len(found.first) <= steps


def seen_by_host(count, *launches):
    result = np.zeros(count, bool)
    result[list(launches)] = True
    return result


def groups_of_layers(layers, calls):
    """Calls of a model whose layers begin with a pause: kinds, pauses, launches per call."""
    step = np.concatenate([[10, 11], np.tile(LAYER, layers), [12]])
    pause = np.tile(np.concatenate([[20, 5], np.tile([200, 5, 5, 5, 5], layers), [5]]), calls)
    return np.tile(step, calls), pause * 1_000, len(step)


@pytest.mark.parametrize(("layers", "calls"), [(12, 4), (24, 4), (36, 5)])
def test_equal_groups_of_passes_are_steps_where_the_host_sees_nothing(layers, calls):
    """Four forward passes of a language model were called 48 steps."""
    kind, pause, launches = groups_of_layers(layers, calls)
    found = find_repetition(kind, pause, None, seen_by_host(len(kind), 0))
    assert found is not None
    assert (len(found.first), found.lag) == (calls, launches)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("rest", [60, 400])
def test_stages_of_three_passes_are_no_steps(stages, rest):
    """Three passes of a compiled network, whose deepest stages run the same kernels."""
    stage = np.concatenate([[200, 201, 202], np.tile(LAYER, 2)])
    one = np.concatenate([1_000 + np.arange(rest), *[stage] * stages, 3_000 + np.arange(9)])
    kind = np.tile(one, 3)
    pause = np.where(np.isin(kind, [200, LAYER[0]]), 200_000, 5_000)
    found = find_repetition(kind, pause, None, seen_by_host(len(kind), 0))
    assert found is None or found.lag == len(one)


@pytest.mark.parametrize("change", ["logged", "another length", "two calls"])
def test_other_groups_of_passes_are_no_steps(change):
    """Results that are read after every tenth step, groups of other lengths, and too few."""
    layers, calls = 10, 2 if change == "two calls" else 5
    kind, pause, launches = groups_of_layers(layers, calls)
    if change == "another length":
        kind, pause = np.delete(kind, range(2, 7)), np.delete(pause, range(2, 7))
    marked = np.zeros(len(kind), bool)
    marked[:: launches if change == "logged" else len(kind)] = True
    found = find_repetition(kind, pause, None, marked)
    assert found is not None
    assert found.lag == len(LAYER)


def growing_steps(random, steps, layers=12):
    """Tokens of a model without a cache: its GEMMs change with the length, and split at some.

    Kinds, the launch that begins each token, and those that the host waits after.
    """
    kind, first, seen = [], [], []
    for _ in range(steps):
        gemm = int(random.integers(100, 140))
        layer = [1, gemm, 2, gemm + 50, 3] + ([4] if random.random() < 0.5 else [])
        first.append(len(kind))
        kind += [10, 11, 12, *layer * layers, 13, gemm + 100, 14, 15, 16]
        seen.append(len(kind) - 1)
    return np.array(kind), np.array(first), seen_by_host(len(kind), *seen)


@RANDOM
def test_steps_whose_launches_change_are_found_by_what_each_launches_once(random):
    """240 tokens with growing context were 47 steps: layers of a stretch of equal GEMMs."""
    steps = int(random.integers(12, 150))
    kind, first, marked = growing_steps(random, steps)
    found = find_repetition(kind, pauses(len(kind)), None, marked)
    assert found is not None
    assert found.first.tolist() == first.tolist()
    assert found.end == len(kind)


@RANDOM
def test_changing_passes_that_the_host_does_not_see_may_be_layers(random):
    kind, _, marked = growing_steps(random, 60)
    found = find_repetition(kind, pauses(len(kind)), None, np.zeros_like(marked))
    assert found is None or len(found.first) != 60


@pytest.mark.parametrize(
    ("launches", "others", "found"),
    [(40, 8, True), (40, 12, False), (6, 0, False)],
)
def test_one_kernel_again_and_again_has_steps_of_one_launch(launches, others, found):
    kind = np.concatenate([np.arange(1, others + 1), np.zeros(launches, np.int64)])
    marked = np.ones(len(kind), bool)

    repetition = find_repetition(kind, pauses(len(kind)), marked=marked)

    assert (repetition is not None) == found
    if repetition is not None:
        assert (repetition.first[0], repetition.end, repetition.lag) == (others, len(kind), 1)
    assert find_repetition(kind, pauses(len(kind)), marked=np.zeros(len(kind), bool)) is None


def assert_whole_passes(found, launches):
    """Passes begin one after the other, each with a launch, and end within the launches."""
    ends = np.append(found.first[1:], found.end)
    assert len(found.first) >= LEAST_STEPS
    assert found.first[0] >= 0
    assert (found.first < ends).all()
    assert found.end <= launches
    assert found.lag >= 1


@pytest.mark.parametrize("first_seed", range(0, examples(600), 100))
def test_passes_of_any_launches_are_whole(first_seed):
    loops = 0
    for seed in range(first_seed, first_seed + 100):
        launches = launch_sequence(np.random.default_rng(seed))
        found = find_repetition(*launches)
        if found is not None:
            assert_whole_passes(found, len(launches.kind))
            loops += 1
    assert loops > 10


@pytest.mark.parametrize("offset", [0, 1, 7, 11])
def test_steps_that_begin_inside_a_pass_are_whole_wherever_the_recording_ends(offset):
    """Three equal passes are a step, and the CPU pauses between steps inside of a pass."""
    length, steps = 12, 20
    kind = np.tile(np.arange(length), 3 * steps)
    pause_ns = pauses(len(kind), offset + 3 * length * np.arange(steps), 20_000)
    for end in range(len(kind) - 3 * length, len(kind)):
        found = find_repetition(kind[:end], pause_ns[:end])
        assert found is not None
        assert found.lag == 3 * length
        assert_whole_passes(found, end)


@RANDOM
def test_launches_behind_the_last_pass_are_not_part_of_it(random):
    """Three results read back after 30 passes made a step of 460 ms, the others of 1 ms."""
    length, passes = int(random.integers(6, 60)), int(random.integers(8, 40))
    once = np.append(a_pass(random, length - 1), 40)
    tail = np.full(int(random.integers(1, length)), 300)
    kind = np.concatenate([np.tile(once, passes), tail])
    seam = int(random.integers(0, length))
    long = length * np.arange(passes) + seam
    found = find_repetition(kind, pauses(len(kind), long), None, seen_by_host(len(kind), *long))
    assert found is not None
    assert found.lag == length
    assert found.end <= length * passes
    # The first and the last one may be halves.
    assert len(found.first) >= passes - 2


@RANDOM
def test_steps_that_take_turns_and_print_a_summary_are_steps_without_a_model(random):
    """87 time steps of a simulation were 9: it prints a summary after every tenth."""
    length, passes, every = int(random.integers(60, 200)), 80, int(random.integers(8, 14))
    one, other = random.permutation(length), random.permutation(length)
    kept = random.random(length) < 0.85
    other = np.where(kept, one, other + 500)
    parts, seen, at = [], [], 0
    for number in range(passes):
        parts.append(one if number % 2 else other)
        seen.append(at + length - 1)
        at += length
        if number % every == every - 1:
            parts.append(np.array([600, 601, 602]))
            at += 3
    kind = np.concatenate(parts)
    marked = seen_by_host(len(kind), *seen)
    found = find_repetition(kind, pauses(len(kind)), None, marked, of_model=False)
    assert found is not None
    assert (found.lag, len(found.first) >= passes - 2) == (length, True)
