"""Stages of long work, reported to listeners: the command line shows them on the terminal.

Code deep inside a package reports its progress without knowing who listens; by default nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Listener = Callable[[str, float | None], None]
"""Called with the stage and its percentage (0 to 100), None where that is not known."""

_Item = TypeVar("_Item")
_listener: ContextVar[Listener | None] = ContextVar("stage_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report the stages of the work within the block, on this thread, to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def stage(name: str, done: int = 0, whole: int = 0) -> None:
    """Report that the work is at this stage, with `done` of `whole` complete."""
    if listener := _listener.get():
        listener(name, 100.0 * min(done, whole) / whole if whole else None)


def in_stage(name: str, items: Collection[_Item]) -> Iterator[_Item]:
    """Yield the items; report before each how many of them are complete."""
    for done, item in enumerate(items):
        stage(name, done, len(items))
        yield item
