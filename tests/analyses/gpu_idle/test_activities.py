"""What the launching thread did in idle time: off the CPU, in generated code, waiting for data."""

import random

import numpy as np
import pytest

from tests.analyses.gpu_idle.test_lines import (
    FETCH,
    LINE,
    LINEAR,
    LOAD,
    LOADER,
    MAIN,
    MS,
    QUEUE_WAIT,
    SITE,
    loop,
    sample_gaps,
)
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.analyses.verdict import verdict
from traceview.traces.facts.idle.lines import LONG_PERIODS, MOST_PERIODS, spread_idle


@pytest.mark.parametrize(
    ("stack", "activity", "remedy"),
    [
        ((QUEUE_WAIT, LOADER, MAIN), "data-wait", "Raise num_workers"),
        ((LOAD, FETCH, LOADER, MAIN), "data-loading", "Load in worker processes"),
        ((QUEUE_WAIT, MAIN), "lock", "Look at what the other thread"),
        (("/usr/lib/python3.12/selectors.py", 5, "select"), "process", "Look at what the other p"),
        (("<frozen importlib._bootstrap>", 9, "_call_with_frames_removed"), "import", "Import"),
        ((f"{SITE}/torch/_inductor/graph.py", 1, "<module>"), "import", "Import"),
    ],
)
def test_time_off_the_cpu_is_told_apart_by_the_library_functions(tmp_path, stack, activity, remedy):
    stack = stack if isinstance(stack[0], tuple) else (stack, MAIN)
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), *stack, gap_ms=4), tmp_path)

    assert rows(result, "lines", "activity") == [(activity,)]
    assert result.findings[0].action.startswith(remedy)
    assert result.findings[0].time_at_stake_ns == 19 * 4 * MS
    assert result.findings[0].subject.kind == "line"


STFT = (f"{SITE}/torch/functional.py", 681, "stft")
MEL = (f"{SITE}/torchaudio/functional/functional.py", 120, "spectrogram")
MODULE = (f"{SITE}/torch/nn/modules/module.py", 1790, "_call_impl")
UPDATE = (f"{SITE}/torch/optim/adamw.py", 243, "step")


def module(function):
    return (f"{SITE}/torch/nn/modules/module.py", 2970, function)


@pytest.mark.parametrize(
    ("stack", "gap_ms", "activity"),
    [
        ((STFT, MAIN), 4, "tensors"),
        ((MEL, MODULE, MAIN), 20, "tensors"),
        ((MAIN, MODULE, MAIN), 4, "tensors"),
        # Launches of torch are as close as that; so is what comes between them.
        ((STFT, MAIN), 1, "cpu"),
        ((UPDATE, MAIN), 20, "cpu"),
        *(((module(name), MAIN), 20, "cpu") for name in ("zero_grad", "train", "_apply")),
        ((module("_call_impl"), MAIN), 20, "tensors"),
        ((MAIN,), 20, "cpu"),
    ],
)
def test_torch_computes_on_the_cpu_where_nothing_calls_cuda_for_long(
    tmp_path, stack, gap_ms, activity
):
    export = sample_gaps(loop(gap_ms=gap_ms), *stack, gap_ms=gap_ms)
    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "lines", "activity") == [(activity,)]
    names = result.findings[0].action.startswith("Compute this on the GPU")
    assert names == (activity == "tensors")


@pytest.mark.parametrize(
    ("library", "activity"),
    [("PIL/ImageFile.py", "cpu"), ("scipy/signal/_signaltools.py", "cpu"), (None, "tensors")],
)
def test_other_libraries_between_the_same_calls_are_other_work(tmp_path, library, activity):
    """Images that are decoded before torch changes them; a line alone may free tensors."""
    other = ("/work/data.py", 29, "load")
    before = ((f"{SITE}/{library}", 300, "load"), other) if library else (other,)
    stacks = ((*before, MAIN), (STFT, MAIN), (STFT, MAIN))
    export = loop(gap_ms=6)
    for number in range(140):
        stack = stacks[number % 7 % 3] if number % 7 else (MAIN,)
        export.python_sample(number * MS + MS // 2, *stack)

    lines = rows(ask(ANALYSIS, export, tmp_path), "lines", "file", "activity")

    assert set(lines) == {(other[0], activity), (MAIN[0], "tensors")}


def test_a_line_that_stalls_now_and_then_computes_nothing_on_the_cpu(tmp_path):
    """torch's lines between launches: of the samples at a line few are in its longest pauses."""
    export = sample_gaps(loop(gap_ms=4), STFT, MAIN, gap_ms=4)
    for number in range(20):
        for launch in range(20):
            at = (1 << 30) + (number * 20 + launch) * MS
            export.launch((at, at + 5_000), (at + 10_000, at + 20_000))
            export.python_sample(at + MS // 2, STFT, MAIN)

    assert set(rows(ask(ANALYSIS, export, tmp_path), "lines", "activity")) == {("cpu",)}


def test_compilation_is_left_to_phases(tmp_path):
    compiler = (f"{SITE}/triton/compiler/compiler.py", 9, "compile")
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), compiler, MAIN, gap_ms=4), tmp_path)

    assert rows(result, "lines", "activity", "steady_idle_ns") == [("compilation", 0)]
    assert rows(result, "causes", "cause", "gaps", "steady_idle_ns") == [("compilation", 19, 0)]
    assert result.findings == ()


def test_a_launch_of_a_compiled_kernel_is_no_compilation(tmp_path):
    launcher = (f"{SITE}/triton/backends/nvidia/driver.py", 700, "__call__")
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), launcher, MAIN, gap_ms=4), tmp_path)

    assert rows(result, "lines", "activity") == [("cpu",)]


