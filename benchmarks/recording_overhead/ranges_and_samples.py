"""Measure what added ranges and Python samples cost, by turning them on and off in one process.

    python -m benchmarks.recording_overhead.ranges_and_samples [--seconds 60] [--steps 10]
        [--json FILE]
    nsys profile --capture-range=cudaProfilerApi --capture-range-end=repeat:99 … \\
        python -m benchmarks.recording_overhead.ranges_and_samples --captures 8 --json FILE
    python -m benchmarks.recording_overhead.ranges_and_samples --quotient WITH.json WITHOUT.json

Processes of the same program differ by some 10 % on the H200, more than what is measured. So one
process runs blocks of steps in pairs, one with and one without, in random order; each pair gives a
ratio. Shown is their median with the interval that holds 95 % of the medians of 4,000 resamples.
`nothing` changes nothing between the blocks of a pair: its interval has to hold 0.

Run it under `nsys profile --trace=cuda,nvtx`, as a recording does, so that ranges are written.
nsys's own sampler cannot be turned off inside a process: with `--captures` the whole recording is
the thing that is on or off, and `--quotient` divides its cost with samples by its cost without.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recording_overhead.parts import gpu_bound, launch_bound
from traceview.recorders.injected.traceview_injected import python_sampler
from traceview.recorders.injected.traceview_injected.annotations import (
    nvtx_ranges,
    torch_calls,
)

RESAMPLES = 4_000
LEAST_PAIRS = 5
NOTHING, SAMPLES, CAPTURE = "nothing", "samples of our own", "the whole recording"
LOOPS = {"launch-bound": launch_bound, "GPU-bound": gpu_bound}
Switch = Callable[[bool], object]


class Ranges:
    """The wrappers of one mode of --annotate around torch's calls, put on and taken off."""

    def __init__(self, torch: Any, mode: str) -> None:
        # torch wraps the `step` of a class when its first optimizer is made, and so do ours.
        self._classes = (torch.optim.Adam, torch.optim.SGD)
        self._make_optimizers(torch)
        self._slots = [
            (torch.nn.Module, "__call__"),
            (torch.autograd, "backward"),
            (torch.optim.Optimizer, "_patch_step_function"),
            (torch.optim.Optimizer, "zero_grad"),
            *((each, "step") for each in self._classes),
        ]
        self._off = [getattr(*slot) for slot in self._slots]
        torch_calls.wrap(torch, name_modules=mode == "modules")
        self._make_optimizers(torch)
        self._on = [getattr(*slot) for slot in self._slots]
        changed = sum(on is not off for on, off in zip(self._on, self._off, strict=True))
        if changed != len(self._slots):
            sys.exit(f"only {changed} of {len(self._slots)} calls of torch were wrapped ({mode})")
        self.turn(False)

    def _make_optimizers(self, torch: Any) -> None:
        for each in self._classes:
            each([torch.nn.Parameter(torch.zeros(1))], lr=0.1)

    def turn(self, on: bool) -> None:
        for slot, value in zip(self._slots, self._on if on else self._off, strict=True):
            setattr(*slot, value)


class Samples:
    """The sampler inside the process, started and stopped; the stacks that it knows are kept."""

    def __init__(self, folder: str) -> None:
        self._sampler = python_sampler.Sampler(folder)
        self._usual_s = sys.getswitchinterval()

    def turn(self, on: bool) -> None:
        if on:
            sys.setswitchinterval(python_sampler.SWITCH_S)
            self._sampler._stopped = False
            start_new_thread(self._sampler.run, ())
        else:
            self._sampler.stop()
            sys.setswitchinterval(self._usual_s)
            # The thread notices after its pause, which is at most 1 / MOST_COST of one sample.
            time.sleep(10 * python_sampler.PERIOD_S)


def ranges_go_nowhere() -> None:
    """Without CUDA torch has no NVTX: the wrappers then end in functions that do nothing."""
    nvtx_ranges._carrier = (str, str)
    nvtx_ranges.choose = lambda: True


def block_ms(step: Callable[[], object], steps: int, wait: Callable[[], None]) -> float:
    """Time per step of a block, after two steps that get used to what was switched."""
    step()
    step()
    wait()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return 1e3 * (time.perf_counter() - begun) / steps


