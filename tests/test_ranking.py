"""Findings in order: worst first, each loss said once, at most seven above info."""

from dataclasses import replace

import numpy as np
import pytest

from traceview.base import intervals
from traceview.base.findings import (
    Evidence,
    Finding,
    Forecast,
    LoopTime,
    LostTime,
    Severity,
    Subject,
    forecast,
    severity_of,
)
from traceview.base.intervals import Intervals
from traceview.render.report.document import claim
from traceview.traces.analyses.base import Result
from traceview.traces.ranking import MOST_ABOVE_INFO, ranked

MS = 1_000_000


def finding(
    severity: Severity, stake_ns: int, share: float | None = None, cause: str = ""
) -> Finding:
    remedy = f"Do {stake_ns}."
    return Finding(severity, "m", remedy, stake_ns, share_of_step_pct=share, cause=cause)


def lost(*times: tuple[int, int], device: int = 0) -> LostTime:
    start, end = np.array(times, np.int64).reshape(-1, 2).T
    return LostTime(device, Intervals(start, end))


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


@pytest.mark.parametrize("severity", ["low", "medium"])
@pytest.mark.parametrize("earlier", ["medium", "low", "info"])
@pytest.mark.parametrize("remedy", ["Fill the wave. Use 8 blocks.", "Fuse them. Use 8 blocks.", ""])
@pytest.mark.parametrize("analysis", ["waves", "others"])
def test_a_low_finding_says_no_remedy_a_second_time(severity, earlier, remedy, analysis):
    """Five kernels with an unfilled last wave are one thing to do: in every output."""
    first = Finding(earlier, "m", remedy and "Fill the wave. Use 4 blocks.", 9)
    second = Finding(severity, "m", remedy, 3)
    found = {"waves": (first,), "others": ()}
    found[analysis] += (second,)
    rows = ranked({name: Result({}, each) for name, each in found.items()})
    said = next(row.severity for row in rows if row.finding.time_at_stake_ns == 3)

    once = severity == "low" and earlier != "info" and remedy.startswith("Fill")
    assert said == ("info" if once and analysis == "waves" else severity)


@pytest.mark.parametrize("severity", ["high", "medium"])
@pytest.mark.parametrize("other", ["time", "remedy", "analysis", "none", "no time"])
def test_one_saving_by_one_remedy_is_said_once(severity, other):
    """Copies of both directions that would overlap kernels save what the kernels take, once."""
    first = Finding(severity, "up", "Copy in parts.", 0 if other == "no time" else 9)
    second = replace(first, template="down")
    second = replace(second, time_at_stake_ns=8) if other == "time" else second
    second = replace(second, remedy="Copy less.") if other == "remedy" else second
    found = {"copies": (first,), "others": ()}
    found["others" if other == "analysis" else "copies"] += (second,)
    rows = ranked({name: Result({}, each) for name, each in found.items()})

    said = next(row.severity for row in rows if row.message == "down")
    assert said == ("info" if other == "none" else severity)


@pytest.mark.parametrize("compiled", ["medium", "low", "info"])
@pytest.mark.parametrize(("saved_ms", "behind"), [(102, True), (499, True), (501, False)])
@pytest.mark.parametrize("has_loop", [False, True])
def test_without_a_loop_compilation_comes_before_what_takes_next_to_nothing_beside_it(
    compiled, saved_ms, behind, has_loop
):
    results = {
        "gpu-idle": Result({}, (finding("high", saved_ms * MS, 20.0),)),
        "phases": Result({}, (finding(compiled, 10_000 * MS),)),
    }
    loops = [LoopTime(lost((0, 1_000 * MS)).time, 1_000 * MS, 100 * MS)] if has_loop else []

    rows = ranked(results, loops)

    behind &= not has_loop and compiled != "info"
    assert [row.analysis for row in rows] == (
        ["phases", "gpu-idle"] if behind else ["gpu-idle", "phases"]
    )
    idle = next(row for row in rows if row.analysis == "gpu-idle")
    assert idle.severity == (compiled if behind else "high")


