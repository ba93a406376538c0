"""CPU work before or after all GPU work, which a run may be about, and what is none."""

import pytest

import traceview
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS, S = 1_000_000, 1_000_000_000


def run(where, kind, took=4 * S, gpu=100 * MS, kernels=3):
    """A run that calls CUDA, works or waits for `took`, and whose GPU works before or after it."""
    export, at = Export(), 10 * MS
    export.call("cudaMalloc_v3020", at, at + 5 * MS)
    at += 10 * MS
    first, begin = at, at + (took if where == "before" else 0)
    for number in range(kernels):
        start = begin + number * gpu // kernels
        export.launch((start, start + 5_000), (start + 10_000, start + gpu // kernels))
    end = begin + gpu
    export.call("cudaDeviceSynchronize_v3020", end - MS, end + 1_000)
    at = end + (took if where == "after" else 0)
    span = (end + 2_000, at) if where == "after" else (first, begin)
    if kind == "input":
        export.os_call("read", *span)
    elif kind == "sleep":
        export.off_cpu(span)
    elif kind == "calls":
        for each in range(span[0], span[1], 200 * MS):
            export.call("cudaMemGetInfo_v3020", each, each + 1_000)
    elif kind == "known":
        export.os_call("write", span[0], span[0] + 50_000)
    elif kind == "scheduled":
        export.off_cpu((span[0] + MS, span[0] + 2 * MS))
    export.call("cudaFree_v3020", at + 1_000, at + MS)
    return export


def of_run(export, tmp_path):
    said = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in said if "GPU work the CPU works for" in each.message]


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ["known", "scheduled"])
@pytest.mark.parametrize("gpu", [1 * MS, 100 * MS, 350 * MS])
def test_cpu_work_that_takes_most_of_a_run_comes_first(tmp_path, where, kind, gpu):
    [found] = of_run(run(where, kind, gpu=gpu), tmp_path)

    assert found.time_at_stake_ns == pytest.approx(4 * S, rel=0.01)
    assert found.message.startswith("After" if where == "after" else "Before")
    assert found.action.startswith("Take it out of the run")
    assert found.share_of_step_pct is None


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ["known", "sleep", "input"])
def test_phases_name_cpu_work_beside_the_gpus_as_the_opening_does(tmp_path, where, kind):
    """A check of the results is no shut-down; what waits for something outside still is."""
    export = run(where, kind)
    report = traceview.analyze(export.load(tmp_path))
    rows = [*report["phases"].tables["phases"].rows()]
    row = rows[0] if where == "before" else rows[-1]
    usual = "start-up" if where == "before" else "shut-down"

    assert row["phase"] == ("cpu-work" if kind == "known" else usual)
    assert row["verdict"] == "no-gpu-work"
    assert (f"CPU work {where} the GPU's" in report.verdict.text) is (kind == "known")


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(
    ("fills", "fill", "kernels", "is_work"),
    [
        (1, 10_000, 1000, True),
        (4, 100_000, 1000, True),
        (4, 10_000, 100, False),
        (4, 2 * MS, 1000, False),
        (40, 10_000, 1000, False),
    ],
)
def test_next_to_no_gpu_work_before_or_after_is_left_out(
    tmp_path, where, fills, fill, kernels, is_work
):
    """As where vectors on the GPU are filled with zeros before the CPU makes the data."""
    export = run(where, "known", gpu=350 * MS, kernels=kernels)
    at = 17 * MS if where == "before" else 370 * MS + 4 * S + 2 * MS
    for number in range(fills):
        start = at + number * 2 * MS // fills
        export.launch((start, start + 1_000), (start + 2_000, start + 2_000 + fill // 2))
    found = of_run(export, tmp_path)

    assert [each.message.split(" GPU work")[0] for each in found] == (
        [f"{where.title()} nearly all"] * is_work
    )
    assert all("That GPU work takes 3" in each.message for each in found)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("took", [1 * S, 4 * S])
def test_the_report_opens_with_cpu_work_that_most_of_a_run_is(tmp_path, where, took):
    export = run(where, "known", took=took, gpu=350 * MS, kernels=5)
    said = traceview.analyze(export.load(tmp_path)).verdict.text

    begins = f"{took / S:.2f} s of CPU work {where} "
    assert said.startswith(begins) is (took == 4 * S)
    assert (begins in said) is (took == 4 * S)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ["unknown", "input", "sleep", "calls"])
def test_waits_are_no_cpu_work(tmp_path, where, kind):
    assert not of_run(run(where, kind), tmp_path)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(("took", "gpu"), [(900 * MS, 10 * MS), (4 * S, S), (2 * S, 300 * MS)])
def test_little_cpu_work_is_not_what_a_run_is_about(tmp_path, where, took, gpu):
    assert not of_run(run(where, "known", took, gpu), tmp_path)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("number", [1, 7, 4000])
@pytest.mark.parametrize(("moved", "is_told"), [(100 * MS, True), (900 * MS, True), (2 * S, False)])
def test_pages_that_the_cpu_waits_for_are_reported_as_migrations(
    tmp_path, where, number, moved, is_told
):
    """Where they move for little of the CPU's work, they are taken from it."""
    export, every = run(where, "known", gpu=10 * MS), 3 * S // number
    for start in range(S // 2, S // 2 + number * every, every):
        export.migration((start, start + moved // number), bytes=10**6, kind="UVM D2H")
    found = of_run(export, tmp_path)

    assert len(found) == is_told
    for each in found:
        assert each.time_at_stake_ns == pytest.approx(4 * S - moved, rel=0.01)
        assert "Pages of unified memory that it touches move for another" in each.message
        assert ("cudaMemPrefetchAsync to cudaCpuDeviceId" in each.action) is (where == "after")


@pytest.mark.parametrize(("before", "after"), [(2, 5), (6, 2), (3, 3)])
@pytest.mark.parametrize(("gpu", "kernels"), [(4 * MS, 1), (500 * MS, 5)])
@pytest.mark.parametrize("paged", [False, True])
def test_cpu_work_before_and_after_all_gpu_work_is_what_a_run_is_about_together(
    tmp_path, before, after, gpu, kernels, paged
):
    """Neither needs to be most of the run: data is made, and results are checked."""
    export, second = run("before", "known", before * S, gpu, kernels), int(after * S)
    end = 20 * MS + before * S + gpu + MS
    export.os_call("write", end + second, end + second + 5_000)
    export.call("cudaFree_v3020", end + second + 10_000, end + second + before * S // 2)
    if paged:
        for start in range(end, end + second, second // 50):
            export.migration((start, start + MS), bytes=10**6, kind="UVM D2H")
    report = traceview.analyze(export.load(tmp_path))
    found = [each for each in report.findings if "CPU works for" in each.finding.message]

    assert {each.severity for each in found} == {"high"}
    assert [each.finding.message[:5] for each in found] == (
        ["After", "Befor"] if after > before else ["Befor", "After"]
    )
    assert report.findings[0] is found[0]
    assert "s of CPU work before and after the GPU's" in report.verdict.text


def sampled_run(where, frames, took=4 * S, gpu=400 * MS, kernels=3):
    """A run that is sampled every 10 ms; CUDA's first and last call are beside the GPU's work.

    `frames` of what comes before the first call or after the last, in `took`, are (file or module,
    line or None for native code, function), innermost first; a list of them takes turns.
    """
    turns = frames if isinstance(frames[0], list) else [frames]
    export, begin = Export(), 20 * MS + (took if where == "before" else 0)
    end = begin + gpu
    work = (20 * MS, begin) if where == "before" else (end + MS, end + MS + took)
    for number in range(kernels):
        start, free = (begin + (number + part) * gpu // kernels for part in (0, 1))
        export.launch((start - 9_000, start - 5_000), (start, free - 20_000 * (kernels > 3)))
        if kernels > 3:
            export.range(f"step_{number}", start - 10_000, free - 11_000)
    export.call("cudaDeviceSynchronize_v3020", end - MS, end + 1_000)
    for time in (MS, max(end, work[1])):
        export.os_call("mmap", time, time + 1_000)
    for time in range(10 * MS, max(end, work[1]), 10 * MS):
        working = work[0] <= time < work[1]
        frames = turns[time // (10 * MS) % len(turns)]
        if frames[0][1] is None:
            loop = [("/home/user/app", "step(int)"), ("/home/user/app", "main")]
            named = [(module, function) for module, _, function in frames]
            export.native_sample(time, *(named if working else loop))
        else:
            loop = [("/home/user/run.py", 90, "step"), ("/home/user/run.py", 99, "<module>")]
            export.python_sample(time, *(frames if working else loop))
    return export


NUMPY = "/usr/lib/python3/dist-packages/numpy/_core/fromnumeric.py"
MAIN = ("/home/user/run.py", 98, "<module>")
ITS_WORK = {
    "python": [("/home/user/run.py", 31, "expected"), MAIN],
    "library": [(NUMPY, 70, "sum"), ("/home/user/run.py", 31, "expected"), MAIN],
    "native": [
        ("/usr/lib/x86_64-linux-gnu/libm.so.6", None, "pow"),
        ("/home/user/app", None, "expected(float*, int)"),
        ("/home/user/app", None, "main"),
    ],
}
NOT_ITS_WORK = {
    "import": [
        ("/usr/lib/python3/dist-packages/torch/__init__.py", 1, "<module>"),
        ("/home/user/run.py", 1, "<module>"),
    ],
    "launching library": [
        ("/usr/lib/python3/dist-packages/torch/nn/init.py", 5, "kaiming_uniform_"),
        ("/home/user/run.py", 8, "<module>"),
    ],
    "context": [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", None, "cuInit"),
        ("/home/user/app", None, "cudaMalloc"),
        ("/home/user/app", None, "main"),
    ],
    "loader": [("/usr/lib64/ld-linux-x86-64.so.2", None, "do_lookup_x")],
}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ITS_WORK)
@pytest.mark.parametrize("took", [3 * S, 9 * S])
def test_samples_show_what_the_program_itself_works_at(tmp_path, where, kind, took):
    """Also before the first call of CUDA and after the last one."""
    [found] = of_run(sampled_run(where, ITS_WORK[kind], took), tmp_path)

    assert found.time_at_stake_ns == pytest.approx(took, rel=0.02)
    assert found.severity == "high"
    named = "in expected (app)" if kind == "native" else "at run.py:31 in expected"
    assert f"% of it {named}" in found.message
    assert " % in a check or a version for the CPU, by its name." in found.message
    assert found.action.startswith("Leave it out of runs that are to be fast")
    assert found.message.startswith("After" if where == "after" else "Before")


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", ["native", "python"])
@pytest.mark.parametrize(
    ("run", "whole"),
    [({"exit_status": "0"}, True), ({"exit_status": "0", "first_s": "4"}, False), ({}, False)],
)
@pytest.mark.parametrize(("took", "gpu"), [(5 * S, 300 * MS), (2 * S, 900 * MS), (S, 900 * MS)])
def test_a_compiled_program_that_ends_is_no_sample_of_a_longer_loop(
    tmp_path, where, kind, run, whole, took, gpu
):
    """Where it works beside the GPU's steps for most of its run, that comes first."""
    export = sampled_run(where, ITS_WORK[kind], took, gpu, kernels=30).run(**run)
    found = of_run(export, tmp_path)
    comes_first = kind == "native" and took >= gpu * (2 if whole else 10) and "first_s" not in run

    assert [each.severity for each in found] == (
        ["high"] if comes_first else ["low"] if took >= 5 * gpu else []
    )


@pytest.mark.parametrize("where", ["before", "after"])
def test_work_at_many_lines_is_told_at_the_line_that_calls_them(tmp_path, where):
    file, of_check = "/home/user/run.py", ("/home/user/run.py", 70, "check")
    parts = [[(file, 30 + number, f"part_{number}"), of_check, MAIN] for number in range(7)]
    [found] = of_run(sampled_run(where, parts), tmp_path)

    assert found.subject.line == 70
    assert "at run.py:70 in check" in found.message


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", NOT_ITS_WORK)
def test_start_up_is_no_work_of_the_program(tmp_path, where, kind):
    assert not of_run(sampled_run(where, NOT_ITS_WORK[kind]), tmp_path)


@pytest.mark.parametrize(("took", "gpu"), [(900 * MS, 10 * MS), (4 * S, S)])
def test_little_work_in_samples_is_not_what_a_run_is_about(tmp_path, took, gpu):
    """It is much of the run, which a finding says, and not what the report opens with."""
    report = traceview.analyze(sampled_run("before", ITS_WORK["native"], took, gpu).load(tmp_path))
    [found] = [each for each in report.findings if "CPU works for" in each.finding.message]

    assert found.severity == "medium"
    assert "of CPU work" not in report.verdict.text


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(("took", "gpu", "kernels"), [(3, 4 * MS, 3), (5, 12 * MS, 5)])
@pytest.mark.parametrize("cold", [False, True])
def test_a_run_of_the_cpu_with_little_gpu_work_is_about_the_cpu(
    tmp_path, where, took, gpu, kernels, cold
):
    """The CPU does the work of a few kernels again, to compare; one more may be loaded first."""
    export = run(where, "known", took * S, gpu, kernels)
    if cold:
        at = 20 * MS + (took * S if where == "before" else 0) + gpu
        export.call("cuModuleLoadData", at, at + 3 * gpu)
        export.launch((at + 3 * gpu, at + 3 * gpu + 5_000), (at + 4 * gpu, at + 4 * gpu + 9_000))
    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.text.startswith("Next to no GPU work was recorded")
    first, *others = report.findings
    assert (first.analysis, first.severity) == ("gpu-idle", "high")
    assert "GPU work the CPU works for" in first.finding.message
    assert {each.severity for each in others if each.analysis != "trace-health"} <= {"info"}


def helped_run(where, took=4 * S, *, waits=True, calls_cuda=False):
    """A run whose main thread waits while another, sampled every 10 ms, reads a text."""
    export = run(where, "input" if waits else "unknown", took)
    begin = 20 * MS if where == "before" else 120 * MS
    if calls_cuda:
        export.call("cudaSetDevice_v3020", begin, begin + 1_000, thread=9)
    for time in range(begin + MS, begin + took, 10 * MS):
        export.native_sample(time, ("/home/user/app", "read_text"), thread=9)
        # Nor does it matter which process works beside, nor what its libraries do.
        export.native_sample(time + 1, ("/home/user/other", "spin"), process=7)
        export.native_sample(time + 2, ("/usr/lib/libgomp.so.1", "gomp_barrier_wait"), thread=8)
    return export


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("took", [3 * S, 9 * S])
def test_work_of_a_thread_without_calls_of_cuda_is_named_where_the_others_wait(
    tmp_path, where, took
):
    said = ask(ANALYSIS, helped_run(where, took), tmp_path).findings
    [found] = [each for each in said if "GPU work another thread" in each.message]

    assert found.time_at_stake_ns == pytest.approx(took, rel=0.02)
    assert "100.0 % of it in read_text (app)." in found.message


@pytest.mark.parametrize("kept", [{"waits": False}, {"calls_cuda": True}])
def test_a_thread_that_none_waits_for_is_no_work_beside_the_gpus(tmp_path, kept):
    said = ask(ANALYSIS, helped_run("before", **kept), tmp_path).findings
    assert not [each for each in said if "another thread" in each.message]


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("sampled", [10 * MS, 90 * MS])
def test_a_wait_for_another_thread_names_the_function_it_works_in(tmp_path, scheduled, sampled):
    export, at = Export(), 0
    for _ in range(20):
        stack = ("/usr/lib/libpthread.so.0", "pthread_cond_wait"), ("/home/user/app", "step")
        export.os_call("pthread_cond_wait", at, at + 60 * MS, *stack)
        for time in range(at + MS, at + 60 * MS, sampled):
            export.native_sample(time, ("/home/user/app", "parse"), thread=9)
        if scheduled:
            export.off_cpu((at + 1_000, at + 60 * MS))
        at += 60 * MS
        export.launch((at, at + 5_000), (at + 8_000, at + 4 * MS))
        export.sync("cudaStreamSynchronize_v3020", at + 6_000, at + 4 * MS)
        at += 4 * MS + 10_000
    [found] = [
        each
        for each in ask(ANALYSIS, export, tmp_path).findings
        if "waited for another thread" in each.message
    ]
    assert "in step (app), calling pthread_cond_wait" in found.message
    assert "another thread worked, 100.0 % of it in parse (app)." in found.message


@pytest.mark.parametrize("module", ["/lib/libc.so.6", "/usr/bin/python3.12", "/opt/libjulia.so.1"])
@pytest.mark.parametrize("kernels", [3, 60])
@pytest.mark.parametrize(("took", "gpu"), [(30, 1), (30, 4), (3, 4)])
@pytest.mark.parametrize("waits", [False, True])
def test_a_compiled_program_works_before_its_first_call_of_cuda_too(
    tmp_path, module, kernels, took, gpu, waits
):
    """No samples show it: its libraries tell that it imports nothing, its calls that it waits."""
    export = Export().os_call("fopen", 0, 10_000, (module, "main"))
    at, kernel = took * S, gpu * S // kernels
    if waits:
        export.os_call("getc", MS, at - MS, (module, "main"))
    export.call("cudaMalloc_v3020", at, at + MS)
    for number in range(kernels):
        begin = at + MS + number * kernel
        export.launch((begin, begin + 5_000), (begin + 10_000, begin + kernel))
    found = of_run(export, tmp_path)

    about = not waits and "libc" in module and took > 10 * gpu
    assert [each.severity for each in found] == ["high"] * about
    assert all(each.time_at_stake_ns == pytest.approx(took * S, rel=0.01) for each in found)


LIBC, STDCXX = "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libstdc++.so.6"
APP, FILE = "/home/user/app", "/home/user/run.py"
TASKS = {
    "printf": ([(LIBC, None, "__printf_fp_l"), (LIBC, None, "__fprintf_chk")], "formatting"),
    "ostream": ([(STDCXX, None, "std::ostream& std::ostream::_M_insert<double>(double)")],
                "formatting"),
    "scanf": ([(LIBC, None, "__isoc99_fscanf")], "parsing text"),
    "rand": ([(LIBC, None, "random_r"), (LIBC, None, "rand")], "drawing random numbers"),
    "sort": ([(APP, None, "void std::__introsort_loop<int*, long>(int*, int*, long)")], "sorting"),
    "savetxt": ([("/usr/lib/python3/dist-packages/numpy/lib/_npyio_impl.py", 9, "savetxt")],
                "formatting"),
    "json": ([("/usr/lib/python3.12/json/encoder.py", 9, "_iterencode")], "formatting"),
    "pow": ([("/lib/x86_64-linux-gnu/libm.so.6", None, "pow")], ""),
}  # fmt: skip


@pytest.mark.parametrize("kernels", [3, 30])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("took", [200 * MS, 3 * S])
def test_what_the_cpu_works_at_decides_its_remedy(tmp_path, where, kind, took, kernels):
    frames, what = TASKS[kind]
    python = frames[0][1] is not None
    own = [(FILE, 31, "work"), MAIN] if python else [(APP, None, "work(int)"), (APP, None, "main")]
    export = sampled_run(where, [*frames, *own], took, gpu=500 * MS, kernels=kernels)
    report = traceview.analyze(export.load(tmp_path))
    [found] = [each for each in report.findings if "CPU works for" in each.finding.message]

    assert (found.severity != "info") or took < S
    assert ("at run.py:31 in work" if python else "in work (app)") in found.finding.message
    assert f" % {what}" in found.finding.message if what else "app)." in found.finding.message
    assert found.action.startswith("Take it out of the run") is not bool(what)


@pytest.mark.parametrize(("took", "said"), [(40 * MS, False), (120 * MS, True), (250 * MS, True)])
def test_a_small_part_of_a_run_is_not_told(tmp_path, took, said):
    export = sampled_run("after", ITS_WORK["native"], took, gpu=S, kernels=30)
    found = [each for each in traceview.analyze(export.load(tmp_path)).findings
             if "CPU works for" in each.finding.message]  # fmt: skip

    assert bool(found) is said


def test_kinds_of_work_that_are_each_much_of_a_run_have_findings_of_their_own(tmp_path):
    own = [(APP, None, "work(int)"), (APP, None, "main")]
    turns = [[(LIBC, None, "rand"), *own], [(APP, None, "fill(float*)"), (APP, None, "main")]]
    found = of_run(sampled_run("before", turns), tmp_path)

    assert sum(each.time_at_stake_ns for each in found) == pytest.approx(4 * S, rel=0.02)
    assert {each.action[:8] for each in found} == {"Draw the", "Take it "}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(("function", "said"), [("step", False), ("prepare", True)])
def test_what_the_steps_do_too_is_their_warm_up(tmp_path, where, function, said):
    """A first call that loads a library has no frame of it."""
    frames = [("/home/user/run.py", 64, function), MAIN]
    export = sampled_run(where, frames, S, gpu=S, kernels=30)
    found = [each for each in traceview.analyze(export.load(tmp_path)).findings
             if "CPU works for" in each.finding.message]  # fmt: skip

    assert bool(found) is said
