"""One story per recording: no two sentences of a report contradict, and its sums are one sum."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import traceview
from tests.places import DATA, REPOSITORY
from traceview.base import intervals
from traceview.base.findings import HIGH, LOW, MEDIUM, Finding
from traceview.base.vocabulary.activities import ACTIVITIES
from traceview.base.vocabulary.causes import (
    CAUSE_NAMES,
    CAUSES,
    DEPENDENCY,
    GRAPH_LAUNCH,
    LAUNCH_LATE,
    SYNC_DRAIN,
)
from traceview.render.report.document import ranked_claim
from traceview.traces.analyses.base import Result
from traceview.traces.analyses.verdict.parts import steady_parts
from traceview.traces.comparison.figures import AT_START
from traceview.traces.comparison.parts import idle_parts
from traceview.traces.comparison.window import run_window, window_work
from traceview.traces.facts.idle.gaps import device_work, gaps, steady_spans_ns
from traceview.traces.facts.idle.step_parts import step_parts
from traceview.traces.facts.steps.steps import pace
from traceview.traces.plan import in_doubt, limit_of
from traceview.traces.reporting import Report
from traceview.traces.trace import Trace

FOLDERS = (REPOSITORY / "examples", DATA, DATA / "workloads")
OTHERS = ("comparison", "findings", "forecasts", "foreign", "ranks", "torch", "what_if")


def recordings(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.sqlite.xz"), *folder.glob("*.json.xz")])


PATHS = [
    *(path for folder in FOLDERS for path in recordings(folder)),
    *(
        pytest.param(path, marks=pytest.mark.slow)
        for folder in map(DATA.joinpath, OTHERS)
        for path in recordings(folder)
    ),
]
DRY = {
    "launch-bound": (LAUNCH_LATE, GRAPH_LAUNCH),
    "cpu-bound": (LAUNCH_LATE, GRAPH_LAUNCH),
    "data-loading": (LAUNCH_LATE, GRAPH_LAUNCH),
    "dependency-bound": (DEPENDENCY,),
}
"""The causes of most idle time, by verdict."""
NOT_BESIDE = {
    "cpu-launch": {"gpu-bound", "queue-full", "sync-drained", "dependency-bound"},
    "synchronization": {"gpu-bound", "queue-full", "launch-bound", "dependency-bound"},
    "dependency": {"gpu-bound", "queue-full", "launch-bound", "sync-drained"},
}
"""What run-ahead does not say of a program with this limit."""

OF_LATE_LAUNCHES = {each.limit for each in ACTIVITIES}
"""Limits that late launches stand for, by what the CPU does instead."""
OF_CALLS = {"allocation", "copy-wait", "sync-drain"}
"""Causes of idle time that is inside the calls that `sync-stalls` is about."""


@cache
def report_of(path: Path) -> Report:
    report = traceview.analyze(traceview.load(path), tables=False)
    assert not report.trace.warnings or not any("error" in each for each in report.trace.warnings)
    return report


def recording(report: Report) -> Trace:
    assert report.recording is not None
    return report.recording


def above_info(report: Report) -> list[tuple[str, Finding]]:
    return [
        (row.analysis, row.finding) for row in report.findings if row.finding.severity != "info"
    ]


def idle_ns(trace: Trace, device: int) -> Mapping[int, int]:
    every = gaps(trace)
    own = (every.device == device) & ~every.one_time
    sums = np.bincount(every.cause[own], every.idle_ns[own], len(CAUSES))
    return {cause: int(time) for cause, time in enumerate(sums)}


@pytest.fixture(params=PATHS, ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def report(request: pytest.FixtureRequest) -> Report:
    return report_of(request.param)


def test_the_limit_the_launches_and_the_idle_time_agree(report: Report):
    board, summary = report.scoreboard, report.verdict
    if board is None or board.launch is None or board.device_id is None or summary is None:
        return
    assert board.launch not in NOT_BESIDE.get(summary.limit, ())
    parts = steady_parts(recording(report))
    assert parts is not None
    idle = idle_ns(recording(report), parts.device)
    total = sum(idle.values())
    if board.launch in DRY and total:
        assert 2 * sum(idle[cause] for cause in DRY[board.launch]) > total
    if board.launch == "launch-bound":
        assert 2 * idle[DEPENDENCY] <= total
    phases = report["phases"]
    if board.launch == "data-loading" and isinstance(phases, Result):
        assert "launch-bound" not in {row["verdict"] for row in phases.tables["phases"].rows()}
    said = [each for each in report.findings if each.analysis == "run-ahead"]
    gpu = f"GPU {board.device_id}"
    words = board.launch.replace("loading", "bound").replace("gpu", "GPU").replace("cpu", "CPU")
    own = [each.finding for each in said if each.finding.message.startswith(gpu)]
    # A GPU that is kept busy with nothing queued is called GPU-bound, too.
    unstated = ("unknown", "kept-busy")
    assert board.launch in unstated or all(words in each.message for each in own), own


def test_the_shares_of_the_opening_are_no_more_than_the_whole(report: Report):
    text = report.verdict.text if report.verdict else ""
    busy, _, others = text.partition("GPU busy ")[2].partition(" %")
    # What is in brackets is a part of the busy time, what is of kernel time a share of that.
    lost = re.findall(r"· <?([\d.]+) %(?! of kernel time)", others)
    assert not busy or sum(map(float, [busy.strip("<"), *lost])) <= 100.5
    for part in re.findall(r"\(<?([\d.]+) % \w+ alone", others):
        assert float(part) <= float(busy.strip("<"))


def test_a_finding_that_sums_up_others_is_no_worse_without_them(report: Report):
    trace, severity = recording(report), {}
    for row in report.findings:
        if row.finding.general and not row.finding.cause:
            severity[row.analysis, row.message] = row.severity
    for name in {analysis for analysis, _ in severity}:
        for row in traceview.analyze(trace, [name], tables=False).findings:
            told = severity.get((name, row.message), row.severity)
            assert told != "info" or row.severity == "info"


def test_each_idle_nanosecond_is_in_one_finding(report: Report):
    claimed: dict[int, intervals.Intervals] = {}
    for analysis, finding in above_info(report):
        if finding.lost is None or (finding.general and not finding.cause):
            continue
        before = claimed.get(finding.lost.device, intervals.EMPTY)
        both = intervals.intersection(before, finding.lost.time).total()
        assert both == 0, f"{analysis}: {finding.message}"
        claimed[finding.lost.device] = intervals.union(
            np.concatenate([before.start, finding.lost.time.start]),
            np.concatenate([before.end, finding.lost.time.end]),
        )


def test_no_two_findings_blame_one_interval_differently(report: Report):
    """Of all findings, notes included: a call that made the GPU wait may be named beside why."""
    blamed = [row for row in report.findings if row.finding.lost]
    for one, other in combinations(blamed, 2):
        lost, beside = one.finding.lost, other.finding.lost
        assert lost
        assert beside
        if lost.device != beside.device:
            continue
        causes = {one.finding.cause, other.finding.cause} - {""}
        names = {one.analysis, other.analysis}
        waits = "sync-stalls" in names and "steps" not in names
        alike = len(causes) < 2 and not (waits and causes - OF_CALLS)
        both = intervals.intersection(lost.time, beside.time).total()
        assert alike or both == 0, f"{one.finding.message}\n{other.finding.message}"


def test_the_training_phase_and_the_verdict_agree(report: Report):
    summary, phases = report.verdict, report["phases"]
    if summary is None or not isinstance(phases, Result) or len(steady_spans(report)) != 1:
        return
    training = {
        row["verdict"] for row in phases.tables["phases"].rows() if row["phase"] == "training"
    }
    assert not training & NOT_BESIDE.get(summary.limit, set()), (summary.text, training)


def test_cards_and_plan_are_one_order_and_say_one_number(report: Report):
    plan = report.plan
    if not plan:
        return
    # A note on a kernel may come before them.
    rated = (at for at, row in enumerate(report.findings) if row.severity != "info")
    first = next(at for at in rated if not in_doubt(report.findings[at]))
    assert plan[0].finding == first
    places = [step.finding for step in plan]
    assert places == sorted(places)
    card, saved_ns = report.findings[first], plan[0].step_before_ns - plan[0].step_after_ns
    assert card.forecast is not None
    assert card.won is not None
    of_run_ns = card.finding.time_at_stake_ns
    of_card_ns = card.forecast.saved_per_step_ns if card.won.per_step else of_run_ns
    assert of_card_ns == pytest.approx(saved_ns, abs=2)
    if card.won.per_step:
        assert card.forecast.step_ns == pytest.approx(plan[0].step_before_ns, abs=2)
    # A remedy wins alone what it wins as the first; later ones may win less, or more.
    alone = [report.findings[step.finding].won for step in plan]
    assert all(won and won.alone_ns >= 0 for won in alone)


def _parsed(number: str, unit: str) -> tuple[float, float]:
    """A printed time in ns, and half of its last digit."""
    factor, digits = UNITS[unit], len(number.partition(".")[2])
    return float(number.replace(",", "")) * factor, 0.5 * factor / 10**digits


UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
PART_OF_WHOLE = re.compile(
    r"([\d.,]+)(?: ± ([\d.,]+))?(?: ([nµm]?s))? of ([\d.,]+) ([nµm]?s)\b.*?\(<?([\d.]+) %\)"
)


def test_a_percentage_is_of_the_whole_printed_beside_it(report: Report):
    for row in report.findings:
        claimed = ranked_claim(row)
        match = PART_OF_WHOLE.search(claimed.parts()[0]) if claimed else None
        if match is None:
            continue
        number, error, unit, whole_number, whole_unit, pct = match.groups()
        part_ns, off_ns = _parsed(number, unit or whole_unit)
        if error:
            # Its digits are those of its error, which is 3.6 to 35 of them.
            off_ns = max(off_ns, _parsed(error, unit or whole_unit)[0] / 7)
        whole_ns, whole_off_ns = _parsed(whole_number, whole_unit)
        off = 100 * off_ns / whole_ns + 100 * part_ns * whole_off_ns / whole_ns**2
        shown = 0.5 / 10 ** len(pct.partition(".")[2])
        assert float(pct) == pytest.approx(100 * part_ns / whole_ns, abs=off + shown), claimed
        if row.won and row.won.place >= 0 and row.finding.severities[0] == "info":
            # No share is below its severity.
            least = {"high": HIGH, "medium": MEDIUM, "low": LOW}.get(row.severity, 0.0)
            assert float(pct) + shown >= 100 * least, (row.severity, claimed)


def test_what_a_finding_refers_to_comes_before_it(report: Report):
    """Whoever is told to look at another finding first has read it."""
    rated = [row for row in report.findings if row.severity != "info"]
    refers = (row.action.startswith("Look first at what comes after the wait") for row in rated)
    idle = [at for at, row in enumerate(rated) if row.analysis == "gpu-idle"]
    for at, after in enumerate(refers):
        assert not after or not idle or idle[0] < at


def test_idle_time_is_the_same_in_all_sums(report: Report):
    trace = recording(report)
    parts, times = steady_parts(trace), report.run_time
    if parts is None or times is None:
        return
    idle = idle_ns(trace, parts.device)
    steady_ns = device_work(trace)[parts.device].steady_ns
    assert steady_spans_ns(trace)[parts.device] == steady_ns + sum(idle.values())
    assert sum(parts.parts_ns.values()) == parts.span_ns
    by_name = {CAUSE_NAMES[cause]: time for cause, time in idle.items() if time}
    told = Counter[str]()
    for part in times.parts:
        if part.kind == "idle":
            # Behind an activity of the CPU launches are late.
            told[part.name if part.name in CAUSE_NAMES else "launch-late"] += part.time_ns
    assert told == by_name
    # The bar of the page names the time that the opening names.
    loading_ns = [part.time_ns for part in times.parts if part.name == "data-loading"]
    assert sum(loading_ns) == parts.parts_ns.get("data-loading", 0)
    causes = report["gpu-idle"].tables["causes"].rows()
    by_table = {
        row["cause"]: row["steady_idle_ns"]
        for row in causes
        if row["device_id"] == times.device_id and row["steady_idle_ns"]
    }
    assert by_table == by_name
    # Parts of steps, on one GPU to the nanosecond.
    if len(device_work(trace)) == 1:
        of_steps = step_parts(trace).part_ns.sum(axis=1)
        took = pace(trace).duration_ns
        assert (of_steps[of_steps > 0] == took[of_steps > 0]).all()
    if run_window(trace).device >= 0:
        compared = [part for part in idle_parts(trace) if part.name != AT_START]
        starts = [part.time_ns for part in idle_parts(trace) if part.name == AT_START]
        total = sum(part.time_ns for part in compared) + sum(starts)
        assert total == window_work(trace).idle.total()


def test_no_wait_is_to_be_removed_that_costs_less_than_what_follows(report: Report):
    for row in report.findings:
        finding = row.finding
        if row.analysis != "sync-stalls":
            continue
        after, own = (int(finding.evidence.values.get(n) or 0) for n in ("after_ns", "idle_ns"))
        asks = finding.action.startswith(("Remove it", "Read results", "Make the streams"))
        assert not (asks and after > own), finding.message


def test_a_largest_loss_of_idle_time_is_of_the_cause_that_the_verdict_names(report: Report):
    """By idle time: how much of it a remedy wins is another question."""
    board = report.scoreboard
    idle = [
        (row.finding.lost.time.total(), row.finding)
        for row in report.findings
        if row.analysis == "gpu-idle" and row.finding.lost and row.finding.cause
    ]
    if board is None or board.launch not in ("launch-bound", "sync-drained") or not idle:
        return
    _, largest = max(idle, key=lambda each: each[0])
    if board.launch == "launch-bound" and len(steady_spans(report)) == 1:
        assert largest.cause not in (CAUSE_NAMES[SYNC_DRAIN], CAUSE_NAMES[DEPENDENCY])


def test_a_first_finding_that_is_high_is_on_a_limit_that_the_opening_names(report: Report):
    first = next((row for row in report.findings if not in_doubt(row)), None)
    named = {*report.verdict.named} if report.verdict else set()
    # What lies outside of the steady time has no share of it, as compilation.
    if not first or not named or first.severity != "high" or not first.finding.share_of_step_pct:
        return
    if named & OF_LATE_LAUNCHES:
        named |= {"cpu-launch"}
    assert limit_of(first.analysis, first.finding) in {*named, "unknown"}


def steady_spans(report: Report) -> Mapping[int, int]:
    return steady_spans_ns(recording(report))
