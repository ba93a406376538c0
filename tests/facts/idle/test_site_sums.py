"""Sums of parts of gaps by site."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.plain_library import without_c
from traceview import groups
from traceview.facts.idle.cpu_activity import CpuActivity
from traceview.facts.idle.site_sums import SiteSums, site_sums

PARTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 50)), min_size=1)


def summed(parts: list[tuple[int, int, int]], steady: list[bool]) -> SiteSums:
    """The sums of parts, each with its gap, activity and length."""
    gap, activity, length = (np.array(each, np.int64) for each in zip(*sorted(parts), strict=True))
    start = np.cumsum(length) - length
    gap, activity = gap.astype(np.int32), activity.astype(np.int32)
    made = CpuActivity(gap, start, start + length, np.zeros(len(gap), np.int32), activity)
    return site_sums(groups.group(activity), made, np.array(steady))


def test_a_gap_counts_once_at_a_site():
    #  gap 0 is at site 0 twice and at site 1, gap 1 (not steady) at site 0
    sums = summed([(0, 0, 5), (0, 0, 7), (0, 1, 9), (1, 0, 100)], [True, False])
    assert [each.tolist() for each in sums] == [[2, 1], [112, 9], [1, 1], [12, 9]]


@given(parts=PARTS, steady=st.lists(st.booleans(), min_size=5, max_size=5))
def test_compiled_sums_are_those_of_numpy(parts, steady):
    expected = without_c(lambda: summed(parts, steady))
    for found, wanted in zip(summed(parts, steady), expected, strict=True):
        assert found.tolist() == wanted.tolist()
