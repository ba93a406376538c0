"""Idle time by function of a C++ program: from samples of native code, and from waits."""

import random

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.base.intervals import Intervals
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.facts.idle.stack_sites import OffCpu, cut_gaps
from traceview.traces.facts.ranges.ranges import pattern_of

MS, US = 1_000_000, 1_000
SIM, LIBC = "/home/ada/sim", "/usr/lib/libc.so.6"
WORK = ((SIM, "sim::checksum(double*)"), (SIM, "main"))
NAP = ((LIBC, "usleep"), (SIM, "throttle()"), (SIM, "main"))
LAUNCH = ((SIM, "cudaLaunchKernel"), (SIM, "step(float*)"), (SIM, "main"))
CELLS = ("file", "line", "function", "inner", "activity", "samples", "idle_ns")
STEPS = 20


def loop() -> Export:
    """Steps of 1 ms of GPU work and 9 ms without, launched at its end."""
    export = Export()
    for step in range(STEPS):
        start = 10 * step * MS
        export.launch((start - 5_000, start - 3_000), (start, start + MS))
    return export


def sleeping(export: Export) -> Export:
    """Off the CPU for 4 ms of each gap, in usleep; a sample in each of the other 5."""
    for step in range(STEPS):
        start = 10 * step * MS
        export.os_call("usleep", start + 2 * MS, start + 6 * MS, *NAP)
        for at in (1, 6, 7, 8, 9):
            export.native_sample(start + at * MS + MS // 2, *WORK)
    return export.off_cpu(*((10 * s * MS + 2 * MS, 10 * s * MS + 6 * MS) for s in range(STEPS)))


def test_samples_share_the_time_on_the_cpu_and_waits_have_their_own(tmp_path):
    result = ask(ANALYSIS, sleeping(loop()), tmp_path)
    assert rows(result, "lines", *CELLS) == [
        (SIM, None, "sim::checksum(double*)", None, "cpu", 95, 19 * 5 * MS),
        (SIM, None, "throttle()", "usleep", "sleep", 0, 19 * 4 * MS),
    ]


RANGES = (
    ["fetch"] * STEPS,
    ["fetch", "forward"] * (STEPS // 2),
    [*map("layer_{}".format, range(STEPS))],
)


@pytest.mark.parametrize("names", RANGES)
def test_time_off_the_cpu_without_samples_is_in_its_range(tmp_path, names):
    export = loop().off_cpu(*((10 * s * MS + 2 * MS, 10 * s * MS + 9 * MS) for s in range(STEPS)))
    for step, name in enumerate(names):
        export.range(name, 10 * step * MS + 2 * MS, 10 * step * MS + 9 * MS)
    off = ask(ANALYSIS, export, tmp_path).findings[0]
    assert "the launching thread was not running" in off.message
    assert off.outside
    assert f"was in {pattern_of(names[0])}." in off.message


def test_what_is_left_of_late_launches_saves_no_sleep(tmp_path):
    export = Export()
    for step in range(STEPS):
        start = 10 * step * MS
        export.range("CPU code", start + 2 * MS, start + 8 * MS)
        export.os_call("usleep", start + 2 * MS, start + 8 * MS, *NAP)
        export.launch((start - 5_000, start - 3_000), (start, start + MS))
    findings = ask(ANALYSIS, export, tmp_path).findings
    slept, rest = (
        next(each for each in findings if words in each.message)
        for words in ("while the CPU slept", "not counting 114 ms of sleeping")
    )
    assert slept.evidence.values["idle_ns"] == 19 * 6 * MS
    assert rest.time_at_stake_ns <= rest.evidence.values["idle_ns"]


def test_the_findings_name_the_functions(tmp_path):
    slept, worked = ask(ANALYSIS, sleeping(loop()), tmp_path).findings[:2]
    assert slept.message == (
        "The GPU sat idle for 76.0 ms (19 gaps) while the CPU slept. "
        "All of it was in throttle (sim), calling usleep."
    )
    assert worked.message == (
        "The GPU sat idle for 95.0 ms (19 gaps) while the CPU did other work than launching. "
        "All of it was in sim::checksum (sim)."
    )
    assert (worked.subject.kind, worked.subject.name) == ("line", "sim::checksum")
    assert worked.evidence.row["function"] == "sim::checksum(double*)"


def test_without_scheduling_events_a_sample_stands_for_no_more_than_its_period(tmp_path):
    """Between samples that are far apart the thread may have waited for anything."""
    export = loop()
    for step in range(STEPS):
        for at in (1, 2, 3):
            export.native_sample(10 * step * MS + at * MS + MS // 2, *WORK)
    result = ask(ANALYSIS, export, tmp_path)
    assert rows(result, "lines", "samples", "idle_ns") == [(57, 57 * 2 * MS)]
    assert (
        "Samples and waits show the function for 114 ms of the 171 ms that the GPU sat idle "
        "waiting for the CPU."
    ) in result.notes


def test_off_the_cpu_without_a_call_is_told_as_such(tmp_path):
    export = loop().off_cpu(*((10 * s * MS + 2 * MS, 10 * s * MS + 9 * MS) for s in range(STEPS)))
    result = ask(ANALYSIS, export, tmp_path)
    assert rows(result, "lines", *CELLS) == [
        (None, None, None, None, "off-cpu", 0, 19 * 7 * MS),
    ]
    assert result.findings[0].message == (
        "The GPU sat idle for 133 ms (19 gaps) while the launching thread was not running."
    )


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("off_us", [20, 300, 1_100])
def test_short_times_off_the_cpu_are_pages_where_a_program_shares_them(
    tmp_path, managed, traced, off_us
):
    """Such as the first touch of what it allocates in each pass."""
    export = Export()
    for step in range(STEPS):
        start = 2_000 * US * step
        export.launch((start - 5_000, start - 3_000), (start, start + 400 * US))
        export.off_cpu((start + 500 * US, start + (500 + off_us) * US))
    if managed:
        export.copy((1, 2), (3, 4), source="managed")
    if traced:
        export.os_call("read", 0, 10, (LIBC, "read"))
    result = ask(ANALYSIS, export, tmp_path)

    is_pages = managed and traced and off_us < 1_000
    [activity] = {row[0] for row in rows(result, "lines", "activity")}
    assert activity == ("pages" if is_pages else "off-cpu")
    said = "touched pages of unified memory" if is_pages else "was not running"
    assert any(said in each.message for each in result.findings) or off_us == 20


def test_a_wait_in_a_cuda_call_is_that_call(tmp_path):
    export = loop()
    for step in range(STEPS):
        start, end = 10 * step * MS + 2 * MS, 10 * step * MS + 9 * MS
        export.call("cudaMallocHost", start, end)
        export.os_call("ioctl", start + 10, end - 10, (LIBC, "ioctl"), *LAUNCH[1:]).off_cpu(
            (start + 10, end - 10)
        )
    result = ask(ANALYSIS, export, tmp_path)
    assert {row[0] for row in rows(result, "lines", "activity")} == {"cpu"}


def test_few_samples_name_no_function(tmp_path):
    export = loop().off_cpu()
    export.native_sample(MS + MS // 2, *WORK).native_sample(2 * MS, *WORK)
    result = ask(ANALYSIS, export, tmp_path)
    assert len(rows(result, "lines", "function")) == 1
    assert "checksum" not in " ".join(finding.message for finding in result.findings)


def test_python_samples_come_first(tmp_path):
    export = sleeping(loop())
    for number in range(STEPS * 10):
        export.python_sample(number * MS + MS // 2, ("/work/train.py", 3, "load"))
    result = ask(ANALYSIS, export, tmp_path)
    assert {row[0] for row in rows(result, "lines", "file")} == {"/work/train.py"}


def test_pieces_add_up_to_the_gaps():
    """By brute force, one tick at a time."""
    chance = random.Random(5)
    for _ in range(50):
        edges = np.array(sorted(chance.sample(range(200), 12)), np.int64)
        idle = Intervals(edges[::2], edges[1::2])
        away = np.array(sorted(chance.sample(range(200), 10)), np.int64)
        waits = OffCpu(away[::2], away[1::2], np.arange(5), np.zeros(5, np.uint8))
        pieces = cut_gaps(idle, waits)
        ticks = {
            (int(gap), int(wait), tick)
            for gap, start, end, wait in zip(*pieces, strict=True)
            for tick in range(start, end)
        }
        expected = set()
        for gap, (start, end) in enumerate(zip(*idle, strict=True)):
            for tick in range(start, end):
                spans = zip(waits.start, waits.end, strict=True)
                wait = next((row for row, (a, b) in enumerate(spans) if a <= tick < b), -1)
                expected.add((gap, wait, tick))
        assert ticks == expected


def test_work_in_one_of_many_steps_may_be_there_once(tmp_path):
    export, at = Export(), 0
    for step in range(STEPS):
        export.range(f"step_{step}", at - 5_000, at + MS - 6_000)
        export.launch((at - 5_000, at - 3_000), (at, at + MS))
        at += MS
        if step == 10:
            for sample in range(100):
                export.native_sample(at + sample * MS + MS // 2, *WORK)
            at += 100 * MS

    worked = ask(ANALYSIS, export, tmp_path).findings[0]

    assert worked.message.startswith("The GPU sat idle for 100 ms (1 gap) while the CPU did other")
    assert worked.severity == "medium"
    assert worked.action.startswith("If every step does this, take this CPU work")


def test_arrays_that_a_directive_copies_stay_on_the_gpu_in_a_data_region(tmp_path):
    export = loop()
    for step in range(STEPS):
        for at in range(1, 10):
            export.native_sample(
                10 * step * MS + at * MS + MS // 2,
                (LIBC, "memcpy"), (SIM, "__pgi_uacc_dataonb2"), (SIM, "push_"), (SIM, "main"),
            )  # fmt: skip

    [worked] = [f for f in ask(ANALYSIS, export, tmp_path).findings if "push_" in f.message]

    assert worked.action.startswith("Keep these arrays on the GPU: open a data region")


PYTHON = ("/usr/bin/python3.12", "_PyEval_EvalFrameDefault")
SORT = "/venv/lib/python3.12/site-packages/numpy/_core/_multiarray_umath.cpython-312.so"
TORCH = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"


def without_python_samples(module: str, function: str) -> Export:
    """A thread of Python, of which only native code was sampled: ten times in each gap."""
    export = loop()
    for step in range(STEPS):
        for at in range(10):
            time = 10 * step * MS + MS // 2 + at * MS
            export.native_sample(time, (module, "inner"), (module, function), PYTHON)
    return export


def test_what_python_called_is_named_where_no_line_is_known(tmp_path):
    found = ask(ANALYSIS, without_python_samples(SORT, "array_sort"), tmp_path)
    first = found.findings[0]
    assert "All of it was in array_sort (_multiarray_umath" in first.message
    assert "calling inner" in first.message
    [row] = rows(found, "lines", *CELLS)
    assert row[:5] == (SORT, None, "array_sort", "inner", "cpu")
    assert row[6] == 19 * 9 * MS


def test_what_launches_is_no_other_work(tmp_path):
    found = ask(ANALYSIS, without_python_samples(TORCH, "at::_ops::add::call"), tmp_path)
    assert "array" not in found.findings[0].message
    assert "at::_ops" not in found.findings[0].message


@pytest.mark.parametrize(
    "instances",
    [
        ("void check<float>(float*, int)", "void check<double>(double*, int)"),
        (
            "int a::check<__half, 2>(int)",
            "int a::check<float, 1>(int)",
            "int a::check<int, 1>(int)",
        ),
    ],
)
def test_the_instances_of_a_template_are_one_function(tmp_path, instances):
    export = loop()
    for step in range(STEPS):
        for at in range(1, 10):
            function = instances[step % len(instances)]
            export.native_sample(10 * step * MS + at * MS, (SIM, function), (SIM, "main"))
    [said] = (
        each for each in ask(ANALYSIS, export, tmp_path).findings if "other work" in each.message
    )
    assert "check (sim)" in said.message
    assert said.time_at_stake_ns == pytest.approx(9 * (STEPS - 1) * MS, rel=0.1)