def test_findings_of_one_analysis_on_one_cause_are_about_different_places():
    lines = (finding("medium", 4, cause="sync-drain"), finding("low", 2, cause="sync-drain"))
    assert [each[0] for each in severities({"sync-stalls": lines})] == ["medium", "low"]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(
    ("analysis", "cause", "named", "is_named"),
    [
        ("communication", "", ("communication",), True),
        ("communication", "", ("gpu-compute", "communication"), True),
        ("communication", "", ("gpu-compute",), False),
        ("gpu-idle", "launch-late", ("cpu-launch",), True),
        ("gpu-idle", "copy-wait", ("cpu-launch",), False),
    ],
)
@pytest.mark.parametrize(
    ("first", "second", "leads"),
    [
        # Within a fifth of the first; what is replayed leads what is a bound.
        ((400, "at-most"), (380, "at-most"), None),
        ((400, "at-most"), (330, "about"), True),
        ((400, "about"), (390, "at-most"), False),
        ((400, "at-most"), (300, "about"), False),
        ((400, "at-most"), (300, "at-most"), False),
        # What saves an unknown time, such as waits for ranks that were not recorded.
        ((400, "at-most"), (0, "at-most"), None),
        ((400, "about"), (0, "at-most"), False),
    ],
)
def test_of_equal_savings_the_proven_one_leads_and_then_what_the_opening_names(
    first, second, leads, analysis, cause, named, is_named, swap
):
    """All-reduces of 39.4 ms and products of matrices that save 40.3 are as much, as bounds."""

    def of(ms: int, saving: str, cause: str) -> Result:
        error_ns = None if saving == "at-most" else MS
        one = finding("high", ms * MS, ms / 10.0, cause)
        return Result({}, (replace(one, saving=saving, error_ns=error_ns),))

    outcomes = {"trace-health" if swap else "phases": Result({}, ())}
    outcomes |= {"load-widths": of(*first, ""), analysis: of(*second, cause)}
    rows = ranked(dict(reversed(outcomes.items())) if swap else outcomes, named=named)

    unproven = is_named and "gpu-compute" not in named
    expected = unproven if leads is None else leads
    assert (rows[0].analysis == analysis) is expected


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("errors", [(None, None), (3, 4), (3, None)])
@pytest.mark.parametrize(("ms", "sum_ms"), [((150, 90), 240), ((900, 300), 1_000), ((15, 14), 29)])
def test_what_one_line_loses_is_one_finding(ms, sum_ms, errors, swap):
    """Of what it does on the CPU and what it copies: one change saves both."""
    line = Subject.of_line("/work/net.py", 31)

    def at_line(ms: int, error_ns: int | None, cause: str, begin_ms: int) -> Finding:
        return replace(
            finding(severity_of(ms * MS, 1_000 * MS), ms * MS, ms / 10.0, cause),
            subject=line,
            template=f"{cause} takes {{took_ns}}. More.",
            remedy="a",
            evidence=Evidence({"took_ns": ms * MS}),
            saving="at-most" if error_ns is None else "about",
            error_ns=error_ns,
            lost=lost((begin_ms * MS, (begin_ms + ms) * MS)),
        )

    one = at_line(ms[0], errors[0], "copy-wait", 0)
    other = at_line(ms[1], errors[1], "launch-late", 1_000)
    elsewhere = replace(finding("low", 11 * MS, 1.1), subject=replace(line, line=32))
    late = replace(one, general=True, lost=None, cause="", subject=line)
    another = replace(
        other, remedy="b", template="Another change.", time_at_stake_ns=8 * MS, lost=None
    )
    outcomes = {"a": Result({}, (one,)), "b": Result({}, (other, elsewhere, late, another))}
    first, *rest = ranked(dict(reversed(outcomes.items())) if swap else outcomes)

    assert first.severity == severity_of(sum_ms * MS, 1_000 * MS)
    assert first.finding.time_at_stake_ns == sum_ms * MS
    assert first.finding.error_ns == (5 if errors == (3, 4) else None)
    assert first.finding.saving == ("about" if errors == (3, 4) else "at-most")
    alone = [each.message.removesuffix(" More.") for each in (one, other)]
    assert first.message == f"{alone[0]} More. There, too: {alone[1]}"
    assert {row.message: row.severity for row in rest} == {
        other.message: "info",
        elsewhere.message: "low",
        late.message: late.severity,
        another.message: another.severity,
    }


