"""Warm-up as the names of ranges declare it."""

import pytest

from tests.build import Export
from traceview.traces.analyses import gpu_idle, run_ahead, sync_stalls
from traceview.traces.analyses.wording import warm_up_notes
from traceview.traces.facts.idle.gaps import device_work, gaps, steady_span_ns
from traceview.traces.facts.steps.steps import (
    in_warm_up_range,
    operations_in_warm_up,
    operations_in_warm_up_ranges,
)
from traceview.traces.trace import Selection


def program(name: str = "warm_up") -> Export:
    """A warm-up deep inside other ranges, of two kernels; then two more."""
    return (
        Export()
        .range("main", 0, 1000)
        .range("phase", 5, 990)
        .range(name, 10, 200)
        .launch((20, 30), (40, 100))
        .launch((150, 160), (170, 230))
        .launch((300, 310), (320, 400), name="k2")
        .launch((500, 510), (520, 600), name="k2")
    )


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("warm_up", True),
        ("warmup", True),
        ("Warm-Up", True),
        ("WARM UP", True),
        ('warm_up {"bytes": 8}', True),
        ("[model|0|warmup|forward]", True),
        ("train/Warm-up", True),
        ("warm_up_lr", False),
        ("train/warmup_lr", False),
        ("swarm_up", False),
        ("setup", False),
        ("warm", False),
    ],
)
def test_the_name_alone_tells(name, counts, tmp_path):
    trace = program(name).load(tmp_path)
    warm = operations_in_warm_up_ranges(trace)
    assert (warm.tolist() if counts else warm) == ([True, True, False, False] if counts else None)
    assert operations_in_warm_up(trace).tolist() == [counts, counts, False, False]


def test_work_and_gaps_of_warm_up_are_no_steady_time(tmp_path):
    trace = program().load(tmp_path)
    assert device_work(trace)[0] == (280, 160)
    found = gaps(trace)
    assert found.idle_ns.tolist() == [70, 90, 120]
    assert found.one_time.tolist() == [True, False, False]
    assert steady_span_ns(trace) == 160 + 90 + 120
    notes = gpu_idle.ANALYSIS.run(trace).notes
    assert notes[0] == "2 operations launched in ranges named warm_up count as warm-up."


def test_a_gpu_that_did_nothing_but_warm_up_has_no_steady_share(tmp_path):
    """Not 0 %, which would say that it was idle."""
    trace = program().launch((60, 70), (80, 90), device=1).load(tmp_path)
    devices = gpu_idle.ANALYSIS.run(trace).tables["devices"]
    share = dict(zip(devices.cells("device_id"), devices.cells("steady_busy_pct"), strict=True))
    assert share[1] is None
    assert share[0] == 100 * 160 / 370


def test_the_verdict_on_a_gpu_that_did_nothing_but_warm_up_is_of_that(tmp_path):
    export = program().launch((60, 70), (80, 90), device=1).launch((150, 190), (191, 195), device=1)
    devices = run_ahead.ANALYSIS.run(export.load(tmp_path)).tables["devices"]
    assert devices.cells("steady_idle_pct")[1] is None
    assert devices.cells("verdict")[1] == "launch-bound"


def test_only_the_process_that_warms_up(tmp_path):
    export = program().launch((50, 60), (70, 80), process=2)
    trace = export.load(tmp_path)
    assert operations_in_warm_up_ranges(trace).sum() == 2


def test_a_synchronization_in_warm_up_is_no_finding(tmp_path):
    def findings(name: str, folder: str) -> int:
        export = (
            Export()
            .range(name, 0, 5000)
            .launch((0, 2), (10, 1000), name="k")
            .sync("cudaStreamSynchronize_v3020", 3, 1010)
            .launch((1800, 1810), (2000, 2500), name="k")
            .launch((6000, 6010), (6100, 9000), name="k")
        )
        (tmp_path / folder).mkdir()
        trace = export.load(tmp_path / folder)
        return len(sync_stalls.ANALYSIS.run(trace).findings)

    assert findings("work", "a") == 1
    assert findings("warm_up", "b") == 0


def test_where_warm_up_alone_was_selected_it_counts(tmp_path):
    trace = program().load(tmp_path)
    chosen = trace.but(selection=Selection(("warm_up",)))
    assert operations_in_warm_up_ranges(chosen) is None
    assert warm_up_notes(chosen) == ()
    assert warm_up_notes(trace)
    part = trace.but(selection=Selection(("phase",)))
    assert operations_in_warm_up_ranges(part).sum() == 2


def test_a_trace_without_ranges(tmp_path):
    trace = Export().launch((0, 1), (2, 3)).load(tmp_path)
    calls = trace.api_calls
    assert operations_in_warm_up_ranges(trace) is None
    assert not in_warm_up_range(trace, calls["process"], calls["start_ns"]).any()
