"""Measure what Python samples cost threads that really run at once, in a Python without a GIL.

    python3.13t benchmarks/recording_overhead/free_threaded.py --json FILE [--seconds 20]
    nsys profile --trace=cuda,nvtx … python3.13t benchmarks/recording_overhead/free_threaded.py …
    python -m benchmarks.recording_overhead.ranges_and_samples --show FILE

Needs neither torch nor NumPy: four threads launch a small kernel with ctypes on the CUDA driver,
each on a stream of its own, and compute in Python between the launches (launch-bound), or launch
long kernels and wait for them (GPU-bound). Without a GPU the calls go nowhere. Each step runs with
or without samples, at random, as in ranges_and_samples.py; `nothing` switches nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.recording_overhead.switching import Samples, Switch, Times, turn_ms

THREADS = 4
LAUNCHES, LONG_LAUNCHES = 400, 5
LONG_MS = 4.0
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 p_out, .param .u32 p_turns)
{
    .reg .pred %p;
    .reg .f32 %f;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p_out];
    ld.param.u32 %r1, [p_turns];
    mov.u32 %r2, 0;
    mov.f32 %f, 0f3F800000;
again:
    fma.rn.f32 %f, %f, 0f3F000000, 0f3F800000;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra again;
    mov.u32 %r3, %tid.x;
    mul.wide.u32 %rd2, %r3, 4;
    cvta.to.global.u64 %rd3, %rd1;
    add.s64 %rd3, %rd3, %rd2;
    st.global.f32 [%rd3], %f;
    ret;
}
\0"""


class Gpu:
    """The kernel `spin` on a GPU, by the driver's own calls."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context, module = ctypes.c_int(), c_void_p(), c_void_p()
        self._call("cuDeviceGet", byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._context, self._kernel = context, c_void_p()
        self._kept: list[c_uint64] = []
        self.enter()
        self._call("cuModuleLoadData", byref(module), PTX)
        self._call("cuModuleGetFunction", byref(self._kernel), module, b"spin")

    def enter(self) -> None:
        """To be called first on each thread."""
        self._call("cuCtxSetCurrent", self._context)

    def stream(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Functions that launch a kernel of so many turns on a new stream, and wait for it."""
        stream, memory, turns = c_void_p(), c_uint64(), c_uint()
        self._call("cuStreamCreate", byref(stream), 1)
        self._call("cuMemAlloc_v2", byref(memory), c_uint64(4096))
        arguments = (c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(turns))
        launch_kernel, synchronize = self._cuda.cuLaunchKernel, self._cuda.cuStreamSynchronize
        kernel, grid = self._kernel, (1, 1, 1, 128, 1, 1, 0)
        self._kept.append(memory)

        def launch(count: int) -> None:
            turns.value = count
            if error := launch_kernel(kernel, *grid, stream, arguments, None):
                sys.exit(f"cuLaunchKernel: error {error}")

        def wait() -> None:
            if error := synchronize(stream):
                sys.exit(f"cuStreamSynchronize: error {error}")

        return launch, wait

    def _call(self, name: str, *arguments: Any) -> None:
        if error := getattr(self._cuda, name)(*arguments):
            sys.exit(f"{name}: error {error}")


class NoGpu:
    """The same calls without a GPU: they go to the C library."""

    def enter(self) -> None:
        """Nothing to do."""

    def stream(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        getpid = ctypes.CDLL(None).getpid
        return (lambda _: getpid()), (lambda: time.sleep(0.001))


Cuda = Gpu | NoGpu


def turns_per_ms(gpu: Cuda) -> int:
    """Turns of the kernel's loop that take a millisecond."""
    if isinstance(gpu, NoGpu):
        return 1000
    launch, wait = gpu.stream()
    for count in (1_000, 2_000_000):
        begun = time.perf_counter()
        launch(count)
        wait()
    return int(2_000_000 / (1e3 * (time.perf_counter() - begun)))


def computed(row: list[int]) -> int:
    """Some 50 µs of Python."""
    total = 0
    for number in row:
        total += number * number % 7
    return total


class Workers:
    """Threads that each do their part of a step at once."""

    def __init__(self, work: Callable[[], Callable[[], object]], gpu: Cuda) -> None:
        self._begin, self._end = (threading.Barrier(THREADS + 1) for _ in range(2))
        for _ in range(THREADS):
            threading.Thread(target=self._run, args=(work, gpu), daemon=True).start()

    def _run(self, work: Callable[[], Callable[[], object]], gpu: Cuda) -> None:
        gpu.enter()
        part = work()
        while True:
            self._begin.wait()
            part()
            self._end.wait()

    def step(self) -> None:
        self._begin.wait()
        self._end.wait()


def launch_bound(gpu: Cuda) -> Callable[[], object]:
    def work() -> Callable[[], object]:
        (launch, wait), row = gpu.stream(), list(range(1_000))

        def part() -> None:
            for _ in range(LAUNCHES):
                computed(row)
                launch(10)
            wait()

        return part

    return Workers(work, gpu).step


def gpu_bound(gpu: Cuda) -> Callable[[], object]:
    turns = int(LONG_MS * turns_per_ms(gpu))

    def work() -> Callable[[], object]:
        launch, wait = gpu.stream()

        def part() -> None:
            for _ in range(LONG_LAUNCHES):
                launch(turns)
            wait()

        return part

    return Workers(work, gpu).step


LOOPS = {"launch-bound, four threads": launch_bound, "GPU-bound, four threads": gpu_bound}


def parallel() -> float:
    """How many times as long four threads take for four times the work of one: 1 if at once."""

    def timed(count: int) -> float:
        row = list(range(200_000))
        threads = [threading.Thread(target=computed, args=([*row],)) for _ in range(count)]
        begun = time.perf_counter()
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return time.perf_counter() - begun

    timed(1)
    return min(timed(THREADS) for _ in range(5)) / min(timed(1) for _ in range(5))


def measure(seconds: float, out: Path, loops: list[str]) -> Times:
    try:
        gpu: Cuda = Gpu()
    except OSError:
        print("no GPU here: calls go nowhere, times mean little", file=sys.stderr)
        gpu = NoGpu()
    found: Times = {}
    with tempfile.TemporaryDirectory() as folder:
        switches: dict[str, Switch] = {"nothing": bool, "samples": Samples(folder).turn}
        for loop in loops:
            step = LOOPS[loop](gpu)
            found[loop] = {name: [] for name in switches}
            for _ in range(5):
                step()
            begun = time.monotonic()
            while time.monotonic() - begun < seconds / len(loops):
                for name in random.sample(sorted(switches), len(switches)):
                    found[loop][name] += turn_ms(step, switches[name])
                # Whatever ends this process early, the steps so far are known.
                out.write_text(json.dumps(found), "utf-8")
        taken = sum(path.stat().st_size for path in Path(folder).iterdir())
        print(f"samples: {taken:,} bytes", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What samples cost a Python without a GIL.")
    parser.add_argument("--seconds", type=float, default=20, help="for all loops together")
    parser.add_argument("--loops", nargs="+", default=[*LOOPS], choices=LOOPS)
    parser.add_argument("--json", type=Path, required=True, help="write the times to this file")
    options = parser.parse_args()
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)
    print(f"Python {sys.version}", flush=True)
    print(f"four threads at once take {parallel():.2f} times as long as one", flush=True)
    random.seed(0)
    measure(options.seconds, options.json, options.loops)
    print(f"GIL: {'on' if has_gil() else 'off'}", flush=True)


if __name__ == "__main__":
    main()