def test_what_names_a_single_thing_goes_before_what_sums_up_a_cause():
    late = replace(finding("high", 300, cause="launch-late"), general=True)
    found = severities(
        {"gpu-idle": (late, finding("high", 130)), "memory": (finding("high", 110),)}
    )
    assert [each[2] for each in found] == [130, 300, 110]


@pytest.mark.parametrize("severity", ["high", "medium", "low"])
@pytest.mark.parametrize("general", [True, False])
@pytest.mark.parametrize("kernel_ns", [90, 290, 590, 610, 1_190, 1_210])
@pytest.mark.parametrize("analysis", ["gpu-idle", "trace-health"])
def test_a_kernel_comes_before_what_saves_little_beside_it(severity, general, kernel_ns, analysis):
    """What is sure is first from half its time on; what is high or in doubt always is."""
    other = replace(finding(severity, 600), general=general)
    of_kernel = replace(finding("info", kernel_ns), subject=Subject("kernel", "step"))
    note = replace(finding("info", 5_000), remedy="")
    found = severities({analysis: (other,), "kernel-share": (note, of_kernel)})
    first = kernel_ns > (600 if general else 1_200)
    first &= severity != "high" and (analysis != "trace-health" or severity == "low")
    assert found[0 if first else 1 + (kernel_ns < 5_000)][2] == kernel_ns
    assert found[int(first)] == (severity, analysis, 600)


@pytest.mark.parametrize("severity", ["high", "medium", "low"])
@pytest.mark.parametrize("kernel_ns", [1_000, 9_000])
def test_a_kernel_comes_before_the_little_that_its_own_tail_costs(severity, kernel_ns):
    """Not before a finding that says what it mostly loses."""
    of_kernel = replace(finding("info", kernel_ns), subject=Subject("kernel", "step"))
    tail = replace(finding(severity, 40), subject=Subject("kernel", "step"))
    found = severities({"wave-quantization": (tail,), "kernel-share": (of_kernel,)})
    assert (found[0][1] == "kernel-share") is (severity == "low")


def test_a_larger_loss_that_comes_second_is_said_to_be_saved_in_part():
    late = replace(finding("high", 300, cause="launch-late"), general=True, share_of_step_pct=30.0)
    one, other = (replace(finding("high", ns), share_of_step_pct=8.0) for ns in (130, 110))
    found = ranked({"gpu-idle": Result({}, (late, one)), "memory": Result({}, (other,))})
    assert [each.forecast.is_partial for each in found] == [False, True, False]
    assert claim(found[1].finding, found[1].forecast).parts() == [
        "save up to 300 ns of 1.00 µs (30.0 %)"
    ]
    (alone,) = ranked({"gpu-idle": Result({}, (late,))})
    assert not alone.forecast.is_partial


@pytest.mark.parametrize("severity", ["high", "medium"])
@pytest.mark.parametrize("beside_ns", [0, 5_000])
def test_a_run_is_not_as_much_faster_as_its_steady_part(severity, beside_ns):
    beside = replace(finding(severity, beside_ns), share_of_step_pct=None)
    copies = replace(finding("high", 800), share_of_step_pct=80.0)
    found = ranked({"gpu-idle": Result({}, (beside,)), "memory-copies": Result({}, (copies,))})
    [told] = [each.forecast for each in found if each.analysis == "memory-copies"]
    assert told.is_partial is (severity == "high" and beside_ns > 0)


