"""The process that the command line runs in: its standard streams, its end, and the pager."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

# Detect a stdout or stderr that the caller closed (>&-), so that lost output is an error.


class _Nowhere(io.FileIO):
    """The null device, opened so that it takes the closed descriptor before another file does."""

    def __init__(self) -> None:
        super().__init__(os.devnull, "w")
        self.has_lost = False

    def write(self, data: Any) -> int:
        self.has_lost = True
        return super().write(data)


@contextmanager
def standard_streams_open() -> Iterator[None]:
    """Keep a stdout and a stderr open within the block, even where Python has none."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                raw: Any = io.BufferedWriter(_Nowhere())
                text = stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8"))
                setattr(sys, name, text)
                stack.callback(setattr, sys, name, None)
        yield


def stdout_is_closed() -> bool:
    """Whether stdout is closed, so that nothing printed arrives."""
    return _stdout() is not None


def is_lost() -> bool:
    """Whether flushed output was lost to a closed stdout."""
    stdout = _stdout()
    return stdout is not None and stdout.has_lost


def _stdout() -> _Nowhere | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Nowhere) else None


# Signals that end the command: an orderly exit, so that no half output stays behind.
#
# Python's own SIGTERM ends the process without running a single `finally`.

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
        handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.take) for number in handled}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The pager of a terminal: $PAGER, else less, else more.

_NOT_FOUND = 127  # what a shell exits with if there is no such command
_SHELL_SIGNS = frozenset("|&;<>()$`=*?~#")


def show_in_pager(text: bytes) -> bool:
    """Show text, which may hold colours, in the pager of the terminal; False if there is none.

    Quitting before the end is not an error. Raises KeyboardInterrupt if Ctrl-C ended the pager.
    """
    from shutil import which
    from subprocess import PIPE, Popen

    named = os.environ.get("PAGER", "").strip()
    less = os.environ.get("LESS")
    # So that less shows colours, not escape codes.
    environment = {**os.environ, "LESS": f"{less} -R" if less else "FRX"}
    # Ctrl-C is left to the pager, which may go on: `less` stops a search with it. Unlike SIG_IGN, a
    # handler is not passed on to the pager.
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        if _SHELL_SIGNS & set(named):
            # As in git and man.
            command = ["sh", "-c", named]
        elif named:
            # Without sh in between, which ends on Ctrl-C although less goes on.
            command = shlex.split(named)
        else:
            command = [next((name for name in ("less", "more") if which(name)), "less")]
        pager = Popen(command, stdin=PIPE, env=environment)  # noqa: S603
        try:
            pager.communicate(text)
        except BrokenPipeError:
            pager.wait()
    except (OSError, ValueError):  # not found, or an unclosed quote in $PAGER
        return False
    finally:
        signal.signal(signal.SIGINT, handler)
    if pager.returncode in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt
    return pager.returncode != _NOT_FOUND
