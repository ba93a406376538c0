"""The plan of a report: remedies replayed one after the other, each the best of the rest."""

import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import traceview
from tests import places
from tests.facts.dependencies.test_savings import program, steady
from traceview.base.findings import Finding, Forecast, Subject
from traceview.base.vocabulary.remedies import SHORT
from traceview.render.report.document import ranked_claim
from traceview.render.report.plan import LONGEST_LABEL, label, plan_text, telling
from traceview.traces.analyses.base import Result
from traceview.traces.facts import savings
from traceview.traces.facts.dependencies.replay import Changed
from traceview.traces.facts.forecast import model
from traceview.traces.facts.operations import operations
from traceview.traces.plan import REACH, PlanStep, RankedFinding, Won, plan
from traceview.traces.ranking import ranked
from traceview.traces.reporting import Report, analyze
from traceview.traces.trace.load import load

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
    return savings.of_operations(trace, steady(trace), savings.faster(less)).edit


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


def test_a_loss_that_nothing_replays_and_is_worse_than_the_rest_leaves_no_plan(tmp_path):
    trace = program(call_us=2, kernel_us=50).load(tmp_path)
    replayed = Finding("low", "m", "a", MS, share_of_step_pct=10.0, edit=faster(trace, 1.05))
    bound = Finding("high", "m", "a", 5 * MS, share_of_step_pct=50.0)
    little = replace(bound, severity="low", time_at_stake_ns=MS // 100)
    for other, count in ((bound, 0), (replace(bound, severity="low"), 0), (little, 1)):
        rows = (other, replayed)
        found = ranked({"a": Result({}, rows)}, steady_ns=10 * MS, model=lambda: model(trace))
        assert len(plan(found)) == count
        assert (found[0].won is not None) == bool(count)


def test_what_wins_only_behind_another_is_marked(tmp_path):
    trace = program(call_us=50, kernel_us=20, waits=False).load(tmp_path)
    findings, rows = planned(trace, faster=faster(trace, 2), graph=launches_at_once)
    assert [findings[row.finding].template for row in rows] == ["graph", "faster"]
    assert [row.wins_now for row in rows] == [True, False]
    assert rows[1].step_after_ns < rows[0].step_after_ns


def test_what_wins_nothing_alone_is_planned_behind_what_lets_it(tmp_path):
    trace = program(call_us=50, kernel_us=20, waits=False).load(tmp_path)
    graph = Finding("high", "graph", "a", MS, share_of_step_pct=10.0, edit=launches_at_once)
    faster_ = Finding("info", "faster", "a", 0, edit=faster(trace, 2), error_ns=0)
    told, outside = replace(faster_, severities=("info", "info")), replace(faster_, outside=True)
    for each, planned_too in ((faster_, True), (told, False), (outside, False)):
        outcome = {"a": Result({}, (graph, each))}
        found = ranked(outcome, steady_ns=10 * MS, model=lambda: model(trace))
        assert [row.wins_now for row in plan(found)] == [True, False][: 1 + planned_too]


@pytest.mark.parametrize("part", [0.3, 1.0])
@pytest.mark.parametrize("other", [1.5, 1.2])
@pytest.mark.parametrize("analysis", ["wave-quantization", "load-widths", "kernel-share"])
def test_what_another_kernel_does_needs_no_better_grid(tmp_path, part, other, analysis):
    """Advice on a kernel as it is launched ends where a remedy before it replaces most of it."""
    trace = program(call_us=2, kernel_us=50).load(tmp_path)
    rows = steady(trace)
    replaced = rows[: round(part * len(rows))]
    less_ns = (operations(trace).duration_ns[replaced] * 0.875).astype(np.int64)
    tf32 = savings.of_operations(trace, replaced, savings.faster(less_ns)).edit
    kernels = Finding("high", "tf32", "a", 8 * MS, share_of_step_pct=80.0, edit=tf32)
    grid = Finding("low", "grid", "a", MS, share_of_step_pct=10.0, edit=faster(trace, other))
    outcomes = {"kernel-share": Result({}, (kernels,)), analysis: Result({}, (grid,))}
    if analysis == "kernel-share":
        outcomes = {analysis: Result({}, (kernels, grid))}
    found = ranked(outcomes, steady_ns=10 * MS, model=lambda: model(trace))
    keeps = analysis == "kernel-share" or part < 0.5
    assert len(plan(found)) == 1 + keeps
    if keeps and part == 1.0:
        # The second takes its part of what the first leaves, not of what was recorded.
        won_ns = plan(found)[1].step_before_ns - plan(found)[1].step_after_ns
        assert won_ns == pytest.approx(found[1].won.alone_ns / 8, rel=0.01)


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
    assert bool(plan_text(report)) == (len(telling(report.plan)) > 1)
    assert "…" not in plan_text(report)
    for each in report.findings:
        assert len(label(each.finding)) <= LONGEST_LABEL
    for each in report.findings:
        claimed = ranked_claim(each)
        if claimed and each.finding.severity != "info" and not claimed.after_others:
            percent = re.search(r"([\d.]+) %", claimed.share)
            assert not percent or float(percent[1]) >= 1.0, claimed


def test_a_last_remedy_that_wins_next_to_nothing_beside_its_error_is_not_said():
    first = PlanStep(0, 33_300_000, 5_900_000, 5_500_000, True)
    hidden, shown = (PlanStep(1, 5_900_000, after, 5_500_000, True) for after in (5_600_000, 0))
    assert telling([first, hidden]) == [first]
    assert telling([first, shown]) == [first, shown]
    assert telling([]) == []


@pytest.mark.parametrize(
    ("after_ms", "error_ms", "said"),
    [
        ((9, 6), (1, 2), "40.0 ms per step → do A: 9.0 → do B: 6.0 ± 2.0"),
        ((9, 5.9), (6, 5.97), "40.0 ms per step → do A: 9 ± 6 → do B (wins less than the error)"),
        (
            (9, 5.9, 3.5),
            (5.97, 5.97, 5.97),
            "40.0 ms per step → do A: 9 ± 6 → do B → do C (both win less than the error)",
        ),
        ((9, 0.4), (1, 2), "40.0 ms per step → do A: 9.0 → do B: up to 2.40"),
        ((20, 19.6), (5, 5), ""),
        ((9, 6), (50, 50), ""),
    ],
)
def test_a_time_whose_error_is_as_large_is_not_said(after_ms, error_ms, said):
    """It is a bound where that says more than the time before, else there is none."""
    before, findings = 40.0, []
    for place, (after, error) in enumerate(zip(after_ms, error_ms, strict=True)):
        times = (round(each * MS) for each in (before, after, error))
        won = Won(place, *times, wins_now=True, per_step=True)
        finding = Finding("high", "m", f"Do {'ABC'[place]}.")
        findings.append(RankedFinding("a", finding, won=won))
        before = after
    report = Report(None, (), {}, tuple(findings))
    assert plan_text(report) == said


def test_every_short_remedy_is_that_of_an_action():
    source = "".join(path.read_text() for path in Path(traceview.__file__).parent.rglob("*.py"))
    source = re.sub(r'"\s*\n\s*"', "", source)
    for begins, words in SHORT.items():
        assert source.count(begins) > 1, begins
        assert len(words) <= LONGEST_LABEL


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("Pin the host memory (pin_memory=True) and copy early.", "pin the host memory"),
        ("Where memory allows it, keep the activations: fewer blocks.", "keep the activations"),
        ("If every step does this, import before it.", "import before it"),
        ("Take this CPU work out of the loop: do it earlier.", "take CPU work out of the loop"),
        ("Cast their input to float32 where it becomes float64.", "cast the input to float32"),
        ("If every step does this, make this call before it.", "move the call out of the loop"),
        ("Reorder the convolutions of the model so that copies go.", "reorder the convolutions"),
        ("Instantiate-and-upload-everything-beforehand.", "change a.py:7"),
    ],
)
def test_a_remedy_in_a_few_words(action, words):
    finding = Finding("low", "m", action, subject=Subject("line", "a.py:7"))
    assert label(finding) == words


