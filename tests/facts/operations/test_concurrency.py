"""Time of a kernel during which another ran: against counting every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Export
from traceview.base.intervals import covered_twice
from traceview.traces.facts.copies import shared_ns

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12)


@given(spans)
def test_covered_twice_is_what_counting_says(drawn):
    start = np.array([first for first, _ in drawn], np.int64)
    end = start + np.array([length for _, length in drawn], np.int64)
    found = covered_twice(start, end)
    counted = [sum(a <= at < b for a, b in zip(start, end, strict=True)) for at in range(50)]
    ours = [any(a <= at < b for a, b in zip(*found, strict=True)) for at in range(50)]
    assert ours == [depth >= 2 for depth in counted]


def test_kernels_and_whole_graphs_of_the_same_gpu(tmp_path):
    export = (
        Export()
        .kernel_without_launch((0, 100))
        .kernel_without_launch((50, 120), stream=8)
        .kernel_without_launch((100, 200), device=1)
        .graph_whole((0, 1), (110, 130), stream=9)
        .copy((1, 2), (0, 40))
    )
    assert shared_ns(export.load(tmp_path)).tolist() == [50, 60, 0]
