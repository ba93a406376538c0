"""Occupancy as columns is that of each launch alone, whatever is beside it."""

import numpy as np
import pytest

from traceview.base.hardware import limits_of, occupancy
from traceview.traces.facts.launch_configurations import LIMITERS, occupancies


@pytest.mark.parametrize("capability", ["7.0", "7.5", "8.0", "9.0", "12.0"])
def test_columns_are_single_occupancies(capability):
    limits, rng, count = limits_of(capability), np.random.default_rng(3), 3_000
    threads, registers = rng.integers(1, 1_100, count), rng.integers(0, 270, count)
    shared = rng.integers(0, 240_000, count) * rng.integers(0, 2, count)
    barriers = rng.integers(0, 20, count)

    per_sm = np.full(count, limits.shared_bytes_per_sm)
    columns = occupancies(limits, per_sm, threads, registers, shared, barriers)

    for row in range(count):
        used = (int(each[row]) for each in (threads, registers, shared))
        one = occupancy(limits, *used, barriers=int(barriers[row]))
        assert columns.blocks_per_sm[row] == one.blocks_per_sm
        assert LIMITERS[columns.limiter[row]] == one.limiter
