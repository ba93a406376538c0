"""The loops of a recording with their shares, and what the report leaves out."""

import re

import pytest

import traceview
from tests.build import Export
from tests.places import DATA
from traceview.traces.analyses.verdict import verdict
from traceview.traces.analyses.verdict.loops import LoopShare, RunShares, shares_text
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.reporting import duration_ns
from traceview.traces.trace import Selection

LINES = {
    # One loop that is nearly all of the recording, and one of which the program's start is most.
    "comparison/blocks": "",
    "foreign/nanogpt": "Of 12.1 s recorded: steps 4.9 % · start-up and warm-up 89.4 % · "
    "after 5.6 %",
    "cuda_graphs": "Of 3.98 s recorded: eager_# 0.5 % (6 steps of 3.59 ms) · replay_# 0.1 % "
    "(7 steps of 472 µs) · start-up and warm-up 90.4 % · after 8.6 %",
    # Loops over sizes are named by what they share.
    "workloads/mlp_sweep": "Of 8.13 s recorded: batch_#/step_# 0.3 % (8 steps of 2.21 ms) · "
    "dim_#/step_# 0.2 % (6 steps of 3.01 ms) · layers_#/step_# 0.2 % (5 steps of 2.38 ms) · "
    "start-up and warm-up 86.1 % · between steps 5.1 % · after 8.1 %",
    # Threads that run the same loop at once.
    "threads": "Of 3.96 s recorded: steps 1.0 % · start-up and warm-up 90.3 % · after 8.7 %",
    "launches": "Of 6.72 s recorded: first to last GPU work 33.4 % · before 56.5 % · after 10.1 %",
}


@pytest.mark.parametrize("name", LINES)
def test_a_report_says_which_part_of_the_run_it_is_about(name):
    assert verdict(loaded(name)).shares_text == LINES[name]


@pytest.mark.parametrize("name", [*LINES, "two_gpus", "two_processes", "foreign/cupy_gmm"])
def test_loops_and_what_is_outside_of_them_are_the_recording(name):
    trace = loaded(name)
    shares = verdict(trace).shares
    assert shares.run_ns == duration_ns(trace)
    inside_ns = shares.run_ns - shares.outside_ns
    assert min(shares.before_ns, shares.between_ns, shares.after_ns) >= 0
    times = [loop.time_ns for loop in shares.loops]
    # Loops of several threads may run at once.
    assert max(times, default=inside_ns) <= inside_ns <= sum(times or [inside_ns])


def test_a_selection_leaves_out_the_rest_anyway():
    trace = loaded("cuda_graphs").but(selection=Selection(("replay_*",)))
    assert (verdict(trace).shares, verdict(trace).shares_text) == (None, "")


def test_an_empty_recording_has_no_shares(tmp_path):
    found = verdict(Export().load(tmp_path))
    assert (found.shares.run_ns, found.shares.loops, found.shares_text) == (0, (), "")


def test_two_loops_by_hand(tmp_path):
    export = Export()
    for step in range(4):
        at = 1_000 + 100 * step
        export.range(f"train_{step}", at, at + 90).launch((at, at + 5), (at + 10, at + 100))
    for step in range(4):
        at = 2_000 + 50 * step
        export.range(f"test_{step}", at, at + 40).launch((at, at + 5), (at + 10, at + 50))
    export.range("end", 2_900, 3_000)
    shares = verdict(export.load(tmp_path)).shares
    assert [(loop.name, loop.steps, loop.step_median_ns) for loop in shares.loops] == [
        ("train_#", 3, 100),
        ("test_#", 4, 50),
    ]
    assert [loop.time_ns for loop in shares.loops] == [300, 200]
    # The first step of the program is warm-up.
    assert (shares.run_ns, shares.before_ns, shares.between_ns, shares.after_ns) == (
        *(2_000, 100, 600, 800),
    )


def loaded(name):
    return with_steps(traceview.load(DATA / f"{name}.sqlite.xz"))


@pytest.mark.parametrize("warms_up", [True, False])
def test_gpu_work_before_what_is_judged_is_not_said_to_be_missing(warms_up):
    text = shares_text(RunShares(1_000, (), 900, 0, 50), warms_up)
    assert ("first to last GPU work" in text) is not warms_up
    assert text.endswith("5.0 % · before 90.0 % · after 5.0 %")


MS, US = 1_000_000, 1_000


@pytest.mark.parametrize(
    ("copies", "copy_ms", "said"), [(3, 25, True), (1, 60, True), (1, 1, False)]
)
@pytest.mark.parametrize("steps", [40, 100])
def test_what_comes_after_the_loop_is_said_to_be_outside_of_it(
    tmp_path, copies, copy_ms, said, steps
):
    """A benchmark of short passes copies its results back in the end."""
    export, at = Export(), 0
    for _ in range(steps):
        for name in ("copy", "mul", "dot"):
            export.launch((at, at + 5 * US), (at + 6 * US, at + 86 * US), name=name)
            export.sync("cudaDeviceSynchronize_v3020", at + 6 * US, at + 87 * US)
            at += 90 * US
    for _ in range(copies):
        ends = {"kind": "D2H", "source": "device", "destination": "pageable"}
        end = at + copy_ms * MS
        export.copy((at, end), (at + 20 * US, end - 10 * US), bytes=copy_ms * 10**6, **ends)
        at = end + 50 * US

    text = verdict(with_steps(export.load(tmp_path))).text

    assert (" copies alone outside the steps)" in text) is said
    assert ("copies" in text) is said


