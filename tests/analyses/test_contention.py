"""Kernels beside communication or copies, and the same ones without: what overlap costs."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.communication import ANALYSIS

US = 1_000
TRANSFERS = {
    "communication": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "copies": "",
}


def overlapped(draw, beside, slowdown, spread=0.02, rate=25.0, other=""):
    """Layers of a few kernels: every other one beside a transfer on a stream of its own.

    Copies move `rate` GB/s. `other` is a kernel that runs beside the same layers.
    """
    kernels = [(f"k{number}", int(draw.integers(20, 300))) for number in range(4)]
    export, at, call = Export(), 0, 0
    for layer in range(40):
        held = layer % 2 == 1
        begin = at
        for place, (name, took_us) in enumerate(kernels):
            factor = slowdown if held else 1.0
            took = int(took_us * US * factor * draw.uniform(1 - spread, 1 + spread))
            export.launch((call, call + US), (at, at + took), name=name, gridX=100 + place)
            at, call = at + took + US, call + 2 * US
        if held and beside == "communication":
            times = (call, call + US), (begin - US, at + US)
            export.launch(*times, name=TRANSFERS[beside], stream=20)
        elif held:
            times = (call, call + US), (begin - US, at + US)
            size = int(rate * (at - begin + 2 * US))
            export.copy(*times, bytes=size, source="pinned", stream=21)
        if held and other:
            export.launch((call + US, call + 2 * US), (begin - US, at + US), name=other, stream=22)
        call, at = call + 4 * US, at + 5 * US
    return export


def claims(export, tmp_path):
    findings = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in findings if each.cause == "contention"]


@pytest.mark.parametrize("beside", TRANSFERS)
@pytest.mark.parametrize("seed", range(4))
def test_kernels_that_transfers_slow_down(tmp_path, beside, seed):
    draw = np.random.default_rng(seed)
    slowdown = float(draw.uniform(1.2, 2.5))
    [found] = claims(overlapped(draw, beside, slowdown), tmp_path)
    values = found.evidence.values
    assert values["beside"] == beside
    assert values["kernels"] == 4
    assert values["slowdown_factor"] == pytest.approx(slowdown, rel=0.03)
    assert values["took_ns"] == pytest.approx(slowdown * values["alone_ns"], rel=0.03)
    assert ("NCCL_MAX_NCHANNELS" in found.action) is (beside == "communication")
    assert "one after the other both would take up to" in found.message
    assert found.severity == "medium"


@pytest.mark.parametrize("beside", TRANSFERS)
@pytest.mark.parametrize("seed", range(3))
def test_kernels_that_take_as_long_beside_transfers(tmp_path, beside, seed):
    draw = np.random.default_rng(seed)
    assert not claims(overlapped(draw, beside, 1.0), tmp_path)


@pytest.mark.parametrize(
    ("beside", "more"),
    [
        ("communication", {"other": "gemm"}),
        ("copies", {"other": "gemm"}),
        ("copies", {"rate": 0.02}),
    ],
)
def test_what_something_else_slows_down_is_not_blamed_on_transfers(tmp_path, beside, more):
    assert not claims(overlapped(np.random.default_rng(3), beside, 1.8, **more), tmp_path)


def test_one_grid_for_work_of_several_sizes_shows_nothing(tmp_path):
    draw = np.random.default_rng(7)
    assert not claims(overlapped(draw, "communication", 1.3, spread=0.4), tmp_path)


def test_only_kernels_that_ran_both_ways_are_compared(tmp_path):
    """One that runs beside transfers alone, and one that runs without them alone, say nothing."""
    export = overlapped(np.random.default_rng(8), "communication", 1.5)
    once = overlapped(np.random.default_rng(8), "communication", 1.5)
    for layer in range(40):
        at = 60_000 * US + layer * 900 * US
        times = (at, at + US), (at + 10 * US, at + 800 * US)
        once.launch(*times, name="beside" if layer % 2 else "alone")
        if layer % 2:
            times = (at, at + US), (at + 5 * US, at + 810 * US)
            once.launch(*times, name=TRANSFERS["communication"], stream=20)
    [apart], [both] = claims(export, tmp_path), claims(once, tmp_path)
    assert apart.evidence.values == both.evidence.values
    assert apart.message == both.message
