"""Explanations follow from the declarations: no text is written twice."""

import pytest

from traceview.base.errors import InputError
from traceview.render.explanation import render_explanation
from traceview.traces.analyses import ALL
from traceview.traces.explanation import explained, explanations


@pytest.mark.parametrize("explanation", explanations(), ids=lambda each: each.name)
def test_an_explanation_is_whole(explanation):
    text = render_explanation(explanation, width=10_000)
    assert explanation.question in text
    assert explanation.method
    assert all(need.how_to_record in text for need in explanation.needs)
    columns = [column for spec in explanation.tables for column in spec.columns]
    assert all(column.name in text and column.meaning in text for column in columns)
    assert max(map(len, render_explanation(explanation, width=80).splitlines())) <= 80


def test_every_analysis_is_explained_and_a_typo_is_told():
    assert [each.name for each in explanations()] == [
        "verdict",
        "scoreboard",
        *(analysis.name for analysis in ALL),
    ]
    with pytest.raises(InputError, match="did you mean roofline"):
        explained("rofline")
