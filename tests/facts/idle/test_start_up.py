"""Idle time before the first kernel of a GPU, which a longer run does not repeat."""

import pytest

from tests.build import Export
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.idle.launching import verdict


def loading(export: Export, arrays: int) -> Export:
    """Arrays copied one after the other, with 90 µs of CPU work before each."""
    for each in range(arrays):
        at = 100_000 * each
        export.copy((at, at + 9_000), (at + 1_000, at + 10_000), source="pageable")
    return export


@pytest.mark.parametrize("kernels", [0, 1, 3])
def test_a_gpu_that_only_loads_data_waits_for_no_launches(kernels, tmp_path):
    export = loading(Export(), 10)
    for each in range(kernels):
        at = 1_000_000 + 50_000 * each
        export.launch((at, at + 2_000), (at + 3_000, at + 20_000), name="k")
    trace = export.load(tmp_path)

    every = gaps(trace)

    loads = every.gap < 9 + (kernels > 0)
    assert every.one_time[loads].all()
    assert not every.one_time[~loads].any()
    assert (verdict(trace, 0) == "unknown") == (kernels < 2)
