"""A pause of the CPU in each step, beside many short gaps: its remedy is no matter of launches."""

import numpy as np
import pytest

from tests.build import Export
from traceview.traces.reporting import analyze

US, STEPS = 1_000, 14
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def program(draw, pause_us, place, late=0, gpus=1, launches=60):
    """Steps of small kernels and, of several GPUs, a collective; one of them pauses at a place."""
    export, begin = Export(), 0
    for number in range(STEPS):
        arrived = []
        for gpu in range(gpus):
            at, cpu = {"device": gpu, "process": gpu + 1}, begin
            export.range(f"pass {number}", begin, begin + US, process=gpu + 1)
            for each in range(launches):
                if gpu == late and each == place:
                    cpu += round(pause_us * draw.uniform(0.95, 1.05)) * US
                export.launch((cpu, cpu + 5 * US), (cpu + 6 * US, cpu + 14 * US), **at)
                cpu += round(draw.uniform(25, 40)) * US
            arrived.append(cpu + 6 * US)
        end = max(arrived) + 40 * US
        for gpu, start in enumerate(arrived):
            at, call = {"device": gpu, "process": gpu + 1}, start - 6 * US
            if gpus > 1:
                span, name = (start, end + gpu), ALL_REDUCE
                export.launch((call, call + 5 * US), span, name=name, stream=20, **at)
            export.sync("cudaDeviceSynchronize_v3020", call + 6 * US, end + 5 * US, process=gpu + 1)
        begin = end + 20 * US
    return export


@pytest.mark.parametrize("seed", range(12))
def test_a_pause_per_step_leads_with_all_that_it_costs(tmp_path, seed):
    draw = np.random.default_rng(seed)
    gpus, launches = int(draw.integers(1, 4)), int(draw.integers(30, 90))
    late, place = int(draw.integers(gpus)), int(draw.integers(launches // 2))
    pause_us = float(draw.uniform(launches * 50, launches * 120))
    export = program(draw, pause_us, place, late, gpus, launches)

    told = analyze(export.load(tmp_path))

    first = told.findings[0]
    assert (first.analysis, first.severity) == ("gpu-idle", "high")
    assert first.action.startswith("Take this CPU work out of the loop")
    assert f"{STEPS - 1} gaps of" in first.message or f"{STEPS} gaps of" in first.message
    assert first.forecast.saved_per_step_ns == pytest.approx(pause_us * US, rel=0.15)
    assert ("wait up to" in first.message) == (gpus > 1)
    assert all(row.severity == "info" for row in told.findings if "(gpu-idle)" in row.action)


@pytest.mark.parametrize("seed", range(6))
def test_a_short_pause_among_many_gaps_is_a_matter_of_launches(tmp_path, seed):
    draw = np.random.default_rng(seed)
    export = program(draw, pause_us=draw.uniform(10, 500), place=int(draw.integers(40)))

    told = analyze(export.load(tmp_path))

    first = next(row for row in told.findings if row.analysis == "gpu-idle")
    assert first.action.startswith("Launch less often")
