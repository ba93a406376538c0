"""How often the sampler inside a program samples, by what its samples cost."""

import itertools

import pytest

from traceview.traces.recorders.injected.traceview_injected import python_sampler
from traceview.traces.recorders.injected.traceview_injected.python_sampler import PERIOD_S, Sampler


@pytest.fixture
def pauses(monkeypatch, tmp_path):
    """Seconds between the samples whose CPU times are given."""

    def run(*costs_s):
        sampler, slept = Sampler(str(tmp_path)), []
        ends = itertools.accumulate(costs_s)
        clock = itertools.chain.from_iterable(
            (end - cost, end) for cost, end in zip(costs_s, ends, strict=True)
        )

        def sleep(seconds):
            slept.append(seconds)
            sampler._stopped = len(slept) > len(costs_s)

        monkeypatch.setattr(python_sampler, "sleep", sleep)
        monkeypatch.setattr(python_sampler, "thread_time", lambda: next(clock, 0.0))
        monkeypatch.setattr(Sampler, "sample", lambda *_: None)
        sampler.run()
        return slept

    return run


def test_samples_that_cost_little_are_taken_each_period(pauses):
    assert pauses(1e-5, 2e-5, 1e-5) == [PERIOD_S] * 4


def test_dear_samples_take_one_percent_of_a_core(pauses):
    assert pauses(0.003, 0.002, 0.004, 0.004) == pytest.approx([PERIOD_S, PERIOD_S, 0.2, 0.2, 0.4])


def test_a_collection_of_garbage_in_one_sample_ends_no_sampling(pauses):
    assert pauses(1e-5, 0.3, 1e-5, 1e-5) == [PERIOD_S] * 5
