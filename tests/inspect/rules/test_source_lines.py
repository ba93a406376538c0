"""Lines of a finding in a sentence."""

import pytest

from traceview.base.findings import filled
from traceview.kernels.inspect.rules.engine import lines_in_message
from traceview.kernels.ptx.model import SourceLine


@pytest.mark.parametrize(
    ("lines", "leads", "said"),
    [
        ((1,), (), "a.py:1"),
        ((1, 2), (), "a.py:1 and a.py:2"),
        ((1, 2, 3), (), "a.py:1, a.py:2 and a.py:3"),
        ((1, 2, 3, 4), ("loads at ",) * 4, "loads at a.py:1, a.py:2, a.py:3 and 1 more line"),
        ((1, 2), ("loads at ", "stores at "), "loads at a.py:1 and stores at a.py:2"),
    ],
)
def test_lines_are_listed_as_a_sentence_lists_them(lines, leads, said):
    template, values = lines_in_message([SourceLine("a.py", line) for line in lines], leads)
    assert filled(template, values) == said
