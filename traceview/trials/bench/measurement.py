"""Time a call: many measurements, and what the measurement itself costs.

On a GPU the clock is a pair of CUDA events on the current stream. Before each trial a buffer larger
than the L2 cache is read, often enough that the GPU is still busy with it when the last call has
been launched, which hides launch overhead. That this worked is checked, not assumed: the GPU must
not have reached the first event when the CPU is done launching. With a cold cache every call is
measured alone. With a warm one an untimed call comes first, and calls shorter than 50 µs are
measured in groups, as two events cost a microsecond or two themselves.

On a CPU the clock is time.perf_counter, caches are as the previous call left them, and calls
shorter than 20 µs are measured in groups.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import Literal, cast

from traceview.base import memory, units
from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.base.vocabulary.amounts import DEVIATIONS_PER_MAD
from traceview.trials.bench.clock import (
    Clock,
    ClockName,
    CpuClock,
    CudaClock,
    Declared,
    Run,
    Sample,
    WallClock,
)

# Time several calls in turns, A B C A B C, so that a drift of the clock touches all alike.

Fatal = Callable[[Exception], bool]
_FEWEST = 5


@dataclass
class Turns:
    """The measurements of one call; `error` if it raised, after which it is not called again."""

    run: Run
    clock: Clock
    host_ns: float = 0.0
    calls: int = 1
    samples: list[Sample] = field(default_factory=list)
    error: Exception | None = None

    def prepare(self, warmup: int) -> None:
        """Make the calls that are not timed, and choose how many are measured as a group."""
        for _ in range(warmup):
            self.run()
        self.host_ns = self.clock.host_ns(self.run)
        self.calls = self.clock.calls_at_once(self.run)

    def measure(self) -> None:
        """Make one measurement."""
        self.samples.append(self.clock.sample(self.run, self.calls))


def take_turns(
    turns: Sequence[Turns],
    warmup: int,
    trials: int,
    budget_s: float,
    is_fatal: Fatal = lambda _: False,
) -> None:
    """Measure each call `trials` times, one after the other in every round.

    Once `budget_s` per call is spent, five rounds are enough. After an error that is fatal nothing
    runs any more, so calls may be left without samples.
    """
    for turn in turns:
        _attempt(turn, partial(turn.prepare, warmup))
        if turn.error and is_fatal(turn.error):
            return
    ends = time.monotonic() + budget_s * len(turns)
    # The garbage collector would run in some trials and not in others.
    with memory.paused():
        for number in range(trials):
            if number >= _FEWEST and time.monotonic() > ends:
                return
            for turn in turns:
                _attempt(turn, turn.measure)
                if turn.error and is_fatal(turn.error):
                    return


def _attempt(turns: Turns, action: Callable[[], None]) -> None:
    if turns.error:
        return
    try:
        action()
    except Exception as error:
        turns.error = error


_DEVICE = re.compile(r"(cpu|cuda)(?::([0-9]{1,3}))?")
_LAUNCH_BOUND_FRACTION = 0.8
_LEAST_ELSEWHERE_NS = 20_000.0


@record
class Timing:
    """Times per call in ns, from `trials` measurements of `calls_per_trial` calls each.

    `host_ns` is the CPU time to launch a call, `floor_ns` what the clock shows for no work. In
    `exposed_trials` the GPU waited for the CPU, so those times include launch overhead.
    `elsewhere_ns` is how long other streams kept working on a call, which no time includes.
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
        """The median, the spread, how it was measured, and the remarks."""
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
        """Median time per call."""
        return statistics.median(self.samples_ns)

    @property
    def p10_ns(self) -> float:
        """10th percentile."""
        return _quantile(self.samples_ns, 0.1)

    @property
    def p90_ns(self) -> float:
        """90th percentile."""
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
        far = max(5 * DEVIATIONS_PER_MAD * self.mad_ns, 0.05 * middle)
        return sum(abs(sample - middle) > far for sample in self.samples_ns)

    @property
    def is_launch_bound(self) -> bool:
        """Whether the CPU takes longer to launch a call than the GPU takes to run it.

        By wall clock: whether launching took at least 80 % of the time.
        """
        if self.clock == "wall":
            return self.host_ns >= _LAUNCH_BOUND_FRACTION * self.median_ns
        return self.clock == "cuda-events" and self.host_ns > self.median_ns

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on how to read these times."""
        remarks = list(self.cautions)
        if self.calls_per_trial > 1:
            remarks.append(f"measured in groups of {self.calls_per_trial} calls")
        if self.outliers:
            remarks.append(f"{self.outliers} of {self.trials} trials are outliers")
        return tuple(remarks)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Reasons why the true time of a call may differ from the one shown."""
        cautions = []
        if self.elsewhere_ns > max(_LEAST_ELSEWHERE_NS, 0.1 * self.median_ns):
            cautions.append(
                f"at least {units.duration(self.elsewhere_ns)} of work on other streams is not "
                "timed (wall=True includes it)"
            )
        if self.exposed_trials:
            cautions.append(
                f"in {self.exposed_trials} of {self.trials} trials the GPU waited for the CPU, so "
                "those times include launch overhead"
            )
        if self.floor_ns > 0.1 * self.median_ns:
            cautions.append(f"up to {units.duration(self.floor_ns)} of this is the clock itself")
        return tuple(cautions)


