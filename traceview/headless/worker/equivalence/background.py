"""Comparisons in forked processes, which run while the kernel is being compiled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from traceview.headless.equivalence import Equivalence
from traceview.headless.worker.equivalence.comparison import compare
from traceview.headless.worker.equivalence.launch_sample import LaunchSample
from traceview.headless.worker.forked_task import ForkedTask

# Wall time per CPU time on a busy machine.
_PATIENCE = 2.5


class BackgroundComparison:
    """A comparison in a process of its own."""

    def __init__(
        self, source: Any, sample: LaunchSample, changed: Mapping[str, Any], budget_s: float
    ) -> None:
        # Imported here once and not in each process.
        import triton.runtime.interpreter  # noqa: F401

        self._end = time.monotonic() + _PATIENCE * budget_s
        self._task = ForkedTask(lambda: asdict(compare(source, sample, changed, budget_s)))

    def result(self) -> Equivalence:
        """Wait for the answer, at most as long as the budget."""
        try:
            return Equivalence(**self._task.result(max(0.0, self._end - time.monotonic())))
        except (TimeoutError, ChildProcessError) as error:
            reason = "takes too long" if isinstance(error, TimeoutError) else "crashes"
            return Equivalence("unknown", f"Triton's interpreter {reason}")

    def close(self) -> None:
        """End the process."""
        self._task.close()
