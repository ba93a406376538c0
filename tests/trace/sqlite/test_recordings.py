"""All columns of the shipped recordings as sqlite3 reads them, by the page decoder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SHIPPED
from tests.trace.sqlite.test_page_reader import through_sqlite, whole_columns
from traceview.base.tables import Texts
from traceview.traces.trace.sqlite.file import opened
from traceview.traces.trace.sqlite.row_reader import Columns


@pytest.mark.parametrize("name", SHIPPED)
def test_equals_sqlite_on_recordings(name: str, unpack: Callable[[str], Path]) -> None:
    with opened(unpack(name)) as database:
        for table in database.tables:
            kinds = whole_columns(database, table)
            assert_same(database.read(table, kinds), through_sqlite(database, table, kinds))


def assert_same(ours: Columns, theirs: Columns) -> None:
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found = ours[name]
        assert len(found) == len(expected), name
        if isinstance(expected, Texts):
            assert isinstance(found, Texts)
            assert list(found.decode()) == list(expected.decode()), name
        else:
            there = slice(None) if expected.null is None else ~expected.null
            absent = np.zeros(len(found), bool)
            null = [absent if each.null is None else each.null for each in (found, expected)]
            assert np.array_equal(*null), name
            assert np.array_equal(found.values[there], expected.values[there]), name
