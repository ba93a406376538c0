"""How long one call takes: measured many times, with what the measurement itself costs.

On a GPU the clock is a pair of CUDA events on the current stream. Before each trial a buffer larger
than the L2 cache is read, often enough that the GPU is still busy with it when the last call
has been launched: launch overhead then hides behind it. Whether that worked is seen and not
assumed: the first event must not have been reached when the CPU is done. With a cold cache every
call is measured alone. With a warm one, an untimed call comes first, and calls shorter than 50 µs
are measured in groups, since two events cost a microsecond or two themselves.

On a CPU the clock is time.perf_counter, the caches are as the call before left them, and calls
shorter than 20 µs are measured in groups.
"""

from __future__ import annotations

import gc
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from traceview import units
from traceview.bench.timing.clock import Clock, ClockName, CpuClock, Run, Trial
from traceview.bench.timing.cuda_clock import CudaClock, WallClock
from traceview.errors import InputError

_DEVICE = re.compile(r"(cpu|cuda)(?::([0-9]{1,3}))?")
_FEWEST = 5
_HANDING_OUT = 0.8
_LEAST_ELSEWHERE_NS = 20_000.0
_NORMAL = 1.4826
"""By this the median absolute deviation of normally distributed values is their deviation."""


@dataclass(frozen=True)
class Timing:
    """Times of one call, in ns, from `trials` measurements of `calls_per_trial` calls each.

    `host_ns` is the CPU time that it takes to hand out a call, `floor_ns` what the clock shows
    where there is nothing to time. In `exposed_trials` the GPU waited for the CPU, so that these
    times hold launch overhead. `elsewhere_ns` is how long the GPU went on with a call on other
    streams, which is in none of these times.
    """

    clock: ClockName
    cache: Literal["cold", "warm"]
    calls_per_trial: int
    samples_ns: tuple[float, ...]
    host_ns: float
    floor_ns: float
    exposed_trials: int = 0
    elsewhere_ns: float = 0.0

    def __str__(self) -> str:
        """The median, the spread, how it was measured, and what has to be known about it."""
        clock = {"cuda-events": f"CUDA events, {self.cache} L2", "wall": "the wall clock"}
        spread = f"{units.duration(self.p10_ns)} – {units.duration(self.p90_ns)}"
        how = f"{units.counted(self.trials, 'trial')} by {clock.get(self.clock, 'perf_counter')}"
        return "; ".join((f"{units.duration(self.median_ns)} ({spread}), {how}", *self.remarks))

    @property
    def trials(self) -> int:
        """Number of measurements."""
        return len(self.samples_ns)

    @property
    def median_ns(self) -> float:
        """The time to quote."""
        return statistics.median(self.samples_ns)

    @property
    def p10_ns(self) -> float:
        """Nine of ten trials took longer."""
        return _quantile(self.samples_ns, 0.1)

    @property
    def p90_ns(self) -> float:
        """Nine of ten trials took less."""
        return _quantile(self.samples_ns, 0.9)

    @property
    def mad_ns(self) -> float:
        """Median absolute deviation from the median."""
        middle = self.median_ns
        return statistics.median(abs(sample - middle) for sample in self.samples_ns)

    @property
    def outliers(self) -> int:
        """Trials more than five deviations (1.4826 MAD each) and more than 5 % off the median."""
        middle = self.median_ns
        far = max(5 * _NORMAL * self.mad_ns, 0.05 * middle)
        return sum(abs(sample - middle) > far for sample in self.samples_ns)

    @property
    def is_launch_bound(self) -> bool:
        """True if handing out a call takes the CPU longer than the GPU needs for it.

        By the wall clock: if the CPU was still handing out for 80 % of the time.
        """
        if self.clock == "wall":
            return self.host_ns >= _HANDING_OUT * self.median_ns
        return self.clock == "cuda-events" and self.host_ns > self.median_ns

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader has to know about these figures."""
        said = list(self.cautions)
        if self.calls_per_trial > 1:
            said.append(f"measured in groups of {self.calls_per_trial} calls")
        if self.outliers:
            said.append(f"outliers: {self.outliers} of {self.trials} trials")
        return tuple(said)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Why the time of a call may be another than what is shown."""
        said = []
        if self.elsewhere_ns > max(_LEAST_ELSEWHERE_NS, 0.1 * self.median_ns):
            said.append(
                f"not timed: {self.elsewhere_ns / 1000:.1f} µs of work or more on other streams "
                "(wall=True times it)"
            )
        if self.exposed_trials:
            said.append(
                f"in {self.exposed_trials} of {self.trials} trials the GPU waited for the CPU: "
                "these times hold launch overhead"
            )
        if self.floor_ns > 0.1 * self.median_ns:
            said.append(f"of this time up to {self.floor_ns / 1000:.1f} µs is the clock's own")
        return tuple(said)


