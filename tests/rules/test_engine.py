"""What the engine makes of a rule and its claims."""

import pytest

from tests.build import Export
from traceview.base.findings import Subject, filled
from traceview.traces.rules import FindingRule, TimeClaim, faster, findings

MS = 1_000_000
SLOW = "void slow_transpose<float>(float*)"


def rule(**of_claim):
    """A rule with one claim of 10 ms, a tenth of the steady time."""
    given = {"saved_ns": 10 * MS, "span_ns": 100 * MS, **of_claim}
    values = {"saved_ns": given["saved_ns"], "calls": 3}
    claim = TimeClaim(Subject("kernel", SLOW), values, "kernels", {"name": SLOW}, **given)
    return FindingRule(lambda trace: [claim], "{calls:call} {how} slow.", "Use the other.")


@pytest.mark.parametrize(
    ("claim", "severity"),
    [
        ({}, "medium"),
        ({"at_most": "low"}, "low"),
        ({"at_least": "high"}, "high"),
        ({"severity": "info"}, "info"),
        # What is lost only while the CPU is late.
        ({"saved_ns": 0, "lost_ns": 30 * MS}, "info"),
    ],
)
def test_the_severity_follows_from_the_time_within_bounds(tmp_path, claim, severity):
    [finding] = findings(Export().load(tmp_path), [rule(words={"how": "are"}, **claim)])

    assert finding.severity == severity


def test_a_claim_of_too_little_time_is_no_finding(tmp_path):
    assert not list(findings(Export().load(tmp_path), [rule(saved_ns=1, at_least="high")]))


def test_words_are_put_into_sentences_and_are_no_evidence(tmp_path):
    [finding] = findings(
        Export().load(tmp_path), [rule(words={"how": "are"}, figures={"kernels": 7})]
    )

    assert finding.message == "3 calls are slow."
    assert finding.evidence.values == {"saved_ns": 10 * MS, "calls": 3}
    assert (finding.time_at_stake_ns, finding.share_of_step_pct) == (10 * MS, 10.0)


def test_the_gain_is_limited_where_the_cpu_is_late(tmp_path):
    [finding] = findings(
        Export().load(tmp_path), [rule(lost_ns=40 * MS, error_ns=MS, words={"how": "are"})]
    )

    assert (finding.saving, finding.error_ns) == ("about", MS)
    assert finding.message.endswith(
        " For now the program would gain little of that: the GPU would wait longer for the "
        "CPU, or for other work."
    )


def test_faster_kernels_by_name_are_one_record(tmp_path):
    export = Export()
    for number in range(4):
        start = 10 * MS * number
        export.launch((start, start + 10), (start + 20, start + 20 + 5 * MS), name=SLOW)
    known = FindingRule(
        faster(r"\bslow_transpose\b", 2.0, since=8.0),
        "{kernels:slow kernel} take {total_ns}; another is up to {speedup_factor} faster.",
        "Use the other.",
    )
    old = FindingRule(faster("slow_transpose", 2.0, until=8.0), "", "")

    [finding] = findings(export.load(tmp_path), [known, old])

    assert finding.message.startswith("4 slow kernels take 20.0 ms; another is up to 2.0× faster.")
    assert finding.subject == Subject("kernel", SLOW)
    assert set(finding.evidence.values) == {"kernels", "total_ns", "speedup_factor", "saved_ns"}
    assert filled(finding.template, finding.evidence.values) == finding.message