@pytest.mark.parametrize(
    ("pause_us", "apart"),
    [
        ((60, 200), True),
        # What one loop alone loses is one finding.
        ((60, 8), False),
    ],
)
@pytest.mark.parametrize("loops", [("train/step_{}", "eval/batch_{}"), ("first_{}", "second_{}")])
def test_late_launches_of_two_loops_are_two_findings(tmp_path, pause_us, apart, loops):
    export, at = Export(), 0
    for _ in range(2):
        for name, pause, kernels in zip(loops, pause_us, (6, 3), strict=True):
            for step in range(50):
                begin = at
                for number in range(kernels):
                    kernel = (at + 6 * US, at + 6 * US + min(pause, 20) * US)
                    export.launch((at, at + 5 * US), kernel, name=f"{name}_{number}")
                    at += pause * US
                export.range(name.format(step), begin, at - 100)

    report = traceview.analyze(export.load(tmp_path))

    late = [
        each.finding
        for each in report.findings
        if each.analysis == "gpu-idle" and "waiting for the CPU to launch" in each.finding.message
    ]
    assert len(late) == 1 + apart
    patterns = {each.evidence.values["range_pattern"] for each in late}
    assert len(patterns) == len(late)


@pytest.mark.parametrize("share", [10.0, 24.0, 60.0, 90.0])
def test_loops_that_run_at_once_have_no_share_in_all(share):
    loops = tuple(LoopShare(f"loop {n}", 1, 4, 1_000, 1_000, share) for n in range(5))
    text = shares_text(RunShares(100_000, loops, 0, 0, 0))
    assert text.endswith(f"2 other loops {2 * share:.1f} %" if share < 21 else "2 other loops")


@pytest.mark.parametrize("table", ["api", "os"])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("parts", [(100,), (95, 5), (50, 30, 20)])
@pytest.mark.parametrize("took_ms", [5, 60])
def test_a_call_that_takes_much_of_a_run_is_named(tmp_path, table, where, parts, took_ms):
    """Before or after all GPU work; the first call of CUDA starts it, whichever that is."""
    export, begin = Export(), (took_ms * MS if where == "before" else 0)
    export.launch((begin, begin + 5 * US), (begin + 10 * US, begin + 100 * MS))
    at = 0 if where == "before" else begin + 100 * MS
    for part in parts:
        end = at + part * took_ms * MS // 100
        if table == "api":
            # What it waits for inside is its own time.
            export.call("cudaHostAlloc_v3020", at, end).os_call("ioctl", at, end)
        else:
            export.os_call("getc", at, end)
        at = end

    text = verdict(with_steps(export.load(tmp_path))).shares_text

    named = "getc" if table == "os" else "cudaHostAlloc"
    once = parts[0] > 90
    first = "the first " if table == "api" and once else ""
    waiting = "waiting for input " if table == "os" and once else ""
    share = f" ({100 * took_ms / (100 + took_ms):.1f} % {waiting}in {first}{named})"
    assert (f"{where} 37.5 %{share}" in text) is (took_ms == 60)
    assert ("(" in text) is (took_ms == 60)


@pytest.mark.parametrize("module", ["/lib/libc.so.6", "/usr/bin/python3.12", None])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("took_s", [0.5, 4])
@pytest.mark.parametrize("does", ["works", "sleeps", "leaves", "another"])
def test_the_cpu_work_of_a_compiled_program_is_named(tmp_path, module, where, took_s, does):
    """Without samples, and whatever the system's calls are: what it does between none of them."""
    export, took = Export().overhead(0, 1), int(took_s * 1000) * MS
    begin = took if where == "before" else 0
    export.launch((begin, begin + 5 * US), (begin + 10 * US, begin + 100 * MS))
    at = 0 if where == "before" else begin + 100 * MS
    frames = [(module, "main")] * bool(module)
    if does == "sleeps":
        export.os_call("nanosleep", at + MS, at + took - MS, *frames)
    if does == "leaves":
        export.off_cpu((at + MS, at + took - MS))
    if does == "another":
        # When the process began that launches is not known then.
        export.call("cudaGetDeviceCount_v3020", 0, US, process=2)
    # Before or after, the whole is as long.
    export.os_call("write", begin + 100 * MS, begin + 100 * MS + US, *frames)
    export.call("cudaFree_v3020", at + took - 2 * US, at + took - US)

    text = verdict(with_steps(export.load(tmp_path))).shares_text

    known = does == "works" or (does == "another" and where == "after")
    # After a call of CUDA no program imports: there, the finding tells of it.
    named = known and took_s > 1 and ("libc" in (module or "") or where == "after")
    assert ("% CPU work)" in text) is named
    assert ("% in nanosleep)" in text) is (does == "sleeps" and took_s > 0)


@pytest.mark.parametrize("steps", [6, 9])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_steps_are_counted_by_thread_as_the_opening_counts_them(tmp_path, threads, steps):
    export, at = Export(), 0
    for number in range(steps):
        for thread in range(threads):
            begin, own = at + 10 * US * thread, {"thread": 100 + thread}
            export.range(f"train_{number}", begin, begin + 900 * US, **own)
            call, stream = begin + 20 * US, 7 + thread
            span = (call + 5 * US, call + 800 * US)
            export.launch((call, call + 4 * US), span, stream=stream, **own)
        at += MS
    for number in range(4):
        export.range(f"test_{number}", at, at + 90 * US, thread=100)
        export.launch((at, at + 4 * US), (at + 5 * US, at + 80 * US), thread=100)
        at += 100 * US

    told = verdict(with_steps(export.load(tmp_path)))

    counted = re.search(r"train_# [\d.]+ % \((\d+) steps? of [\d.]+ \w+(.*?)\)", told.shares_text)
    assert counted
    # The first step may be warm-up to one and not to the other.
    assert told.text.startswith(f"{steps} steps of")
    assert int(counted[1]) in (steps - 1, steps)
    assert counted[2] == (f" on each of {threads} threads" if threads > 1 else "")
