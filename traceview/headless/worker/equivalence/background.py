"""Comparisons in forked processes, which run while the kernel is being compiled."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from traceview.headless.equivalence import Equivalence
from traceview.headless.worker.equivalence.comparison import compare
from traceview.headless.worker.equivalence.launch_sample import LaunchSample

# Wall time per CPU time on a busy machine.
_PATIENCE = 2.5


class BackgroundComparison:
    """A comparison in a process of its own, which neither a crash nor a hang of it outlives."""

    def __init__(
        self, source: Any, sample: LaunchSample, changed: Mapping[str, Any], budget_s: float
    ) -> None:
        # Imported here once and not in each process.
        import triton.runtime.interpreter  # noqa: F401

        self._end = time.monotonic() + _PATIENCE * budget_s
        self._pipe, writer = os.pipe()
        self._process_id = os.fork()
        if self._process_id:
            os.close(writer)
            return
        try:
            answer = compare(source, sample, changed, budget_s)
            os.write(writer, json.dumps(asdict(answer)).encode())
        finally:
            os._exit(0)

    def result(self) -> Equivalence:
        """Wait for the answer, at most as long as the budget."""
        left = max(0.0, self._end - time.monotonic())
        ready = select.select([self._pipe], [], [], left)[0]
        text = os.read(self._pipe, 1 << 16) if ready else b""
        self.close()
        if text:
            return Equivalence(**json.loads(text))
        reason = "crashes" if ready else "takes too long"
        return Equivalence("unknown", f"Triton's interpreter {reason}")

    def close(self) -> None:
        """End the process."""
        with suppress(ProcessLookupError, ChildProcessError, OSError):
            os.kill(self._process_id, signal.SIGKILL)
            os.waitpid(self._process_id, 0)
        with suppress(OSError):
            os.close(self._pipe)
