"""Loops that something outside of CUDA paces, and others that wait as long without a pace."""

import numpy as np
import pytest

import traceview
from tests.build import Export
from traceview.traces.facts.pacing import paced, paced_loops

US, MS = 1_000, 1_000_000
PERIOD = 10 * MS


def loop(seed, kind, api="clock_nanosleep", passes=60, helper=0.0):
    """Passes that compute for 1 to 4 ms on the CPU and the GPU, then wait as `kind` says.

    Without `api`, only scheduling shows the waits; another thread works for the part `helper` of
    each.
    """
    draw, export, at, turn = np.random.default_rng(seed), Export(), MS, MS
    helped = 0
    for _ in range(passes):
        woke = at
        work = int(draw.uniform(1, 4) * MS)
        for number in range(3):
            begin = at + number * work // 3
            span = (begin + 20 * US, begin + 20 * US + work // 4)
            export.launch((begin, begin + 5 * US), span, name=f"k{number}")
        at += work
        turn += PERIOD
        ends = {
            "paced": turn + int(draw.normal(0, 10 * US)),
            "limited": woke + PERIOD + int(draw.uniform(50, 90) * US),
            "fixed": at + 6 * MS + int(draw.uniform(50, 90) * US),
            "random": at + int(draw.uniform(4, 9) * MS),
            "alike": at + PERIOD - work,
            "gpu": turn,
        }
        end = ends[kind]
        if kind == "gpu":
            export.launch((at, at + 5 * US), (at + 10 * US, end - 30 * US), name="long")
            at += 10 * US
        if kind == "cuda":
            export.call("cudaDeviceSynchronize", at, end)
        if api:
            export.os_call(api, at, end)
        else:
            # Threads wait for locks and interrupts for a moment, too.
            export.off_cpu((woke + 10 * US, woke + 15 * US), (at, end))
            if helper:
                export.call("cudaGetDevice", at, at + US, thread=20)
                export.off_cpu((helped, at), thread=20, cpu=1)
                helped = at + int(helper * (end - at))
        at = end + 20 * US
    if not api:
        export.python_sample(5 * MS, ("/home/me/camera.py", 9, "next_frame"))
    return export


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("api", ["clock_nanosleep", "poll", "epoll_wait", "select", "nanosleep"])
@pytest.mark.parametrize("kind", ["paced", "limited"])
def test_waits_that_make_up_for_the_work_show_a_pace(tmp_path, seed, api, kind):
    export = loop(seed, kind, api).python_sample(5 * MS, ("/home/me/camera.py", 9, "next_frame"))
    [found] = paced_loops(export.load(tmp_path))
    assert (found.api, len(found.call)) == (api, 59)
    assert found.period_ns == pytest.approx(PERIOD, rel=0.02)
    assert found.usual_wait_ns == pytest.approx(7.5 * MS, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kind", "helper", "shows"),
    [
        ("paced", 0.0, True),
        ("paced", 0.4, True),
        ("paced", 0.6, False),
        ("limited", 0.2, True),
        ("fixed", 0.0, False),
        ("random", 0.0, False),
        ("gpu", 0.0, False),
    ],
)
def test_scheduling_shows_a_pace_unless_other_threads_work(tmp_path, seed, kind, helper, shows):
    found = paced_loops(loop(seed, kind, "", helper=helper).load(tmp_path))
    assert [each.api for each in found] == [""] * shows
    assert all(each.period_ns == pytest.approx(PERIOD, rel=0.05) for each in found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kind", "api"),
    [
        ("fixed", "clock_nanosleep"),
        ("random", "poll"),
        ("gpu", "usleep"),
        ("paced", "pthread_cond_wait"),
        ("paced", "read"),
    ],
)
def test_other_waits_show_none(tmp_path, seed, kind, api):
    assert not paced_loops(loop(seed, kind, api).load(tmp_path))


WORKERS = "/usr/lib/python3.12/multiprocessing/connection.py"


@pytest.mark.parametrize("file", [None, WORKERS, "/x/torch/utils/data/dataloader.py"])
@pytest.mark.parametrize("api", ["poll", "select", "clock_nanosleep"])
def test_workers_of_the_program_are_nothing_outside(tmp_path, file, api):
    """They load at a steady pace as well, and can be made faster."""
    export = loop(2, "paced", api)
    if file:
        export.python_sample(5 * MS, (file, 9, "wait"))
    assert bool(paced_loops(export.load(tmp_path))) is (api == "clock_nanosleep")


def test_a_pass_that_never_differs_shows_none(tmp_path):
    export, at = Export(), MS
    for _ in range(60):
        export.launch((at, at + 5 * US), (at + 20 * US, at + MS))
        export.os_call("clock_nanosleep", at + 2 * MS, at + PERIOD - 20 * US)
        at += PERIOD
    assert not paced_loops(export.load(tmp_path))


def test_a_gpu_without_launches_has_no_pace(tmp_path):
    trace = loop(1, "paced").load(tmp_path)
    assert paced(trace, 0)
    assert not paced(trace, 1)


@pytest.mark.parametrize("api", ["clock_nanosleep", ""])
@pytest.mark.parametrize("kind", ["paced", "fixed"])
def test_nothing_claims_time_of_a_paced_loop(tmp_path, kind, api):
    export = loop(1, kind, api)
    for number in range(400):
        export.native_sample(MS + number * 1_500 * US, ("libx.so", "work"))
    report = traceview.analyze(export.load(tmp_path))
    said = [each.finding for each in report.findings if " of a pass it " in each.finding.message]
    assert len(said) == (kind == "paced")
    assert (report.findings[0].finding in said) == (kind == "paced")
    assert (report.scoreboard.launch == "paced") == (kind == "paced")
    won = max(each.finding.time_at_stake_ns for each in report.findings)
    assert (won < 60 * MS // 10) is (kind == "paced")