def benchmark(
    run: Run,
    warmup: int = 3,
    trials: int = 30,
    *,
    cold: bool = True,
    wall: bool = False,
    device: str | None = None,
    budget_s: float = 10.0,
    declared: Callable[[int], str] | None = None,
) -> Timing:
    """Time a call of `run`, after `warmup` calls that are not timed.

    `cold` empties the L2 cache of a GPU before every call. `wall` takes all the time from the call
    until the GPU is done, launches and waits included, instead of the GPU's alone. `device` is cpu,
    cuda, or such as cuda:1, which becomes the current one; None takes cuda where torch has it.
    Once `budget_s` is spent, five trials are enough. `declared` gives the text of an NVTX range
    around so many calls. Work on other streams than the current one is not timed without `wall`,
    which the result says. Raises InputError for numbers and devices that make no sense, and
    whatever `run` raises.
    """
    check_counts(warmup, trials)
    with _current(device or _device()) as kind:
        clock = _clock(kind, cold, wall, declared)
        for _ in range(warmup):
            run()
        host_ns = clock.host_ns(run)
        calls = clock.calls_at_once(run)
        with _without_collection():
            measured = list(_measured(clock, run, calls, trials, budget_s))
    return Timing(
        clock=clock.name,
        cache="cold" if clock.name == "cuda-events" and cold else "warm",
        calls_per_trial=calls,
        samples_ns=tuple(trial.call_ns for trial in measured),
        host_ns=host_ns,
        floor_ns=clock.floor_ns / calls,
        exposed_trials=sum(trial.exposed for trial in measured),
        elsewhere_ns=clock.elsewhere_ns,
    )


def check_counts(warmup: int, trials: int) -> None:
    """Raise InputError unless these are whole numbers of calls, with a trial or more."""
    whole = isinstance(warmup, Integral) and isinstance(trials, Integral)
    if not whole or warmup < 0 or trials < 1:
        what = f"{warmup!r} warm-up calls and {trials!r} trials"
        raise InputError(what, "ask for one trial or more")


def _measured(clock: Clock, run: Run, calls: int, trials: int, budget_s: float) -> Iterator[Trial]:
    ends = time.monotonic() + budget_s
    for number in range(trials):
        if number >= _FEWEST and time.monotonic() > ends:
            return
        yield clock.trial(run, calls)


def _device() -> str:
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def _current(device: str) -> Iterator[str]:
    """Make it the current GPU, if it is one: on that one events are recorded. Gives its kind."""
    found = _DEVICE.fullmatch(str(device))
    if found is None:
        raise InputError(f"device {str(device)[:40]!r} cannot be timed", "give cpu, cuda or cuda:1")
    kind, index = found.groups()
    if kind == "cpu":
        yield kind
        return
    import torch

    if int(index or 0) >= torch.cuda.device_count():
        raise InputError(f"torch sees no device {device}", "give another, or cpu")
    with torch.cuda.device(None if index is None else int(index)):
        yield kind


def _clock(device: str, cold: bool, wall: bool, declared: Callable[[int], str] | None) -> Clock:
    if device == "cpu":
        return CpuClock()
    return WallClock() if wall else CudaClock(cold, declared)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python's collector would run in some trials and not in others."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _quantile(samples: tuple[float, ...], share: float) -> float:
    """Between the two nearest samples, by their distance."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
