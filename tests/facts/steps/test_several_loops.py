"""Programs that run several loops one after the other: each is found, the longest is the first."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

import traceview
from tests.build import Export
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import loop_names, steps, warm_up_end_ns
from traceview.traces.trace import Trace

US, MS = 1_000, 1_000_000
NAMES = {
    "native": "variant_{}(float*, int)",
    "torch": "void at::native::vectorized_elementwise_kernel<4, op_{}>(int)",
    "cupy": "cupy_op_{}",
    "julia": "julia_kernel_{}(CuArray)",
}
SEEN = ("wait", "read", "timed")


class Loop(NamedTuple):
    """A loop as it was run: its window on the CPU, its passes, and the time of its GPU work."""

    begin_ns: int
    end_ns: int
    passes: int
    kernels: int
    work_ns: int


class Program:
    """A program as it runs: the clock of the CPU, and when the GPU is done."""

    def __init__(self, random: np.random.Generator, library: str) -> None:
        self.random, self.export, self.name = random, Export(), NAMES[library]
        self.at, self.ready = 1_000, 1_000
        self.seen = [*SEEN, *(["unseen"] if library == "native" else [])]

    def kernel(self, name: str, work_ns: int, blocks: int) -> None:
        start = max(self.at + 6 * US, self.ready)
        self.ready = start + work_ns
        call, span = (self.at, self.at + 3 * US), (start, self.ready)
        self.export.launch(call, span, name=name, gridX=blocks, blockX=128)
        self.at += 3 * US + int(self.random.integers(600, 900))

    def read(self) -> None:
        start = max(self.at + 2 * US, self.ready)
        self.ready = start + 2 * US
        call = self.at, self.ready + US
        self.export.copy(call, (start, self.ready), kind="D2H", bytes=4096, api="cudaMemcpy_v3020")
        self.at = self.ready + 2 * US

    def wait(self) -> None:
        self.export.sync("cudaDeviceSynchronize_v3020", self.at, max(self.at, self.ready) + US)
        self.at = max(self.at, self.ready) + 2 * US

    def start(self) -> None:
        for number in range(self.random.integers(1, 6)):
            self.kernel(f"init_{number}", 10 * US, 64)
        self.at += 50 * MS

    def loop(self, names: list[str], passes: int, blocks: int, seen: str, work_ns: int) -> Loop:
        begin, flushes = self.at, self.random.random() < 0.3 and seen != "unseen"
        cold = int(self.random.choice([0, 0, 300 * MS]))
        for number in range(passes):
            if seen == "timed":
                if flushes:
                    self.kernel("flush", 5 * US, 2048)
                self.export.call("cudaEventRecord_v3020", self.at, self.at + US)
                self.at += 2 * US
            for name in names:
                self.kernel(name, work_ns // passes // len(names), blocks)
                # The first launch loads the code.
                self.at, cold = self.at + (cold if number == 0 else 0), 0
            if seen == "read":
                self.read()
            if seen == "wait":
                self.wait()
        self.wait()
        done = Loop(begin, self.at, passes, len(names), work_ns)
        self.at += int(self.random.choice([10 * US, 20 * MS, 400 * MS]))
        for _ in range(self.random.integers(0, 3)):
            self.read()
        return done


def run(random: np.random.Generator, library: str, folder) -> tuple[Trace, list[Loop]]:
    program = Program(random, library)
    program.start()
    loops, kernel, names, blocks = list[Loop](), 0, list[str](), 4096
    for _ in range(random.integers(2, 9)):
        seen = str(random.choice(program.seen))
        if names and random.random() < 0.3:
            # The same code, at another size.
            blocks *= int(random.choice([2, 4]))
        else:
            count = int(random.choice([2, 3, 5, 9, 14]))
            names = [program.name.format(kernel + number) for number in range(count)]
            kernel += count
        passes = int(random.integers(20, 60))
        work_ns = int(random.integers(30, 90)) * MS
        loops.append(program.loop(names, passes, blocks, seen, work_ns))
    return with_steps(program.export.load(folder)), loops


@pytest.mark.parametrize("library", NAMES)
@pytest.mark.parametrize("seed", range(12))
def test_each_loop_is_found_and_the_longest_is_first(tmp_path, library, seed):
    trace, loops = run(np.random.default_rng([seed, *map(ord, library)]), library, tmp_path)
    found, names = steps(trace), loop_names(trace).decode()
    seen = set[str]()
    for loop in loops:
        inside = (found.cpu_end_ns > loop.begin_ns + US) & (found.cpu_end_ns <= loop.end_ns)
        # The first pass of the next loop may begin with what is launched before it.
        assert abs(np.count_nonzero(inside) - loop.passes) <= max(2, 0.15 * loop.passes), loop
        assert abs(np.median(found.operations[inside]) - loop.kernels) <= 1
        [(name, _)] = Counter(map(str, names[inside])).most_common(1)
        assert np.count_nonzero(names[inside] != name) <= 1
        assert name not in seen
        seen.add(name)
    assert len(seen) == len(set(names))
    assert warm_up_end_ns(trace) < loops[0].end_ns


@pytest.mark.parametrize("library", NAMES)
def test_the_report_is_about_the_longest(tmp_path, library):
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        trace, loops = run(np.random.default_rng(seed), library, folder)
        verdict = traceview.analyze(trace).verdict
        longest = max(loops, key=lambda loop: loop.work_ns)
        assert abs(verdict.steps - longest.passes) <= 2
        assert len(verdict.shares.loops) == len(loops)
        assert "Cold" not in verdict.text


@pytest.mark.parametrize(
    ("warm", "waits", "number"), [(0, 0, 20), (8, 0, 20), (8, 3, 0), (28, 0, 0)]
)
def test_passes_of_a_model_that_events_time(tmp_path, warm, waits, number):
    """Events that a stream waits for order work; passes that the host does not see may be layers.

    So may those of which the fewer are timed.
    """
    program = Program(np.random.default_rng(0), "torch")
    for count in range(warm + 20):
        if count >= warm:
            program.export.call("cudaEventRecord_v3020", program.at, program.at + US)
            program.at += 2 * US
        for name in range(9):
            program.kernel(program.name.format(name), 100 * US, 256)
            program.at += 5 * US
    for _ in range(waits):
        program.export.call("cudaStreamWaitEvent_v3020", program.at, program.at + US)
        program.at += 2 * US
    found = steps(with_steps(program.export.load(tmp_path)))
    assert found.operations.tolist() == [9] * number


@pytest.mark.parametrize(("longer_ns", "passes"), [(150, 170), (40 * US, 10)])
def test_pauses_of_the_recorder_group_no_passes(tmp_path, longer_ns, passes):
    """A program that never waits pauses before every 17th pass, by its own loop or by buffers."""
    export, at = Export(), 1_000
    for count in range(2 * 170):
        at += 350 + (longer_ns if count % 34 == 0 else 0)
        ready = 60 * US * (count + 1)
        name = NAMES["native"].format(count % 2)
        export.launch((at, at + 3 * US), (ready, ready + 50 * US), name=name)
        at += 3 * US
    assert len(steps(with_steps(export.load(tmp_path)))) == passes


@pytest.mark.parametrize("loops", [7, 40])
def test_many_loops_of_which_none_stands_out(tmp_path, loops):
    """Letters name 27 of them, those with most time."""
    program = Program(np.random.default_rng(0), "native")
    for number in range(loops):
        names = [program.name.format(number * 3 + kernel) for kernel in range(3)]
        program.loop(names, 20, 512, "wait", (30 + number % 9) * MS)
    found = steps(with_steps(program.export.load(tmp_path)))
    assert len(np.unique(found.series)) == min(loops, 27)
