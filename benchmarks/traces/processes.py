"""The processes of a made trace: when they launch, and when their kernels run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.traces.shapes import Shape

Array = npt.NDArray[np.int64]
HOST = 1 << 48
FIRST_PID = 4242
OPERATIONS_PER_LAYER, LAYERS_PER_PASS, PASSES = 4, 12, ("forward", "backward")
KERNELS_PER_STEP = OPERATIONS_PER_LAYER * LAYERS_PER_PASS * len(PASSES)
LAUNCH_PERIOD_NS, LAUNCH_NS, GAP_NS, WARM_UP_NS = 6_000, 3_500, 1_500, 2_000_000_000


@dataclass(frozen=True)
class Run:
    """A thread of a process: its launch calls and kernels, and which call launched each kernel.

    `first` is the number of kernels that the threads before it in its process launch.
    """

    shape: Shape
    pid: int
    thread: int
    first: int
    gpu: int
    call_start: Array
    call_end: Array
    launch: Array
    kernel_start: Array
    kernel_end: Array
    stream: Array

    @property
    def global_pid(self) -> int:
        return HOST | self.pid << 24

    @property
    def global_tid(self) -> int:
        return self.global_pid | self.tid

    @property
    def tid(self) -> int:
        return self.pid + self.thread * 1_000

    def ends_of(self, group: int, margin: int) -> tuple[Array, Array]:
        """Start of the first and end of the last launch call of every `group`, and a margin."""
        first = np.arange(0, len(self.call_start), group)
        last = np.minimum(first + group, len(self.call_start)) - 1
        return self.call_start[first] - margin, self.call_end[last] + margin


def runs_of(rng: np.random.Generator, shape: Shape, kernels: int) -> list[Run]:
    """The threads of all processes, with equal numbers of kernels, as far as these divide."""
    each, more = divmod(kernels, shape.processes * shape.threads)
    runs: list[Run] = []
    for place in range(shape.processes * shape.threads):
        first = sum(len(run.kernel_start) for run in runs[place - place % shape.threads :])
        runs.append(_run_of(rng, shape, place, each + (place < more), first))
    return runs


def _run_of(rng: np.random.Generator, shape: Shape, place: int, count: int, first: int) -> Run:
    kernels_per_launch = max(shape.graph_nodes, 1)
    calls = -(-count // kernels_per_launch)
    # Calls of one thread do not overlap: jitter and longest call stay within the period.
    jitter = rng.integers(0, LAUNCH_PERIOD_NS // 4, calls)
    period = LAUNCH_PERIOD_NS * kernels_per_launch
    call_start = WARM_UP_NS + place * 777 + np.arange(calls) * period + jitter
    call_end = call_start + LAUNCH_NS // 2 + rng.integers(0, LAUNCH_NS // 2, calls)
    duration = rng.integers(2_000, 2_000 + 7_000 * shape.streams, count)
    process, thread = divmod(place, shape.threads)
    first_stream = 7 + thread * shape.streams
    stream = first_stream + np.arange(count) // LAYERS_PER_PASS % shape.streams
    launch = np.arange(count) // kernels_per_launch
    kernel_start = np.zeros(count, np.int64)
    for number in range(first_stream, first_stream + shape.streams):
        own = stream == number
        ready = call_end[launch[own]] + GAP_NS
        kernel_start[own] = _queued(ready, duration[own] + GAP_NS)
    ends = kernel_start + duration
    calls = (call_start, call_end, launch)
    pid = FIRST_PID + process
    return Run(shape, pid, thread, first, process, *calls, kernel_start, ends, stream)


def _queued(ready: Array, occupied: Array) -> Array:
    """Start of each operation, which waits until it is ready and the previous one has ended."""
    before = np.cumsum(occupied) - occupied
    return np.asarray(np.maximum.accumulate(ready - before) + before, np.int64)
