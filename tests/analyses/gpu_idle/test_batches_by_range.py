"""Waits for batches that torch.profiler marks, in recordings without samples of the CPU."""

import numpy as np
import pytest

import traceview
from tests.build import Export

US = 1_000
ITERATOR = "enumerate(DataLoader)#_{kind}ProcessingDataLoaderIter.__next__"


def trained(kind, seed, pins=False, waits_us=(20_000, 60_000), steps=5):
    """Steps that wait for a batch and then launch a few kernels, and these waits in ns.

    With `pins` another thread pins batches.
    """
    draw, export, at = np.random.default_rng(seed), Export(), 100 * US
    waits = []
    iterator = ITERATOR.format(kind=kind)
    if kind == "Single":
        iterator = iterator.replace("Processing", "Process")
    for number in range(steps):
        begin, waited = at, int(draw.uniform(*waits_us) * US)
        waits.append(waited)
        export.range(iterator, at + 10 * US, at + 10 * US + waited)
        if pins:
            export.call("cudaEventQuery", at + waited // 2, at + waited // 2 + 5 * US, thread=7)
        at += 20 * US + waited
        for _ in range(int(draw.integers(3, 9))):
            export.launch((at, at + 5 * US), (at + 6 * US, at + 60 * US))
            at += 70 * US
        export.range(f"ProfilerStep#{number}", begin, at)
    return export, waits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pins", [False, True])
@pytest.mark.parametrize(
    ("kind", "remedy"), [("Multi", "Raise num_workers"), ("Single", "Load in worker processes")]
)
def test_batches_are_waited_for_by_their_ranges(tmp_path, seed, pins, kind, remedy):
    export, waits = trained(kind, seed, pins)
    report = traceview.analyze(export.load(tmp_path))
    first = report.findings[0].finding
    assert first.action.startswith(remedy)
    assert report.verdict.limit == "data-loading"
    # What launches take beside it is not saved by it.
    assert 0.99 * sum(waits[2:]) < first.time_at_stake_ns <= sum(waits)


@pytest.mark.parametrize("waits_us", [(10, 20), (300, 900)])
def test_batches_that_are_ready_are_no_cause(tmp_path, waits_us):
    export, _ = trained("Multi", 0, waits_us=waits_us)
    report = traceview.analyze(export.load(tmp_path))
    assert not [each for each in report.findings if "num_workers" in each.finding.action]
