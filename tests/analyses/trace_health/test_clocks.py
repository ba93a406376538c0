"""Clocks of CPU and GPU that do not agree."""

import pytest

from tests.analyses.single_answer import ask
from tests.analyses.trace_health.checks import status
from tests.build import Export
from traceview.traces.analyses.trace_health import ANALYSIS

MS = 1_000_000


@pytest.mark.parametrize("shift_ns", [-5 * MS, -1_000, 0, 1_000])
@pytest.mark.parametrize("stretch", [1, 3])
@pytest.mark.parametrize("wrong", [2, 30, 100])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("gpus", [1, 2])
def test_work_before_its_launch_or_after_the_wait_for_it(
    tmp_path, shift_ns, stretch, wrong, waits, gpus
):
    """Of a hundred kernels; a wait of one GPU says nothing of the work of another."""
    export = Export()
    for number in range(100):
        call = 10 * MS * number
        shift, times = (shift_ns, stretch) if number < wrong else (0, 1)
        start = call + MS // 10 + shift
        export.launch((call, call + 5_000), (start, start + 3 * MS * times), device=number % gpus)
        if waits:
            export.call("cudaDeviceSynchronize_v3020", call + 6_000, call + 4 * MS)
    early = shift_ns < -MS
    late = waits and gpus == 1 and stretch > 1 and not early
    found = status(ask(ANALYSIS, export, tmp_path), "clocks")
    assert bool(found) is ((early or late) and wrong >= 5)
    for one in found:
        assert one[0] == "blind"
        assert f"{wrong} of 100 operations" in one[1]
