"""Edits of source texts: applied in memory and written as diffs."""

import ast

import pytest

from traceview.remedies import SourceEdit, deferred_reads
from traceview.remedies.deferred_reads import REMEDY
from traceview.tryout.source import edited, keyword_edits, line_edit, removal


@pytest.mark.parametrize(
    ("call", "keywords", "after"),
    [
        ("DataLoader(data, 8)", {"num_workers": 2}, "DataLoader(data, 8, num_workers=2)"),
        ("DataLoader()", {"num_workers": 2}, "DataLoader(num_workers=2)"),
        ("DataLoader(data, num_workers=0)", {"num_workers": 2}, "DataLoader(data, num_workers=2)"),
        ("DataLoader(\n    data,\n)", {"a": 1}, "DataLoader(\n    data, a=1\n)"),
        ("DataLoader(f(x), b=(1, 2))", {"a": 1}, "DataLoader(f(x), b=(1, 2), a=1)"),
        ("é = DataLoader('é', 8)", {"a": "é"}, "é = DataLoader('é', 8, a='é')"),
        ("DataLoader((yield_))", {"a": 1}, "DataLoader((yield_), a=1)"),
        ("DataLoader((data))", {"a": 1}, "DataLoader((data), a=1)"),
        ("DataLoader(*(1, 2))", {"a": 1}, "DataLoader(*(1, 2), a=1)"),
        ("Adam(p, foreach=True)", {"b": 1, "foreach": None}, "Adam(p, foreach=None, b=1)"),
        ("DataLoader(  # all\n d # it\n)", {"a": 1}, "DataLoader(  # all\n d, a=1 # it\n)"),
        ("DataLoader('''é\nü''')", {"a": 1}, "DataLoader('''é\nü''', a=1)"),
    ],
)
def test_a_call_gets_keywords(call, keywords, after):
    callee = "Adam" if "Adam" in call else "DataLoader"
    text = f"import x\n{call}\n"
    result = edited(text, keyword_edits(text, 2, callee, keywords))
    assert result == f"import x\n{after}\n"
    ast.parse(result)


def test_a_call_that_is_not_there_gets_none():
    assert keyword_edits("load(3)\n", 1, "DataLoader", {"a": 1}) is None
    assert keyword_edits("Adam(x for x in y)\n", 1, "Adam", {"a": 1}) is None
    assert keyword_edits("DataLoader(3)\n\n", 2, "DataLoader", {"a": 1}) is None


def test_a_statement_goes_behind_the_imports():
    text = "import os\nimport torch\nfrom x import (\n    y,\n)\nmain()\n"
    assert edited(text, line_edit(text, "f()")) == text.replace(")\nmain", ")\n\nf()\nmain")
    assert line_edit("import torch as t\n", "f()") is None


def test_a_call_alone_is_removed():
    text = "if x:\n    torch.cuda.empty_cache()\ny = empty_cache()\n"
    assert edited(text, removal(text, 2, "empty_cache")) == text.replace(
        "torch.cuda.empty_cache()\ny", "pass\ny"
    )
    assert removal(text, 3, "empty_cache") is None


def test_reads_in_sums_of_loops_are_deferred():
    text = (
        "total = first.item()\n"
        "for x in data:\n"
        "    for y in x:\n"
        "        total += loss(y).item() * len(y)\n"
        "    seen += x.max().item(); best = x.item(); n -= x.item(); m += f(x.item())\n"
        "total += last.item()\n"
    )
    after = edited(text, deferred_reads.rewrites(text))
    assert after == text.replace("loss(y).item()", "loss(y).detach().double()").replace(
        "x.max().item()", "x.max().detach().double()"
    )


def test_edits_are_applied_from_the_end():
    assert (
        edited("abc\n", [SourceEdit(1, 0, 1, 1, "xx"), SourceEdit(1, 2, 1, 3, "yy")]) == "xxbyy\n"
    )


def test_a_call_with_unknown_options_is_left_alone():
    """They may hold the keyword, which would then be given twice."""
    assert keyword_edits("u.DataLoader(d, **more)", 1, "DataLoader", {"a": True}) is None


def test_sums_that_are_kept_stay_numbers():
    """A tensor that is added to changes in every list that it was put into."""
    kept = "t = 0.0\nfor x in data:\n    t += x.item()\n    seen.append(t)\n"
    printed = "t = 0.0\nfor x in data:\n    t += x.item()\n    print(f'{t / 2:.2f}')\n"
    assert REMEDY.rewrites(kept) == []
    assert len(REMEDY.rewrites(printed)) == 1
