"""The work of a server: a few computations at once, each once for all that ask for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock, Semaphore
from typing import Generic, TypeVar

from traceview.errors import InputError

_AT_ONCE = 2
"""Each may hold a recording in memory, and uses more than one core itself."""
_MOST_CALLS = 16
"""Fewer than the 40 threads in which the SDK runs calls: some are left for what is cached."""
_KEPT = 2

Result = TypeVar("Result")


class Work(Generic[Result]):
    """Computations by key. A call waits for those of its own key alone; the latest are kept."""

    def __init__(
        self, at_once: int = _AT_ONCE, most_calls: int = _MOST_CALLS, kept: int = _KEPT
    ) -> None:
        self._slots = Semaphore(at_once)
        self._most_calls, self._most_kept = most_calls, kept
        self._lock = Lock()
        self._calls = 0
        self._running: dict[Hashable, Future[Result]] = {}
        self._kept: OrderedDict[Hashable, Result] = OrderedDict()

    def result(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The kept result, that of the computation under way, or a new one.

        Raises what the computation raises, and InputError if too many calls wait already.
        """
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            if self._calls >= self._most_calls:
                raise InputError(
                    f"the server is busy: {self._calls} calls wait for recordings to be read",
                    "call again when one of them has been answered",
                )
            self._calls += 1
            running = self._running.get(key)
            mine = self._running.setdefault(key, Future())
        try:
            return running.result() if running else self._computed(key, mine, compute)
        finally:
            with self._lock:
                self._calls -= 1

    def _computed(
        self, key: Hashable, mine: Future[Result], compute: Callable[[], Result]
    ) -> Result:
        try:
            with self._slots:
                result = compute()
        except BaseException as error:
            with self._lock:
                del self._running[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._running[key]
            self._kept[key] = result
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        mine.set_result(result)
        return result
