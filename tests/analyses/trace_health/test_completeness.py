"""The analysis `trace-health`: launches, work and events that a recording lost."""

import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.analyses.trace_health.checks import status
from tests.build import Export, without
from tests.trace.kineto import traces
from traceview.render.screen import render_screen
from traceview.traces.analyses.trace_health import ANALYSIS
from traceview.traces.reporting import analyze
from traceview.traces.trace.load import load

MS = 1_000_000


def test_launches_without_kernels_and_kernels_without_launches(tmp_path):
    export = Export().launch_without_kernel((0, 2)).kernel_without_launch((10, 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert [detail.split(":")[0] for _, detail in status(result, "launches")] == [
        "1 launch call has no GPU work",
        "1 operation has no launch call",
    ]


def test_dropped_events_are_reported(tmp_path):
    export = Export().diagnostic("CUDA: 42 events were dropped.", severity="error")

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == "warning"
    assert rows(result, "diagnostics", "severity", "times", "text") == [
        ("error", 1, "CUDA: 42 events were dropped.")
    ]


def test_a_recording_that_the_recorder_could_not_read_back_is_no_sound_one(tmp_path):
    said = (
        "Error when processing events: Source ID=\nType=ErrorInformation (18)\n"
        "[QuadDCommon::tag_message*] = Cannot find string for an exterior index\n"
    )
    export = Export().launch((0, 2), (10, 20)).diagnostic(said)

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "lost events")
    assert state == "blind"
    assert detail.endswith("much is missing: Cannot find string for an exterior index")
    assert any("every figure covers only part of them" in note for note in result.notes)
    assert result.findings[0].severity == "high"
    assert "nsys profile --nvtx-domain-exclude=TSL" in result.findings[0].action


@pytest.mark.parametrize(("counted", "state"), [(4, "note"), (100, "blind")])
def test_a_failed_import_is_weighed_by_what_cupti_produced(counted, state, tmp_path):
    """Three launches with their kernels are six events."""
    export = Export().diagnostic("Error when processing events: what went wrong")
    export.diagnostic(f"Number of CUPTI events produced: \t{counted}, CUPTI buffers: 1.")
    for at in (0, 100, 200):
        export.launch((at, at + 2), (at + 10, at + 20))

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == state
    assert bool(result.notes) == (state == "blind")


def test_a_failed_import_that_parted_launches_from_their_work_is_told(tmp_path):
    export = Export().diagnostic("Error when processing events: what went wrong")
    export.diagnostic("Number of CUPTI events produced: \t4, CUPTI buffers: 1.")
    export.launch((0, 2), (10, 20)).launch((30, 32), (40, 50)).call("cudaLaunchKernel", 33, 35)

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == "blind"


def test_a_recorder_that_only_says_that_not_all_was_collected_is_believed(tmp_path):
    export = Export().diagnostic("Not all CUDA events might have been collected.")

    result = ask(ANALYSIS, export, tmp_path)

    assert status(result, "lost events")[0][0] == "blind"


@pytest.mark.parametrize(
    ("exit_status", "said"),
    [("139", "Signal 11"), ("137", "Signal 9"), ("1", None), ("130", None), ("?", None)],
)
def test_a_program_that_crashed_is_not_the_fault_of_the_recorder(tmp_path, exit_status, said):
    export = Export().diagnostic("Not all CUDA events might have been collected.")
    export.run(exit_status=exit_status)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith(said or "The recorder failed")
    assert ("without the recorder" in finding.remedy) == (said is not None)


@pytest.mark.parametrize(
    "bounded",
    [
        {"nsys_command": "nsys profile --capture-range=cudaProfilerApi python x.py"},
        {"nsys_command": "nsys profile python x.py", "first_s": "19"},
    ],
    ids=["a range", "stopped"],
)
@pytest.mark.parametrize(("lost_at", "cut_off"), [(None, 0), (None, 1), (None, 5), (4, 0), (4, 3)])
def test_a_bounded_recording_whose_launches_all_have_their_work_lost_nothing(
    tmp_path, bounded, lost_at, cut_off
):
    """nsys says the same of a recording that ends while the program goes on.

    It may end between the last launches and their work.
    """
    export = Export().run(**bounded).launch((0, 2), (10, 20)).launch((6, 8), (20, 30))
    export.diagnostic("Not all CUDA events might have been collected.")
    if lost_at is not None:
        export.launch_without_kernel((lost_at, lost_at + 1))
    for number in range(cut_off):
        export.launch_without_kernel((30 + 5 * number, 32 + 5 * number))

    result = ask(ANALYSIS, export, tmp_path)

    lost = lost_at is not None
    assert [state for state, _ in status(result, "lost events")] == ["blind" if lost else "note"]
    if not lost:
        assert not result.findings


def test_launches_into_a_graph_that_is_captured_are_not_lost(tmp_path):
    """Those of other threads of the process are not either: autograd has one of its own."""
    export = (
        Export()
        .call("cudaStreamBeginCapture_v10000", 0, 1)
        .launch_without_kernel((2, 4))
        .launch_without_kernel((2, 4), thread=1)
        .launch_without_kernel((2, 4), process=2)
        .call("cudaStreamEndCapture_v10000", 5, 6)
        .launch((7, 8), (10, 20))
    )

    result = ask(ANALYSIS, export, tmp_path)

    [(_, detail)] = status(result, "launches")
    assert detail.startswith("1 launch call has no GPU work")


def test_launches_none_of_which_was_recorded_leave_the_report_blind(tmp_path):
    result = ask(ANALYSIS, Export().launch_without_kernel((0, 2)), tmp_path)

    assert status(result, "GPU work")[0][0] == "blind"
    assert result.findings[0].severity == "high"


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("nested", [False, True])
def test_calls_at_the_same_time_count_once(tmp_path, threads, nested):
    """Of several threads, or one within the other, as a retry of cuCtxSynchronize in itself."""
    export = Export()
    for thread in range(threads):
        export.launch_without_kernel((0, 2), thread=thread)
        export.call("cuCtxSynchronize", 10, 110, thread=thread)
        if nested:
            export.call("cuCtxSynchronize", 20, 100, thread=thread)
    said = analyze(export.load(tmp_path)).verdict.text
    calls = threads * (2 if nested else 1)
    assert f"Of 110 ns on the CPU: 90.9 % in cuCtxSynchronize ({calls} call" in said


def test_the_shipped_recording_that_nsys_failed_on_says_so_before_all_else(unpack):
    report = analyze(load(unpack("jax")))

    assert "every figure covers only part of them" in report.trace.warnings[0]
    assert report.findings[0].analysis == "trace-health"


@pytest.mark.parametrize("warm", [0, 1, 4])
@pytest.mark.parametrize("fails", [False, True])
def test_what_is_left_of_lost_events_proves_nothing_and_the_error_is_stated_once(
    tmp_path, warm, fails
):
    """A start of 60 µs, after which later passes follow or were lost."""
    error, export = "Cannot find string for an exterior index", Export()
    export.call("cuModuleLoadData", 10_000, 60_000)
    export.launch((61_000, 62_000), (63_000, 70_000), name="first")
    for number in range(warm):
        at = 80_000 + 10_000 * number
        export.launch((at, at + 1_000), (at + 2_000, at + 9_000), name=f"later_{number}")
    if fails:
        export.diagnostic(f"Error when processing events: {error}")

    report = analyze(export.load(tmp_path))

    high = [row.message for row in report.findings if row.severity == "high"]
    assert (len(high) == 1) if fails else all("first uses" in each for each in high)
    assert any(error in each for each in high) == fails
    shown = render_screen(report, width=200)
    assert shown.count(error) == fails


@pytest.mark.parametrize(
    ("lost", "status", "severity"), [(1, "warning", "low"), (5, "blind", "high")]
)
def test_launches_that_lost_their_work_put_all_in_doubt_where_they_are_most(
    tmp_path, lost, status, severity
):
    export = Export()
    for start in range(0, 300, 100):
        export.launch(call=(start, start + 2), kernel=(start + 8, start + 20))
    for start in range(1000, 1000 + 10 * lost, 10):
        export.call("cudaLaunchKernel", start, start + 2)
    result = ask(ANALYSIS, export, tmp_path)
    (check,) = [row for row in result.tables["checks"].rows() if row["check"] == "launches"]
    assert check["status"] == status
    (finding,) = [each for each in result.findings if each.evidence.row["check"] == "launches"]
    assert finding.severity == severity


NOT_ALL = "Not all {} events might have been collected."


def test_lost_events_of_a_helper_process_affect_no_answer(tmp_path):
    export = Export().range("step", 0, 10).launch((0, 2), (10, 20))
    export.diagnostic(NOT_ALL.format("NVTX"), process=7)
    export.diagnostic(NOT_ALL.format("CUDA"), process=8)

    result = ask(ANALYSIS, export, tmp_path)

    [(state, detail)] = status(result, "lost events")
    assert (state, detail[:18]) == ("note", "2 helper processes")
    assert not result.findings
    assert not any("every figure" in note for note in result.notes)


@pytest.mark.parametrize(("kind", "expected"), [("NVTX", "note"), ("CUDA", "blind")])
def test_lost_events_of_the_process_with_gpu_work_count_by_their_kind(tmp_path, kind, expected):
    export = Export().launch((0, 2), (10, 20)).diagnostic(NOT_ALL.format(kind), process=1)

    [(state, detail)] = status(ask(ANALYSIS, export, tmp_path), "lost events")

    assert state == expected
    assert kind in detail


def windowed():
    """A loop cut off at both ends, whose CPU runs three launches ahead."""
    export = Export()
    for number in range(3):
        export.kernel_without_launch((100 * number, 100 * number + 90))
    for number in range(3, 20):
        at = 100 * (number - 3)
        export.launch((at, at + 2), (100 * number, 100 * number + 90))
    for number in range(17, 20):
        export.launch_without_kernel((100 * number, 100 * number + 2))
    return export


def test_a_window_cut_at_both_ends_is_a_note(tmp_path):
    result = ask(ANALYSIS, windowed().diagnostic(NOT_ALL.format("CUDA"), process=1), tmp_path)

    [(state, detail)] = status(result, "window")
    assert state == "note"
    assert "3 operations at its beginning" in detail
    assert "3 launch calls at its end" in detail
    assert [row[0] for row in status(result, "launches")] == ["ok"]
    assert not result.findings


def test_launches_lost_in_the_middle_of_a_window_are_a_warning(tmp_path):
    result = ask(ANALYSIS, windowed().launch_without_kernel((550, 552)), tmp_path)

    [(state, detail)] = status(result, "launches")
    assert state == "warning"
    assert detail.startswith("1 launch call has no GPU work")


@pytest.mark.parametrize(("recorded", "expected"), [(1, ["warning"]), (30, [])])
def test_copies_without_a_record_are_named(tmp_path, recorded, expected):
    """A few calls without a record copied nothing."""
    export = Export()
    for at in range(0, 300, 100):
        export.call("cudaMemcpyAsync_v3020", at, at + 2)
    for at in range(300, 300 + 100 * recorded, 100):
        export.copy((at, at + 2), (at + 10, at + 20))

    assert [state for state, _ in status(ask(ANALYSIS, export, tmp_path), "copies")] == expected


def test_copies_of_a_compiler_may_lack_their_record(tmp_path):
    """XLA compares what its trials computed by copies that nsys does not record."""
    export = Export().range("XlaCompile:#module=step#", 0, 300_000_000, domain="TSL")
    for at in range(0, 300, 100):
        export.call("cuMemcpyDtoHAsync_v2", at, at + 2)
    export.launch((300_000_100, 300_000_102), (300_000_110, 400_000_000), name="loop_add_fusion")

    assert not status(ask(ANALYSIS, export, tmp_path), "copies")


def test_ranges_with_a_name_that_was_freed_are_no_loss(tmp_path):
    text = "1 NVTX annotations were discarded because they contained at least one invalid string "
    export = Export().launch((0, 2), (10, 20)).diagnostic(f"{text}handle.")

    assert [state for state, _ in status(ask(ANALYSIS, export, tmp_path), "lost events")] == ["ok"]


def test_launches_without_a_table_of_kernels_are_not_called_lost(tmp_path):
    trace = without(Export().call("cudaLaunchKernel", 0, 10).load(tmp_path), "kernels")

    messages = [each.message for each in ANALYSIS.run(trace).findings]

    unread = "Work was launched, but no table of kernels was read, so GPU time is unknown."
    assert any(message.startswith(unread) for message in messages)
    assert not [message for message in messages if "failed, or" in message]


@pytest.mark.parametrize(
    ("release", "wsl"),
    [
        ("6.6.87.2-microsoft-standard-WSL2", True),
        ("5.15.90.1-Microsoft-custom", True),
        ("6.8.0-45-generic", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("copied", [False, True])
def test_launches_that_nsys_did_not_see_on_wsl(tmp_path, release, wsl, copied):
    export = Export().call("cudaLaunchKernel", 0, 10).driver("12090", release)
    if copied:
        export.copy((20, 25), (30, 40))
    trace = without(export.load(tmp_path), "kernels")
    [found] = [each for each in ANALYSIS.run(trace).findings if "launched" in each.message]
    assert (f"It was recorded on WSL ({release})" in found.message) is (wsl and not copied)
    assert found.action.startswith("Record on native Linux") is (wsl and not copied)


@pytest.mark.parametrize(
    ("name", "loading_ms", "passes", "warned"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 800, 1, True),
        ("data loading", 800, 1, True),
        # What the GPU does takes longer, or is done again and again.
        ("data loading", 15, 1, False),
        ("data loading", 800, 6, False),
        ("tokenize", 800, 1, False),
    ],
)
def test_a_first_batch_that_takes_longer_than_its_work(tmp_path, name, loading_ms, passes, warned):
    at = loading_ms * MS
    export = Export().range(name, 0, at)
    for number in range(passes):
        begin = at + 30 * number * MS
        export.range(f"step_{number}", begin, begin + 25 * MS)
        export.launch((begin + MS, begin + 2 * MS), (begin + 3 * MS, begin + 23 * MS))

    found = status(ask(ANALYSIS, export, tmp_path), "first batch")

    assert len(found) == warned
    text = "takes 800 ms for the first batch, and what the GPU does then 20.0 ms"
    assert not warned or text in found[0][1]
    report = traceview.analyze(export.load(tmp_path))
    assert report.verdict.text.startswith("One batch: the DataLoader takes 800 ms") == warned


@pytest.mark.parametrize("others", [0, 1])
def test_collectives_alone_tell_nothing_of_idle_time(tmp_path, others):
    """As tools write that keep the collectives of all ranks."""
    names = [*("ncclDevKernel_AllReduce_Sum_f32_RING_LL" for _ in range(12)), *("gemm",) * others]
    events = [
        traces.kernel(name, 1_000 * number, 100 + 50 * number, number, device=device, stream=9)
        for number, name in enumerate(names)
        for device in range(2)
    ]
    report = analyze(load(traces.write(tmp_path / "t.json", events)))

    assert ("nothing but collectives was recorded" in report.verdict.text) == (not others)
    idle = [each.finding.message for each in report.findings if each.analysis == "gpu-idle"]
    assert idle
    assert all("is unknown: " in text for text in idle) == (not others)


@pytest.mark.parametrize("took_ms", [1, 30, 90])
@pytest.mark.parametrize("name", ["aten::normal_", "read_input", "step"])
@pytest.mark.parametrize("launches", [False, True])
def test_without_gpu_work_the_ranges_with_most_time_of_their_own_are_told(
    tmp_path, took_ms, name, launches
):
    export, at = Export().range("main", 0, 100 * MS), MS
    for _ in range(5):
        export.range(name, at, at + took_ms * MS // 5)
        at += took_ms * MS // 5
        if launches:
            export.call("cudaLaunchKernel", at, at + 5_000)
        at += 10_000
    report = analyze(export.load(tmp_path))
    said = f"{took_ms}.0 % in {name} (5 calls)"
    assert (said in report.verdict.text) == (took_ms >= 5)
    assert f"{100 - took_ms}.0 % in main (1 call)" in report.verdict.text or launches
    assert report.verdict.text.startswith("No GPU work was recorded. Of 100 ms on the CPU: ")
    fills = any("device='cuda'" in each.finding.message for each in report.findings)
    assert fills == (launches and name == "aten::normal_" and took_ms >= 30)


@pytest.mark.parametrize("took_ms", [20, 35, 90])
@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("read", "Read ahead on another thread"),
        ("fwrite", "Read ahead on another thread"),
        ("sem_wait", "Look at what the other thread does"),
        ("nanosleep", "Remove the sleep"),
        ("ioctl", None),
    ],
)
def test_without_gpu_work_the_calls_with_most_time_have_a_remedy(tmp_path, took_ms, name, action):
    export = Export().os_call(name, 0, took_ms * MS)
    export.call("cudaLaunchKernel", took_ms * MS, took_ms * MS + 5_000)
    export.range("main", 0, 100 * MS)
    [finding] = [
        each for each in ask(ANALYSIS, export, tmp_path).findings if each.severity == "high"
    ]
    said = action is not None and took_ms > 20
    assert (f"{took_ms}.0 ms in {name} (1 call)" in finding.message) is said
    assert (str(action) in finding.message) is said


@pytest.mark.parametrize(
    ("name", "on_gpu"),
    [
        ("aten::cudnn_convolution", True),
        ("aten::cudnn_convolution_backward", True),
        ("aten::_cudnn_rnn", True),
        ("aten::miopen_batch_norm", True),
        # Asked of tensors of the CPU, too.
        ("aten::cudnn_is_acceptable", False),
        ("aten::mkldnn_convolution", False),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_operators_of_gpus_alone_show_that_gpu_work_is_missing(tmp_path, name, on_gpu, recorded):
    events = [traces.span("cpu_op", "aten::conv2d", 0, 100), traces.span("cpu_op", name, 10, 80)]
    if recorded:
        events += [traces.call("cudaLaunchKernel", 20, 5, 1), traces.kernel("conv", 40, 50, 1)]
    report = analyze(load(traces.write(tmp_path / "t.json", events)))
    found = [each.finding for each in report.findings if "runs on a GPU only" in str(each.message)]

    assert len(found) == (on_gpu and not recorded)
    for finding in found:
        assert finding.message.startswith(name)
        assert finding.severity == "high"
        assert "ProfilerActivity.CUDA" in finding.action


@pytest.mark.parametrize("short_us", [1, 8, 11])
@pytest.mark.parametrize("cut_off", [False, True])
def test_many_tiny_operators_are_told_together(tmp_path, short_us, cut_off):
    """Also of a file that ends before the GPU's events, as torch writes them last."""
    events = [traces.span("user_annotation", "solve#3", 0, 2_000)]
    for number in range(100):
        name = f"aten::op{'abcdefghij'[number % 10]}"
        events.append(traces.span("cpu_op", name, 20 * number, short_us))
    file = traces.write(tmp_path / "t.json", events)
    if cut_off:
        text = file.read_text().rstrip()
        file.write_text(text[: text.rindex("{")])
    report = analyze(load(file))

    share = (99 if cut_off else 100) * short_us / 20
    told = f" {share:.1f} % in all ranges shorter than 10.0 µs" in report.verdict.text
    assert told == (short_us == 8)
    begins = "The file ends before any GPU work. " if cut_off else "No GPU work was recorded. "
    assert report.verdict.text.startswith(f"{begins}Of 2.00 ms on the CPU: ")
    actions = [str(each.finding.action) for each in report.findings]
    assert any(each.startswith("Copy the file again") for each in actions) == cut_off
    assert not (cut_off and any("activities" in each for each in actions))


LOADED = [
    ("symbol lookup error: /opt/x/libToolsInjectionProxy64.so: undefined symbol: __libc_dlclose, "
     "version GLIBC_PRIVATE", "libToolsInjectionProxy64.so: undefined symbol: __libc_dlclose"),
    ("error while loading shared libraries: libcudart.so.11.0: cannot open shared object file: No "
     "such file or directory", "libcudart.so.11.0: cannot open shared object file: No such file"),
    ("symbol lookup error: ./app: undefined symbol: cudaFoo", "app: undefined symbol: cudaFoo"),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "told"), LOADED)
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("schema", ["3.7.2", "3.20.3"])
@pytest.mark.parametrize("ran", [False, True])
def test_a_program_that_the_loader_ended_says_why(printed, told, before, schema, ran, tmp_path):
    export = Export(schema)
    for number in range(before):
        export.printed(f"line {number}")
    export.printed(f"warning\n/usr/bin/app: {printed}\n")
    if ran:
        # A child may fail to load, and the program goes on.
        export.call("cudaMalloc", 0, 10)

    found = ask(ANALYSIS, export, tmp_path).findings

    assert any(told in each.message for each in found) is not ran
    if not ran:
        [finding] = found
        assert finding.action.startswith("Record with a newer nsys") is ("Injection" in printed)


PRINTED = [
    ("thread 'main' (7) panicked at src/a.rs:77:50:\nupload: Error(CUDA_ERROR_OUT_OF_MEMORY)\nnote",
     "upload: Error(CUDA_ERROR_OUT_OF_MEMORY)"),
    ("thread 'main' panicked at 'no device', src/gpu.rs:7:5\n", "'no device', gpu.rs:7:5"),
    ("Traceback (most recent call last):\n  File \"/home/u/a.py\", line 3, in <module>\n    x()\n"
     "    ^\nImportError: no module of /home/u/lib.so\n", "ImportError: no module of lib.so"),
    ("Traceback (most recent call last):\n  File \"a.py\", line 3\ntorch.OutOfMemoryError: CUDA "
     "out of memory. Tried to allocate 2 GiB\n", "CUDA out of memory. Tried"),
    ("terminate called after throwing an instance of 'std::system_error'\n  what():  no device\n",
     "no device"),
    ("GPUassert: out of memory main.cu 30\n", "GPUassert: out of memory main.cu 30"),
    ("step 1\nCUDA Error: invalid argument\n", "CUDA Error: invalid argument"),
    ("FATAL ERROR: variable is partially present: name=x\n file:/home/u/main.c train line:104\n\n",
     "variable is partially present: name=x file:main.c train line:104"),
    ("CUDA error: no error\n", ""),
    ("Max error: 0\n", ""),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "error"), PRINTED)
@pytest.mark.parametrize("ran", ["nothing", "copies", "lost", "kernels"])
def test_what_a_program_printed_says_why_no_kernel_was_launched(printed, error, ran, tmp_path):
    export = Export().printed("").printed(printed)
    if ran == "copies":
        export.call("cudaMalloc_v3020", 0, 10).copy((20, 40), (45, 60), bytes=4)
    if ran == "lost":
        # Why their kernels are missing is another question.
        export.call("cudaLaunchKernel_v7000", 0, 10)
    if ran == "kernels":
        export.launch((0, 10), (20, 30))

    found = [each for each in ask(ANALYSIS, export, tmp_path).findings if "printed" in each.message]

    assert len(found) == (bool(error) and ran in ("nothing", "copies"))
    for finding in found:
        assert finding.message.endswith(f"the program printed an error: {error}") or (
            "Tried" in error and error in finding.message
        )
        assert finding.severity == "high"
        assert ("Free GPU memory" in finding.action) is (
            "of memory" in error.lower().replace("_", " ")
        )


@pytest.mark.parametrize(("printed", "error"), PRINTED)
@pytest.mark.parametrize("after", [0, 2, 5])
def test_the_error_that_ended_a_program_is_told_first(printed, error, after, tmp_path):
    """One that a program goes on after, printing more, is its own business."""
    export = (
        Export().printed("step 0").printed(printed + after * "step\n").launch((0, 10), (20, 30))
    )

    found = [each for each in ask(ANALYSIS, export, tmp_path).findings if "ended" in each.message]

    ends = printed.startswith(("thread", "Traceback", "terminate", "FATAL"))
    assert bool(found) == (ends and after <= 2)
    assert all(each.severity == "high" and error in each.message for each in found)


def test_an_interrupt_is_no_error(tmp_path):
    text = 'Traceback (most recent call last):\n  File "a.py", line 3\nKeyboardInterrupt\n'
    export = Export().printed(text).launch((0, 10), (20, 30))
    assert not [
        each for each in ask(ANALYSIS, export, tmp_path).findings if "ended" in each.message
    ]


@pytest.mark.parametrize("broken", [40, 200])
@pytest.mark.parametrize("lost", [0, 90])
def test_kernels_whose_times_are_left_out_are_lost_once(tmp_path, broken, lost):
    """Their launches have no other reason to be without work, unless there are more of them."""
    export = Export()
    for number in range(600):
        at = 100_000 * (number + 1)
        kernel = (at + 20_000, at + 90_000)
        if number < lost:
            export.call("cudaLaunchKernel_v7000", at, at + 5_000)
        elif number % (600 // broken) == 0:
            export.launch((at, at + 5_000), (at + 90_000, at + 20_000))
        else:
            export.launch((at, at + 5_000), kernel)
    result = ask(ANALYSIS, export, tmp_path)
    lost_rows = [each.message for each in result.findings]
    assert any("rows that cannot be true" in each for each in lost_rows)
    assert any("no GPU work" in each for each in lost_rows) is (lost > 0)
