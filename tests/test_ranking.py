"""Findings in order: worst first, each loss said once, at most seven above info."""

import pytest

from traceview.analyses.base import Result
from traceview.findings import Finding, Forecast, Severity, forecast, severity_of
from traceview.ranking import MOST_ABOVE_INFO, ranked

MS = 1_000_000


def finding(
    severity: Severity, stake_ns: int, share: float | None = None, cause: str = ""
) -> Finding:
    return Finding(severity, "m", "a", stake_ns, share_of_step_pct=share, cause=cause)


def severities(outcomes: dict[str, tuple[Finding, ...]]) -> list[tuple[str, str, int]]:
    results = {name: Result({}, findings) for name, findings in outcomes.items()}
    return [(r.finding.severity, r.analysis, r.finding.time_at_stake_ns) for r in ranked(results)]


@pytest.mark.parametrize(
    ("stake_ns", "span_ns", "expected"),
    [
        (1_230, 2_000, "info"),
        (99_000, 200_000, "low"),
        (999_999, 2 * MS, "medium"),
        (MS, 5 * MS, "high"),
        (MS, 5 * MS + 1, "medium"),
        (100_000, 2 * MS, "medium"),
        (10_000, MS, "low"),
        (9_999, MS, None),
        (9_999, 999_900, "info"),
        (0, 0, None),
    ],
)
def test_severity_needs_share_and_size(stake_ns, span_ns, expected):
    assert severity_of(stake_ns, span_ns) == expected


def test_of_findings_with_one_cause_the_largest_analysis_speaks():
    assert severities(
        {
            "gpu-idle": (finding("high", 9, cause="launch-late"), finding("low", 1, cause="other")),
            "launch-overhead": (finding("medium", 4, cause="launch-late"),),
            "sync-stalls": (finding("medium", 3),),
        }
    ) == [
        ("high", "gpu-idle", 9),
        ("medium", "sync-stalls", 3),
        ("low", "gpu-idle", 1),
        ("info", "launch-overhead", 4),
    ]


def test_findings_of_one_analysis_on_one_cause_are_about_different_places():
    lines = (finding("medium", 4, cause="sync-drain"), finding("low", 2, cause="sync-drain"))
    assert [each[0] for each in severities({"sync-stalls": lines})] == ["medium", "low"]


def test_at_most_seven_findings_stand_above_info_and_keep_their_order():
    many = tuple(finding("low", stake) for stake in range(20, 10, -1))
    found = severities({"a": (*many, finding("info", 99))})
    assert [each[2] for each in found] == [*range(20, 10, -1), 99]
    assert [each[0] for each in found] == ["low"] * MOST_ABOVE_INFO + ["info"] * 4


def test_no_finding_claims_more_than_the_steady_time():
    results = {"a": Result({}, (finding("high", 12 * MS, 100.0), finding("info", 50 * MS)))}
    capped, warm_up = (each.finding for each in ranked(results, steady_ns=10 * MS))
    assert (capped.time_at_stake_ns, capped.share_of_step_pct) == (10 * MS, 100.0)
    assert warm_up.time_at_stake_ns == 50 * MS


@pytest.mark.parametrize(
    ("share", "step_ns", "expected"),
    [
        (37.5, 12_400_000, Forecast(4_650_000, 12_400_000, 1.6)),
        (37.5, None, Forecast(None, None, 1.6)),
        (99.0, 1000, Forecast(990, 1000, 100.0)),
        (99.9, 1000, Forecast(999, 1000, None)),
        (100.0, 1000, Forecast(1000, 1000, None)),
        (None, 1000, None),
    ],
)
def test_forecast_by_amdahls_law(share, step_ns, expected):
    found = forecast(finding("high", MS, share), step_ns)
    if expected is None or found is None:
        assert found is expected
        return
    assert found.saved_per_step_ns == expected.saved_per_step_ns
    assert found.step_ns == expected.step_ns
    assert found.speedup_at_most == pytest.approx(expected.speedup_at_most)
