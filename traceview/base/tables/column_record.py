"""Records whose fields are columns of equal length."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from traceview.base.tables.arrays import Array
from traceview.base.tables.texts import rows_of


class ColumnRecord:
    """Base of records with a row per entry of their fields, which are columns."""

    def __len__(self) -> int:
        columns: Any = self
        return len(getattr(self, fields(columns)[0].name))

    def take(self, rows: Array) -> Self:
        """The rows of an index array or a mask."""
        columns: Any = self
        return type(self)(*(rows_of(getattr(self, f.name), rows) for f in fields(columns)))
