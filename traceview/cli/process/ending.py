"""Signals that end the command: an orderly exit, so that no half output stays behind.

Python's own SIGTERM ends the process without running a single `finally`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal that asks the process to end."""


@dataclass
class EndingSignals:
    """The first signal that asked the process to end; None so far."""

    number: int | None = None

    @property
    def status(self) -> int | None:
        """128 + n after signal n."""
        return None if self.number is None else 128 + self.number

    def take(self, number: int, _: FrameType | None) -> None:
        # Only the first raises: a second would interrupt what the first began to tidy up.
        if self.number is not None:
            return
        self.number = number
        raise Ended


@contextmanager
def orderly_end() -> Iterator[EndingSignals]:
    """Raise Ended in the block when a signal asks the process to end.

    Signals that are ignored, as under nohup, stay ignored. Code between the signal and the end of
    the block may turn Ended into another exception, as SQLite does with those of a callback: the
    signal is in what the block yields. Outside the main thread nothing is handled.
    """
    signals = EndingSignals()
    handled = []
    if threading.current_thread() is threading.main_thread():
        handled = [each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.take) for number in handled}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
