"""Python's garbage collection, put off where it would take time and find nothing.

Importing and a report make a hundred thousand objects that stay: looking for cycles among them
again and again takes a tenth of the time of a report, and once more at the exit as much as reading
a small trace.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection within the block, which should not last for hours."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def skip_at_exit() -> None:
    """Freeze all objects, so that no collection visits them when the process exits."""
    gc.freeze()
