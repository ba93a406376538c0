"""Sweeps, losses and occupancy of grids, from configurations alone."""

from dataclasses import replace

import pytest

from traceview.analyses.wave_quantization.configurations import Configuration
from traceview.analyses.wave_quantization.gpu_limits import GpuLimits, UnknownLimits
from traceview.analyses.wave_quantization.grid_waves import CONFIGURED, LaunchedGrid, occupancy_of
from traceview.analyses.wave_quantization.losses import ranked_losses
from traceview.analyses.wave_quantization.sweeps import step_verdict, sweeps_of
from traceview.hardware import limits_of

H200 = GpuLimits(132, limits_of("9.0"))
# One block per SM, since its registers fill it: 132 at once.
ALONE = Configuration(
    device=0,
    name="k",
    short_name="k",
    label="k",
    grid=(132, 1, 1),
    block=(1024, 1, 1),
    registers=64,
    static_bytes=0,
    dynamic_bytes=0,
    shared_config_bytes=None,
    clusters_at_once=None,
    green_sms=None,
    barriers=0,
    calls=1,
    total_ns=1000,
    median_ns=1000,
    beside_ns=0,
    steady_calls=1,
    steady_ns=1000,
)


def launched(blocks: int, took: int) -> LaunchedGrid:
    times = {"total_ns": took, "median_ns": took, "steady_ns": took}
    configuration = replace(ALONE, grid=(blocks, 1, 1), **times)
    return LaunchedGrid(configuration, occupancy_of(configuration, H200), 10, False)


@pytest.mark.parametrize(
    ("changes", "blocks_per_sm", "at_once", "limiter"),
    [
        ({}, 1, 132, "registers"),
        ({"registers": 32}, 2, 264, "warps"),
        ({"clusters_at_once": 120}, 1, 120, "clusters"),
        (
            {"block": (256, 1, 1), "registers": 16, "dynamic_bytes": 31744}
            | {"shared_config_bytes": 65536},
            2,
            264,
            CONFIGURED,
        ),
    ],
)
def test_the_occupancy_of_a_configuration(changes, blocks_per_sm, at_once, limiter):
    found = occupancy_of(replace(ALONE, **changes), H200)

    assert found is not None
    assert (found.blocks_per_sm, found.waves.at_once) == (blocks_per_sm, at_once)
    assert found.limiter == limiter


def test_no_occupancy_without_limits_or_threads():
    assert occupancy_of(ALONE, UnknownLimits("unknown", ())) is None
    assert occupancy_of(replace(ALONE, block=(0, 1, 1)), H200) is None


def test_a_sweep_is_one_kernel_by_its_number_of_blocks():
    grids = [launched(133, 2010), launched(131, 1000), launched(264, 2000)]

    [sweep] = sweeps_of(grids)

    assert [each.configuration.blocks for each in sweep.grids] == [131, 133, 264]
    assert [step.verdict for step in sweep.steps] == ["step", "level"]
    assert (sweep.verdict, sweep.at_once, sweep.wave_ns) == ("step", 132, 1000)
    assert not list(sweeps_of([replace(each, persistent_gemm=True) for each in grids]))


@pytest.mark.parametrize(
    ("predicted", "steady", "measured", "verdict"),
    [
        (2.0, 1.01, 1.95, "step"),
        (2.0, 1.01, 1.05, "no step"),
        (1.0, 1.99, 1.02, "level"),
        (1.0, 1.99, 1.90, "rises"),
        # Both predict the same, or neither what was measured.
        (10.0, 10.0, 10.0, None),
        (2.0, 1.01, 4.0, None),
    ],
)
def test_a_step_or_a_steady_rise(predicted, steady, measured, verdict):
    assert step_verdict(predicted, steady, measured) == verdict


def test_a_grid_loses_its_unused_slots_or_its_idle_sms():
    tail, small = launched(133, 1000), launched(33, 1010)

    assert tail.lost_ns == round(1000 * 131 / 264)
    assert small.lost_ns == round(1000 * 99 / 132)
    assert replace(tail, verdict="no step").lost_ns is None


def test_a_grid_that_took_no_whole_microsecond_compares_with_none():
    [sweep] = sweeps_of([launched(133, 1000), launched(134, 1000)])

    assert sweep.neighbours_of(launched(131, 0)) is None


def test_losses_of_a_kernel_are_added_up_to_the_busy_time_of_its_gpu():
    lost = [(0, "a", 30, "a1"), (0, "b", 50, "b1"), (0, "a", 40, "a2"), (1, "a", 5, "a3")]

    losses = ranked_losses(lost, {0: 60, 1: 60})

    assert [(each.lost_ns, each.parts) for each in losses] == [
        (60, ("a2", "a1")),
        (50, ("b1",)),
        (5, ("a3",)),
    ]
