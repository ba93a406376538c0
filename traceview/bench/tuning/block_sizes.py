"""Choose a block size for a kernel by size and data type, from earlier measurements.

Without measurements a rule decides: 16 bytes per thread in one load, four warps, no more than there
are elements, and small enough to give every SM a block. Then the neighbours, half and double, are
tried in turn until both are slower. Until then each call of `choose` returns the next one to try,
afterwards the best. Times are kept between runs per GPU, versions, operation, size class and data
type; if they cannot be, for as long as the BlockSizes object lives.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from traceview.bench.loading import broke_cuda, broken_cuda_error, error_line
from traceview.bench.machine import Machine, this_machine
from traceview.bench.timing.measurement import benchmark
from traceview.bench.tuning.cache import Entry, TuningCache, cache_key
from traceview.errors import InputError

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
_LOAD_BYTES, _THREADS = 16, 128
_MOST_TIMES, _ENOUGH_TIMES = 16, 3
_FAILED_NS = 1e18
"""What earlier versions stored for a block size that failed."""
_Class = tuple[int, str]
_BITS = re.compile(r"^[a-z]+([0-9]+)")
"""The number of bits in the name of a data type; bool, which has none, takes 8."""


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
        self._own: dict[_Class, dict[int, list[float]]] = {}
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
            return {"times": {name: each[-_MOST_TIMES:] for name, each in times.items()}}

        own = self._own.setdefault(_class_of(size, dtype), {}).setdefault(block, [])
        own[:] = [*own, float(time_ns)][-_MOST_TIMES:]
        self._cache.update(self._key(size, dtype), added)

    def tune(self, run: Callable[[int], Any], size: int, dtype: str, trials: int = 10) -> int:
        """Time `run(block)` until the best block size is settled, and return that.

        A block size that fails is skipped and tried again by the next call; failures are not
        stored. Raises InputError with the first error if none runs, or if one breaks CUDA.
        """
        failed: dict[int, Exception] = {}
        self._failed[_class_of(size, dtype)] = failed
        ran = False
        while block := self._untried(size, dtype) or self._unproven(failed, ran, size, dtype):
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
            raise self._none_runs(failed)
        return best

    def _unproven(
        self, failed: Mapping[int, Exception], ran: bool, size: int, dtype: str
    ) -> int | None:
        """The best of earlier runs if every candidate fails now: `run` itself may be at fault."""
        return self._best(size, dtype) if failed and not ran else None

    def _none_runs(self, failed: Mapping[int, Exception]) -> InputError:
        block, error = next(iter(failed.items()))
        what = (
            f"{self._operation} fails with every block size; with {block} it raised "
            f"{error_line(error)}"
        )
        raised = InputError(what, "fix it, or pass other candidates")
        raised.__cause__ = error
        return raised

    def _key(self, size: int, dtype: str) -> Any:
        return cache_key(
            "block-size", self._operation, size, dtype, self._machine, source=self._source
        )

    def _history(self, size: int, dtype: str) -> dict[int, list[float]]:
        """Times by block size: the stored ones, or those of this object if there are more."""
        stored = _times(self._cache.get(self._key(size, dtype)))
        own = self._own.get(_class_of(size, dtype), {})
        known = {b: max(stored.get(str(b), []), own.get(b, []), key=len) for b in self._candidates}
        failed = self._failed.get(_class_of(size, dtype), {})
        return {block: times for block, times in known.items() if times and block not in failed}

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
        full_loads = _LOAD_BYTES // _bytes_of(dtype) * _THREADS
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
    if not isinstance(stored, dict):
        return {}
    return {
        str(name): [float(each) for each in listed if _is_time(each)]
        for name, listed in stored.items()
        if isinstance(listed, list)
    }


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < _FAILED_NS


def _bytes_of(dtype: str) -> int:
    """Bytes per element of float32, int8, float8_e4m3fn, complex64 …"""
    bits = _BITS.search(dtype)
    return max(int(bits[1]) // 8, 1) if bits else 1
