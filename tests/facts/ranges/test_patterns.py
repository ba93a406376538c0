"""Which ranges a text means, and the text that means one alone."""

import numpy as np

from tests.build import Export
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.ranges.selection import matching_ranges, selecting_texts


def chosen(trace, text):
    """(start, ...) of the ranges that are meant."""
    return range_tree(trace).nesting.start[matching_ranges(trace, text)].tolist()


def looped():
    export = Export().range("a", 0, 100).range("step_0", 10, 20).range("only [1]", 30, 40)
    for place in range(3):
        export.range("step_0", 1000 - 100 * place, 1010 - 100 * place, thread=place)
    return export.range("only 1", 2000, 2010)


def test_a_name_a_path_a_glob(tmp_path):
    trace = looped().load(tmp_path)

    assert sorted(chosen(trace, "step_0")) == [10, 800, 900, 1000]
    assert chosen(trace, "a/step_0") == [10]
    assert sorted(chosen(trace, "step_?")) == [10, 800, 900, 1000]
    assert sorted(chosen(trace, "a*")) == [0, 10, 30]
    assert not chosen(trace, "b")


def test_a_name_with_the_characters_of_a_glob_means_itself(tmp_path):
    trace = looped().load(tmp_path)

    assert chosen(trace, "only [1]") == [30]
    assert chosen(trace, "only [1-3]") == [2000]


def test_a_count_means_one_of_a_path_in_order_of_time(tmp_path):
    trace = looped().load(tmp_path)

    # That of a/step_0 is another path.
    assert [chosen(trace, f"step_0 ({n})") for n in (1, 2, 3)] == [[800], [900], [1000]]
    assert not chosen(trace, "step_0 (4)")
    assert not chosen(trace, "step_0 (0)")
    assert chosen(trace, "a/step_0 (1)") == [10]


def test_a_range_that_is_named_so_goes_before_a_count(tmp_path):
    export = Export().range("x", 0, 1).range("x", 5, 6).range("x (1)", 10, 20)
    trace = export.load(tmp_path)

    assert chosen(trace, "x (1)") == [10]
    assert chosen(trace, "x (2)") == [5]


def test_each_range_has_a_text_that_means_it_alone(tmp_path):
    trace = looped().load(tmp_path)
    every = np.arange(len(range_tree(trace).row))

    texts = selecting_texts(trace, every).some(np.arange(len(every))).tolist()

    assert len(set(texts)) == len(every)
    assert "a/step_0" in texts
    assert "step_0 (2)" in texts
    assert "only [1]" in texts
    for row, text in zip(every, texts, strict=True):
        assert np.flatnonzero(matching_ranges(trace, text)).tolist() == [row]


def test_without_ranges(tmp_path):
    trace = Export().launch((0, 1), (2, 3)).load(tmp_path)

    assert not len(matching_ranges(trace, "step_0"))
    assert not len(selecting_texts(trace, np.zeros(0, np.int64)))
