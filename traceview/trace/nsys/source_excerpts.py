"""TRACEVIEW_SOURCE_EXCERPTS: lines of the program that `traceview record` stored in the trace."""

from __future__ import annotations

import numpy as np

from traceview.tables import Texts
from traceview.trace.nsys.rows import INT32, Staged
from traceview.trace.sqlite.file import Database

EXCERPTS_TABLE = "TRACEVIEW_SOURCE_EXCERPTS"
LINE_CHARACTERS = 200


def source_excerpts(database: Database) -> Staged | None:
    """The columns of the source_lines table; None if the trace has none.

    Raises sqlite3.Error if the table is damaged.
    """
    if EXCERPTS_TABLE not in database.tables:
        return None
    rows = [
        (file, line, text[:LINE_CHARACTERS])
        for file, line, text in database.lines(EXCERPTS_TABLE, ("file", "line", "text"))
        if isinstance(file, str) and isinstance(text, str)
        if isinstance(line, int) and 0 < line <= INT32.max
    ]
    return {
        "file": Texts.of(file for file, _, _ in rows),
        "line": np.array([line for _, line, _ in rows], np.int32),
        "text": Texts.of(text for _, _, text in rows),
    }
