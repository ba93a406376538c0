"""Sweeps, losses and occupancy of grids, from configurations alone."""

from dataclasses import fields, replace

import numpy as np
import pytest

from traceview.base.hardware import limits_of
from traceview.base.tables import Texts
from traceview.traces.analyses.wave_quantization.losses import capped_losses
from traceview.traces.analyses.wave_quantization.sweeps import MEASURED, step_verdicts, sweeps_of
from traceview.traces.facts.grid_waves import (
    CONFIGURED,
    NO_STEP,
    VERDICTS,
    GpuLimits,
    LaunchedGrids,
    Neighbours,
    UnknownLimits,
    grid_columns,
)
from traceview.traces.facts.launch_configurations import Configuration, Configurations

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
    shared_config_bytes=0,
    clusters_at_once=0,
    green_sms=0,
    barriers=0,
    calls=1,
    total_ns=1000,
    median_ns=1000,
    beside_ns=0,
    beside_blocks=0,
    steady_calls=1,
    steady_ns=1000,
)


def columns_of(every: list[Configuration]) -> Configurations:
    numbers = {
        each.name: np.array([getattr(of, each.name) for of in every])
        for each in fields(Configuration)
        if not each.name.endswith(("name", "label"))
    }
    places, name = np.arange(len(every)), Texts.of(["k"] * len(every))
    return Configurations(
        row=places, of_kernel=places, name=name, short_name=name, label=name, **numbers
    )


def launched(*grids: tuple[int, int]) -> LaunchedGrids:
    """Grids of so many blocks that took so long, as columns."""
    every = [
        replace(ALONE, grid=(blocks, 1, 1), total_ns=took, median_ns=took, steady_ns=took)
        for blocks, took in grids
    ]
    columns = grid_columns(columns_of(every), [H200])
    count = len(every)
    return LaunchedGrids(
        *(getattr(columns, each.name) for each in fields(columns)),
        shortest_ns=np.full(count, 10),
        persistent_gemm=np.zeros(count, bool),
        verdict=np.zeros(count, np.int8),
        measured=Neighbours.unknown(count),
    )


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
    found = grid_columns(columns_of([replace(ALONE, **changes)]), [H200]).occupancy_at(0)

    assert found is not None
    assert (found.blocks_per_sm, found.waves.at_once) == (blocks_per_sm, at_once)
    assert found.limiter == limiter


def test_no_occupancy_without_limits_or_threads():
    nothing, huge = replace(ALONE, block=(0, 1, 1)), replace(ALONE, block=(1 << 32, 1 << 32, 1))
    for of, limits in ((ALONE, UnknownLimits("unknown", ())), (nothing, H200), (huge, H200)):
        assert grid_columns(columns_of([of]), [limits]).occupancy_at(0) is None


def test_a_sweep_is_one_kernel_by_its_number_of_blocks():
    grids = launched((133, 2010), (131, 1000), (264, 2000))

    sweeps = sweeps_of(grids, grids.persistent_gemm)

    assert len(sweeps) == 1
    assert grids.blocks[sweeps.rows].tolist() == [131, 133, 264]
    assert [MEASURED[code] for code in sweeps.verdict] == [None, "step", "level"]
    assert [VERDICTS[code] for code in sweeps.overall] == ["step"]
    assert (sweeps.at_once.tolist(), sweeps.wave_ns.tolist()) == ([132], [1000])
    assert not len(sweeps_of(grids, ~grids.persistent_gemm))


def test_blocks_with_an_sm_of_their_own_that_take_longer_did_other_work():
    """A program sorts data of four sizes: nothing says that a full GPU would be as slow."""
    grids = launched((1, 700), (4, 4_500), (16, 7_000), (40, 38_800))

    sweeps = sweeps_of(grids, grids.persistent_gemm)

    assert [VERDICTS[code] for code in sweeps.overall] == [None]


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
    [code] = step_verdicts(*(np.array([each]) for each in (predicted, steady, measured)))

    assert MEASURED[code] == verdict


def test_a_grid_loses_its_unused_slots_or_its_idle_sms():
    grids = launched((133, 1000), (33, 1010))

    assert grids.lost_ns.tolist() == [round(1000 * 131 / 264), round(1000 * 99 / 132)]
    assert replace(grids, verdict=np.full(2, NO_STEP, np.int8)).lost_ns.tolist() == [-1, -1]


def test_neighbours_that_do_equal_work_measure_what_a_grid_loses():
    grids = launched((133, 2010), (132, 1000), (131, 1000))

    sweeps = sweeps_of(grids, grids.persistent_gemm)
    shown = sweeps.neighbours_of(grids, np.zeros(3, np.int64))

    assert shown.known.tolist() == [True, True, True]
    # At the time per block of full grids: 2010 − 133 × 1000 ÷ 132, which is more than by 131.
    assert shown.lost_ns.tolist()[0] == round(2010 - 133 * 1000 / 131)
    assert (shown.blocks.tolist()[0], shown.factor.tolist()[0]) == (132, 2.01)


def test_a_grid_that_took_no_whole_microsecond_compares_with_none():
    grids = launched((133, 1000), (134, 1000), (131, 0))

    sweeps = sweeps_of(grids, grids.persistent_gemm)

    assert not sweeps.neighbours_of(grids, np.zeros(3, np.int64)).known[2]


def test_the_loss_of_a_kernel_is_at_most_the_busy_time_of_its_gpu():
    busy_ns = np.array([60, 20])

    assert capped_losses(np.array([70, 50, 5]), np.array([0, 0, 1]), busy_ns).tolist() == [
        60,
        50,
        5,
    ]
