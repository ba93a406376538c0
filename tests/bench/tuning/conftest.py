"""Fixtures of tuning: an empty cache, and a clock with known times of block sizes."""

import pytest

from tests.bench.tuning.tuning_cases import BLOCK_NS
from traceview.trials.bench import TuningCache


@pytest.fixture
def cache(tmp_path):
    return TuningCache(tmp_path / "bench")


@pytest.fixture
def clock(monkeypatch):
    """A clock for `tune` that returns BLOCK_NS; yields how often each block size was timed."""
    from tests.bench.timing.test_measurement import timing

    timed = dict.fromkeys(BLOCK_NS, 0)

    def benchmark(call, warmup, trials):
        block = call()
        timed[block] += 1
        if sum(timed.values()) > 100:
            pytest.fail("it does not end")
        return timing(*[BLOCK_NS[block]] * trials)

    monkeypatch.setattr("traceview.trials.bench.tuning.benchmark", benchmark)
    return timed
