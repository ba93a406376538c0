"""Idle time of a selection: what its own work ended, and what came before it."""

import pytest

from tests.analyses.gpu_idle.test_causes import CAUSE, DEVICE
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses import steps, sync_stalls
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS


#  step_0: 10..20      step_1: 100..110, 130..140   step_2: 150..160
def three_steps() -> Export:
    return (
        Export()
        .range("step_0", 0, 50)
        .range("step_1", 50, 120)
        .range("load", 50, 58)
        .range("step_2", 120, 150)
        .launch((1, 2), (10, 20))
        .launch((60, 61), (100, 110))
        .launch((112, 113), (130, 140))
        .launch((145, 146), (150, 160))
    )


@pytest.mark.parametrize(
    ("selection", "busy", "idle"),
    [
        ({"include": ("step_0",)}, 10, 0),
        ({"include": ("step_1",)}, 20, 80 + 20),
        ({"exclude": ("step_1",)}, 20, 10),
        ({"include": ("step_0", "step_2")}, 20, 10),
        # Ranges that overlap hold their common work once.
        ({"include": ("step_*", "step_1")}, 40, 110),
        ({"include": ("step_*",), "exclude": ("step_2",)}, 30, 100),
    ],
)
def test_the_idle_time_of_a_selection_is_what_its_work_ended(tmp_path, selection, busy, idle):
    result = ask(ANALYSIS, three_steps(), tmp_path, **selection)

    assert rows(result, "devices", *DEVICE) == [(0, busy + idle, busy, idle)]
    assert sum(row[0] for row in rows(result, "causes", "idle_ns")) == idle
    assert sum(row[0] for row in rows(result, "gaps", "duration_ns")) == idle


def test_a_step_and_a_selection_of_it_have_the_same_idle_time(tmp_path):
    idle = rows(ask(steps.ANALYSIS, three_steps(), tmp_path), "steps", "step", "gpu_idle_ns")

    for name, expected in idle[1:]:
        one = ask(ANALYSIS, three_steps(), tmp_path, include=(name,))
        assert rows(one, "devices", "idle_ns") == [(expected,)]


def test_each_gpu_of_a_selection_has_the_gaps_that_its_own_work_ended(tmp_path):
    export = Export().range("step_1", 50, 100)
    for device in (0, 1):
        export.launch((1, 2), (10, 20), device=device)
    export.launch((60, 61), (70, 80), device=0).launch((110, 111), (120, 130), device=1)

    result = ask(ANALYSIS, export, tmp_path, include=("step_1",))

    assert rows(result, "devices", *DEVICE) == [(0, 60, 10, 50)]


def test_ranges_that_launched_nothing_tell_how_long_the_gpu_was_idle_meanwhile(tmp_path):
    [finding] = ask(ANALYSIS, three_steps(), tmp_path, include=("load",)).findings

    assert finding.message == (
        "No GPU work was launched in the selected ranges. GPU 0 sat idle for 8 ns of the 8 ns they "
        "were open."
    )
    assert finding.time_at_stake_ns == 8
    without = {"include": ("step_1",), "exclude": ("step_*",)}
    assert not ask(ANALYSIS, three_steps(), tmp_path, **without).findings


def test_a_synchronization_before_the_selection_is_reported_here(tmp_path):
    """sync-stalls tells of the waits made in the selection."""
    export = (
        Export()
        .range("step_0", 0, 1010)
        .range("step_1", 1010, 1100)
        .launch((0, 2), (10, 1000))
        .sync("cudaStreamSynchronize_v3020", 5, 1005)
        .launch((1050, 1052), (1060, 1100))
    )

    one = ask(ANALYSIS, export, tmp_path, include=("step_1",))
    before = ask(sync_stalls.ANALYSIS, export, tmp_path, include=("step_0",))

    assert rows(one, "causes", *CAUSE) == [("sync-drain", 1, 60)]
    assert one.findings[0].message.endswith(" All of it followed cudaStreamSynchronize in step_0.")
    assert rows(before, "sites", "idle_after_ns") == [(60,)]
    assert rows(ask(sync_stalls.ANALYSIS, export, tmp_path, include=("step_1",)), "sites") == []
    assert not ask(ANALYSIS, export, tmp_path).findings
