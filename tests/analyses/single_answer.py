"""Ask one analysis of a built export, and read the answer as plain rows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.build import Export
from traceview.traces.analyses.base import Analysis, Result
from traceview.traces.trace import Selection


def ask(analysis: Analysis, export: Export, folder: Path, **selection: tuple[str, ...]) -> Result:
    """The result of an analysis; `include` and `exclude` restrict it to ranges."""
    with TemporaryDirectory(dir=folder) as own:
        trace = export.load(Path(own)).but(selection=Selection(**selection))
    outcome = analysis.run(trace)
    assert isinstance(outcome, Result)
    return outcome


def rows(result: Result, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """The named columns of one table, a tuple a row."""
    return [tuple(row[name] for name in columns) for row in result.tables[table].rows()]
