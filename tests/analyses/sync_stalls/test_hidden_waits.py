"""Waits after which the GPU is hardly idle, and without which the CPU would be ahead later."""

import traceview
from tests.build import Export

US = 1_000
SMALL, LARGE, STEPS = 30, 150, 12


def program(large_us: int, read: bool = True) -> Export:
    """Steps of 30 kernels of 2 µs and 150 longer ones, launched 14 µs apart, with a wait each."""
    export, now, free = Export(), 0, 0
    for step in range(STEPS):
        begin = now
        for kernel_us in (*[2] * SMALL, *[large_us] * LARGE):
            now += 4 * US
            start = max(now + 5 * US, free + US)
            free = start + kernel_us * US
            export.launch((now, now + 10 * US), (start, free))
            now += 10 * US
        if read:
            begun, now = now, max(now, free) + 5 * US
            export.sync("cudaStreamSynchronize_v3020", begun, now)
        export.range(f"step_{step}", begin, now)
    return export


def hidden(export: Export, folder):
    report = traceview.analyze(export.load(folder))
    return [row for row in report.findings if "holds the CPU up" in row.message]


def test_a_wait_after_which_the_gpu_is_not_idle_is_found_by_its_replay(tmp_path):
    """Small kernels run 11 µs apart; behind the large ones of the step before they would not."""
    [found] = hidden(program(large_us=16), tmp_path)
    finding, told = found.finding, found.forecast
    assert found.analysis == "sync-stalls"
    assert finding.message.startswith("cudaStreamSynchronize in step_# holds the CPU up for ")
    assert told.saving == "about"
    assert finding.error_ns < finding.time_at_stake_ns
    assert 250 * US < told.saved_per_step_ns < 400 * US


def test_a_wait_that_wins_nothing_is_no_finding(tmp_path):
    """The CPU is the limit all the same; and without a wait there is none to find."""
    assert not hidden(program(large_us=2), tmp_path)
    assert not hidden(program(large_us=16, read=False), tmp_path)
