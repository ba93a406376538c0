"""The interface of a clock that times calls, and the clock for a CPU."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from traceview.base.records import record

Run = Callable[[], Any]
ClockName = Literal["cuda-events", "wall", "perf-counter"]


def _group(call_ns: float, short_ns: float, group_ns: float, most: int) -> int:
    """Enough calls for `group_ns`, at most `most`, if one takes less than `short_ns`; else 1."""
    return min(math.ceil(group_ns / max(call_ns, 1.0)), most) if call_ns < short_ns else 1


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
        return _group(once, 20_000.0, 100_000.0, 10_000)

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


# Time calls with CUDA events, behind work that keeps the GPU busy while they are launched.

Declared = Callable[[int], str]
"""Returns the text of an NVTX range around a number of calls."""

_LEAST_FILLER_BYTES = 64 << 20
_AHEAD = 1.5
_MOST_FILLS = 500
_DOUBLINGS = 4
_GROUPS = (50_000.0, 200_000.0, 100)
"""Groups of calls below 50 µs fill 200 µs, with at most 100 calls."""


class CudaClock:
    """Events on the current stream. With `cold`, every call starts with a cold L2 cache."""

    name: ClockName = "cuda-events"

    def __init__(self, cold: bool, declared: Declared | None = None) -> None:
        import torch

        # Any: torch's own functions are not all typed.
        self._torch: Any = torch
        self._cold, self._declared = cold, declared
        cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        # Twice the cache, so that nothing stays from before.
        size = max(2 * cache, _LEAST_FILLER_BYTES)
        self._filler = torch.zeros(size // 4, device="cuda")
        self._sum = torch.zeros((), device="cuda")
        self._host_ns = self.elsewhere_ns = 0.0
        self._fill(4)
        self._fill_ns = max(self._between_events(lambda: self._fill(4)) / 4, 1.0)
        floors_ns = []
        for _ in range(5):
            self._fill(2)
            floors_ns.append(self._between_events(lambda: None))
        self.floor_ns = statistics.median(floors_ns)

    def declaring(self, declared: Declared | None) -> CudaClock:
        """A clock for another call, which shares this clock's buffer and its measured costs."""
        other = copy.copy(self)
        other._declared = declared
        return other

    def host_ns(self, run: Run) -> float:
        """CPU time to launch a call on an idle GPU.

        Also measures how long other streams keep working after the current one.
        """
        measured, elsewhere = [], []
        for _ in range(3):
            self._torch.cuda.synchronize()
            idle_ns = self._synchronized_ns()
            begin = time.perf_counter_ns()
            run()
            measured.append(time.perf_counter_ns() - begin)
            self._torch.cuda.current_stream().synchronize()
            elsewhere.append(self._synchronized_ns() - idle_ns)
        self.elsewhere_ns = max(float(min(elsewhere)), 0.0)
        self._host_ns = float(statistics.median(measured))
        return self._host_ns

    def _synchronized_ns(self) -> int:
        """Time until all streams are done."""
        begin = time.perf_counter_ns()
        self._torch.cuda.synchronize()
        return time.perf_counter_ns() - begin

    def calls_at_once(self, run: Run) -> int:
        """1 with a cold cache; with a warm one, enough for 200 µs if one takes less than 50 µs."""
        return 1 if self._cold else _group(self.sample(run, 1).call_ns, *_GROUPS)

    def sample(self, run: Run, calls: int) -> Sample:
        """One measurement, repeated behind more filler while the GPU had to wait for the CPU."""
        for attempt in range(_DOUBLINGS):
            elapsed, exposed = self._measured(run, calls, 2**attempt)
            if not exposed:
                break
        return Sample(elapsed / calls, exposed)

    def _measured(self, run: Run, calls: int, factor: int) -> tuple[float, bool]:
        first, last = self._event(), self._event()
        launching_ns = (calls + 1) * self._host_ns * _AHEAD
        fills = max(math.ceil(launching_ns / self._fill_ns), 1) * factor
        self._fill(min(fills, _MOST_FILLS))
        if not self._cold:
            run()
        first.record()
        with self._range(calls):
            for _ in range(calls):
                run()
        exposed = bool(first.query())
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e6, exposed

    def _between_events(self, run: Callable[[], Any]) -> float:
        first, last = self._event(), self._event()
        first.record()
        run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e6

    def _fill(self, times: int) -> None:
        # By reading. Written data stays in the cache until the timed call evicts it and pays for
        # the write-back: on an H200 a sum over 128 MiB took 28.8 µs after writes and 22.9 µs after
        # reads, without the clock's own time; ncu measures 21.5 µs.
        for _ in range(times):
            self._torch.sum(self._filler, dim=0, out=self._sum)

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    @contextmanager
    def _range(self, calls: int) -> Iterator[None]:
        """An NVTX range that declares the work of the timed calls."""
        if self._declared is None:
            yield
            return
        self._torch.cuda.nvtx.range_push(self._declared(calls))
        try:
            yield
        finally:
            self._torch.cuda.nvtx.range_pop()


class WallClock:
    """Wall time from a call until the GPU is done with it."""

    name: ClockName = "wall"
    elsewhere_ns = 0.0

    def __init__(self) -> None:
        import torch

        self._synchronize = torch.cuda.synchronize
        self.floor_ns = min(sum(self._measured(lambda: None, 0)) for _ in range(20))

    def host_ns(self, run: Run) -> float:
        """CPU time until a call on an idle GPU returns."""
        return statistics.median(self._measured(run, 1)[0] for _ in range(3))

    def calls_at_once(self, run: Run) -> int:
        """Enough for 200 µs if one takes less than 50 µs: synchronizing takes time, too."""
        return _group(self.sample(run, 1).call_ns, *_GROUPS)

    def sample(self, run: Run, calls: int) -> Sample:
        """The mean over a group of calls."""
        return Sample(sum(self._measured(run, calls)) / calls)

    def _measured(self, run: Run, calls: int) -> tuple[float, float]:
        """Time to launch, and time from there until all is done."""
        self._synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            run()
        launched = time.perf_counter_ns()
        self._synchronize()
        return float(launched - begin), float(time.perf_counter_ns() - launched)
