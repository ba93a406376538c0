"""The verdict on a device, from its idle time by cause and its busy time."""

import pytest

from tests.facts.arrays import ints
from traceview.facts.idle.launching import judge
from traceview.vocabulary.causes import CAUSE_NAMES


def verdict(*, drained=False, full_ns=0, **idle_ns):
    """Of 1,000 ns of work; causes are given with _ for -."""
    by_cause = ints([idle_ns.get(cause.replace("-", "_"), 0) for cause in CAUSE_NAMES])
    return judge(by_cause, 1_000, drained, full_ns)


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("gpu-bound", {}),
        ("queue-full", {"full_ns": 1}),
        ("sync-drained", {"drained": True, "full_ns": 1}),
        ("gpu-bound", {"launch_late": 50}),  # 50 of 1,050 is less than 5 %
        ("launch-bound", {"launch_late": 60}),
        ("launch-bound", {"launch_late": 60, "sync_drain": 50}),
        ("sync-drained", {"launch_late": 50, "sync_drain": 60}),
        ("mixed", {"launch_late": 50, "sync_drain": 50}),
        ("mixed", {"dependency": 100}),
        # Queued work that waits is no GPU that runs dry.
        ("sync-drained", {"dependency": 100, "drained": True}),
        ("launch-bound", {"dependency": 500, "launch_late": 100}),
    ],
)
def test_verdicts(expected, given):
    assert verdict(**given) == expected
