"""A table as recorded, with columns computed from other tables when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from traceview.base.tables.arrays import Array
from traceview.base.tables.table import Column, RowOrder, Share, Table
from traceview.base.tables.texts import Texts, rows_of

Columns = Mapping[str, Array | Texts]


class JoinedTable(Table):
    """The columns of `recorded`, behind those that `more` declares and `compute` returns."""

    __slots__ = ("_recorded",)

    def __init__(
        self, recorded: Table, more: Sequence[Column], compute: Callable[[], Columns]
    ) -> None:
        self._recorded = recorded
        self.columns = (*more, *recorded.columns)
        self._data = _Computed(recorded, more, compute)

    def take(self, rows: Array) -> Table:
        computed = self._data
        assert isinstance(computed, _Computed)
        return JoinedTable(
            self._recorded.take(rows),
            computed.more,
            lambda: {column.name: rows_of(computed[column.name], rows) for column in computed.more},
        )

    def in_order(self, order: RowOrder, columns: Sequence[Column] = (), **shares: Share) -> Table:
        return self._recorded.in_order(order, columns, **shares)

    def with_columns(self, **replaced: Array | Texts) -> Table:
        return self._recorded.with_columns(**replaced)


class _Computed(Mapping[str, Array | Texts]):
    def __init__(
        self, recorded: Table, more: Sequence[Column], compute: Callable[[], Columns]
    ) -> None:
        self.more = tuple(more)
        self._recorded = recorded._data
        self._compute = compute
        self._computed: Columns = {}

    def __getitem__(self, name: str) -> Array | Texts:
        if name in self._recorded:
            return self._recorded[name]
        if not self._computed:
            self._computed = self._compute()
        return self._computed[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._recorded
        yield from (column.name for column in self.more)

    def __len__(self) -> int:
        return len(self._recorded) + len(self.more)
