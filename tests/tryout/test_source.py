"""Edits of source texts: applied in memory and written as diffs."""

import ast
import subprocess

import pytest

from traceview.trials.remedies import BY_NAME, SourceEdit, deferred_reads
from traceview.trials.remedies.deferred_reads import REMEDY
from traceview.trials.tryout.patch import patch_of
from traceview.trials.tryout.planned import Planned
from traceview.trials.tryout.runs import Program
from traceview.trials.tryout.source import (
    diff,
    edited,
    keyword_edits,
    line_edits,
    read_source,
    removal,
)
from traceview.trials.tryout.verdict import Trial


def end_of(text, callee):
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    ends = [(c.end_lineno, c.end_col_offset) for c in calls if ast.unparse(c.func) == callee]
    return ends[0]


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
    result = edited(text, keyword_edits(text, end_of(text, callee), callee, keywords))
    assert result == f"import x\n{after}\n"
    ast.parse(result)


def test_a_call_that_is_not_there_gets_none():
    assert keyword_edits("load(3)\n", (1, 7), "DataLoader", {"a": 1}) is None
    assert keyword_edits("Adam(x for x in y)\n", (1, 18), "Adam", {"a": 1}) is None
    assert keyword_edits("DataLoader(3)\n\n", (2, 0), "DataLoader", {"a": 1}) is None


