"""The fastest of several configurations: the search, and its results kept between runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError
from traceview.base.outputs import cache_folder, private_file, private_folder
from traceview.base.records import record
from traceview.trials.bench.measurement import Timing, benchmark
from traceview.trials.bench.operation import broke_cuda, broken_cuda_error, error_line
from traceview.trials.bench.plan import Machine, this_machine

# Tuning results kept between runs: a bounded folder of small JSON files.
#
# One file per key, in $XDG_CACHE_HOME/traceview/bench or ~/.cache/traceview/bench. A file is
# written whole and renamed into place, so that a reader sees either the old or the new one. An
# update holds a lock while it reads, changes and writes, so that processes do not lose each
# other's results.

MOST_FILES = 1_000
_LARGEST_BYTES = 1 << 20
Entry = dict[str, Any]


def cache_key(
    what: str,
    operation: str,
    size: int,
    dtype: str,
    machine: Machine | None = None,
    *,
    source: str = "",
) -> Mapping[str, str]:
    """The key of a result: valid for this GPU, these versions, this operation and size class.

    Sizes of the same power of two are one class: 2^20 to 2^21 − 1. `what` names the kind of result.
    With the `source` of the kernel, such as inspect.getsource(kernel.fn) of Triton's, the key
    changes when the kernel does.
    """
    machine = machine or this_machine()
    source_hash = {"source": hashlib.sha256(source.encode()).hexdigest()[:32]} if source else {}
    return {
        **source_hash,
        "what": what,
        "operation": operation,
        "size_class": str(max(size, 1).bit_length() - 1),
        "dtype": dtype,
        "gpu": machine.gpu or "cpu",
        "driver": machine.driver_version or "",
        "torch": machine.torch_version or "",
        "triton": machine.triton_version or "",
    }


class TuningCache:
    """The cache folder. If it cannot be written to, nothing is kept and no error is raised."""

    def __init__(self, folder: Path | None = None, most: int = MOST_FILES) -> None:
        try:
            self.folder = folder or cache_folder("bench")
        except OSError:
            self.folder = Path(os.devnull) / "traceview"
        self._most = most

    def get(self, key: Mapping[str, str]) -> Entry | None:
        """The entry under a key; None if there is none, or if it cannot be read."""
        try:
            with self._file(key).open("rb") as file:
                document = json.loads(file.read(_LARGEST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("key") != dict(key):
            return None
        entry = document.get("entry")
        return entry if isinstance(entry, dict) else None

    def put(self, key: Mapping[str, str], entry: Entry) -> None:
        """Store an entry, replacing any other."""
        self.update(key, lambda _: entry)

    def update(self, key: Mapping[str, str], change: Callable[[Entry | None], Entry]) -> Entry:
        """Store `change(entry)`, holding the lock; returns it."""
        try:
            with self._locked():
                entry = change(self.get(key))
                handle, name = tempfile.mkstemp(dir=self.folder, prefix=".part-")
                try:
                    with os.fdopen(handle, "w", encoding="utf-8") as file:
                        file.write(json.dumps({"key": dict(key), "entry": entry}))
                    Path(name).replace(self._file(key))
                except BaseException:
                    Path(name).unlink(missing_ok=True)
                    raise
                files = sorted(self.folder.glob("*.json"), key=_written_at, reverse=True)
                for old in files[self._most :]:
                    old.unlink(missing_ok=True)
                return entry
        except OSError:
            return change(None)

    def _file(self, key: Mapping[str, str]) -> Path:
        text = json.dumps(dict(key), sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_folder(self.folder.parent, self.folder.name)
        with (self.folder / "lock").open("a") as file:
            private_file(self.folder / "lock")
            try:
                import fcntl
            except ImportError:
                # Without locks a process may lose what another stored at the same moment.
                yield
                return
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _written_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


# Find the fastest of several configurations without timing the slow ones for long.
#
# Successive halving: time every remaining configuration for a few trials, drop the slower half,
# and time the rest twice as long. In addition, drop a configuration at once if each of its first
# three calls takes three times the best median so far. One such call may be noise; three are not.
# n configurations take about 2 × 3 × n trials this way instead of 30 × n.

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
    texts = [_text(config) for config in configs]
    store = (cache or TuningCache()) if key else None
    stored = (store.get(key) if store and key else None) or {}
    best, median = stored.get("best"), stored.get("median_ns")
    if (
        stored.get("configs") == texts
        and isinstance(best, int)
        and 0 <= best < len(configs)
        and isinstance(median, int | float)
        and 0 < median < math.inf
    ):
        return TuningResult(configs[best], float(median), (), cached=True)
    result = _fastest(run, configs, time or (lambda call, trials: benchmark(call, 1, trials)))
    if store and key:
        best = next(i for i, config in enumerate(configs) if config is result.config)
        store.put(key, {"configs": texts, "best": best, "median_ns": result.median_ns})
    return result


def _text(config: Config) -> str:
    return repr(sorted((str(name), repr(value)) for name, value in config.items()))


def _fastest(
    run: Callable[[Config], Any],
    configs: Sequence[Config],
    time: Callable[[Callable[[], Any], int], Timing],
) -> TuningResult:
    """Successive halving. `remaining` holds indices into `candidates`."""
    candidates = [Candidate(config, None, 0) for config in configs]
    remaining, trials = list(range(len(configs))), _FIRST_TRIALS
    while True:
        best = math.inf
        for i in remaining:
            candidates[i] = _measured(run, candidates[i], time, trials, best)
            best = min(best, math.inf if candidates[i].dropped else _median(candidates[i]))
        running = (i for i in remaining if not candidates[i].dropped)
        remaining = sorted(running, key=lambda i: _median(candidates[i]))
        if len(remaining) <= 1 or trials >= _MOST_TRIALS:
            break
        keep = math.ceil(len(remaining) / 2)
        for i in remaining[keep:]:
            why = f"in the slower half after {trials} trials"
            candidates[i] = replace(candidates[i], dropped=why)
        remaining, trials = remaining[:keep], trials * 2
    if not remaining:
        why = next((c.dropped or "" for c in candidates if c.median_ns is None), "no time")
        what = f"none of {len(candidates)} configurations runs: {why}"
        raise InputError(what, "pass one that fits this GPU")
    winner = candidates[remaining[0]]
    for i in remaining[1:]:
        candidates[i] = replace(candidates[i], dropped="slower in the last round")
    return TuningResult(winner.config, _median(winner), tuple(candidates))


def _measured(
    run: Callable[[Config], Any],
    candidate: Candidate,
    time: Callable[[Callable[[], Any], int], Timing],
    trials: int,
    best: float,
) -> Candidate:
    """The candidate timed for one round, or dropped: too slow at once, or with an error."""
    config, call = candidate.config, partial(run, candidate.config)
    try:
        first_ns, calls = time(call, 1).median_ns, 1
        if first_ns > _TOO_SLOW_FACTOR * best > 0:
            first_ns = min(first_ns, *time(call, _MORE_CALLS).samples_ns)
            calls += _MORE_CALLS
        if first_ns > _TOO_SLOW_FACTOR * best > 0:
            why = f"its first calls took at least {first_ns / best:.1f} times the best median"
            return Candidate(config, first_ns, candidate.trials + calls, why)
        median_ns = time(call, trials).median_ns
        return Candidate(config, median_ns, candidate.trials + trials + calls)
    except Exception as error:
        if broke_cuda(error_line(error)):
            raise broken_cuda_error(f"the configuration {config}", error) from error
        return Candidate(config, None, candidate.trials, error_line(error))


def _median(candidate: Candidate) -> float:
    """The median of a candidate; infinite without one, or if the clock gave no number."""
    median = candidate.median_ns
    return median if median is not None and median >= 0 else math.inf


# Choose a block size for a kernel by size and data type, from earlier measurements.
#
# Without measurements a rule decides: 16 bytes per thread in one load, four warps, no more than
# there are elements, and small enough to give every SM a block. Then the neighbours, half and
# double, are tried in turn until both are slower. Until then each call of `choose` returns the
# next one to try, afterwards the best. Times are kept between runs per GPU, versions, operation,
# size class and data type; if they cannot be, for as long as the BlockSizes object lives.

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
_LOAD_BYTES, _THREADS = 16, 128
_MOST_TIMES, _ENOUGH_TIMES = 16, 3
_FAILED_NS = 1e18
"""What earlier versions stored for a block size that failed."""
_Class = tuple[int, str]
_BITS = re.compile(r"^[a-z]+([0-9]+)")
"""The bits in the name of float32, int8, float8_e4m3fn, complex64 …; bool, without any, takes 8."""


class BlockSizes:
    """Block sizes of one operation. `candidates` are powers of two, in ascending order.

    With the `source` of the kernel, times are valid until it changes: see `cache_key`.
    """

    def __init__(
        self,
        operation: str,
        candidates: Sequence[int] = CANDIDATES,
        *,
        cache: TuningCache | None = None,
        machine: Machine | None = None,
        source: str = "",
    ) -> None:
        if not candidates:
            raise InputError(f"{operation} has no block sizes to choose from")
        self._operation, self._source = operation, source
        self._candidates = sorted(candidates)
        self._cache, self._machine = cache or TuningCache(), machine or this_machine()
        self._measured: dict[_Class, dict[int, list[float]]] = {}
        self._failed: dict[_Class, dict[int, Exception]] = {}

    def choose(self, size: int, dtype: str) -> int:
        """The block size to use now: the next one to try, or the best once it is settled."""
        untried = self._untried(size, dtype)
        return untried or self._best(size, dtype) or self._rule(self._candidates, size, dtype)

    def is_settled(self, size: int, dtype: str) -> bool:
        """Whether no neighbour of the best is left to try."""
        return self._untried(size, dtype) is None

    def record(self, size: int, dtype: str, block: int, time_ns: float) -> None:
        """Add a time measured with a block size; raises InputError if that is not a candidate."""
        if block not in self._candidates or not 0 < time_ns < _FAILED_NS:
            raise InputError(f"block size {block} in {time_ns} ns", "record one of the candidates")

        def added(entry: Entry | None) -> Entry:
            times = _times(entry)
            times.setdefault(str(block), []).append(float(time_ns))
            return {"times": {name: some[-_MOST_TIMES:] for name, some in times.items()}}

        here = self._measured.setdefault(_class_of(size, dtype), {}).setdefault(block, [])
        here[:] = [*here, float(time_ns)][-_MOST_TIMES:]
        self._cache.update(self._key(size, dtype), added)

    def tune(self, run: Callable[[int], Any], size: int, dtype: str, trials: int = 10) -> int:
        """Time `run(block)` until the best block size is settled, and return that.

        A block size that fails is skipped and tried again by the next call; failures are not
        stored. Raises InputError with the first error if none runs, or if one breaks CUDA.
        """
        failed: dict[int, Exception] = {}
        self._failed[_class_of(size, dtype)] = failed
        ran = False
        while True:
            block = self._untried(size, dtype)
            if block is None and failed and not ran:
                # The best of earlier runs if every candidate fails: `run` itself may be at fault.
                block = self._best(size, dtype)
            if block is None:
                break
            try:
                took_ns = benchmark(partial(run, block), 1, trials).median_ns
            except Exception as error:
                if broke_cuda(error_line(error)):
                    raise broken_cuda_error(
                        f"{self._operation} with block size {block}", error
                    ) from error
                failed[block] = error
            else:
                self.record(size, dtype, block, took_ns)
                ran = True
        best = self._best(size, dtype)
        if best is None:
            block, first = next(iter(failed.items()))
            what = f"{self._operation} fails with every block size; with {block} it raised "
            raise InputError(
                f"{what}{error_line(first)}", "fix it, or pass other candidates"
            ) from first
        return best

    def _key(self, size: int, dtype: str) -> Any:
        return cache_key(
            "block-size", self._operation, size, dtype, self._machine, source=self._source
        )

    def _history(self, size: int, dtype: str) -> dict[int, list[float]]:
        """Times by block size: the stored ones, or those of this object if there are more."""
        stored = _times(self._cache.get(self._key(size, dtype)))
        here = self._measured.get(_class_of(size, dtype), {})
        all_times = {
            block: max(stored.get(str(block), []), here.get(block, []), key=len)
            for block in self._candidates
        }
        failed = self._failed.get(_class_of(size, dtype), {})
        return {block: times for block, times in all_times.items() if times and block not in failed}

    def _best(self, size: int, dtype: str) -> int | None:
        history = self._history(size, dtype)
        return min(history, key=lambda block: statistics.median(history[block]), default=None)

    def _untried(self, size: int, dtype: str) -> int | None:
        """The rule's choice first, then the best and its neighbours until each has enough times.

        A block size that fails is skipped: the next one beyond it is the neighbour.
        """
        failed = self._failed.get(_class_of(size, dtype), {})
        running = [block for block in self._candidates if block not in failed]
        history, best = self._history(size, dtype), self._best(size, dtype)
        if best is None:
            return self._rule(running, size, dtype) if running else None
        i = running.index(best)
        around = running[max(i - 1, 0) : i + 2]
        unsettled = [block for block in around if len(history.get(block, ())) < _ENOUGH_TIMES]
        # Fewest times first: one slow measurement must not settle it.
        return min(unsettled, key=lambda block: len(history.get(block, ())), default=None)

    def _rule(self, candidates: Sequence[int], size: int, dtype: str) -> int:
        bits = _BITS.search(dtype)
        full_loads = _LOAD_BYTES // (max(int(bits[1]) // 8, 1) if bits else 1) * _THREADS
        elements_per_sm = max(size // max(self._machine.sm_count or 1, 1), 1)
        largest = min(full_loads, elements_per_sm)
        fitting = [block for block in candidates if block <= largest]
        return fitting[-1] if fitting else candidates[0]


def _class_of(size: int, dtype: str) -> _Class:
    """Size class and data type, as in `cache_key`."""
    return max(size, 1).bit_length() - 1, dtype


def _times(entry: Entry | None) -> dict[str, list[float]]:
    """The valid times in a cache entry, by block size."""
    stored = entry.get("times") if entry else None
    return {
        str(name): [float(t) for t in times if isinstance(t, int | float) and 0 < t < _FAILED_NS]
        for name, times in (stored.items() if isinstance(stored, dict) else ())
        if isinstance(times, list)
    }
