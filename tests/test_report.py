"""A report runs the chosen analyses and ranks their findings."""

from queue import Queue
from threading import Event

import numpy as np
import pytest

import traceview
from tests.build import Export
from tests.render.example_report import a_report, a_trace, analyses
from traceview.base.errors import InputError
from traceview.base.findings import Finding
from traceview.base.tables import NULL, Table
from traceview.traces.analyses.base import Analysis, Failed, Result, Skipped
from traceview.traces.reporting import analyze, duration_ns, facts_of, ranked
from traceview.traces.trace.schema import TABLES


def test_findings_rank_by_severity_then_stake():
    found = a_report().findings
    assert [(f.finding.severity, f.finding.time_at_stake_ns) for f in found] == [
        ("high", 1_000_000),
        ("medium", 3_000_000),
        ("medium", 2_000_000),
        ("low", 1_000_000),
        ("info", 0),
    ]
    assert [f.analysis for f in found[:2]] == ["step-lead", "share-of-all"]


def test_equal_findings_keep_reading_order():
    same = Finding("low", "m", "a", 5)
    outcomes = {"b": Result({}, (same,)), "skipped": Skipped("r", "m"), "a": Result({}, (same,))}
    assert [f.analysis for f in ranked(outcomes)] == ["b", "a"]


def test_a_finding_that_doubts_the_whole_recording_comes_first():
    costly, doubt = Finding("high", "m", "a", 5), Finding("high", "partial", "a", 0)
    outcomes = {"gpu-idle": Result({}, (costly,)), "trace-health": Result({}, (doubt,))}
    assert [f.analysis for f in ranked(outcomes)] == ["trace-health", "gpu-idle"]


def test_a_peak_may_be_given_as_one_text():
    report = traceview.analyze(a_trace(), "roofline", peaks="bandwidth=4.8e12")
    assert report.trace.peaks == {"bandwidth": 4.8e12}


def test_only_keeps_reading_order():
    report = analyze(a_trace(), ["copies", "share-of-all"], analyses=analyses(["k"]))
    assert list(report.outcomes) == ["share-of-all", "copies"]
    assert isinstance(report.outcomes["copies"], Skipped)


def test_an_unknown_name_raises_with_the_closest_and_all_names():
    with pytest.raises(InputError) as caught:
        analyze(a_trace(), ["step-led"], analyses=analyses(["k"]))
    assert "no analysis is named 'step-led'" in str(caught.value)
    assert "did you mean step-lead? choose from: share-of-all, step-lead, copies" in str(
        caught.value
    )


@pytest.mark.parametrize("only", [(), ("gpu-idle",)])
def test_what_runs_beside_may_go_on_when_the_report_is_there(only):
    trace, is_there, seen = a_trace(), Event(), Queue()

    def beside(given):
        seen.put((given, is_there.wait(5)))

    analyze(trace, only, beside=beside)
    is_there.set()
    assert seen.get(timeout=5) == (trace, True)


def test_a_bug_in_an_analysis_is_named_and_not_hidden():
    def broken(trace):
        raise KeyError("bug")

    report = analyze(a_trace(), analyses=[Analysis("a", "A", "?", (), (), broken)])

    assert isinstance(report["a"], Failed)
    assert report["a"].reason == "internal error: KeyError: 'bug'"
    warning, *_ = report.trace.warnings
    assert warning.startswith("a failed, all else holds: internal error: KeyError: 'bug'; please")


def ranges(*times):
    rows = [
        {
            "start_ns": start,
            "end_ns": end,
            "thread": 0,
            "process": 0,
            "end_thread": None,
            "payload": None,
            "name": "r",
            "domain": None,
            "kind": "push-pop",
        }
        for start, end in times
    ]
    return Table.from_rows(TABLES["ranges"].columns, rows)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((), 0),
        (((100, 400), (50, 80)), 350),
        (((100, None), (300, None)), 200),
        (((100, None), (90, 120)), 30),
        (((500, 100),), 400),
        (((-(2**63) + 1, 2**63 - 1),), 2**64 - 2),
    ],
)
def test_duration_reaches_from_the_first_to_the_last_time(times, expected):
    assert duration_ns(a_trace(tables={"ranges": ranges(*times)})) == expected


def test_the_start_up_that_only_os_calls_show_is_part_of_the_duration(tmp_path):
    export = Export().os_call("open64", 0, 10).launch((500, 510), (520, 900))

    assert duration_ns(export.load(tmp_path)) == 900


def test_an_absent_end_is_not_a_time():
    table = ranges((100, None))
    assert table["end_ns"].tolist() == [NULL]
    assert duration_ns(a_trace(tables={"ranges": table})) == 0


def test_facts_keep_absent_and_empty_tables_apart():
    facts = facts_of(a_trace())
    assert facts.row_counts["kernels"] == 0
    assert "copies" not in facts.row_counts
    assert facts.gpus[0].sm_count == 132
    assert isinstance(facts.duration_ns, int)
    assert not isinstance(facts.duration_ns, np.integer)


def test_gpus_are_those_that_did_work_and_all_where_none_did(tmp_path):
    worked = Export().gpu(0).gpu(1).kernel_without_launch((0, 10), device=1)
    assert [gpu.device_id for gpu in facts_of(worked.load(tmp_path)).gpus] == [1]
    idle = Export().gpu(0).gpu(1).range("step", 0, 10)
    assert [gpu.device_id for gpu in facts_of(idle.load(tmp_path)).gpus] == [0, 1]


def test_a_report_is_asked_by_name_and_an_attribute_says_how(unpack):
    report = traceview.report(unpack("mlp_print_loss"))
    assert report["steps"]["series"] is report["steps"].tables["series"]
    assert list(report["steps"]) == list(report["steps"].tables)
    with pytest.raises(InputError, match=r"no table 'serie'.*series"):
        report["steps"]["serie"]
    with pytest.raises(AttributeError, match=r"'gpu_idle': write report\['gpu-idle'\]$"):
        _ = report.gpu_idle
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = report.nothing


def test_facts_say_where_the_trace_is(unpack):
    report = traceview.report(unpack("mlp_sync"))

    with pytest.raises(AttributeError, match=r"no 'kernels'; report\.recording is the trace"):
        _ = report.trace.kernels
    assert len(report.recording.kernels)
