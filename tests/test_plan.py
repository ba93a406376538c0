"""The plan of a report: remedies replayed one after the other, each the best of the rest."""

from dataclasses import replace

import numpy as np
import pytest

from tests.facts.dependencies.test_savings import program, steady
from traceview.analyses.base import Result
from traceview.facts.dependencies.forecast import model
from traceview.facts.dependencies.replay import Changed
from traceview.facts.operations.operations import operations
from traceview.facts.savings import gains
from traceview.findings import Finding
from traceview.ranking import plan, ranked
from traceview.render.report.plan import plan_text
from traceview.report import analyze
from traceview.trace.load import load

MS = 1_000_000
RECORDINGS = ("training", "mlp_sync", "mlp_print_loss", "streams", "products", "two_processes")


def planned(trace, **edits):
    """The findings of these edits and their plan, as if each claimed the same time."""
    findings = tuple(
        Finding("medium", name, name, MS, share_of_step_pct=10.0, edit=edit)
        for name, edit in edits.items()
    )
    found = ranked({"a": Result({}, findings)}, steady_ns=10 * MS, model=lambda: model(trace))
    return [each.finding for each in found], plan(found)


def faster(trace, factor):
    less = (operations(trace).duration_ns[steady(trace)] * (1 - 1 / factor)).astype(np.int64)
    return gains.of_operations(trace, steady(trace), less).edit


def launches_at_once(changed: Changed) -> None:
    changed.scale(np.arange(changed.graph.calls), 0.0)
    changed.scale_pause(np.arange(changed.graph.calls), 0.0)


def test_the_best_comes_first_and_one_time_is_won_once(tmp_path):
    trace = program(call_us=2, kernel_us=50).load(tmp_path)
    findings, rows = planned(trace, halved=faster(trace, 2), third=faster(trace, 3))
    assert [each.template for each in findings] == ["third", "halved"]
    # What is left of the time is less than the other one takes off.
    assert [row.finding for row in rows][:1] == [0]
    assert findings[0].severity == "high"
    assert rows[-1].step_after_ns >= 0


def test_what_wins_only_behind_another_is_marked(tmp_path):
    trace = program(call_us=50, kernel_us=20, waits=False).load(tmp_path)
    findings, rows = planned(trace, faster=faster(trace, 2), graph=launches_at_once)
    assert [findings[row.finding].template for row in rows] == ["graph", "faster"]
    assert [row.wins_now for row in rows] == [True, False]
    assert rows[1].step_after_ns < rows[0].step_after_ns


def test_a_finding_keeps_its_bounds_of_severity(tmp_path):
    trace = program(call_us=2, kernel_us=50).load(tmp_path)
    low = Finding("low", "m", "a", MS, edit=faster(trace, 2), severities=("info", "low"))
    told = replace(low, severity="info", severities=("info", "info"))
    found = ranked({"a": Result({}, (low, told))}, steady_ns=10 * MS, model=lambda: model(trace))
    assert [each.finding.severity for each in found] == ["low", "info"]
    assert found[1].won is None


@pytest.mark.parametrize("name", RECORDINGS)
def test_plans_of_recordings(unpack, name):
    """No step saves more than what is left of the time, and none takes longer than before it."""
    report = analyze(load(unpack(name)), tables=False)
    time = [row.step_before_ns for row in report.plan]
    time += [row.step_after_ns for row in report.plan[-1:]]
    assert time == sorted(time, reverse=True)
    assert all(each >= 0 for each in time)
    after = [row.step_after_ns for row in report.plan]
    assert [row.step_before_ns for row in report.plan][1:] == after[:-1]
    for each in report.findings:
        forecast = each.forecast
        if forecast and forecast.error_ns is not None and forecast.step_ns:
            assert (forecast.saved_per_step_ns or 0) <= forecast.step_ns
    assert bool(plan_text(report)) == (len(report.plan) > 1)
