"""Quantiles beside those of numpy."""

import math

import numpy as np
import pytest

from traceview.base.tables.arrays import median, medians, quantile

RANDOM = np.random.default_rng(7)
VALUES = [
    RANDOM.integers(-(10**12), 10**12, count) if whole else RANDOM.normal(0, 1e6, count)
    for count in (1, 2, 3, 10, 101)
    for whole in (True, False)
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: f"{len(values)}-{values.dtype}")
def test_they_are_those_of_numpy(values):
    given = values.copy()
    assert median(values) == np.median(values)
    for share in (0, 0.1, 0.5, 0.9, 1):
        assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-12)
    assert (values == given).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (4, 7), (7, 4)])
def test_along_an_axis(shape, axis):
    table = RANDOM.integers(0, 1000, shape)
    assert (medians(table, axis) == np.median(table, axis=axis)).all()
    assert median(table) == np.median(table)


def test_there_is_no_median_of_nothing():
    assert math.isnan(median(np.zeros(0, np.int64)))
