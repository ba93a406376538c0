"""Steps of two kinds that take turns: told apart, timed one behind the other, and no outliers."""

import numpy as np
import pytest

from tests.build import Export
from traceview.base.tables import Texts
from traceview.base.tables.arrays import NULL
from traceview.traces.facts.steps.kinds import LONGER, kinds_by_work, requests_by_name
from traceview.traces.facts.steps.steps import loop_names, pace, steps

US = 1_000


def vllm(draw, prefill, number):
    tokens, requests = int(draw.integers(300, 900)), int(draw.integers(1, 9))
    if prefill:
        return f"execute_context_{requests}({tokens})_generation_0(0)", "prefill"
    return f"execute_context_0(0)_generation_{requests}({requests})", "decode"


def new_vllm(draw, prefill, number):
    requests = int(draw.integers(1, 9))
    after = f"generation_{requests}(sq{requests}sk{1000 + number})"
    if prefill:
        return f"execute_{number}_context_1(sq512sk512)_{after}", "prefill and decode"
    return f"execute_{number}_context_0(sq0sk0)_{after}", "decode"


def sglang(draw, prefill, number):
    requests = int(draw.integers(1, 9))
    if prefill:
        return f"step[EXTEND bs={requests} toks={draw.integers(90, 900)}]", "prefill"
    return f"step[DECODE bs={requests}]", "decode"


def validated(draw, prefill, number):
    return f"train_step {number}", "train_step # (more work)" if prefill else "train_step #"


def phases(draw, prefill, number):
    return ("evaluate", "evaluate") if prefill else ("train", "train")


@pytest.mark.parametrize("engine", [vllm, new_vllm, sglang, validated, phases])
@pytest.mark.parametrize("seed", range(3))
def test_series_of_two_kinds(tmp_path, engine, seed):
    draw = np.random.default_rng(seed)
    every, long_us, short_us = int(draw.integers(4, 12)), int(draw.integers(300, 700)), 100
    export, at, expected = Export(), 0, {}
    for number in range(60):
        longer = number % every == every // 2
        name, series = engine(draw, longer, number)
        launches = 24 if longer and engine is validated else 12
        took = (short_us if engine is validated or not longer else long_us) * US
        begin, end = at, at + 20 * US
        for _ in range(launches):
            export.launch((at, at + 2 * US), (end, end + took), name=f"k{launches}")
            at, end = at + 5 * US, end + took + 1 * US
        export.call("cudaStreamSynchronize", at, end)
        export.range(name, begin, end + 5 * US)
        at = end + 30 * US
        expected.setdefault(series, []).append(end - begin)
    trace = export.load(tmp_path)
    timed, names = pace(trace), loop_names(trace)
    assert not timed.outlier.any()
    assert {str(name) for name in names.decode()} == set(expected)
    for series, took_ns in expected.items():
        own = names.isin([series])
        assert np.count_nonzero(own) == len(took_ns)
        assert np.median(timed.duration_ns[own]) == pytest.approx(np.median(took_ns), rel=0.15)


NAMED = {
    "execute_context_2(512)_generation_3(3)": (5, 515),
    "execute_context_0(0)_generation_7(7)": (7, 7),
    "execute_context_1(888_788544)_generation_0(0)": (1, 888),
    "execute_12_context_1(sq512sk512)_generation_32(sq32sk32785)": (33, 544),
    "execute_12_context_0_generation_4(4)": (4, 4),
    "execute_12_context_2_generation_4(4)": (6, NULL),
    "step[EXTEND bs=4 toks=512]": (4, 512),
    "step[DECODE bs=4]": (4, NULL),
    "step[IDLE]": (NULL, NULL),
    "ProfilerStep#3": (NULL, NULL),
    f"step[DECODE bs={'9' * 400}]": (999_999_999, NULL),
}


def test_requests_and_tokens_of_serving_engines():
    requests, tokens = requests_by_name(Texts.of([*NAMED, None]))
    expected = [*NAMED.values(), (NULL, NULL)]
    assert list(zip(requests.tolist(), tokens.tolist(), strict=True)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_work_that_varies_or_warms_up_is_of_one_kind(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(8, 200))
    series = np.zeros(count, np.int64)
    for operations in (
        draw.integers(50, 200, count),
        np.where(np.arange(count) < count // 5, 300, 100),
        np.where(np.arange(count) % 10 == 9, 103, 100),
        np.full(count, 1),
        np.zeros(count, np.int64),
    ):
        assert not kinds_by_work(series, operations, operations).any()


def test_parts_of_each_step_are_timed_as_steps(tmp_path):
    """Forward and backward pass take turns without a pass that follows its like."""
    export = Export()
    for number in range(20):
        at = number * 400 * US
        for place, name in enumerate(("forward", "backward")):
            begin = at + place * 200 * US
            export.range(name, begin, begin + 190 * US)
            export.launch((begin, begin + 2 * US), (begin + 9 * US, begin + 180 * US), name=name)
    trace = export.load(tmp_path)
    assert np.median(pace(trace).duration_ns) == 400 * US
    assert len(steps(trace)) == 40


def test_the_kind_of_each_step_by_its_work():
    operations = np.array([12, 12, 12, 24, 12, 12, 12, 24, 12, 12, 12, 24])
    kind = kinds_by_work(np.zeros(12, np.int64), operations, operations)
    assert np.flatnonzero(kind == LONGER).tolist() == [3, 7, 11]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("by", ["launches", "time", "time alone", "irregular", "ends"])
def test_every_nth_step_with_an_evaluation_is_of_another_kind(seed, by):
    """Two validations in 12 steps, and 4 replays of an evaluation in 40, were outliers."""
    draw = np.random.default_rng(seed)
    every, usual = int(draw.integers(3, 12)), int(draw.integers(20, 700))
    steps = every * int(draw.integers(2, 4)) + int(draw.integers(0, every - 1))
    steps = max(steps, 2 * every, 8)
    longer = np.arange(steps) % every == every - 1
    if by in ("irregular", "ends"):
        longer = np.zeros(steps, bool)
        longer[[0, -1] if by == "ends" else [steps // 2, steps // 2 + 1]] = True
    operations = np.full(steps, usual)
    operations[longer] = {"launches": 2 * usual, "time alone": usual + 1}.get(by, usual + 8)
    work_ns = usual * draw.integers(1_000, 1_020, steps) * np.where(longer, 4, 1)

    kind = kinds_by_work(np.zeros(steps, np.int64), operations, work_ns)

    expected = longer & (by in ("launches", "time"))
    assert ((kind == LONGER) == expected).all()
