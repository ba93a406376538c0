"""Sentences with parts that depend on their figures."""

import pytest

from traceview.base.findings import Clause, sentence

TEXT = "{calls:copy|copies} {calls?takes|take} {total_ns}[ at {rate}][; {site} is {size} away]."


@pytest.mark.parametrize(
    ("values", "template"),
    [
        ({"calls": 1}, "{calls:copy|copies} takes {total_ns}."),
        ({"calls": 2, "rate": 3}, "{calls:copy|copies} take {total_ns} at {rate}."),
        ({"calls": 0, "rate": 0}, "{calls:copy|copies} take {total_ns}."),
        # All that a part names must be known.
        ({"calls": 2, "site": "a.py:1", "size": None}, "{calls:copy|copies} take {total_ns}."),
    ],
)
def test_a_sentence_leaves_out_what_is_unknown(values, template):
    assert sentence(TEXT, values) == template


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ({"total_ns": 100, "line_ns": 2, "site": "a.py:1"}, True),
        ({"total_ns": 100, "line_ns": 1, "site": "a.py:1"}, False),
        ({"total_ns": 100, "line_ns": 2, "site": None}, False),
        ({"total_ns": 100, "site": "a.py:1"}, False),
    ],
)
def test_a_clause_carries_its_condition(values, holds):
    assert Clause(" {line_ns} of that was at {site}.", least=0.02).holds(values) is holds


def test_a_clause_without_a_least_part_needs_its_figures():
    assert Clause(" It was at {site}.").holds({"site": "a.py:1"})
    assert not Clause(" It was at {site}.").holds({})


@pytest.mark.parametrize(
    ("line_ns", "template"),
    [
        (100_000, "All of it was slow."),
        (99_990, "Nearly all of it was slow."),
        (50_000, "{line_ns} of that was slow."),
    ],
)
def test_a_part_of_a_time_is_named_by_how_much_it_is(line_ns, template):
    values = {"line_ns": line_ns, "idle_ns": 100_000}
    assert sentence("{line_ns/idle_ns} was slow.", values) == template
