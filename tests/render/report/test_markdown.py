"""Markdown: shows names as they are, without markup, mentions, references or links."""

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from tests.render.example_report import CONTROLS, HOSTILE, a_report
from traceview.render.base.safe_text import visible
from traceview.render.markdown import coded, escaped, render_markdown
from traceview.render.report.document import report_document

PARSER = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table"])
NAMES = (
    HOSTILE,
    CONTROLS,
    "# heading",
    "- item",
    "1. item",
    "1) item",
    "+ item",
    "=====",
    "a | b | c",
    "`code` ``more``",
    "[text](https://example.com) ![x](y)",
    "*a* _b_ ~~c~~ $x^2$ \\",
    "&lt;b&gt; &#64;",
    "void k<float, (int)4>(T1 *, T2 &)",
)


def text_of(markdown: str) -> str:
    html = PARSER.render(markdown)
    shown = re.sub(r"<!-- -->|</?p>", "", html).strip()
    assert not re.search(r"<(?!br)", shown), shown
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(entity, sign)
    return shown


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(name):
    assert text_of(escaped(name)) == visible(name).rstrip()


@pytest.mark.parametrize(
    "name", ["@octocat", "#12", "user/repo#12", "GH-12", "https://example.com"]
)
def test_nobody_is_notified_and_nothing_linked(name):
    """GitHub looks at the text between tags and comments."""
    parts = escaped(name).split("<!-- -->")
    assert len(parts) > 1
    assert not any(re.search(r"@\w|#\d|GH-\d|https?://", part) for part in parts)


@pytest.mark.parametrize(
    ("sentence", "markdown"),
    [
        ("a/b.py:90 in train, `x.item()`, waits", "`a/b.py:90` in train, `x.item()`, waits"),
        ("Use pin_memory=True: *all* of it", "Use `pin_memory=True`: \\*all\\* of it"),
        ("`a|b` @octocat #12", "`a|b` @<!-- -->octocat \\#<!-- -->12"),
    ],
)
def test_code_in_a_sentence_is_in_code_spans(sentence, markdown):
    assert coded(sentence) == markdown


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_with_any_name_is_text_and_code_alone(name):
    html = PARSER.render(coded(f"The kernel {name} runs `f('`')`"))
    assert set(re.findall(r"<(?!!)/?(\w+)", html)) <= {"p", "code"}


@pytest.mark.parametrize("name", [*NAMES, "x" * 10_000_000])
def test_a_report_with_hostile_names_keeps_its_form(name):
    report = a_report([name])
    report = replace(report, trace=replace(report.trace, path=name, warnings=(name,)))
    markdown = render_markdown(report_document(report))
    assert len(markdown) < 100_000
    plain = render_markdown(report_document(a_report(["gemm"])))
    html = re.sub(r"<!-- -->", "", PARSER.render(markdown))
    tags = re.findall(r"</?(\w+)", html)
    assert not {"script", "img", "a", "code_block"} & set(tags)
    assert markdown.count("<details>") == plain.count("<details>") == markdown.count("</details>")
    assert tags.count("table") == re.findall(r"</?(\w+)", PARSER.render(plain)).count("table")


def test_findings_above_info_are_numbered_and_the_others_folded():
    markdown = render_markdown(report_document(a_report()))
    assert re.findall(r"^(\d)\. \*\*(\w+)\*\*", markdown, re.MULTILINE) == [
        ("1", "high"),
        ("2", "medium"),
        ("3", "medium"),
        ("4", "low"),
    ]
    assert "<details><summary>1 note</summary>" in markdown
    assert "Not answered: the trace has no copies table" in markdown