def test_a_fact_claims_no_saving():
    """A kernel may take half of the time and be as fast as can be."""
    fact = Finding("info", "m", "a", 5 * MS, share_of_step_pct=50.0)
    told = Forecast(None, None, 2.0, share_of_run_pct=50.0)
    assert ranked_claim(RankedFinding("kernel-share", fact, told)) is None
    assert ranked_claim(RankedFinding("kernel-share", replace(fact, severity="low"), told))


def test_what_wins_only_after_others_says_so(tmp_path):
    won = Won(1, 9 * MS, 8 * MS, MS, per_step=True, whole_ns=10 * MS)
    nothing = Finding("low", "m", "a", 1000, share_of_step_pct=0.01)
    of_step = Forecast(1000, 10 * MS, None, share_of_step_pct=0.01)
    claimed = ranked_claim(RankedFinding("a", nothing, of_step, won))
    assert claimed.parts() == [
        "saves nothing alone, 1.00 of 10.0 ms per step (10.0 %) after those before it"
    ]
    first = ranked_claim(RankedFinding("a", nothing, of_step, replace(won, place=0)))
    assert first.parts() == ["save up to 1.00 µs of 10.0 ms per step (<0.1 %)"]


@pytest.mark.parametrize(
    ("error_ms", "said"),
    [
        (2, "save about 4.0 ± 2.0 of 10.0 ms per step (40 %)"),
        (5, "save up to 9.00 of 10.0 ms per step (90.0 %)"),
        (3.95, "save up to 7.95 of 10.0 ms per step (79.5 %)"),
        (6, None),
        (40, None),
        (0.1, "save about 4.00 ± 0.10 of 10.0 ms per step (40 %)"),
    ],
)
def test_a_saving_whose_error_is_as_large_is_a_bound(error_ms, said):
    finding = Finding("high", "m", "a", 4 * MS, share_of_step_pct=40.0, saving="about")
    of_step = Forecast(
        *(4 * MS, 10 * MS, None, "about"), share_of_step_pct=40.0, error_ns=round(error_ms * MS)
    )
    claimed = ranked_claim(RankedFinding("a", finding, of_step))
    assert (claimed.parts() if claimed else [None]) == [said]


