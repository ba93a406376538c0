"""Which wait drained the GPU: one gap from 1,000 to 2,000 ns, whose work is launched at 1,900."""

import numpy as np
import pytest

from tests.facts.arrays import api_calls, gaps_of, operations, waits
from traceview.traces.facts.idle.causes import called_between
from traceview.traces.facts.idle.causes import drains as find_drains
from traceview.traces.facts.operations import CallKind


def drain(*spans, others=(), call_thread=None, **of_waits):
    """The wait that drained the gap, −1 for none; `others` are calls besides the launches."""
    ops = operations([(0, 1_000), (2_000, 3_000)], call=[0, 1])
    calls = api_calls([(0, 1), (1_900, 1_910), *others], thread=call_thread)
    gaps, launches = gaps_of(ops, calls)
    enqueuing = np.zeros(len(calls), bool)
    enqueuing[:2] = True
    [wait] = find_drains(gaps, launches, waits(spans, **of_waits), calls, enqueuing).tolist()
    return wait


def test_a_wait_that_the_gpu_ran_dry_in():
    assert drain((100, 1_010)) == 0


def test_the_wait_that_returned_last_counts():
    assert drain((100, 1_010), (200, 1_020), thread=[0, 1]) == 1


def test_right_after_a_wait_the_thread_has_queued_nothing_yet():
    assert drain((100, 990)) == 0


@pytest.mark.parametrize(
    "span",
    [
        (100, 1_901),  # still waiting at the launch
        (1_100, 1_800),  # begun after the GPU ran dry
    ],
)
def test_waits_that_drained_nothing(span):
    assert drain(span) == -1


def test_a_short_wait_drains_too():
    """How much of the gap is due to it is for `causes` to say: no more than it lasted."""
    assert drain((700, 1_010)) == 0


def test_a_wait_for_another_device():
    assert drain((100, 1_010), device=[1]) == -1
    assert drain((100, 1_010), device=[-1]) == 0


def test_a_wait_of_another_thread_holds_up_an_idle_launching_thread_alone():
    assert drain((100, 1_010), thread=[1]) == 0
    assert drain((100, 1_010), thread=[1], others=[(500, 501)]) == -1
    # Right after does not go for other threads.
    assert drain((100, 990), thread=[1]) == -1


def test_an_allocation_drains_nothing():
    assert drain((100, 1_010), does=[CallKind.ALLOCATE]) == -1


def test_called_between_includes_the_start_and_not_the_end():
    thread, time = np.array([0, 0, 1]), np.array([10, 20, 15])
    since, until = np.array([10, 11, 11, 15]), np.array([11, 20, 21, 16])

    assert called_between(thread, time, np.array([0, 0, 0, 1]), since, until).tolist() == [
        True,
        False,
        True,
        True,
    ]
