"""Typed columns: what goes in comes out, and nothing else gets in."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base import groups
from traceview.base.errors import ToolNotFoundError
from traceview.base.records import record
from traceview.base.tables import (
    NULL,
    Column,
    ColumnRecord,
    Integers,
    Share,
    Table,
    Texts,
    column_list,
    null_of,
    object_array,
    unbroken,
)
from traceview.base.tables import table as tables
from traceview.base.tables.texts import MadeTexts

COUNT = Column("calls", "int64", "times it ran")
DEVICE = Column("device", "int32", "GPU", nullable=True)
SHARE = Column("share_pct", "float64", "of all", nullable=True)
NAME = Column("name", "text", "its name")
COLUMNS = (NAME, COUNT, DEVICE, SHARE)
ROWS = [
    {"name": "a", "calls": 1, "device": 0, "share_pct": 0.5},
    {"name": "b", "calls": 2**62 + 1, "device": None, "share_pct": None},
    {"name": "a", "calls": -3, "device": 7, "share_pct": 99.5},
]
TEXTS = st.lists(st.none() | st.sampled_from(["", "a", "b", "\x00", "a\n"]), max_size=12)


@pytest.fixture
def table():
    return Table.from_rows(COLUMNS, ROWS)


def test_rows_come_back_as_they_went_in(table):
    assert list(table.rows()) == ROWS
    assert len(table) == 3


def test_columns_are_declared_in_lines():
    assert column_list("""
        calls int64: times it ran
        device int32?: GPU, or
            the last one
        why sentence?: what: and how
    """) == (
        COUNT,
        Column("device", "int32", "GPU, or the last one", nullable=True),
        Column("why", "text", "what: and how", nullable=True, prose=True),
    )


@record
class Sites(ColumnRecord):
    """Two columns."""

    line: Integers
    file: Texts


@pytest.mark.parametrize("rows", [[2, 0], np.array([False, True, True])])
def test_rows_of_a_record_of_columns(rows):
    sites = Sites(np.array([4, 5, 6]), Texts.of(["a", None, "b"]))

    chosen = sites.take(np.array(rows))

    assert (len(sites), len(chosen)) == (3, 2)
    assert chosen.line.tolist() == sites.line[np.array(rows)].tolist()
    assert [*chosen.file.decode()] == [*sites.file.decode()[np.array(rows)]]


def test_a_declared_dtype_exists():
    with pytest.raises(ValueError, match="int46"):
        column_list("calls int46: times it ran")


def test_columns_have_the_declared_types(table):
    assert table["calls"].dtype == np.int64
    assert table["device"].dtype == np.int32
    assert table["device"][1] == null_of(np.dtype(np.int32))
    assert np.isnan(table["share_pct"][1])


def test_rows_are_taken_by_index_and_by_mask(table):
    assert list(table.take(np.array([2, 0])).rows()) == [ROWS[2], ROWS[0]]
    assert list(table.take(np.array([False, True, False])).rows()) == [ROWS[1]]
    assert list(table.take(np.zeros(0, np.int64)).rows()) == []


def test_absent_values_are_told_apart_from_zero(table):
    assert table.is_null("device").tolist() == [False, True, False]
    assert table.is_null("share_pct").tolist() == [False, True, False]
    assert not table.is_null("calls").any()


def test_a_table_in_order_is_that_of_the_rows_taken(table):
    order = groups.MostFirst(np.array([5, 9, 7]))
    ordered, taken = table.in_order(order), table.take(np.array([1, 2, 0]))
    assert len(ordered) == len(taken)
    for few in ([0], [1, 0], [2, 0], []):
        rows = np.array(few, np.int64)
        assert list(ordered.take(rows).rows()) == list(taken.take(rows).rows())
        assert ordered.total("calls", rows) == taken.total("calls", rows)
        assert ordered.total("share_pct", rows) == taken.total("share_pct", rows)
    assert list(ordered.rows()) == list(taken.rows())
    every = np.ones(len(table), bool)
    assert list(ordered.take(every).rows()) == list(taken.rows())


def test_a_share_is_computed_when_it_is_read(table):
    columns = [*COLUMNS, Column("calls_pct", "float64", "percentage of all calls")]
    calls = sum(row["calls"] for row in ROWS)
    order = groups.MostFirst(np.array([5, 9, 7]))
    ordered = table.in_order(order, columns, calls_pct=Share("calls", calls))
    expected = [100.0 * ROWS[row]["calls"] / calls for row in (1, 2, 0)]
    assert ordered["calls_pct"].tolist() == expected
    assert ordered.take(np.array([2, 0]))["calls_pct"].tolist() == [expected[2], expected[0]]
    assert ordered.total("calls_pct", np.array([0])) == pytest.approx(sum(expected[1:]))


def test_of_a_table_in_order_only_what_is_read_is_put_in_order(table, monkeypatch):
    put_in_order = []
    monkeypatch.setattr(tables, "rows_of", lambda values, rows: put_in_order.append(rows) or values)
    ordered = table.in_order(groups.MostFirst(np.arange(len(table))))
    assert put_in_order == []
    assert len(ordered["calls"]) == len(ordered) == len(table)
    assert len(put_in_order) == 1


def test_an_empty_table_has_its_columns():
    empty = Table.empty(COLUMNS)
    assert len(empty) == 0
    assert list(empty.rows()) == []
    assert empty["calls"].dtype == np.int64
    assert empty.texts("name").decode().tolist() == []


def test_a_column_is_replaced_in_a_copy(table):
    other = table.with_columns(calls=np.array([7, 8, 9]))
    assert other["calls"].tolist() == [7, 8, 9]
    assert table["calls"].tolist() == [row["calls"] for row in ROWS]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"name": ["a"]}, "calls"),
        ({"name": ["a"], "calls": [1], "more": [1]}, "more"),
        ({"name": ["a", "b"], "calls": [1]}, "length"),
        ({"name": ["a"], "calls": np.array([1.0])}, "float64"),
        ({"name": ["a"], "calls": np.array([1], np.int32)}, "int32"),
        ({"name": ["a"], "calls": [None]}, "not nullable"),
        ({"name": ["a"], "calls": Texts.of(["a"])}, "holds text"),
    ],
    ids=["missing", "undeclared", "lengths", "floats", "narrow", "absent", "text"],
)
def test_what_was_not_declared_is_refused(data, said):
    with pytest.raises(TypeError, match=said):
        Table((NAME, COUNT), data)


def test_columns_are_arrays_and_text_is_also_there_as_codes(table):
    assert list(table) == [column.name for column in table.columns]
    assert table["name"].tolist() == ["a", "b", "a"]
    assert list(table.texts("name").decode()) == ["a", "b", "a"]
    assert table.head(2)["calls"].tolist() == table["calls"][:2].tolist()
    with pytest.raises(TypeError, match="not text"):
        table.texts("calls")


def test_a_frame_keeps_large_integers_and_absent_ones_exact(table):
    frame = table.to_pandas()
    assert list(frame["name"]) == ["a", "b", "a"]
    assert frame["calls"].tolist() == [row["calls"] for row in ROWS]
    assert str(frame["device"].dtype) == "Int64"
    assert frame["device"].isna().tolist() == [False, True, False]


def test_without_pandas_the_error_says_how_to_get_it(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ToolNotFoundError, match=r"needs pandas; .* pip install pandas"):
        table.to_pandas()


@given(TEXTS)
def test_texts_decode_to_what_they_were_made_of(texts):
    made = Texts.of(texts)
    assert made.decode().tolist() == texts
    assert [made[row] for row in range(len(made))] == texts
    assert len(set(made.values)) == len(made.values)


@given(TEXTS, st.sets(st.sampled_from(["", "a", "b", "c"])))
def test_texts_are_looked_for(texts, wanted):
    assert Texts.of(texts).isin(wanted).tolist() == [text in wanted for text in texts]


@given(TEXTS)
def test_texts_are_mapped_by_distinct_value(texts):
    made = Texts.of(texts)
    mapped = made.map([None if value == "a" else value.strip() for value in made.values])
    assert mapped.decode().tolist() == [
        None if text in (None, "a") else text.strip() for text in texts
    ]


def test_texts_may_share_values_that_no_row_uses():
    shared = object_array(["unused", "used"])
    texts = Texts(np.array([1, -1], np.int32), shared)
    assert texts.decode().tolist() == ["used", None]
    assert texts.take(np.array([1])).decode().tolist() == [None]


def test_the_absent_number_is_the_least():
    assert np.iinfo(np.int64).min == NULL


def test_texts_are_made_when_they_are_looked_at():
    made = []
    texts = Texts(
        np.array([1, 0, -1], np.int32), lambda: made.append(1) or object_array(["a", "b"])
    )
    part = texts.take(np.array([True, False, True]))
    assert not made
    assert part.decode().tolist() == ["b", None]
    assert [texts[row] for row in range(3)] == ["b", "a", None]
    # The part and the whole each asked once.
    assert len(made) == 2


@pytest.mark.parametrize(("rows", "at"), [([3], slice(3, 4)), ([2, 3, 4], slice(2, 5))])
def test_rows_of_which_none_is_left_out_are_a_slice(rows, at):
    assert unbroken(np.array(rows, np.int32)) == at


@pytest.mark.parametrize("rows", [[], [2, 4]])
def test_other_rows_stay_as_they_are(rows):
    given = np.array(rows, np.int32)
    assert unbroken(given) is given


def test_of_few_rows_only_their_texts_are_built():
    def some(codes):
        assert len(codes) < 4, "all texts are built"
        return np.array([f"text {code}" for code in codes.tolist()], object)

    column = MadeTexts(np.array([7, -1, 5, 7], np.int32), 1_000_000, some)
    assert column.decode().tolist() == ["text 7", None, "text 5", "text 7"]
    assert column.take(np.array([2, 1])).decode().tolist() == ["text 5", None]


def test_arrow_has_what_pandas_has(table):
    """Text that is absent or shared with other columns, too; numbers are not copied."""
    polars = pytest.importorskip("polars")
    shared = Texts(np.array([3, -1, 1], np.int32), np.array(["w", "x", "y", "z"], object))
    data = {name: table._data[name] for name in table} | {"name": shared}
    for asked in (table, Table(table.columns, data), table.take(np.array([], int))):
        arrow = asked.to_arrow()
        assert [dict(row) for row in arrow.to_pylist()] == list(asked.rows())
        assert polars.DataFrame(asked).rows(named=True) == list(asked.rows())
        assert asked.to_pandas().astype(object).where(lambda frame: frame.notna(), None).to_dict(
            "records"
        ) == list(asked.rows())
    address = table.to_arrow()["calls"].chunk(0).buffers()[1].address
    assert address == table["calls"].ctypes.data
