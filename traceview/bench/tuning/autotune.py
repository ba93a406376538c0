"""Find the fastest of several configurations without timing the slow ones for long.

Successive halving: time every remaining configuration for a few trials, drop the slower half, and
time the rest twice as long. In addition, drop a configuration at once if each of its first three
calls takes three times the best median so far. One such call may be noise; three are not.
n configurations take about 2 × 3 × n trials this way instead of 30 × n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from traceview.bench.loading import broke_cuda, broken_cuda_error, error_line
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.bench.tuning.cache import TuningCache
from traceview.errors import InputError
from traceview.records import record

Config = Mapping[str, Any]
_FIRST_TRIALS, _MOST_TRIALS, _TOO_SLOW_FACTOR, _MORE_CALLS = 3, 48, 3.0, 2


@record
class Candidate:
    """One configuration: its median in the last round it was in, None if it did not run.

    `dropped` says why it was not timed to the end; None for the best.
    """

    config: Config
    median_ns: float | None
    trials: int
    dropped: str | None = None


@record
class TuningResult:
    """The best configuration, and all candidates. `cached` if it came from the tuning cache."""

    config: Config
    median_ns: float
    candidates: tuple[Candidate, ...]
    cached: bool = False

    @property
    def trials(self) -> int:
        """Number of trials over all candidates."""
        return sum(candidate.trials for candidate in self.candidates)


def autotune(
    run: Callable[[Config], Any],
    configs: Sequence[Config],
    *,
    key: Mapping[str, str] | None = None,
    cache: TuningCache | None = None,
    time: Callable[[Callable[[], Any], int], Timing] | None = None,
) -> TuningResult:
    """Find the configuration with which `run(config)` is fastest.

    With a `key` (see cache_key) the result is kept between runs and reused as long as the
    configurations are the same. `time(call, trials)` times a call; the default is `benchmark`.
    Raises InputError without configurations, if none of them runs, or if one breaks CUDA, after
    which none would run.
    """
    configs = list(configs)
    if not configs:
        raise InputError("there are no configurations to choose from")
    store = (cache or TuningCache()) if key else None
    cached = _cached(store, key, configs)
    if cached:
        return cached
    result = _Halving(run, time or _time).best(configs)
    if store and key:
        store.put(key, _entry(result, configs))
    return result


def _time(call: Callable[[], Any], trials: int) -> Timing:
    return benchmark(call, 1, trials)


class _Halving:
    """Successive halving. `remaining` holds indices into `candidates`."""

    def __init__(
        self, run: Callable[[Config], Any], time: Callable[[Callable[[], Any], int], Timing]
    ) -> None:
        self._run, self._time = run, time

    def best(self, configs: Sequence[Config]) -> TuningResult:
        candidates = [Candidate(config, None, 0) for config in configs]
        remaining, trials = list(range(len(configs))), _FIRST_TRIALS
        while True:
            remaining = self._round(candidates, remaining, trials)
            if len(remaining) <= 1 or trials >= _MOST_TRIALS:
                break
            remaining, trials = self._halve(candidates, remaining, trials), trials * 2
        if not remaining:
            why = next((each.dropped for each in candidates if each.median_ns is None), "no time")
            what = f"none of {len(candidates)} configurations runs: {why}"
            raise InputError(what, "pass one that fits this GPU")
        winner = candidates[remaining[0]]
        for i in remaining[1:]:
            candidates[i] = replace(candidates[i], dropped="slower in the last round")
        return TuningResult(winner.config, _median(winner), tuple(candidates))

    def _round(self, candidates: list[Candidate], remaining: list[int], trials: int) -> list[int]:
        """Time the remaining candidates; returns those that ran, fastest first."""
        best = math.inf
        for i in remaining:
            candidates[i] = self._measure(candidates[i], trials, best)
            best = min(best, math.inf if candidates[i].dropped else _median(candidates[i]))
        running = (i for i in remaining if not candidates[i].dropped)
        return sorted(running, key=lambda i: _median(candidates[i]))

    def _measure(self, candidate: Candidate, trials: int, best: float) -> Candidate:
        try:
            return self._timed(candidate, partial(self._run, candidate.config), trials, best)
        except Exception as error:
            if broke_cuda(error_line(error)):
                what = f"the configuration {candidate.config}"
                raise broken_cuda_error(what, error) from error
            return Candidate(candidate.config, None, candidate.trials, error_line(error))

    def _timed(
        self, candidate: Candidate, call: Callable[[], Any], trials: int, best: float
    ) -> Candidate:
        config = candidate.config
        first_ns, calls = self._time(call, 1).median_ns, 1
        if first_ns > _TOO_SLOW_FACTOR * best > 0:
            first_ns = min(first_ns, *self._time(call, _MORE_CALLS).samples_ns)
            calls += _MORE_CALLS
        if first_ns > _TOO_SLOW_FACTOR * best > 0:
            why = f"its first calls took at least {first_ns / best:.1f} times the best median"
            return Candidate(config, first_ns, candidate.trials + calls, why)
        median_ns = self._time(call, trials).median_ns
        return Candidate(config, median_ns, candidate.trials + trials + calls)

    def _halve(self, candidates: list[Candidate], remaining: list[int], trials: int) -> list[int]:
        keep = math.ceil(len(remaining) / 2)
        for i in remaining[keep:]:
            why = f"in the slower half after {trials} trials"
            candidates[i] = replace(candidates[i], dropped=why)
        return remaining[:keep]


def _median(candidate: Candidate) -> float:
    """The median of a candidate; infinite without one, or if the clock gave no number."""
    median = candidate.median_ns
    return median if median is not None and median >= 0 else math.inf


def _entry(result: TuningResult, configs: Sequence[Config]) -> dict[str, Any]:
    best = next(i for i, config in enumerate(configs) if config is result.config)
    return {"configs": _texts(configs), "best": best, "median_ns": result.median_ns}


def _cached(
    store: TuningCache | None, key: Mapping[str, str] | None, configs: Sequence[Config]
) -> TuningResult | None:
    """The cached result, if it was chosen from the same configurations."""
    entry = store.get(key) if store and key else None
    if not entry or entry.get("configs") != _texts(configs):
        return None
    best, median = entry.get("best"), entry.get("median_ns")
    if not isinstance(best, int) or not 0 <= best < len(configs):
        return None
    if not isinstance(median, int | float) or not 0 < median < math.inf:
        return None
    return TuningResult(configs[best], float(median), (), cached=True)


def _texts(configs: Sequence[Config]) -> list[str]:
    return [repr(sorted((str(name), repr(value)) for name, value in c.items())) for c in configs]