@pytest.mark.parametrize(
    ("saved_ms", "error_ms", "said"),
    [
        (8, 2, ["save at least 6.00 of 10.0 ms (60.0 %)", "2.5× as fast"]),
        (8, 5, ["save about 8 ± 5 of 10.0 ms (80 %)", "at least 1.4× as fast"]),
        (8, 1, ["save about 8.0 ± 1.0 of 10.0 ms (80 %)", "at least 3.3× as fast"]),
        (8, 0.001, ["save about 8.00 of 10.0 ms (80.0 %)", "5.0× as fast"]),
    ],
)
def test_no_more_than_all_can_be_saved(saved_ms, error_ms, said):
    """The error of a saving shows in its digits, its share and how many times as fast that is."""
    saved_ns, error_ns = saved_ms * MS, round(error_ms * MS)
    finding = Finding("high", "m", "a", saved_ns, share_of_step_pct=10.0 * saved_ms, saving="about")
    factor = 10 / (10 - saved_ms)
    of_run = Forecast(
        None, None, factor, "about", share_of_run_pct=10.0 * saved_ms, error_ns=error_ns
    )
    assert ranked_claim(RankedFinding("a", finding, of_run)).parts() == said


def test_general_savings_count_as_they_were_measured():
    """Four of five programs of docs/accuracy.md saved as much of the bound on late launches."""
    page = (places.REPOSITORY / "docs/accuracy.md").read_text(encoding="utf-8")
    shares = [
        float(saved) / float(bound)
        for bound, saved in re.findall(
            r"^\| [^|]+ \| gpu-idle: late launches \| at most ([\d.]+) (?:[^|]+ )?"
            r"\|[^|]+\|[^|]+\|[^|]+\| (-?[\d.]+)[^|]*\|",
            page,
            re.MULTILINE,
        )
    ]
    assert len(shares) >= 15
    assert pytest.approx(statistics.quantiles(shares, n=5)[0], abs=0.1) == REACH
    assert statistics.median(shares) == pytest.approx(0.5, abs=0.06)