def test_of_calls_in_one_line_the_one_that_ends_there_gets_keywords():
    text = "f(x.to(d), y.to(d)).to(e)\n"
    ends = [(1, 9), (1, 18), (1, 25)]
    edits = [edit for end in ends[1:] for edit in keyword_edits(text, end, "to", {"b": 1})]
    assert edited(text, edits) == "f(x.to(d), y.to(d, b=1)).to(e, b=1)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os\nimport torch\nfrom x import (\n    y,\n)\n", "main()\n"),
        ("import torch  # first\n", "main()\n"),
        ('"""Trains."""\nfrom __future__ import annotations\n\nimport torch\n', "main()\n"),
        ("import os; import torch; x = (\n    1)\n", "main()\n"),
        ("import os\nos.environ['A'] = '1'\nimport torch.nn\n", "main()\nimport later\n"),
    ],
)
def test_a_statement_goes_behind_the_imports(before, after):
    text = before + after
    result = edited(text, line_edits(text, "torch.f()"))
    assert result == f"{before}\ntorch.f()\n{after}"
    ast.parse(result)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""Trains."""\nfrom __future__ import annotations\n', "main()\n"),
        ("import torch.nn as nn\nfrom torch import optim\n", "import_all()\nimport x\n"),
        ('"""Trains."""\n', "main()\n"),
        ("#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n", "@a\n@b\ndef f(): pass\n"),
        ("", "main()\n"),
    ],
)
def test_torch_is_imported_where_it_is_not(before, after):
    text = before + after
    twice = [edit for name in ("f", "g") for edit in line_edits(text, f"torch.{name}()")]
    result = edited(text, dict.fromkeys(twice))
    assert result.startswith(f"{before}import torch\n\ntorch.f()\n\ntorch.g()\n")
    assert result.endswith(after)
    compile(result, "train.py", "exec")


def test_a_module_under_another_name_is_used_by_it():
    assert edited("import torch as t\n", line_edits("import torch as t\n", "torch.f()")) == (
        "import torch as t\n\nt.f()\n"
    )


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["x = DataLoader(d)", "x = DataLoader(d)\n"])
def test_a_diff_is_applied_by_git(tmp_path, monkeypatch, end, last):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    text = f"# -*- coding: latin-1 -*-\nimport torch\n# é\x0c\n{last}".replace("\n", end)
    file.write_bytes(text.encode("latin-1"))
    assert read_source(file) == text
    plain = text.replace("latin-1", "utf-8").replace("é", "e")
    file.write_bytes(plain.encode())
    edits = line_edits(plain, "torch.f()")
    edits += keyword_edits(plain, end_of(plain, "DataLoader"), "DataLoader", {"a": 1})
    after = edited(plain, edits)
    (tmp_path / "out.diff").write_bytes(diff("train.py", plain, after).encode())
    subprocess.run(["git", "apply", "out.diff"], check=True)
    assert file.read_bytes().decode() == after


def test_a_call_alone_is_removed():
    text = "if x:\n    torch.cuda.empty_cache()\ny = empty_cache()\n"
    assert edited(text, removal(text, (2, 28), "empty_cache")) == text.replace(
        "torch.cuda.empty_cache()\ny", "pass\ny"
    )
    assert removal(text, (3, 17), "empty_cache") is None


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


@pytest.mark.parametrize(
    "two", [SourceEdit(1, 0, 1, 2, "yy"), SourceEdit(1, 1, 1, 3, "xx"), SourceEdit(1, 1, 1, 1, "x")]
)
def test_edits_that_overlap_are_refused(two):
    one = SourceEdit(1, 0, 1, 2, "xx")
    with pytest.raises(ValueError, match=r"overlap|different"):
        edited("abc\n", [one, two])
    assert edited("abc\n", [one, one]) == "xxc\n"


KEPT = [
    ("num_workers", {"num_workers": 4, "persistent_workers": True}),
    ("pin_memory", {"pin_memory": True}),
    ("non_blocking", {"num_workers": 2}),
]


@pytest.mark.parametrize(
    ("call", "after"),
    [
        (
            "DataLoader(\n    ds,\n    batch_size=4,\n)",
            "DataLoader(\n    ds,\n    batch_size=4, {}\n)",
        ),
        ("DataLoader()", "DataLoader({})"),
        ("DataLoader(ds)", "DataLoader(ds, {})"),
        ("DataLoader(ds, num_workers=0)", "DataLoader(ds, num_workers=4, {})"),
    ],
)
def test_remedies_of_one_call_share_an_edit_and_one_that_contradicts_is_by_hand(
    call, after, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_text(f"x = {call}\n")
    end = end_of(file.read_text(), "DataLoader")
    trials = [
        Trial(
            Planned(name, (BY_NAME[name],)),
            "keep",
            sites=((name, str(file), 1, end, "DataLoader", keywords),),
        )
        for name, keywords in KEPT
    ]
    made = patch_of(Program.of(["train.py"]), trials)
    (tmp_path / "out.diff").write_text(made.diff)
    subprocess.run(["git", "apply", "out.diff"], check=True)
    new = "persistent_workers=True, pin_memory=True"
    new = new if "num_workers" in call else f"num_workers=4, {new}"
    assert file.read_text() == f"x = {after.format(new)}\n"
    assert [name for name, _ in made.by_hand] == ["non_blocking"]


def test_a_call_with_unknown_options_is_left_alone():
    """They may hold the keyword, which would then be given twice."""
    assert keyword_edits("u.DataLoader(d, **more)", (1, 23), "DataLoader", {"a": True}) is None


def test_sums_that_are_kept_stay_numbers():
    """A tensor that is added to changes in every list that it was put into."""
    loop = "t = 0.0\nfor x in data:\n    t += x.item()\n    {}\n"
    for read in (
        *("seen.append(t)", "print(json.dumps({'loss': t / 9}))", "f'{t:d}'", "f'{t:>{w}}'"),
        *("f'{t!r}'", "f'{max(t, 1)}'", "print(max(t, 1))", "print([t])", "print('%d' % t)"),
        *("str(t)", "float(t if t else 1)", "f'{t:,}'"),
    ):
        assert REMEDY.rewrites(loop.replace("{}", read)) == [], read
    for read in (
        *("print(f'{t / 2:.2f}')", "print(t, -t / len(data))", "f'{float(t):d}'", "f'{t}'"),
        *("f'{t:8.3}'", "log.write(f'{100 * t:.1%}')"),
    ):
        assert len(REMEDY.rewrites(loop.replace("{}", read))) == 1, read


@pytest.mark.parametrize("count", ["(p.argmax(1) == y).sum()", "p.eq(y).sum()", "eq(p, y).sum()"])
def test_counts_stay_integers(count):
    assert REMEDY.rewrites(f"for x in data:\n    n += {count}.item()\nprint(n)\n") == []
