"""The interface of a clock that times calls, and the clock for a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

from traceview.records import record

Run = Callable[[], Any]
ClockName = Literal["cuda-events", "wall", "perf-counter"]
_GROUP_NS, _SHORT_NS, _MOST_CALLS = 100_000.0, 20_000.0, 10_000


@record
class Sample:
    """One measurement: time per call, and whether the GPU had to wait for the CPU in it."""

    call_ns: float
    exposed: bool = False


class Clock(Protocol):
    """Times a call."""

    @property
    def name(self) -> ClockName:
        """The name of the clock."""

    @property
    def floor_ns(self) -> float:
        """The time that the clock shows for an empty call."""

    @property
    def elsewhere_ns(self) -> float:
        """Time of a call's work that this clock does not measure, as on other streams."""

    def calls_at_once(self, run: Run) -> int:
        """Number of calls to measure as one group."""

    def sample(self, run: Run, calls: int) -> Sample:
        """Measure a group of calls; the time is per call."""

    def host_ns(self, run: Run) -> float:
        """CPU time to launch a call."""


class CpuClock:
    """time.perf_counter around calls that are done when they return."""

    name: ClockName = "perf-counter"
    elsewhere_ns = 0.0

    def __init__(self) -> None:
        self.floor_ns = min(self._elapsed(lambda: None, 0) for _ in range(100))

    def calls_at_once(self, run: Run) -> int:
        """Enough calls for 100 µs if one takes less than 20 µs, else 1."""
        once = min(self._elapsed(run, 1) for _ in range(3))
        short = once < _SHORT_NS
        return min(math.ceil(_GROUP_NS / max(once, 1.0)), _MOST_CALLS) if short else 1

    def sample(self, run: Run, calls: int) -> Sample:
        """The mean over a group of calls."""
        return Sample(self._elapsed(run, calls) / calls)

    def host_ns(self, run: Run) -> float:
        """The time of the call itself, as nothing is launched."""
        return self._elapsed(run, 1)

    def _elapsed(self, run: Run, calls: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            run()
        return float(time.perf_counter_ns() - begin)
