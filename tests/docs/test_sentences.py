"""The list of all sentences has those of every kind, and none that stumbles over itself."""

import re

import pytest

from tests.docs.sentences import in_report, sentences
from tests.recordings.reports import report_of

KINDS = {
    "finding": "The optimizer is not fused: {kernels:foreach kernel}",
    "remedy": "Use torch.compile, which fuses them.",
    "question": "How long did the GPU have nothing to do, and why?",
    "column": "busy_ns int64: union of kernels, copies",
    "error": "URLs are not read",
    "help of a command": "Run SCRIPT [ARGS...] under a profiler",
    "help of an option": "Print every table, not just one screen.",
    "tool of an agent": "Say which rank of a distributed job is late",
    "kernel": "Each thread spills {spill_bytes:byte}",
    "try": "waits for results",
    "page": "Savings may overlap.",
    "script of the page": "Too many rows. Zoom in, or select a shorter time.",
    "documentation": "Not modelled: kernels that slow each other down",
}
# A word twice, but for the column `text` of texts; words that stood for `compute` and `poison`.
STUMBLES = re.compile(r"\b(?!text )([a-z]{2,}) \1\b|\breckon|\bspoil")


@pytest.fixture(scope="module")
def listed():
    return [*sentences(("source", "pages", "docs"))]


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_of_each_kind_are_listed(kind, listed):
    assert any(KINDS[kind] in text for _, text in listed)


def test_no_sentence_says_a_word_twice(listed):
    said = [each for each in listed if not each[0].startswith("docs/")]

    assert [each for each in said if STUMBLES.search(each[1])] == []


def test_those_of_a_report_are_its_headline_findings_and_notes():
    report = report_of("mlp_sync")

    said = [*in_report(report)]

    assert report.verdict.text in said
    assert {each.finding.message for each in report.findings} <= {*said}
    assert "bytes and FLOP of the kernels in this trace are unknown" in said