def benchmark(
    run: Run,
    warmup: int = 3,
    trials: int = 30,
    *,
    cold: bool = True,
    wall: bool = False,
    device: str | None = None,
    budget_s: float = 10.0,
    declared: Declared | None = None,
) -> Timing:
    """Time a call of `run`, after `warmup` calls that are not timed.

    `cold` empties the GPU's L2 cache before every call. `wall` measures wall time until the GPU is
    done, including launches and waits, instead of GPU time. `device` is cpu, cuda, or such as
    cuda:1, which becomes the current device; None means cuda if torch has it. Once `budget_s` is
    spent, five trials are enough. `declared(calls)` returns the text of an NVTX range around that
    many calls. Without `wall`, work on other streams than the current one is not timed; the result
    says so. Raises InputError for invalid counts or devices, and whatever `run` raises.
    """
    [outcome] = benchmark_in_turns(
        [run], warmup, trials,
        cold=cold, wall=wall, device=device, budget_s=budget_s, declared=[declared],
    )  # fmt: skip
    if isinstance(outcome, Timing):
        return outcome
    # The only call has samples unless it raised.
    raise cast(Exception, outcome)


def benchmark_in_turns(
    runs: Sequence[Run],
    warmup: int = 3,
    trials: int = 30,
    *,
    cold: bool = True,
    wall: bool = False,
    device: str | None = None,
    budget_s: float = 10.0,
    declared: Sequence[Declared | None] = (),
    is_fatal: Fatal = lambda _: False,
) -> list[Timing | Exception | None]:
    """Time several calls, one after the other in every round, so that a drift touches all alike.

    As `benchmark`, with `budget_s` per call. If a call raises, its exception takes the place of its
    timing, and the others go on. After a fatal error nothing more runs, and calls that were never
    timed have None.
    """
    check_counts(warmup, trials)
    with _current(device) as kind:
        # A clock per call, as a clock stores the call's launch time; CUDA clocks share a buffer.
        clocks: list[Clock]
        if kind == "cpu" or wall:
            clocks = [CpuClock() if kind == "cpu" else WallClock() for _ in runs]
        else:
            first = CudaClock(cold)
            clocks = [first.declaring(text) for text in declared or [None] * len(runs)]
        turns = [Turns(run, clock) for run, clock in zip(runs, clocks, strict=True)]
        take_turns(turns, warmup, trials, budget_s, is_fatal)
    return [turn.error or (_timing(turn, cold) if turn.samples else None) for turn in turns]


def _timing(turns: Turns, cold: bool) -> Timing:
    clock = turns.clock
    return Timing(
        clock=clock.name,
        cache="cold" if clock.name == "cuda-events" and cold else "warm",
        calls_per_trial=turns.calls,
        samples_ns=tuple(trial.call_ns for trial in turns.samples),
        host_ns=turns.host_ns,
        floor_ns=clock.floor_ns / turns.calls,
        exposed_trials=sum(trial.exposed for trial in turns.samples),
        elsewhere_ns=clock.elsewhere_ns,
    )


def check_counts(warmup: int, trials: int) -> None:
    """Raise InputError unless these are whole numbers and there is at least one trial."""
    whole = isinstance(warmup, Integral) and isinstance(trials, Integral)
    if not whole or warmup < 0 or trials < 1:
        what = f"{warmup!r} warm-up calls and {trials!r} trials"
        raise InputError(what, "request at least one trial")


@contextmanager
def _current(device: str | None) -> Iterator[str]:
    """Make a GPU current, as events are recorded on that one; yields cpu or cuda."""
    if device is None:
        try:
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
        except ImportError:
            device = "cpu"
    match = _DEVICE.fullmatch(str(device))
    if match is None:
        raise InputError(f"device {str(device)[:40]!r} cannot be timed", "pass cpu, cuda or cuda:1")
    kind, index = match.groups()
    if kind == "cpu":
        yield kind
        return
    import torch

    if int(index or 0) >= torch.cuda.device_count():
        raise InputError(f"torch sees no device {device}", "pass another, or cpu")
    with torch.cuda.device(None if index is None else int(index)):
        yield kind


def _quantile(samples: tuple[float, ...], fraction: float) -> float:
    """A quantile, interpolated linearly between the two nearest samples."""
    ordered = sorted(samples)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
