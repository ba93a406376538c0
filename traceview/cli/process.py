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
        handled = [each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN]
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
    try:
        with _interrupts_to_the_pager():
            status = _run(_command(), text)
    except (OSError, ValueError):  # not found, or an unclosed quote in $PAGER
        return False
    if status in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt
    return status != _NOT_FOUND


def _command() -> list[str]:
    """The pager's command line; a $PAGER with shell syntax runs in sh, as in git and man."""
    named = os.environ.get("PAGER", "").strip()
    if _SHELL_SIGNS & set(named):
        return ["sh", "-c", named]
    from shutil import which

    installed = next((each for each in ("less", "more") if which(each)), "less")
    # Without sh in between, which ends on Ctrl-C although less goes on.
    return shlex.split(named) if named else [installed]


def _run(command: list[str], text: bytes) -> int:
    """Pipe the text into the pager and return its exit status."""
    from subprocess import PIPE, Popen

    pager = Popen(command, stdin=PIPE, env=_environment())  # noqa: S603
    try:
        pager.communicate(text)
    except BrokenPipeError:
        pager.wait()
    return pager.returncode


def _environment() -> dict[str, str]:
    """The environment with $LESS set so that less shows colours, not escape codes."""
    options = os.environ.get("LESS")
    return {**os.environ, "LESS": f"{options} -R" if options else "FRX"}


@contextmanager
def _interrupts_to_the_pager() -> Iterator[None]:
    """Leave Ctrl-C to the pager, which may go on: `less` stops a search with it."""
    handler = signal.signal(signal.SIGINT, _ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _ignore(*_: object) -> None:
    """Do nothing. Unlike SIG_IGN, a handler is not passed on to the pager."""
