"""A block size for a kernel, chosen from the size, the data type, and what was measured before.

Where nothing was measured, a rule: 16 bytes a thread in one load, four warps, no more than there
are elements, and small enough that there are blocks for every SM. Then the neighbours, half and
double, are tried in turn until both are slower: each call of `choose` names the next one to try
until that is so, and the best from then on. Times are kept between runs, for each GPU, versions,
operation, size class and type; where they cannot be, for as long as the BlockSizes live.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from traceview.bench.loading import broke_cuda, broken_by, in_words
from traceview.bench.machine import Machine, this_machine
from traceview.bench.timing.measurement import benchmark
from traceview.bench.tuning.cache import Entry, Saved, key_of
from traceview.errors import InputError

CANDIDATES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
_LOAD_BYTES, _THREADS = 16, 128
_MOST_TIMES, _ENOUGH = 16, 3
_FAILED_NS = 1e18
"""What earlier versions saved for a block size that failed."""
_Class = tuple[int, str]
_BITS = re.compile(r"^[a-z]+([0-9]+)")
"""Of a type's name; that of bool, which has none, is 8."""


class BlockSizes:
    """Block sizes of one operation. `candidates` are powers of two, in ascending order.

    With the `source` of the kernel, times hold until that is changed: see `key_of`.
    """

    def __init__(
        self,
        operation: str,
        candidates: Sequence[int] = CANDIDATES,
        *,
        saved: Saved | None = None,
        machine: Machine | None = None,
        source: str = "",
    ) -> None:
        if not candidates:
            raise InputError(f"{operation} has no block sizes to choose from")
        self._operation, self._source = operation, source
        self._candidates = sorted(candidates)
        self._saved, self._machine = saved or Saved(), machine or this_machine()
        self._own: dict[_Class, dict[int, list[float]]] = {}
        self._failed: dict[_Class, dict[int, Exception]] = {}

    def choose(self, size: int, dtype: str) -> int:
        """The block size to take now: the next one to try, or the best once that is known."""
        untried = self._untried(size, dtype)
        return untried or self._best(size, dtype) or self._rule(self._candidates, size, dtype)

    def is_settled(self, size: int, dtype: str) -> bool:
        """True once no neighbour of the best is left to try."""
        return self._untried(size, dtype) is None

    def record(self, size: int, dtype: str, block: int, time_ns: float) -> None:
        """Keep a time that was measured with that block size."""
        if block not in self._candidates or not 0 < time_ns < _FAILED_NS:
            raise InputError(f"a block of {block} in {time_ns} ns", "record one of the candidates")

        def added(entry: Entry | None) -> Entry:
            times = _times(entry)
            times.setdefault(str(block), []).append(float(time_ns))
            return {"times": {name: each[-_MOST_TIMES:] for name, each in times.items()}}

        own = self._own.setdefault(_class_of(size, dtype), {}).setdefault(block, [])
        own[:] = [*own, float(time_ns)][-_MOST_TIMES:]
        self._saved.update(self._key(size, dtype), added)

    def tune(self, run: Callable[[int], Any], size: int, dtype: str, trials: int = 10) -> int:
        """Time `run(block)` until it is settled; the best block size.

        One that fails is left out, and tried anew by the next call: nothing of it is saved.
        Raises InputError with the first error if no block size runs, or if one breaks CUDA.
        """
        failed: dict[int, Exception] = {}
        self._failed[_class_of(size, dtype)] = failed
        ran = False
        while block := self._untried(size, dtype) or self._unproven(failed, ran, size, dtype):
            try:
                took_ns = benchmark(partial(run, block), 1, trials).median_ns
            except Exception as error:
                if broke_cuda(in_words(error)):
                    raise broken_by(f"{self._operation} with a block of {block}", error) from error
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
        """The best of earlier runs, where all that was tried now failed: it may be `run` itself."""
        return self._best(size, dtype) if failed and not ran else None

    def _none_runs(self, failed: Mapping[int, Exception]) -> InputError:
        block, error = next(iter(failed.items()))
        what = f"{self._operation} runs with no block size: with {block} {in_words(error)}"
        raised = InputError(what, "mend it, or give other candidates")
        raised.__cause__ = error
        return raised

    def _key(self, size: int, dtype: str) -> Any:
        named = ("block-size", self._operation, size, dtype, self._machine)
        return key_of(*named, source=self._source)

    def _history(self, size: int, dtype: str) -> dict[int, list[float]]:
        """Times by block size; where a folder keeps nothing, those of this object."""
        saved = _times(self._saved.get(self._key(size, dtype)))
        own = self._own.get(_class_of(size, dtype), {})
        known = {b: max(saved.get(str(b), []), own.get(b, []), key=len) for b in self._candidates}
        failed = self._failed.get(_class_of(size, dtype), {})
        return {block: times for block, times in known.items() if times and block not in failed}

    def _best(self, size: int, dtype: str) -> int | None:
        history = self._history(size, dtype)
        return min(history, key=lambda block: statistics.median(history[block]), default=None)

    def _untried(self, size: int, dtype: str) -> int | None:
        """The rule's choice first, then the neighbours of the best, until it has times enough.

        What fails is no neighbour: those beyond it are.
        """
        failed = self._failed.get(_class_of(size, dtype), {})
        running = [block for block in self._candidates if block not in failed]
        history, best = self._history(size, dtype), self._best(size, dtype)
        if best is None:
            return self._rule(running, size, dtype) if running else None
        place = running.index(best)
        around = running[max(place - 1, 0) : place + 2]
        tired = [block for block in around if len(history.get(block, ())) < _ENOUGH]
        # The least known first: one slow measurement must not settle it.
        return min(tired, key=lambda block: len(history.get(block, ())), default=None)

    def _rule(self, candidates: Sequence[int], size: int, dtype: str) -> int:
        wanted = _LOAD_BYTES // _bytes_of(dtype) * _THREADS
        wanted = min(wanted, max(size // max(self._machine.sm_count or 1, 1), 1))
        fitting = [block for block in candidates if block <= wanted]
        return fitting[-1] if fitting else candidates[0]


def _class_of(size: int, dtype: str) -> _Class:
    """What times hold for, as `key_of` has it."""
    return max(size, 1).bit_length() - 1, dtype


def _times(entry: Entry | None) -> dict[str, list[float]]:
    """The times of an entry, whatever is in it."""
    said = entry.get("times") if entry else None
    if not isinstance(said, dict):
        return {}
    return {
        str(name): [float(each) for each in listed if _is_time(each)]
        for name, listed in said.items()
        if isinstance(listed, list)
    }


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < _FAILED_NS


def _bytes_of(dtype: str) -> int:
    """Of float32, int8, float8_e4m3fn, complex64 …"""
    bits = _BITS.search(dtype)
    return max(int(bits[1]) // 8, 1) if bits else 1
