"""Time several calls in turns, A B C A B C, so that a drift of the clock touches all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from traceview.bench.timing.clock import Clock, Run, Sample
from traceview.memory import garbage_collection

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
    for each in turns:
        _attempt(each, partial(each.prepare, warmup))
        if each.error and is_fatal(each.error):
            return
    ends = time.monotonic() + budget_s * len(turns)
    # The garbage collector would run in some trials and not in others.
    with garbage_collection.paused():
        for number in range(trials):
            if number >= _FEWEST and time.monotonic() > ends:
                return
            for each in turns:
                _attempt(each, each.measure)
                if each.error and is_fatal(each.error):
                    return


def _attempt(turns: Turns, action: Callable[[], None]) -> None:
    if turns.error:
        return
    try:
        action()
    except Exception as error:
        turns.error = error
