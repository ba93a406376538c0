"""What every finding promises, checked on all shipped recordings.

A program reads the fields of a finding and never its sentences: so each number in a sentence is a
named value, and the row that shows it is in the tables.
"""

import re

import pytest

import traceview
from tests.conftest import SHIPPED
from traceview.base import units
from traceview.base.findings import SEVERITIES, SUBJECT_KINDS, field_names, filled

# Numbers that belong to a technical term, which may stand in a template as text.
TERMS = re.compile(
    r"""
    \b(GPU|CPU|rank|device|stream)\ \d+\b     # names made of a number
    | \b\d+(-|\ )bits?\b                      # widths of instructions and types
    | \bfloat4\ \(16\ bytes\)          # a type with its size
    | \bvectors\ of\ 16\ bytes         # the widest access
    | \b1D\b | \b2D\b | \b3D\b
    """,
    re.VERBOSE,
)
BARE_NUMBER = re.compile(r"(?<![\w.=/-])\d")
FIELD = re.compile(r"\{\w+(:[^{}]*)?\}")


@pytest.fixture(scope="module", params=SHIPPED)
def report(request, unpack):
    return traceview.analyze(traceview.load(unpack(request.param)))


@pytest.fixture(scope="module")
def findings(report):
    return report.findings


def test_the_row_that_shows_a_finding_is_in_its_table(report, findings):
    for each in findings:
        evidence = each.finding.evidence
        assert evidence.table, each
        assert evidence.row, each
        table = report[each.analysis].tables[evidence.table]
        columns = zip(*(table.cells(name) for name in evidence.row), strict=True)
        assert tuple(evidence.row.values()) in set(columns), each


def test_every_field_of_a_sentence_is_a_value(findings):
    for each in findings:
        for template in (each.finding.template, each.finding.remedy):
            assert set(field_names(template)) <= set(each.finding.evidence.values), each
            assert not re.search("[{}]", FIELD.sub("", template)), template


def test_no_number_is_written_into_a_sentence(findings):
    for each in findings:
        for template in (each.finding.template, each.finding.remedy):
            assert not BARE_NUMBER.search(TERMS.sub("", FIELD.sub("", template))), template


def test_values_are_quantities_with_a_unit_counts_or_texts(findings):
    for each in findings:
        for name, value in each.finding.evidence.values.items():
            is_plain = value is None or isinstance(value, bool | int | str)
            assert is_plain or units.unit_of(name), f"{name} = {value!r} in {each}"


def test_times_and_shares_are_within_their_bounds(findings):
    for each in findings:
        finding, evidence = each.finding, each.finding.evidence
        assert finding.severity in SEVERITIES
        assert isinstance(finding.time_at_stake_ns, int)
        assert finding.time_at_stake_ns >= 0
        share = finding.share_of_step_pct
        assert share is None or 0 <= share <= 100.000001, each
        assert share is None or finding.time_at_stake_ns, each
        assert (evidence.start_ns is None) == (evidence.end_ns is None), each
        assert evidence.start_ns is None or evidence.start_ns <= evidence.end_ns, each


def test_a_loss_of_the_steady_time_says_its_share(findings):
    for each in findings:
        if each.finding.severity != "info" and each.finding.time_at_stake_ns:
            outside_steps = each.forecast and each.forecast.share_of_run_pct
            # What came seldom is no share of each step.
            seldom = each.finding.message.startswith("Compilation ") or bool(
                re.search(
                    r"\(of .* waiting for launches\)"
                    r"|gaps?\) of .* (waiting for launches|before CUDA graphs), ",
                    each.finding.message,
                )
            )
            seldom = seldom or each.finding.action.startswith("If ")
            assert each.finding.share_of_step_pct is not None or outside_steps or seldom, each


def test_subjects_are_of_a_known_kind_and_have_a_name(findings):
    for each in findings:
        subject = each.finding.subject
        assert subject.kind in SUBJECT_KINDS
        assert subject.name or subject.kind == "recording", each


def test_sentences_are_whole(findings):
    for each in findings:
        message, action = each.finding.message, each.finding.action
        assert message == filled(each.finding.template, each.finding.evidence.values)
        assert message
        for text in (message, action):
            assert text == text.strip(), each
            assert "  " not in text, each
            assert "None" not in text, each
