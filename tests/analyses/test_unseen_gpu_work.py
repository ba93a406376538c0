"""What the CPU's rows of torch.profiler decide where no GPU work was recorded."""

import random
from pathlib import Path

import pytest

from tests.trace.kineto.traces import Event, call, span, write
from traceview.traces.analyses.verdict.verdict import verdict
from traceview.traces.reporting import analyze
from traceview.traces.trace.load import load

GLOO = {"header": {"distributedInfo": {"backend": "gloo", "rank": 1, "world_size": 4}}}


def said(folder: Path, events: list[Event], **around: object) -> str:
    report = analyze(load(write(folder / "t.json", events, **around)))
    health = report.outcomes["trace-health"]
    return "\n".join(f"{each.message} {each.action}" for each in health.findings)


def launches(passes: int, pitch: int, wait: int, begin: int = 0) -> list[Event]:
    """Launches in operators, and the wait at the end."""
    events: list[Event] = []
    for number in range(passes):
        at = begin + number * pitch
        events.append(span("cpu_op", "aten::add", at, pitch - 2))
        events.append(call("cudaLaunchKernel", at + 2, 5, number + 1))
    end = begin + passes * pitch
    return [*events, call("cudaDeviceSynchronize", end, wait, passes + 1)]


@pytest.mark.parametrize("seed", range(6))
def test_the_cpu_sets_the_pace_where_the_gpu_is_soon_done(seed, tmp_path):
    chosen = random.Random(seed)
    passes, pitch = chosen.randint(20, 200), chosen.randint(20, 400)
    text = said(tmp_path, launches(passes, pitch, max(passes * pitch // 50, 1)))
    assert "the CPU sets the pace: replay CUDA graphs" in text
    assert "sets the pace" not in said(tmp_path, launches(passes, pitch, passes * pitch // 4))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("inside", [False, True])
def test_memory_given_back_outside_operators(inside, seed, tmp_path):
    chosen = random.Random(seed)
    part, events = chosen.choice(["norm_weights", "x/y", "a b"]), launches(12, 50, 600)
    length = 3_000 + chosen.randrange(3_000)
    events.append(span("user_annotation", part, 1_300, 2 * length + 300))
    for place in range(2):
        at = 1_300 + place * (length + 100)
        if inside:
            events.append(span("cpu_op", "aten::empty", at, length + 50))
        events.append(call("cudaFree", at + 5, length, 100 + place))
        events.append(span("cpu_op", "aten::bmm", at + length + 60, 30))
        events.append(call("cudaMalloc", at + length + 62, 20, 110 + place))
    text = said(tmp_path, events)
    assert ("cudaFree outside of operators, as torch.cuda.empty_cache()" in text) is not inside
    assert (f"in {part})" in text) is not inside


@pytest.mark.parametrize("events_each", [0, 2])
def test_what_was_surely_on_is_not_asked_for(events_each, tmp_path):
    events = launches(20, 50, 10)
    for number in range(20 * events_each):
        events.append(call("cudaEventRecord", 2_000 + 10 * number, 2, 500 + number))
    text = said(tmp_path, events)
    assert "error of CUPTI" in text
    assert "Record with torch.profiler.profile(activities" not in text
    assert ("Without ProfilerActivity.CUDA" in text) is not events_each


@pytest.mark.parametrize("seed", range(8))
def test_exchanges_on_the_cpu_overlap(seed, tmp_path):
    chosen = random.Random(seed)
    rounds, slow = chosen.randint(2, 6), chosen.choice([1, 9])
    first, events, at = 400 * slow, [], 0
    union = {"send": 0, "recv": 0}
    for number in range(rounds):
        took = first if number == 0 else 400
        names = chosen.sample(["send", "recv"], 2)
        times = (at, took), (at + took // 20, took - took // 10)
        for name, (begin, length) in zip(names, times, strict=True):
            events.append(span("cpu_op", f"gloo:{name}", begin, length))
            union[name] += length
        events.append(span("cpu_op", "aten::add_", at + took // 10, 20))
        at += took + 50
        events.append(span("cpu_op", "aten::copy_", at - 40, 30))
    end = at - 10
    text = said(tmp_path, events, **GLOO)
    assert "exchanged on the CPU, by gloo" in text
    assert "ProfilerActivity.CUDA" not in text
    assert ("The first exchange takes" in text) is (slow > 1)
    head = verdict(load(tmp_path / "t.json")).text
    for name, length in union.items():
        assert f"{100 * length / end:.1f} % in gloo:{name}" in head
    assert head.endswith(", overlapping")
