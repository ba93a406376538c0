"""A block size for a kernel, chosen from the size, the data type, and what was measured before.

Where nothing was measured, a rule: 16 bytes a thread in one load, four warps, no more than there
are elements, and small enough that there are blocks for every SM. Then the neighbours, half and
double, are tried in turn until both are slower: each call of `choose` names the next one to try
until that is so, and the best from then on. Times are kept between runs, for each GPU, versions,
operation, size class and type.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from traceview.bench.machine import Machine, this_machine
from traceview.bench.saved import Entry, Saved, key_of
from traceview.bench.timing import benchmark
from traceview.errors import InputError

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
_LOAD_BYTES, _THREADS = 16, 128
_MOST_TIMES, _ENOUGH = 16, 3
_BITS = {"8": 1, "16": 2, "32": 4, "64": 8}


class BlockSizes:
    """Block sizes of one operation. `candidates` are powers of two, in ascending order."""

    def __init__(
        self,
        operation: str,
        candidates: Sequence[int] = CANDIDATES,
        *,
        saved: Saved | None = None,
        machine: Machine | None = None,
    ) -> None:
        if not candidates:
            raise InputError(f"{operation} has no block sizes to choose from")
        self._operation, self._candidates = operation, sorted(candidates)
        self._saved, self._machine = saved or Saved(), machine or this_machine()

    def choose(self, size: int, dtype: str) -> int:
        """The block size to take now: the next one to try, or the best once that is known."""
        history = self._history(size, dtype)
        return self._untried(history, size, dtype) or self._best(history) or self._rule(size, dtype)

    def is_settled(self, size: int, dtype: str) -> bool:
        """True once no neighbour of the best is left to try."""
        return self._untried(self._history(size, dtype), size, dtype) is None

    def record(self, size: int, dtype: str, block: int, time_ns: float) -> None:
        """Keep a time that was measured with that block size."""
        if block not in self._candidates or not time_ns > 0:
            raise InputError(f"a block of {block} in {time_ns} ns", "record one of the candidates")

        def added(entry: Entry | None) -> Entry:
            times = _times(entry)
            times.setdefault(str(block), []).append(float(time_ns))
            return {"times": {name: each[-_MOST_TIMES:] for name, each in times.items()}}

        self._saved.update(self._key(size, dtype), added)

    def tune(self, run: Callable[[int], Any], size: int, dtype: str, trials: int = 10) -> int:
        """Time `run(block)` until it is settled; the best block size.

        A block size that fails counts as slower than any other.
        """
        while (block := self._untried(self._history(size, dtype), size, dtype)) is not None:
            self.record(size, dtype, block, _time(run, block, trials))
        return self.choose(size, dtype)

    def _key(self, size: int, dtype: str) -> Any:
        return key_of("block-size", self._operation, size, dtype, self._machine)

    def _history(self, size: int, dtype: str) -> dict[int, list[float]]:
        times = _times(self._saved.get(self._key(size, dtype)))
        return {block: times[str(block)] for block in self._candidates if times.get(str(block))}

    def _best(self, history: dict[int, list[float]]) -> int | None:
        if not history:
            return None
        return min(history, key=lambda block: statistics.median(history[block]))

    def _untried(self, history: dict[int, list[float]], size: int, dtype: str) -> int | None:
        """The rule's choice first, then the neighbours of the best, until it has times enough."""
        best = self._best(history)
        if best is None:
            return self._rule(size, dtype)
        place = self._candidates.index(best)
        around = self._candidates[max(place - 1, 0) : place + 2]
        tired = [block for block in around if len(history.get(block, ())) < _ENOUGH]
        # The least known first: one slow measurement must not settle it.
        return min(tired, key=lambda block: len(history.get(block, ())), default=None)

    def _rule(self, size: int, dtype: str) -> int:
        wanted = _LOAD_BYTES // _bytes_of(dtype) * _THREADS
        wanted = min(wanted, max(size // max(self._machine.sm_count or 1, 1), 1))
        fitting = [block for block in self._candidates if block <= wanted]
        return fitting[-1] if fitting else self._candidates[0]


def _time(run: Callable[[int], Any], block: int, trials: int) -> float:
    try:
        return benchmark(lambda: run(block), 1, trials).median_ns
    except Exception:
        return 1e18


def _times(entry: Entry | None) -> dict[str, list[float]]:
    """The times of an entry, whatever is in it."""
    said = entry.get("times") if entry else None
    if not isinstance(said, dict):
        return {}
    return {
        str(name): [float(each) for each in listed if isinstance(each, int | float) and each > 0]
        for name, listed in said.items()
        if isinstance(listed, list)
    }


def _bytes_of(dtype: str) -> int:
    """Of float32, int8, float8_e4m3fn …"""
    digits = dtype.removeprefix("bfloat").removeprefix("float").removeprefix("uint")
    digits = digits.removeprefix("int").partition("_")[0]
    return _BITS.get(digits, 4)
