"""Tests and intervals for small samples: what the runs of a program can prove.

The bounds are those of Fisher's permutation test of means, inverted. They hold for every
distribution of noise that is the same on both sides, at five runs as at fifty, where a bootstrap
of five runs claims too much.
"""

from traceview.statistics.bounds import Bounds, difference_bounds, mean_bounds
from traceview.statistics.rank_test import mann_whitney
from traceview.statistics.sample_size import MOST_RUNS, fewest_runs, runs_to_decide

__all__ = [
    "MOST_RUNS",
    "Bounds",
    "difference_bounds",
    "fewest_runs",
    "mann_whitney",
    "mean_bounds",
    "runs_to_decide",
]