@pytest.mark.parametrize("severity", ["medium", "low"])
def test_what_sets_the_pace_comes_before_the_kernel(severity):
    of_kernel = replace(finding("info", 5_000), subject=Subject("kernel", "step"))
    paced = replace(finding(severity, 0), remedy="come sooner")
    found = severities({"gpu-idle": (paced,), "kernel-share": (of_kernel,)})
    assert (found[0][0] == severity) is (severity == "medium")


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("saving", ["at-most", "about", "at-least"])
@pytest.mark.parametrize("share", [20.0, 70.0])
def test_a_wait_for_something_outside_makes_nothing_faster(outside, saving, share):
    """A camera or a display may set the pace: what is waited is a bound, without a factor."""
    wait = replace(finding("high", 300, share), saving=saving, outside=outside)
    (found,) = ranked({"gpu-idle": Result({}, (wait,))})
    said = " · ".join(claim(found.finding, found.forecast).parts())
    assert ("as fast" in said) is not outside
    assert said.startswith("save up to") is (outside or saving == "at-most")


def test_the_surest_part_of_a_loss_is_as_severe_as_the_whole():
    late = replace(finding("high", 300, cause="launch-late"), general=True)
    slept, small = (finding("medium", ns, cause="launch-late") for ns in (130, 110))
    found = severities({"gpu-idle": (late, slept, small)})
    assert found == [
        ("high", "gpu-idle", 130),
        ("high", "gpu-idle", 300),
        ("medium", "gpu-idle", 110),
    ]


def test_of_findings_on_mostly_the_same_time_the_first_speaks():
    first = replace(finding("high", 10), lost=lost((0, 10), (20, 30)))
    same = replace(finding("medium", 9), lost=lost((0, 9), (40, 45)))
    other = replace(finding("medium", 8), lost=lost((5, 10), (50, 60)))
    elsewhere = replace(finding("low", 7), lost=lost((0, 10), device=1))
    found = severities({"a": (first,), "b": (same, other, elsewhere)})
    assert [(each[0], each[2]) for each in found] == [
        *(("high", 10), ("medium", 8), ("low", 7), ("info", 9)),
    ]


def test_slow_steps_yield_to_a_finding_that_knows_why():
    slow = replace(finding("high", 90), lost=lost((0, 90)), general=True)
    late = replace(finding("high", 80, cause="launch-late"), lost=lost((0, 80)), general=True)
    assert severities({"steps": (slow,), "gpu-idle": (late,)}) == [
        ("high", "gpu-idle", 80),
        ("info", "steps", 90),
    ]


def test_an_analysis_has_one_finding_for_a_kernel():
    kernel = Subject("kernel", "nms")
    twice = tuple(replace(finding("low", ns), subject=kernel) for ns in (9, 8))
    found = severities({"wave-quantization": twice, "load-widths": twice[:1]})
    assert [each[0] for each in found] == ["low", "low", "info"]


def test_a_better_recording_makes_nothing_faster():
    hidden, late = finding("medium", 50 * MS, 50.0), finding("low", MS, 1.0)
    results = {"trace-health": Result({}, (hidden,)), "gpu-idle": Result({}, (late,))}
    found = ranked(results, [loop(10 * MS)])
    assert [each.forecast is None for each in found] == [True, False]
    # Without a forecast, how much of it lies within the steps is not known.
    claimed = claim(found[0].finding)
    assert claimed.parts() == ["save up to 50.0 ms (50.0 % of the time after warm-up)"]


def loop(
    step_ns: int, begin: int = 0, total_ns: int = 0, name: str = "", devices: tuple[int, ...] = ()
) -> LoopTime:
    time = intervals.union(np.array([begin]), np.array([begin + (total_ns or 10 * step_ns)]))
    return LoopTime(time, time.total(), step_ns, frozenset(devices), name)


