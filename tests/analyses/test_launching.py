"""The verdict on a device, from its idle time by cause and its busy time."""

import pytest

from tests.facts.arrays import ints
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.launching import judge


def verdict(*, drained=False, full_ns=0, **idle_ns):
    """Of 1,000 ns of work; causes are given with _ for -."""
    by_cause = ints([idle_ns.get(cause.replace("-", "_"), 0) for cause in CAUSE_NAMES])
    return judge(by_cause, 1_000, drained, full_ns)


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("gpu-bound", {}),
        ("queue-full", {"full_ns": 1}),
        ("gpu-bound", {"sync_drain": 50}),
        ("sync-drained", {"sync_drain": 60, "launch_late": 50}),
        ("sync-drained", {"drained": True, "full_ns": 1}),
        ("gpu-bound", {"launch_late": 110}),  # 110 of 1,110 is less than 10 %
        ("mixed", {"launch_late": 120}),  # it works for 89 %
        ("mixed", {"launch_late": 320}),
        ("launch-bound", {"launch_late": 340}),
        ("launch-bound", {"launch_late": 340, "sync_drain": 50}),
        ("sync-drained", {"launch_late": 50, "sync_drain": 120}),
        ("mixed", {"launch_late": 80, "sync_drain": 80}),
        ("launch-bound", {"launch_late": 100, "graph_launch": 90, "sync_drain": 160}),
        # Where most of the idle time is that of queued work, launching earlier cannot help.
        ("mixed", {"dependency": 120}),
        ("dependency-bound", {"dependency": 340}),
        ("dependency-bound", {"dependency": 340, "drained": True}),
        ("dependency-bound", {"dependency": 500, "launch_late": 100}),
        ("launch-bound", {"dependency": 500, "launch_late": 600}),
        ("mixed", {"dependency": 90, "launch_late": 80, "sync_drain": 50}),
    ],
)
def test_verdicts(expected, given):
    assert verdict(**given) == expected
