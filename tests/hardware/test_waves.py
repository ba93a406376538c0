"""Waves of grids: slots, the tail effect and the nearest full grids."""

import pytest

from traceview.base.hardware import limits_of, occupancy
from traceview.base.hardware.occupancy import Waves, waves_of


@pytest.mark.parametrize(
    ("blocks", "whole", "idle_fraction", "fills", "unused_slots", "idle_sms"),
    [
        (264, 1, 0.0, (264,), 0, 0),
        (265, 2, 263 / 528, (264, 528), 263, 0),
        (33, 1, 231 / 264, (264,), 231, 99),
        (528, 2, 0.0, (528,), 0, 0),
    ],
)
def test_waves_of_a_grid(blocks, whole, idle_fraction, fills, unused_slots, idle_sms):
    waves = Waves(blocks, at_once=264, sm_count=132)

    assert waves.waves == blocks / 264
    assert waves.whole == whole
    assert waves.idle_fraction == pytest.approx(idle_fraction)
    assert waves.fills == fills
    assert (waves.unused_slots, waves.idle_sms) == (unused_slots, idle_sms)


def test_waves_follow_from_occupancy():
    two_per_sm = occupancy(limits_of("9.0"), 1024, 32)

    assert waves_of((5, 53, 1), two_per_sm, 132) == Waves(265, 264, 132)
    assert waves_of(265, two_per_sm, 132) == Waves(265, 264, 132)


def test_no_waves_without_blocks_or_room():
    limits = limits_of("9.0")

    assert waves_of(0, occupancy(limits, 1024, 32), 132) is None
    assert waves_of(5, occupancy(limits, 1024, 255), 132) is None
