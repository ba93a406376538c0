"""Names of rows: each once, and those in use alone become text."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.tables import Texts, object_array
from traceview.traces.timeline.tracks import RowNames

texts = st.lists(st.none() | st.sampled_from(["a", "b", "", "c" * 5_000]), max_size=9)


def column(drawn):
    """A column of these texts, with values that no row uses."""
    plain = Texts.of(drawn)
    return Texts(plain.codes + (plain.codes >= 0), object_array(["unused", *plain.values, "x"]))


def shown(text):
    return text if len(text or "") < 4_000 else f"{text[:2_000]}…{text[-2_000:]}"


@given(texts, texts, st.data())
def test_every_row_has_its_name_and_class(first, second, data):
    classes = data.draw(st.lists(st.integers(0, 3), min_size=len(second), max_size=len(second)))
    launch = np.arange(len(second)) % 2
    names = RowNames()
    rows = [
        names.add(column(first), 7),
        names.add(column(second), np.array(classes, np.int64), column(second), launch),
    ]
    table = names.table(rows)
    expected = [
        *((shown(text) or "", 7, "", -1) for text in first),
        *zip(
            map(shown, (text or "" for text in second)),
            classes,
            map(shown, (t or "" for t in second)),
            launch.tolist(),
            strict=True,
        ),
    ]
    numbers = table.place[np.concatenate(rows)].tolist()
    columns = (table.texts(), table.classes.tolist(), table.whole, table.launch.tolist())
    assert [tuple(each[number] for each in columns) for number in numbers] == expected
    assert len(table) == len(set(numbers))
    assert [names.text(number) for row in rows for number in row.tolist()] == [
        e[0] for e in expected
    ]
    assert names.classes[np.concatenate(rows)].tolist() == [each[1] for each in expected]


def test_names_of_no_row_are_left_out():
    names = RowNames()
    row = names.add(Texts.of(["a", "b", "c"]), 1)
    assert names.table([row[1:2]]).texts() == ["b"]
    assert names.table([]).texts() == []
