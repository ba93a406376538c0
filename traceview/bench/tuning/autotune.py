"""The fastest of several configurations, found without timing the slow ones for long.

Successive halving: every configuration that is left is timed for a few trials, the slower half is
dropped, the rest is timed twice as long. And a bound within that: a configuration whose first three
calls all take three times the best median so far is dropped at once. One such call may be the
machine's doing, three are its own.
With n configurations this takes about 2 × 3 × n trials instead of 30 × n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from traceview.bench.loading import broke_cuda, broken_by, in_words
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.bench.tuning.cache import Saved
from traceview.errors import InputError

Config = Mapping[str, Any]
_FIRST_TRIALS, _MOST_TRIALS, _TOO_SLOW, _MORE_CALLS = 3, 48, 3.0, 2


@dataclass(frozen=True)
class Tried:
    """One configuration: its median in the last round it was in, or why it has none.

    `dropped` says why it was not timed to the end; None for the best.
    """

    config: Config
    median_ns: float | None
    trials: int
    dropped: str | None = None


@dataclass(frozen=True)
class Tuned:
    """The best configuration, and all that were tried. `saved` if it was known from before."""

    config: Config
    median_ns: float
    tried: tuple[Tried, ...]
    saved: bool = False

    @property
    def trials(self) -> int:
        """How many trials it took in all."""
        return sum(each.trials for each in self.tried)


def autotune(
    run: Callable[[Config], Any],
    configs: Sequence[Config],
    *,
    key: Mapping[str, str] | None = None,
    saved: Saved | None = None,
    time: Callable[[Callable[[], Any], int], Timing] | None = None,
) -> Tuned:
    """The configuration with which `run(config)` is fastest.

    With a `key` (see saved.key_of) the result is kept between runs, and taken from there while
    the configurations are the same. `time(call, trials)` is how a call is timed: by `benchmark`.
    Raises InputError without configurations, if none of them runs, or if one breaks CUDA: after
    that none would run, however good.
    """
    configs = list(configs)
    if not configs:
        raise InputError("there are no configurations to choose from")
    store = (saved or Saved()) if key else None
    known = _known(store, key, configs)
    if known:
        return known
    found = _Halving(run, time or _timed).best(configs)
    if store and key:
        store.put(key, _entry(found, configs))
    return found


def _timed(call: Callable[[], Any], trials: int) -> Timing:
    return benchmark(call, 1, trials)


class _Halving:
    def __init__(
        self, run: Callable[[Config], Any], time: Callable[[Callable[[], Any], int], Timing]
    ) -> None:
        self._run, self._time = run, time

    def best(self, configs: Sequence[Config]) -> Tuned:
        tried = [Tried(config, None, 0) for config in configs]
        left, trials = list(range(len(configs))), _FIRST_TRIALS
        while True:
            left = self._round(tried, left, trials)
            if len(left) <= 1 or trials >= _MOST_TRIALS:
                break
            left, trials = self._halved(tried, left, trials), trials * 2
        if not left:
            raise self._none_runs(tried)
        winner = tried[left[0]]
        for i in left[1:]:
            tried[i] = replace(tried[i], dropped="slower in the last round")
        return Tuned(winner.config, _time_of(winner), tuple(tried))

    def _none_runs(self, tried: list[Tried]) -> InputError:
        """Those that were dropped as slow might have run; what is said is why the best did not."""
        said = next((each.dropped for each in tried if each.median_ns is None), "no time")
        what = f"none of {len(tried)} configurations runs: {said}"
        return InputError(what, "give one that fits this GPU")

    def _round(self, tried: list[Tried], left: list[int], trials: int) -> list[int]:
        """Time those that are left; they come back fastest first."""
        best = math.inf
        for i in left:
            tried[i] = self._measured(tried[i], trials, best)
            best = min(best, math.inf if tried[i].dropped else _time_of(tried[i]))
        return sorted((i for i in left if not tried[i].dropped), key=lambda i: _time_of(tried[i]))

    def _measured(self, each: Tried, trials: int, best: float) -> Tried:
        try:
            return self._timed(each, partial(self._run, each.config), trials, best)
        except Exception as error:
            if broke_cuda(in_words(error)):
                raise broken_by(f"the configuration {each.config}", error) from error
            return Tried(each.config, None, each.trials, in_words(error))

    def _timed(self, each: Tried, call: Callable[[], Any], trials: int, best: float) -> Tried:
        once, calls = self._time(call, 1).median_ns, 1
        if once > _TOO_SLOW * best > 0:
            once, calls = min(once, *self._time(call, _MORE_CALLS).samples_ns), 1 + _MORE_CALLS
        if once > _TOO_SLOW * best > 0:
            said = f"its first calls took {once / best:.1f} times the best median or more"
            return Tried(each.config, once, each.trials + calls, said)
        return Tried(each.config, self._time(call, trials).median_ns, each.trials + trials + calls)

    def _halved(self, tried: list[Tried], left: list[int], trials: int) -> list[int]:
        keep = math.ceil(len(left) / 2)
        for i in left[keep:]:
            tried[i] = replace(tried[i], dropped=f"in the slower half after {trials} trials")
        return left[:keep]


def _time_of(each: Tried) -> float:
    """Infinite without one, and where a clock gives what is no number."""
    median = each.median_ns
    return median if median is not None and median >= 0 else math.inf


def _entry(found: Tuned, configs: Sequence[Config]) -> dict[str, Any]:
    place = next(i for i, config in enumerate(configs) if config is found.config)
    return {"configs": _texts(configs), "best": place, "median_ns": found.median_ns}


def _known(
    store: Saved | None, key: Mapping[str, str] | None, configs: Sequence[Config]
) -> Tuned | None:
    """What was saved, if it chose among the same configurations."""
    entry = store.get(key) if store and key else None
    if not entry or entry.get("configs") != _texts(configs):
        return None
    best, median = entry.get("best"), entry.get("median_ns")
    if not isinstance(best, int) or not 0 <= best < len(configs):
        return None
    if not isinstance(median, int | float) or not 0 < median < math.inf:
        return None
    return Tuned(configs[best], float(median), (), saved=True)


def _texts(configs: Sequence[Config]) -> list[str]:
    return [repr(sorted((str(name), repr(value)) for name, value in c.items())) for c in configs]
