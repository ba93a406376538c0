"""Decisions on runs whose figures are known: bounds for times, exact for counts."""

import pytest

from tests.comparison.runs import run
from traceview.base.errors import ComparisonRefusedError
from traceview.traces.comparison.figures import StepPart
from traceview.traces.comparison.gate import condition_text, decide, sentence, summary
from traceview.traces.comparison.gate_rules import GateCondition, Rule


def runs(figure, *values, first=0):
    return [
        run(10 + at / 100, figures={figure: value}, name=f"{first + at}.sqlite")
        for at, value in enumerate(values)
    ]


def decision(figure, condition, before, after, certainty=0.95):
    sides = runs(figure, *before), runs(figure, *after, first=50)
    (found,) = decide(*sides, [Rule(figure, (condition,), certainty)], force=True).decisions
    return found


THREE_PCT = GateCondition("max_increase", 3.0, is_relative=True)
BASE = (10e6, 10.1e6, 10.05e6, 9.95e6, 10.02e6)


def moved(values, factor):
    return [value * factor for value in values]


@pytest.mark.parametrize(
    ("factor", "outcome"),
    [(1.0, "passed"), (1.01, "passed"), (1.03, "undecided"), (1.06, "regressed"), (0.5, "passed")],
)
def test_a_time_is_judged_by_the_bounds_of_its_difference(factor, outcome):
    found = decision("step_ns", THREE_PCT, BASE, moved(BASE, factor))
    assert found.outcome == outcome
    assert found.low <= found.after - found.before <= found.high


def test_an_increase_must_be_both_relative_and_absolute():
    small = GateCondition("max_increase", 3.0, is_relative=True, at_least=1e6)
    assert decision("step_ns", small, BASE, moved(BASE, 1.06)).outcome == "passed"
    assert decision("step_ns", small, BASE, moved(BASE, 1.2)).outcome == "regressed"


def test_a_decrease_is_counted_the_other_way():
    busy = GateCondition("max_decrease", 2.0)
    before = (90.0, 91.0, 90.5, 90.2, 90.7)
    worse = decision("gpu_busy_pct", busy, before, [value - 8 for value in before])
    assert worse.outcome == "regressed"
    assert worse.low < -8 < worse.high < -2
    assert decision("gpu_busy_pct", busy, before, [each + 5 for each in before]).outcome == "passed"


def test_too_few_runs_are_undecided_and_say_how_many_decide():
    found = decision("step_ns", THREE_PCT, [10e6], [20e6])
    assert (found.outcome, found.runs_needed) == ("undecided", 3)
    assert "about 3 runs per side would decide" in sentence(found)
    assert decision("step_ns", THREE_PCT, [10e6], [20e6], certainty=0.5).outcome == "regressed"


def test_a_difference_at_the_limit_needs_more_runs_than_are_worth_it():
    found = decision("step_ns", THREE_PCT, BASE, moved(BASE, 1.03))
    assert found.runs_needed is None
    assert "more than 200 runs per side" in sentence(found)
    closer = decision("step_ns", THREE_PCT, BASE, moved(BASE, 1.026))
    assert 5 < closer.runs_needed < 100


@pytest.mark.parametrize(
    ("condition", "after", "outcome"),
    [
        (GateCondition("equals", 0.0), [0], "passed"),
        (GateCondition("equals", 0.0), [1], "regressed"),
        (GateCondition("equals", 0.0), [0, 0, 1], "regressed"),
        (GateCondition("max", 2.0), [2], "passed"),
        (GateCondition("min", 128.0), [32], "regressed"),
        (GateCondition("max_increase", 0.0), [3], "passed"),
        (GateCondition("max_increase", 0.0), [4], "regressed"),
    ],
)
def test_counts_are_exact_with_one_run(condition, after, outcome):
    found = decision("synchronizations_per_step", condition, [3], after)
    assert found.outcome == outcome
    assert found.is_exact


def test_counts_that_vary_are_judged_as_times_are():
    figure, condition = "launches_per_step", GateCondition("max_increase", 1.0)
    found = decision(figure, condition, [100, 101, 100], [101, 100, 100])
    assert not found.is_exact
    assert found.outcome == "passed"


def test_a_value_is_judged_by_the_bounds_of_its_mean():
    condition = GateCondition("max", 10.0)
    values = [9.0, 9.2, 9.1, 9.3, 9.2]
    assert decision("exposed_communication_pct", condition, [0], values).outcome == "passed"
    above = decision("exposed_communication_pct", condition, [0], moved(values, 1.2))
    assert above.outcome == "regressed"
    few = decision("exposed_communication_pct", condition, [0], values[:2])
    assert (few.outcome, few.runs_needed) == ("undecided", 5)
    low = decision("gpu_busy_pct", GateCondition("min", 10.0), [0], moved(values, 1.2))
    assert low.outcome == "passed"


def test_a_figure_that_no_run_has_is_undecided_with_a_suggestion():
    rule = Rule("load_bits[gelu_kernle]", (GateCondition("min", 128.0),), 0.95)
    sides = runs("load_bits[gelu_kernel]", 128), runs("load_bits[gelu_kernel]", 128, first=50)
    report = decide(*sides, [rule], force=True)
    assert report.exit_status == 2
    assert "did you mean load_bits[gelu_kernel]?" in sentence(report.decisions[0])


def test_the_figure_that_was_meant_is_found_beyond_those_listed():
    rule = Rule("step_median_nss", (GateCondition("max", 1.0),), 0.95)
    figures = dict.fromkeys([*(f"figure_{at}" for at in range(20)), "step_median_ns"], 1.0)
    sides = [run(figures=figures, name="a")], [run(figures=figures, name="b")]
    told = sentence(decide(*sides, [rule], force=True).decisions[0])
    assert "did you mean step_median_ns?" in told
    count = told.count("figure_")
    assert f"… and {len(run(figures=figures).figures) - count} more" in told


def test_a_cause_without_idle_time_has_none():
    found = decision("idle_ns[sync-drain]", GateCondition("max", 1e3), [0.0] * 5, [0.0] * 5)
    assert found.outcome == "passed"
    rule = Rule("idle_ns[sync-drain]", (GateCondition("max", 1e3),), 0.95)
    sides = [run(name=f"{at}") for at in range(5)], [run(name=f"a{at}") for at in range(5)]
    assert decide(*sides, [rule], force=True).outcome == "passed"


def test_the_line_that_explains_is_named():
    drain = StepPart("idle", "", "sync-drain", "train.py:75", 8_000_000, 8_000_000, 4)
    rules = [Rule("step_ns", (THREE_PCT,), 0.5)]
    before = [run(10, figures={"step_ns": 10e6})]
    after = [run(12, parts=[drain], figures={"step_ns": 12e6}, name="after.sqlite")]
    report = decide(before, after, rules)
    assert report.decisions[0].place == "train.py:75"
    assert report.exit_status == 1
    assert summary(report) == "Regressed: 1 regressed of 1 rule."


def test_the_same_capture_is_refused():
    with pytest.raises(ComparisonRefusedError):
        decide([run()], [run()], [Rule("step_ns", (THREE_PCT,), 0.95)])


def test_conditions_in_words():
    condition = GateCondition("max_increase", 3.0, is_relative=True, at_least=100_000.0)
    text = condition_text("step_ns", condition)
    assert text == "may rise by 3.0 %, or 100 µs if that is more"
    assert condition_text("gpu_busy_pct", GateCondition("max_decrease", 2.0)) == (
        "may fall by 2.0 points"
    )
