"""Python's search for cycles of garbage, of which a command leaves next to none.

Importing and a report make a hundred thousand objects that stay: looking through them again and
again takes a tenth of the time of a report, and once more at the exit as much as reading a small
trace.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search() -> Iterator[None]:
    """No search within the block. For the work of one command, not for what runs for hours."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def leave_to_the_exit() -> None:
    """Let all objects go with the process, without a last search through them."""
    gc.freeze()
