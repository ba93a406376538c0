"""What times a call, and the clock of a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Run = Callable[[], Any]
ClockName = Literal["cuda-events", "wall", "perf-counter"]
_GROUP_NS, _SHORT_NS, _MOST_CALLS = 100_000.0, 20_000.0, 10_000


@dataclass(frozen=True)
class Trial:
    """One measurement: time of a call, and whether the GPU had to wait for the CPU in it."""

    call_ns: float
    exposed: bool = False


class Clock(Protocol):
    """What can time a call."""

    @property
    def name(self) -> ClockName:
        """What it is."""

    @property
    def floor_ns(self) -> float:
        """What it shows where there is nothing to time."""

    @property
    def elsewhere_ns(self) -> float:
        """How long a call is still at work where this clock does not look."""

    def calls_at_once(self, run: Run) -> int:
        """How many calls to measure together."""

    def trial(self, run: Run, calls: int) -> Trial:
        """Measure so many calls; the time is that of one."""

    def host_ns(self, run: Run) -> float:
        """CPU time to hand out a call."""


class CpuClock:
    """time.perf_counter around calls that have returned when they are done."""

    name: ClockName = "perf-counter"
    elsewhere_ns = 0.0

    def __init__(self) -> None:
        self.floor_ns = min(self._elapsed(lambda: None, 0) for _ in range(100))

    def calls_at_once(self, run: Run) -> int:
        """Enough calls for 100 µs, where one takes less than 20 µs."""
        once = min(self._elapsed(run, 1) for _ in range(3))
        short = once < _SHORT_NS
        return min(math.ceil(_GROUP_NS / max(once, 1.0)), _MOST_CALLS) if short else 1

    def trial(self, run: Run, calls: int) -> Trial:
        """The mean of so many calls."""
        return Trial(self._elapsed(run, calls) / calls)

    def host_ns(self, run: Run) -> float:
        """The call itself: nothing is handed out."""
        return self._elapsed(run, 1)

    def _elapsed(self, run: Run, calls: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            run()
        return float(time.perf_counter_ns() - begin)