def test_time_outside_the_steps_is_none_of_a_step():
    """Ten steps of 10 ms, then 50 ms of which a finding claims 30."""
    after = replace(finding("high", 30 * MS, 20.0), lost=lost((110 * MS, 140 * MS)))
    (found,) = ranked({"gpu-idle": Result({}, (after,))}, [loop(10 * MS)])
    assert (found.finding.severity, found.finding.share_of_step_pct) == ("high", None)
    assert found.forecast == Forecast(None, None, None, share_of_run_pct=20.0, after_warm_up=True)
    claimed = claim(found.finding, found.forecast)
    assert claimed.parts() == ["save up to 30.0 of 150 ms after warm-up (20.0 %)"]
    assert claimed.below() == ["20.0 % of 150 ms after warm-up"]


def test_only_what_lies_in_the_steps_counts_per_step():
    both = replace(finding("high", 40 * MS, 20.0), lost=lost((90 * MS, 130 * MS)))
    (found,) = ranked({"gpu-idle": Result({}, (both,))}, [loop(10 * MS)])
    # A quarter of it, 10 of 40 ms, is in ten steps.
    assert (found.forecast.saved_per_step_ns, found.forecast.step_ns) == (MS, 10 * MS)
    assert found.finding.share_of_step_pct == pytest.approx(10.0)


def test_a_loop_with_little_of_the_loss_and_of_the_run_does_not_stand_for_it():
    """A loop of 10 of 100 ms, all of it lost, says nothing about the other 30 ms lost."""
    late = replace(finding("high", 40 * MS, 40.0), lost=lost((0, 40 * MS)))
    (found,) = ranked({"gpu-idle": Result({}, (late,))}, [loop(MS)])
    expected = Forecast(None, None, pytest.approx(1 / 0.6), share_of_run_pct=40.0)
    assert found.forecast == replace(expected, after_warm_up=True)
    claimed = claim(found.finding, found.forecast)
    assert claimed.parts() == ["save up to 40.0 of 100 ms after warm-up (40.0 %)", "1.7× as fast"]


def test_a_finding_on_one_of_two_loops_is_of_its_steps():
    loops = [loop(10 * MS, name="eager_#"), loop(MS, begin=200 * MS, name="replay_#")]
    late = replace(finding("low", 5 * MS, 4.0), lost=lost((200 * MS, 205 * MS)))
    (found,) = ranked({"gpu-idle": Result({}, (late,))}, loops)
    claimed = claim(found.finding, found.forecast)
    assert claimed.parts() == ["save up to 500 µs of 1.00 ms per replay_# (50.0 %)", "2.0× as fast"]
    assert claimed.amount == "500 µs"
    assert claimed.below() == ["50.0 % of 1.00 ms per replay_#"]


def test_a_device_is_judged_by_the_loop_that_works_on_it():
    loops = [loop(10 * MS, devices=(0,)), loop(5 * MS, total_ns=100 * MS, devices=(1,))]
    late = replace(finding("low", 20 * MS, 20.0), lost=lost((0, 20 * MS), device=1))
    (found,) = ranked({"gpu-idle": Result({}, (late,))}, loops)
    assert (found.forecast.saved_per_step_ns, found.forecast.step_ns) == (MS, 5 * MS)


@pytest.mark.parametrize(
    ("mean_ns", "claimed"),
    [
        (15 * MS, "save up to 4.00 of 10.0 ms per step (40.0 %)"),
        (25 * MS, "save up to 10.0 of 25.0 ms per step on average (40.0 %)"),
    ],
)
def test_where_a_few_steps_take_most_of_the_time_savings_are_those_of_the_mean(mean_ns, claimed):
    """Such as a checkpoint in every eighth step, which is no part of the median one."""
    uneven = replace(loop(10 * MS, total_ns=250 * MS), mean_ns=mean_ns)
    (found,) = ranked({"gpu-idle": Result({}, (finding("high", 100 * MS, 40.0),))}, [uneven])
    assert found.forecast.is_mean is (mean_ns > 15 * MS)
    assert claim(found.finding, found.forecast).parts()[0] == claimed


