"""Waits whose result the program reads, or does not: what the finding advises."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.analyses.sync_stalls.test_sync_stalls import SITE
from tests.build import Export
from tests.conftest import DATA
from traceview.traces.analyses.sync_stalls import ANALYSIS
from traceview.traces.trace.load import load


def synchronized(*, copies):
    """Two steps that end in a synchronization, after a copy to the host in those of `copies`."""
    export = Export()
    for number in range(2):
        at = 80 * number
        export.launch((at, at + 2), (at + 10, at + 50))
        if number in copies:
            call, copy = (at + 3, at + 5), (at + 50, at + 60)
            export.copy(call, copy, kind="D2H", source="device", destination="pinned")
        export.sync("cudaStreamSynchronize_v3020", at + 6, at + 62)
    return export.launch((160, 162), (170, 210))


def actions(export, folder):
    return [finding.action for finding in ask(ANALYSIS, export, folder).findings]


def test_a_wait_for_no_result_is_to_be_taken_out(tmp_path):
    [action] = actions(synchronized(copies=()), tmp_path)

    assert action.startswith("Remove it if the CPU needs nothing from the GPU here")


def test_a_wait_for_a_result_is_to_come_less_often(tmp_path):
    [action] = actions(synchronized(copies=(0, 1)), tmp_path)

    assert action.startswith("Read results on the CPU less often")


def test_a_result_read_before_the_last_synchronization_is_none_of_the_next(tmp_path):
    export = synchronized(copies=()).copy(
        (163, 165), (210, 220), kind="D2H", source="device", destination="pinned"
    )
    export.sync("cudaStreamSynchronize_v3020", 166, 222).launch((240, 242), (250, 290))
    export.sync("cudaStreamSynchronize_v3020", 243, 292).launch((310, 312), (320, 350))

    first, *others = rows(ask(ANALYSIS, export, tmp_path), "sites", *SITE)
    [action] = actions(export, tmp_path)

    # 30 ns of idle time after each wait, for a result after one of four.
    assert (first[1], first[4], others) == (4, 140, [])
    assert action.startswith("Remove it")


def test_what_another_thread_reads_is_no_reason_to_wait(tmp_path):
    export = synchronized(copies=())
    export.copy((3, 5), (50, 55), kind="D2H", destination="pinned", stream=9, thread=4)

    [action] = actions(export, tmp_path)

    assert action.startswith("Remove it")


def test_managed_memory_is_read_without_a_copy(tmp_path):
    export = synchronized(copies=()).memory(1, memory="managed")

    [action] = actions(export, tmp_path)

    assert action.startswith("Make the CPU wait as late as possible")
    assert "managed memory" in action


def test_a_wait_between_two_streams_orders_them(tmp_path):
    export = Export()
    for number in range(3):
        at = 80 * number
        export.launch((at, at + 2), (at + 10, at + 50), stream=7 + number)
        export.sync("cudaDeviceSynchronize_v3020", at + 6, at + 52, sync_type="context")
    export.launch((240, 242), (250, 290), stream=10)

    [action] = actions(export, tmp_path)

    assert action.startswith("Make the streams wait for each other")


def test_what_a_training_step_does_after_a_printed_loss_is_due_to_it():
    """0.2 % of the time is lost in loss.item(), 1.4 % to the Python code behind it.

    Without the wait that code would run while the GPU works.
    """
    result = ANALYSIS.compute(load(DATA / "mlp_print_loss.sqlite.xz"))

    [finding] = result.findings
    assert (finding.severity, finding.saving) == ("low", "about")
    assert finding.time_at_stake_ns == pytest.approx(7 * 0.6 * 1e6, rel=0.1)
    assert result.summary["steady_idle_caused_ns"] == 3_715_188


def test_what_the_cpu_does_after_a_wait_is_none_of_it(tmp_path):
    """Ten waits of 400 µs, each followed by 80 µs of allocation and 1.5 ms of other CPU work."""
    export, us = Export(), 1_000
    for step in range(10):
        at = 2_200 * us * step
        export.range(f"step_{step}", at, at + 2_190 * us)
        export.call("cudaMalloc_v3020", at, at + 80 * us)
        export.launch((at + 85 * us, at + 90 * us), (at + 95 * us, at + 500 * us))
        export.sync("cudaStreamSynchronize_v3020", at + 100 * us, at + 540 * us)

    [finding] = [
        each
        for each in ask(ANALYSIS, export, tmp_path).findings
        if "cudaStreamSynchronize" in each.message
    ]

    values = finding.evidence.values
    assert finding.time_at_stake_ns <= int(values["idle_ns"] or 0) < int(values["after_ns"] or 0)
    assert "more waiting for the CPU to launch work." in finding.message
    assert finding.action.startswith("Look first at what comes after the wait")


@pytest.mark.parametrize("pause_us", [1, 3, 4])
@pytest.mark.parametrize("kernel_us", [4, 40])
def test_a_launch_right_after_each_wait_is_part_of_what_the_wait_costs(
    tmp_path, pause_us, kernel_us
):
    """OpenACC waits after each region: without that the CPU would launch while the GPU works."""
    export, us, at = Export(), 1_000, 0
    for step in range(40):
        export.range(f"step_{step}", at, at + 20 * (kernel_us + pause_us + 12) * us)
        for _ in range(20):
            ends = at + (8 + kernel_us) * us
            export.launch((at, at + 3 * us), (at + 8 * us, ends))
            export.sync("cuStreamSynchronize", at + 3 * us + 500, ends + 4 * us)
            at = ends + (4 + pause_us) * us
    finding = next(
        each
        for each in ask(ANALYSIS, export, tmp_path).findings
        if "cuStreamSynchronize" in each.message
    )
    assert "more waiting for the CPU" not in finding.message
    assert "Look first" not in finding.action
