"""Sectors and wavefronts of a warp's request against a count by hand, thread by thread."""

import random

import numpy as np
import pytest

from traceview.kernels.ptx.addresses import request_costs


def sectors_by_hand(addresses, active, width):
    return len(
        {
            (address + byte) // 32
            for address, takes_part in zip(addresses, active, strict=True)
            if takes_part
            for byte in range(width)
        }
    )


def wavefronts_by_hand(addresses, active, width):
    threads, total = min(32, 128 // width), 0
    lanes = [
        each if takes_part else None for each, takes_part in zip(addresses, active, strict=True)
    ]
    if lanes[::2] == lanes[1::2]:  # two parts run as one (test_measured_wavefronts.py)
        threads = min(32, 2 * threads)
    for start in range(0, 32, threads):
        banks = {}
        for thread in range(start, start + threads):
            for byte in range(width) if active[thread] else ():
                word = (addresses[thread] + byte) // 4
                banks.setdefault(word % 32, set()).add(word)
        total += max(map(len, banks.values()), default=0)
    return total


def patterns(width):
    chance = random.Random(width)
    lanes = range(32)
    yield [width * lane for lane in lanes]
    yield [128 * lane for lane in lanes]
    yield [4096 * lane for lane in lanes]
    yield [0 for _ in lanes]
    yield [width * (lane ^ 5) for lane in lanes]
    yield [width * (lane // 8 * 33 + lane % 8) for lane in lanes]
    yield from ([width * chance.randrange(512) for _ in lanes] for _ in range(20))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_every_pattern_costs_what_a_count_by_hand_says(width):
    chance = random.Random(7)
    for addresses in patterns(width):
        for active in ([True] * 32, [chance.random() < 0.5 for _ in range(32)]):
            row, mask = np.array([addresses]), np.array([active])
            assert request_costs.sectors(row, mask, width).tolist() == [
                sectors_by_hand(addresses, active, width)
            ]
            assert request_costs.wavefronts(row, mask, width).tolist() == [
                wavefronts_by_hand(addresses, active, width)
            ]


def test_the_rows_of_matrices_conflict_as_rows_of_16_bytes():
    along, across = np.arange(32) * 16, np.arange(32) * 128
    assert request_costs.matrix_wavefronts(np.array([along, across]), 4).tolist() == [4, 32]
    swizzled = 128 * np.arange(32) + 16 * (np.arange(32) % 8)
    assert request_costs.matrix_wavefronts(np.array([swizzled]), 2).tolist() == [2]


def test_idle_threads_and_repeated_addresses_cost_nothing():
    row = np.array([[4 * (lane // 8) for lane in range(32)]])
    nobody = np.zeros((1, 32), bool)
    assert request_costs.needed_bytes(row, ~nobody, 4).tolist() == [16]
    assert request_costs.sectors(row, ~nobody, 4).tolist() == [1]
    assert request_costs.wavefronts(row, nobody, 4).tolist() == [0]
    assert request_costs.fewest_wavefronts(row, nobody, 16).tolist() == [0]
