"""What limits a program then is said where a remedy saves much less than its own time."""

import random

import pytest

import traceview
from tests.build import Export
from tests.edits.programs import us

KERNEL, KERNELS, STEPS = 700, 6, 6
LEFT = 1 / 7.4


def products(name: str, pause: float, other: float) -> Export:
    """Per step 6 fp32 GEMMs of 700 µs and a kernel of another kind; a launch every `pause` µs."""
    export, at, free = Export(), 0.0, 0.0
    for step in range(STEPS):
        begin = at
        for number in range(KERNELS + 1):
            took = KERNEL if number < KERNELS else other
            start = max(at + 6, free + 1)
            free = start + took
            kernel = name if number < KERNELS else "histogram"
            export.launch(us(at, at + 5), us(start, free), name=kernel)
            at += pause
        export.range(f"step_{step}", *us(begin, at - 1))
    return export


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_nn", "cutlass_80_simt_sgemm_256x128_8x4_nt"])
@pytest.mark.parametrize("seed", range(12))
def test_what_limits_then(tmp_path, name, seed):
    random.seed(seed)
    own, other = KERNEL * KERNELS * (1 - LEFT), random.choice((20, 1_000, 3_000))
    whole = KERNEL * KERNELS + other + KERNELS + 1
    low, high = random.choice(((0.1, 0.4), (0.53, 0.63), (0.7, 1.0)))
    pause = (whole - random.uniform(low, high) * own) / (KERNELS + 1)
    report = traceview.analyze(products(name, pause, other).load(tmp_path))
    (row,) = [each for each in report.findings if each.message.startswith("fp32 GEMMs")]
    part = row.forecast.saved_per_step_ns / 1000 / own if row.forecast else 0.0
    # Calls are cheaper without the recorder.
    assert low - 0.03 <= part <= high + 0.1
    message = row.message
    assert ("Once this is done, the CPU limits the step." in message) == (0.5 <= part < 2 / 3)
    assert ("For now the program would gain" in message) == (part < 0.5)
    assert "GPU work limits" not in message
