"""The figures of a run, against an attribution of every nanosecond in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.build import Export
from tests.conftest import GPU_RECORDINGS
from tests.trace.kineto import traces
from traceview.base import intervals
from traceview.base.errors import InputError
from traceview.traces.analyses.gpu_idle import analysis as gpu_idle
from traceview.traces.comparison.run_figures import figures_of
from traceview.traces.comparison.window import run_window
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import steps
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load

PRECEDENCE = {"kernel": 0, "graph": 0, "communication": 1, "copy": 2, "memset": 3}
NAMES = {
    "copy": "H2D pageable",
    "memset": "memset",
    "graph": "CUDA graph",
    "communication": "NCCL AllReduce",
}


@dataclass(frozen=True)
class Made:
    """An operation that a test made, and the step in which it was launched."""

    kind: str
    name: str
    device: int
    start: int
    end: int
    step: int | None


@dataclass
class Program:
    """Up to six steps on one or two GPUs with two streams each, and another process beside them.

    No two operations start at the same time: which of them comes first is left open.
    """

    draw: random.Random
    export: Export
    made: list[Made]
    steps: list[tuple[int, int]]

    def run(self) -> None:
        now = 0
        for step in range(self.draw.randint(0, 6)):
            length = self.draw.randint(60, 160)
            self.export.range(f"step_{step}", now, now + length)
            self.steps.append((now, now + length))
            for _ in range(self.draw.randint(1, 8)):
                self.launch(now + self.draw.randint(0, length - 4), 1, 0)
            now += length + self.draw.randint(0, 20)
        for _ in range(self.draw.randint(1, 6)):
            self.launch(self.draw.randint(0, now + 50), *self.draw.choice(((1, 5), (2, 0))))

    def launch(self, call: int, process: int, thread: int) -> None:
        start = call + self.draw.randint(0, 40)
        while any(each.start == start for each in self.made):
            start += 1
        span, called = (start, start + self.draw.randint(1, 70)), (call, call + 2)
        kind = self.draw.choice(("kernel", "kernel", *PRECEDENCE))
        device = self.draw.choice((0, 0, 1))
        where = {
            "stream": self.draw.choice((7, 13)),
            "device": device,
            "process": process,
            "thread": thread,
        }
        name = NAMES.get(kind) or self.draw.choice(("k", "gemm_kernel"))
        if kind in ("kernel", "communication"):
            kernel = "ncclDevKernel_AllReduce" if kind == "communication" else name
            self.export.launch(called, span, name=kernel, **where)
        elif kind == "graph":
            self.export.graph_whole(called, span, **where)
        else:
            (self.export.copy if kind == "copy" else self.export.set)(called, span, **where)
        self.made.append(Made(kind, name, device, *span, self.step_at(call, process)))

    def step_at(self, time: int, process: int) -> int | None:
        """A thread without ranges launches for the step that the main thread is in."""
        open_ = [number for number, (a, b) in enumerate(self.steps) if a <= time < b]
        return open_[0] if open_ and process == 1 else None


def made_trace(seed: int, folder: Path) -> tuple[Trace, list[Made]]:
    program = Program(random.Random(seed), Export(), [], [])
    program.run()
    return with_steps(program.export.load(folder)), program.made


def attributed(made: list[Made], window: list[tuple[int, int]]) -> Counter[tuple[str, str]]:
    """Time by kind and name, by asking each nanosecond whose it is; idle time under `idle`."""
    time: Counter[tuple[str, str]] = Counter()
    for first, last in window:
        for now in range(first, last):
            running = [each for each in made if each.start <= now < each.end]
            if running:
                one = min(running, key=lambda each: (PRECEDENCE[each.kind], each.start))
                time[one.kind, one.name] += 1
            else:
                time["idle", ""] += 1
    return time


@pytest.fixture(scope="module", params=range(40))
def program(request, tmp_path_factory):
    return made_trace(request.param, tmp_path_factory.mktemp("program"))


def test_parts_are_what_each_nanosecond_tells(program):
    trace, made = program
    run, window = figures_of(trace), run_window(trace)
    device = int(trace.devices["device_id"][window.device])
    own = [each for each in made if each.device == device]
    spans = list(zip(*(edge.tolist() for edge in window.covered), strict=True))
    expected, found = attributed(own, spans), Counter[tuple[str, str]]()
    for part in run.parts:
        name = "" if part.kind == "idle" else part.name
        found[part.kind, name] += part.time_ns
    assert +found == +expected
    assert sum(found.values()) == run.window_ns == sum(run.step_ns)
    assert all(part.time_ns >= 0 for part in run.parts)


def test_calls_are_those_of_the_steps(program):
    trace, made = program
    run, window = figures_of(trace), run_window(trace)
    if not run.has_steps:
        return
    device = int(trace.devices["device_id"][window.device])
    found = steps(trace)
    chosen = {str(found.names[int(row)]) for row in window.steps}
    inside = list(zip(*(edge.tolist() for edge in window.covered), strict=True))
    expected = Counter[str]()
    for each in made:
        counted = (
            f"step_{each.step}" in chosen
            if each.step is not None
            else any(first <= each.start < last for first, last in inside)
        )
        if each.device == device and counted:
            expected[each.kind] += 1
    got = Counter[str]()
    for part in run.parts:
        if part.kind != "idle":
            got[part.kind] += part.calls
    assert +got == +expected


@pytest.mark.parametrize("name", GPU_RECORDINGS)
def test_parts_of_a_recording_sum_to_its_steps(name, unpack):
    run = figures_of(load(unpack(name)))
    assert sum(part.time_ns for part in run.parts) == run.window_ns == sum(run.step_ns)
    assert len(run.sequence) == len(run.sequence_ns)
    assert set(run.sequence) <= set(range(len(run.parts)))


@pytest.mark.parametrize("name", GPU_RECORDINGS)
def test_a_run_without_steps_is_as_busy_as_its_report_says(name, unpack):
    trace = with_steps(load(unpack(name)))
    run = figures_of(trace)
    if run.has_steps:
        return
    device = int(trace.devices["device_id"][run_window(trace).device])
    rows = {row["device_id"]: row for row in gpu_idle.compute(trace).tables["devices"].rows()}
    assert run.figures["gpu_busy_pct"] == pytest.approx(rows[device]["steady_busy_pct"])


def test_a_copy_of_a_recording_is_the_same_capture(unpack, tmp_path):
    source = unpack("mlp_sync")
    other = tmp_path / "renamed.sqlite"
    other.write_bytes(source.read_bytes())
    runs = [figures_of(load(path)) for path in (source, other, unpack("mlp_nosync"))]
    assert runs[0].digest == runs[1].digest != runs[2].digest


def test_a_recording_without_gpu_work_is_refused_in_one_line(unpack):
    with pytest.raises(InputError, match="no GPU work to compare"):
        figures_of(load(unpack("ranges_2023_4")))


def test_counts_and_figures_are_those_of_the_steps(tmp_path):
    """Four steps of 100 ns, of which the first is warm-up: two kernels, a copy and a wait each."""
    export = Export()
    for step in range(4):
        at = 100 * step
        export.range(f"step_{step}", at, at + 100)
        export.launch((at, at + 2), (at + 10, at + 40), name="gemm_kernel")
        export.launch((at + 3, at + 5), (at + 40, at + 60), name="k")
        export.copy((at + 6, at + 8), (at + 60, at + 80), bytes=64, kind="D2H", source="device",
                    destination="pinned")  # fmt: skip
        export.sync("cudaStreamSynchronize_v3020", at + 9, at + 90)
    run = figures_of(export.load(tmp_path))
    assert (run.step_ns, run.window_ns) == ((100, 100, 100), 300)
    assert run.counts == {
        "kernels": 6, "graphs": 0, "collectives": 0, "copies": 3, "memsets": 0,
        "copied_bytes": 192, "launches": 6, "synchronizations": 3, "blocking_copies": 0,
        "allocations": 0, "releases": 0,
    }  # fmt: skip
    by_name = {(part.kind, part.name): part for part in run.parts}
    assert by_name["kernel", "gemm_kernel"].time_ns == 90
    assert by_name["copy", "D2H pinned"].time_ns == 60
    assert run.figures["gpu_busy_pct"] == pytest.approx(70)
    assert run.figures["class_ns[gemm]"] == pytest.approx(30)
    assert run.figures["synchronizations_per_step"] == 1
    assert [run.parts[number].name for number in run.sequence] == ["gemm_kernel", "k", "D2H pinned"]
    assert run.sequence_ns == (30, 20, 20)


def test_many_kernels_and_places_are_summed_and_still_sum(tmp_path, monkeypatch):
    """Of 60 kernels at 60 places the shortest lose place and name, and none of their time."""
    monkeypatch.setattr("traceview.traces.comparison.parts.MOST_PARTS", 10)
    monkeypatch.setattr("traceview.traces.comparison.parts.MOST_PLACES", 4)
    export = Export()
    for number in range(60):
        at, name = 100 * number, f"gemm_{chr(97 + number % 26)}{chr(97 + number // 26)}"
        export.range(f"of_{name}", at, at + 50)
        export.launch((at, at + 2), (at + 10, at + 20 + number), name=name)
    run = figures_of(export.load(tmp_path))
    assert sum(part.time_ns for part in run.parts) == run.window_ns
    kernels = [part for part in run.parts if part.kind == "kernel"]
    assert len(kernels) <= 10
    (others,) = (part for part in kernels if part.name == "other kernels")
    assert sum(part.calls for part in kernels) == 60
    assert (others.group, others.place, others.symbol) == ("gemm", "", "")
    assert len({(part.name, part.place) for part in run.parts if part.kind == "idle"}) <= 6


def test_operators_and_libraries_are_no_places(tmp_path):
    export = Export()
    for step in range(4):
        at = 100 * step
        export.range(f"step_{step}", at, at + 100)
        export.range("forward", at + 1, at + 60)
        export.range("aten::linear", at + 2, at + 50)
        export.range("cub::DeviceScan", at + 3, at + 40)
        export.launch((at + 4, at + 6), (at + 10, at + 90), name="gemm_kernel")
    run = figures_of(export.load(tmp_path))
    assert {(part.kind, part.place) for part in run.parts} == {
        ("kernel", "forward"),
        ("idle", "forward"),
        ("idle", ""),
    }


@pytest.mark.parametrize("trial_us", [0, 300, 1200, 1800])
def test_the_launch_of_the_first_work_counts_unless_warm_up_runs_meanwhile(tmp_path, trial_us):
    """A pass of one graph, and before it perhaps a kernel launched in a range named warm_up."""
    events = [traces.call("cudaGraphLaunch", 1000, 900, 9), traces.kernel("node", 2000, 500, 9)]
    if trial_us:
        events += [traces.span("user_annotation", "warm_up", 0, 200)]
        events += [traces.call("cudaLaunchKernel", 10, 5, 1)]
        events += [traces.kernel("trial", 100, trial_us, 1)]
    trace = load(traces.write(tmp_path / "t.json", events))
    covered, trial = run_window(trace).covered, trace.kernels.texts("name").isin(["trial"])
    first_us = int(trace.kernels["start_ns"].max() - covered.start[0]) // 1000
    assert first_us == min(1000, 2000 - 100 - trial_us)
    start_ns, end_ns = (trace.kernels[edge][trial] for edge in ("start_ns", "end_ns"))
    assert not intervals.overlap(covered, start_ns, end_ns).any()
