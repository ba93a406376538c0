"""Wavefronts of shared loads against Nsight Compute's counters on an H200.

`tests/data/shared_wavefronts.json` has one warp's load per line: bytes per thread, the index of the
vector that each thread reads, how many threads take part, and what ncu 2025.3 counted
(`l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld`, `l1tex__data_bank_conflicts_…_op_ld`).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.addresses.request_costs import fewest_wavefronts, wavefronts

LOADS = json.loads((Path(__file__).parents[2] / "data" / "shared_wavefronts.json").read_text())


@pytest.mark.parametrize("width", [4, 8, 16])
def test_every_pattern_takes_the_wavefronts_that_ncu_counts(width):
    loads = [load for load in LOADS if load["width"] == width]
    assert len(loads) == 61
    address = np.array([load["index"] for load in loads], np.int64) * width
    active = np.arange(WARP_THREADS) < np.array([[load["active"]] for load in loads])
    counted = np.array([load["wavefronts"] for load in loads])
    assert wavefronts(address, active, width).tolist() == counted.tolist()


@pytest.mark.parametrize("width", [4, 8, 16])
def test_what_exceeds_the_least_are_the_conflicts_that_ncu_counts(width):
    for load in LOADS:
        if load["width"] != width:
            continue
        address = np.array([load["index"]], np.int64) * width
        active = np.arange(WARP_THREADS)[None] < load["active"]
        least = fewest_wavefronts(address, active, width)
        assert load["wavefronts"] - least[0] == load["conflicts"], load["pattern"]
