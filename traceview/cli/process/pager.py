"""The pager of a terminal: $PAGER, else less, else more."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager

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