def test_a_frame_of_generated_code_is_named_after_its_compiler(tmp_path):
    generated = ("/tmp/torchinductor_me/5m/c5mujy2g.py", 1200, "call")
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), generated, MAIN, gap_ms=4), tmp_path)

    assert rows(result, "lines", "file", "inner") == [(MAIN[0], "torch.compile.call")]


def test_short_waits_for_the_interpreter_lock_are_no_waits(tmp_path):
    export = sample_gaps(loop(gap_ms=4), LOAD, MAIN, gap_ms=4)
    for number in range(100):
        export.os_call("pthread_cond_timedwait", number * MS + 400_000, number * MS + 600_000)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "lines", "activity") == [("cpu",)]


def test_library_code_without_a_line_of_the_program_is_counted_without_one(tmp_path):
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), LINEAR, gap_ms=4), tmp_path)

    assert rows(result, "lines", *LINE[:5]) == [
        (None, None, None, "torch.nn.modules.linear.forward", "cpu")
    ]
    assert result.findings[0].subject.kind == "device"


@pytest.mark.parametrize(("outermost", "line"), [(MAIN, 40), (("<string>", 1, "<module>"), 7)])
def test_code_from_a_string_is_generated_unless_it_is_the_program(tmp_path, outermost, line):
    stack = (LINEAR, ("<string>", 7, "__init__"), outermost)
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), *stack, gap_ms=4), tmp_path)

    assert rows(result, "lines", "line") == [(line,)]


def test_a_file_that_nsys_could_not_name_is_no_line_of_the_program(tmp_path):
    stack = (("[Unknown]", 156, "[Unknown]"), MAIN)
    result = ask(ANALYSIS, sample_gaps(loop(gap_ms=4), *stack, gap_ms=4), tmp_path)

    assert rows(result, "lines", "line") == [(40,)]


def brute_spread(start, end, kind, samples, period):
    """The time of each sample in each gap, in plain loops."""
    inside = [[t for t in samples if a <= t < b] for a, b in zip(start, end, strict=True)]
    found = {}
    for number, times in enumerate(inside):
        idle = end[number] - start[number]
        if idle >= LONG_PERIODS * period:
            for place, time in enumerate(times):
                found[number, time] = idle // len(times) + (place < idle % len(times))
    for each in set(kind):
        short = [
            n
            for n in range(len(start))
            if kind[n] == each and end[n] - start[n] < LONG_PERIODS * period
        ]
        total = sum(end[n] - start[n] for n in short)
        hits = [(n, time) for n in short for time in inside[n]]
        for place, hit in enumerate(hits):
            time = total // len(hits) + (place < total % len(hits))
            found[hit] = min(time, MOST_PERIODS * period)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_no_idle_time_counts_twice(seed):
    chance = random.Random(seed)
    edges = sorted(chance.sample(range(10_000), 2 * chance.randrange(1, 80)))
    start, end = edges[::2], edges[1::2]
    kind = [chance.randrange(3) for _ in start]
    samples = sorted(chance.sample(range(10_000), chance.randrange(0, 200)))
    period = chance.choice([1, 20, 50, 200])

    spread = spread_idle(*map(np.array, (start, end, kind, samples)), period)

    found = zip(spread.gap.tolist(), (samples[s] for s in spread.sample.tolist()), strict=True)
    assert dict(zip(found, spread.time_ns.tolist(), strict=True)) == brute_spread(
        start, end, kind, samples, period
    )
    assert spread.time_ns.sum() <= sum(b - a for a, b in zip(start, end, strict=True))


def waits_for_data(*, wait_ms: int, every: int, steps: int = 40) -> Export:
    """Steps of 10 kernels of 1 ms, 1 ms apart; before some of them the loop waits for a batch."""
    export, now = Export(), 0
    for step in range(steps):
        waited = wait_ms if step and step % every == 0 else 0
        for ms in range(waited):
            at = now + ms * MS + MS // 2
            export.python_sample(at, QUEUE_WAIT, LOADER, LOAD, MAIN)
        begin = now = now + waited * MS
        for _ in range(10):
            export.launch((now + MS - 5_000, now + MS - 3_000), (now + MS, now + 2 * MS))
            export.python_sample(now + MS // 2, LINEAR, MAIN).python_sample(now + 3 * MS // 2, MAIN)
            now += 2 * MS
        export.range(f"step_{step}", begin, now)
    return export


@pytest.mark.parametrize(
    ("wait_ms", "every", "starves"), [(10, 4, True), (3, 1, False), (60, 20, False)]
)
def test_a_program_that_waits_for_data_again_and_again_gains_nothing_from_sooner_launches(
    wait_ms, every, starves, tmp_path
):
    export = waits_for_data(wait_ms=wait_ms, every=every)
    trace = export.load(tmp_path)
    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]
    late = [each for each in messages if "to launch work" in each and "start-up" not in each]
    assert (verdict(trace).limit == "data-loading") == starves
    assert ["would wait for data" in each for each in late] == [starves]


@pytest.mark.parametrize("nameless", ["", " ", "(unnamed)"])
def test_a_frame_without_a_file_is_not_of_the_program(nameless, tmp_path):
    export = sample_gaps(loop(gap_ms=4), (nameless, 359, "step"), LOAD, MAIN, gap_ms=4)
    (line,) = rows(ask(ANALYSIS, export, tmp_path), "lines", "file", "line", "inner")
    assert line[:2] == LOAD[:2]
    assert line[2] in ("step", "(unnamed).step")