@pytest.mark.parametrize(
    ("error_ns", "claimed"),
    [
        (1_500_000, ["save about 4.0 ± 1.5 of 10.0 ms per step (40 %)", "1.3 to 2.2× as fast"]),
        (4 * MS, ["save up to 8.00 of 10.0 ms per step (80.0 %)"]),
        # Then all of the step may be saved, which says nothing.
        (9 * MS, None),
    ],
)
def test_a_saving_that_may_be_nothing_is_a_bound(error_ns, claimed):
    one = forecast(finding("high", 40 * MS, 40.0), [loop(10 * MS)])
    saving = replace(one, saving="about", error_ns=error_ns)
    said = claim(finding("high", 40 * MS, 40.0), saving)
    assert (said.parts() if said else None) == claimed


def test_no_more_per_step_than_there_is_to_save():
    found = forecast(finding("medium", 500_000, 20.0), [loop(1_700 * MS, total_ns=1_700 * MS)])
    assert found
    assert found.saved_per_step_ns == 500_000


@pytest.mark.parametrize("gpu_ms", [2.5, 4.3, 4.9])
def test_a_share_of_a_step_is_that_of_the_time_it_names(gpu_ms):
    """A GPU that works for less than the step: of another GPU, or behind the CPU."""
    of_gpu = finding("high", 2 * MS, 200.0 / gpu_ms)
    found = forecast(of_gpu, [loop(5 * MS, total_ns=5 * MS)])
    assert found
    assert found.saved_per_step_ns == pytest.approx(2 * MS, rel=0.03)
    assert found.share_of_step_pct == pytest.approx(40.0, rel=0.03)


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
    loops = [loop(step_ns, total_ns=int(1e4 * MS / share))] if step_ns and share else []
    found = forecast(finding("high", 100 * MS, share), loops)
    if expected is None or found is None:
        assert found is expected
        return
    assert found.saved_per_step_ns == expected.saved_per_step_ns
    assert found.step_ns == expected.step_ns
    assert found.speedup_at_most == pytest.approx(expected.speedup_at_most)


@pytest.mark.parametrize(("share", "severity"), [(50.0, "info"), (None, "medium")])
def test_little_of_the_longest_steady_time_is_for_information(share, severity):
    """Such as half of the time of a second GPU that works a hundredth as long as the first."""
    short = replace(finding("medium", 9), share_of_step_pct=share)
    (found,) = ranked({"memory": Result({}, (short,))}, steady_ns=1000)
    assert found.finding.severity == severity


@pytest.mark.parametrize("shares", [(87, 53), (53, 87), (60, 30), (100, 10), (40, 40), (87, 20)])
@pytest.mark.parametrize("names", [("phases", "kernel-share"), ("gpu-idle", "gpu-idle")])
@pytest.mark.parametrize("same_loop", [True, False])
def test_two_that_save_more_than_a_step_are_alternatives(shares, names, same_loop):
    """Of ten steps of 10 ms in each of two loops, whose steady time is 200 ms in all."""
    loops = [loop(10 * MS, name="eager_#"), loop(10 * MS, begin=200 * MS, name="replay_#")]
    outcomes: dict[str, Result] = {}
    for name, share, begin in zip(names, shares, (0, 0 if same_loop else 200), strict=True):
        one = finding("high", share * MS, share / 2)
        time = lost((begin * MS, (begin + share) * MS))
        earlier = outcomes[name].findings if name in outcomes else ()
        outcomes[name] = Result({}, (*earlier, replace(one, work=time)))
    found = ranked(outcomes, loops, time_of=lambda one: one.work)
    assert [row.finding.share_of_step_pct for row in found] == sorted(shares, reverse=True)
    less, most = sorted(shares)
    both = less + most - 100
    twice = same_loop and 2 * both > less
    assert "Either" not in found[0].message
    assert ("saves most of that time, not both" in found[1].message) == twice
    if twice:
        assert ("above" if len({*names}) == 1 else f"in {found[0].analysis}") in found[1].message