def pairs(
    step: Callable[[], object], switch: Switch, steps: int, wait: Callable[[], None]
) -> Iterator[tuple[float, float]]:
    """Time per step in ms without and with, pair by pair."""
    while True:
        times = {}
        for on in random.sample((False, True), 2):
            switch(on)
            times[on] = block_ms(step, steps, wait)
        switch(False)
        yield times[False], times[True]


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Median of (with / without - 1) in percent, and the bounds of its bootstrap interval."""
    pct = 100 * (np.array(ratios) - 1)
    drawn = np.random.default_rng(0).choice(pct, (RESAMPLES, len(pct)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(np.median(pct)), float(low), float(high)


def switches(torch: Any, captures: int, folder: str) -> dict[str, Switch]:
    if captures:
        return {CAPTURE: lambda on: _capture(torch, on)}
    return {
        NOTHING: bool,
        "--annotate auto": Ranges(torch, "auto").turn,
        "--annotate modules": Ranges(torch, "modules").turn,
        SAMPLES: Samples(folder).turn,
    }


_capturing = False


def _capture(torch: Any, on: bool) -> None:
    """Start or stop the recording, unless that is what it does already."""
    global _capturing
    if on != _capturing:
        (torch.cuda.profiler.start if on else torch.cuda.profiler.stop)()
        _capturing = on


def measure(
    seconds: float, steps: int, captures: int, out: Path | None
) -> dict[str, dict[str, list[list[float]]]]:
    """For each loop and each thing to switch, the pairs of times per step."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    if device == "cpu":
        print("no GPU here: ranges go nowhere, times mean little", file=sys.stderr)
        ranges_go_nowhere()
    found: dict[str, dict[str, list[list[float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        every = switches(torch, captures, folder)
        loops = {name: make(device) for name, make in LOOPS.items()}
        for loop, step in loops.items():
            found[loop] = {name: [] for name in every}
            for _ in range(5):
                step()
            turns = {name: pairs(step, each, steps, wait) for name, each in every.items()}
            begun, done = time.monotonic(), 0
            # The things take turns, so that what drifts affects all of them.
            while done < (captures or LEAST_PAIRS) or (
                not captures and time.monotonic() - begun < seconds / len(loops)
            ):
                for name in random.sample(sorted(turns), len(turns)):
                    found[loop][name].append([*next(turns[name])])
                done += 1
                # Whatever ends this process early, the pairs so far are known.
                if out:
                    out.write_text(json.dumps(found), "utf-8")
    return found


def show(found: dict[str, dict[str, list[list[float]]]]) -> None:
    for loop, every in found.items():
        off = np.median([pair[0] for pair in next(iter(every.values()))])
        print(f"\n{loop}, {off:.3f} ms per step without      with (95 % interval)      pairs")
        for name, times in every.items():
            median, low, high = interval([on / off for off, on in times])
            print(f"  {name:32} {median:+6.2f} %  ({low:+.2f} to {high:+.2f})  {len(times)}")


def show_quotient(with_samples: Path, without: Path) -> None:
    """The cost of nsys's own samples: that of a recording with them, through one without."""
    both = [json.loads(path.read_text("utf-8")) for path in (with_samples, without)]
    random_draw = np.random.default_rng(0)
    for loop in both[0].keys() & both[1].keys():
        ratios = [np.array([on / off for off, on in each[loop][CAPTURE]]) for each in both]
        medians = [
            np.median(random_draw.choice(each, (RESAMPLES, len(each))), axis=1) for each in ratios
        ]
        low, high = np.percentile(100 * (medians[0] / medians[1] - 1), (2.5, 97.5))
        median = 100 * (np.median(ratios[0]) / np.median(ratios[1]) - 1)
        print(f"{loop:14} samples of nsys  {median:+6.2f} %  ({low:+.2f} to {high:+.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description="What ranges and samples cost, on against off.")
    parser.add_argument("--seconds", type=float, default=60, help="for both loops together")
    parser.add_argument("--steps", type=int, default=10, help="steps per block")
    parser.add_argument("--captures", type=int, default=0, help="switch the whole recording")
    parser.add_argument("--json", type=Path, help="write the times of all pairs to this file")
    parser.add_argument("--quotient", nargs=2, type=Path, metavar="JSON")
    options = parser.parse_args()
    if options.quotient:
        show_quotient(*options.quotient)
        return
    random.seed(0)
    show(measure(options.seconds, options.steps, options.captures, options.json))


if __name__ == "__main__":
    main()
