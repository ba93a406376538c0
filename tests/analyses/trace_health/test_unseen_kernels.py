"""Kernels that were launched and not recorded: what waits of the CPU still show."""

import pytest

from tests.build import Export
from traceview import analyze

US = 1_000


@pytest.mark.parametrize(
    "call", ["cudaEventSynchronize_v3020", "cudaDeviceSynchronize_v3020", "cuStreamSynchronize"]
)
@pytest.mark.parametrize("waited", [0.1, 0.4, 0.6, 0.98])
@pytest.mark.parametrize("before", [0, 90_000])
@pytest.mark.parametrize("error", [0, 209])
def test_a_cpu_that_waits_shows_that_the_gpu_is_busy(call, waited, before, error, tmp_path):
    """However long it waited before the first launch; not where no kernel ran."""
    export, at = Export(), 1_000 * US
    if before:
        export.call(call, 0, before * US)
        at += before * US
    for number in range(20):
        period = 1_000 * US * (1 + number)
        export.call("cudaLaunchKernel_v7000", at, at + 5 * US, error=error)
        export.call(call, at + 10 * US, at + 10 * US + round(waited * (period - 10 * US)))
        at += period
    report = analyze(export.load(tmp_path))

    [finding] = [each.finding for each in report.findings if each.finding.severity == "high"]
    busy = waited > 0.5 and not error
    assert ("the GPU is busy then" in finding.message) is busy
    assert ("GPU time is unknown" in finding.message) is not (busy or bool(error))
    assert report.verdict.text.startswith("The CPU waits for the GPU in") is busy
    if busy:
        assert f"mostly in {call.partition('_')[0]})" in finding.message
        assert 100 * waited - 2 < finding.evidence.values["waited_pct"] <= 100
