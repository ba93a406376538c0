"""Open a database with sqlite-utils, to add tables to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database


def export_database(path: Path) -> Database:
    """Open an export of nsys, or a trace of ours. Raises sqlite3.Error if it is damaged."""
    return _imported()(path)


@cache
def _imported() -> type[Database]:
    # Imported late: it takes 0.1 s, which reading a trace should not pay.
    with _without_pandas():
        from sqlite_utils import Database
    return Database


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep sqlite-utils from importing pandas, which takes 0.4 s, just for its timestamps.

    Does nothing if either is imported already or other threads might import them. Afterwards
    sqlite-utils leaves sys.modules again, so that a later import of it is complete.
    """
    if {"pandas", "sqlite_utils"} & sys.modules.keys() or threading.active_count() > 1:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]
        for name in [each for each in sys.modules if each.partition(".")[0] == "sqlite_utils"]:
            del sys.modules[name]
