"""Measure what added ranges and Python samples cost, by turning them on and off in one process.

    python -m benchmarks.recording_overhead.ranges_and_samples [--seconds 60] [--only WORD...]
        [--json FILE]
    nsys profile --capture-range=cudaProfilerApi --capture-range-end=repeat:99 … \\
        python -m benchmarks.recording_overhead.ranges_and_samples --captures 8 --json FILE
    python -m benchmarks.recording_overhead.ranges_and_samples --quotient WITH.json WITHOUT.json
    python -m benchmarks.recording_overhead.ranges_and_samples --show FILE

Processes of the same program differ by some 10 % on the H200, and so do blocks of steps inside a
process: more than what is measured. So each step runs with or without, at random. Shown is the
difference of the mean step (a tenth of the longest left out on both sides) with the interval that
holds 95 % of 4,000 resamples. `nothing` changes nothing: its interval has to hold 0. Nothing waits
between the steps: after a pause the GPU would run faster for a while.

Run it under `nsys profile --trace=cuda,nvtx`, as a recording does, so that ranges are written.
nsys's own sampler cannot be turned off inside a process: with `--captures` the whole recording is
the thing that is on or off, in blocks, and `--quotient` divides its cost with samples by its cost
without.

py-spy and austin read the stacks from outside of the process, if they are installed and may. They
are stopped (SIGSTOP) while they are off.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recording_overhead.parts import gpu_bound, launch_bound
from benchmarks.recording_overhead.switching import (
    Samples,
    Switch,
    Times,
    python_sampler,
    timed_ms,
    turn_ms,
)
from traceview.traces.recorders.injected.traceview_injected.annotations import (
    module_names,
    nvtx_ranges,
    torch_calls,
)

RESAMPLES = 4_000
BLOCK = 10
"""Steps of a block of `--captures`."""
LONGEST = 0.1
MOST_FOLLOWED = module_names.MOST_FOLLOWED
NOTHING, CAPTURE = "nothing", "the whole recording"
PERIODS_S = (0.005, 0.01, 0.02)
OUTSIDE: Mapping[str, tuple[str, ...]] = {
    "py-spy": ("record", "--nonblocking", "--rate=100", "--duration=9999", "--format=raw"),
    "austin": ("--interval=10ms",),
}
"""Readers from outside of the process, with their options."""
THREADS = 4


def fed_by_threads(device: str) -> Callable[[], object]:
    """The launch-bound loop, while threads prepare what it takes, in Python and in NumPy."""
    step, ready = launch_bound(device), queue.Queue[Any](2 * THREADS)

    def prepare() -> None:
        rows = np.random.default_rng(0).random((64, 256))
        while True:
            ready.put([sorted(row)[:8] for row in np.tanh(rows).tolist()])

    for _ in range(THREADS):
        threading.Thread(target=prepare, daemon=True).start()

    def fed() -> None:
        ready.get()
        step()

    return fed


LOOPS = {"launch-bound": launch_bound, "GPU-bound": gpu_bound, "fed by threads": fed_by_threads}
Array = np.ndarray[Any, np.dtype[np.float64]]


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

    def turn_forward(self, on: bool) -> None:
        """As `turn`, but modules have no ranges in the backward pass."""
        module_names.MOST_FOLLOWED = -1 if on else MOST_FOLLOWED
        self.turn(on)

    def turn(self, on: bool) -> None:
        for slot, value in zip(self._slots, self._on if on else self._off, strict=True):
            setattr(*slot, value)


class Outside:
    """A sampler that reads this process from another one, stopped and continued."""

    def __init__(self, name: str, folder: Path) -> None:
        where = [f"--output={folder / name}.out", f"--pid={os.getpid()}"]
        self._log = folder / f"{name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen([name, *OUTSIDE[name], *where], stdout=log, stderr=log)
        time.sleep(3)

    @property
    def failed(self) -> str | None:
        """What it says if it ended at once."""
        ended = self._process.poll() is not None
        return self._log.read_text("utf-8", "replace").strip() if ended else None

    def turn(self, on: bool) -> None:
        self._process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def ranges_go_nowhere() -> None:
    """Without CUDA torch has no NVTX: the wrappers then end in functions that do nothing."""
    nvtx_ranges._carrier = (str, str)
    nvtx_ranges.choose = lambda _: True


def blocks_ms(
    step: Callable[[], object], switch: Switch, wait: Callable[[], None]
) -> Iterator[tuple[bool, float]]:
    """The same of a block with and one without the thing, after a step that gets used to it."""
    for on in random.sample((False, True), 2):
        switch(on)
        step()
        wait()
        yield on, timed_ms(step, BLOCK, wait)
    switch(False)


def interval(off: Array, on: Array) -> tuple[float, float, float]:
    """By how many percent the mean step is longer, and the bounds of its bootstrap interval."""

    def mean(times: Array) -> Any:
        kept = times.shape[-1] - int(LONGEST * times.shape[-1])
        return np.sort(times)[..., :kept].mean(axis=-1)

    random_draw = np.random.default_rng(0)
    drawn = [mean(random_draw.choice(each, (RESAMPLES, len(each)))) for each in (off, on)]
    low, high = np.percentile(100 * (drawn[1] / drawn[0] - 1), (2.5, 97.5))
    return float(100 * (mean(on) / mean(off) - 1)), float(low), float(high)


def switches(
    torch: Any, captures: int, folder: str, only: list[str], ended: contextlib.ExitStack
) -> dict[str, Switch]:
    if captures:
        return {CAPTURE: lambda on: _capture(torch, on)}

    def outside(name: str) -> Switch | None:
        reader = Outside(name, Path(folder))
        if reader.failed is not None:
            print(f"{name} is left out: {reader.failed}", file=sys.stderr)
            return None
        ended.callback(reader.end)
        reader.turn(False)
        return reader.turn

    def by_default() -> Switch:
        samples, ranges = Samples(folder, python_sampler.PERIOD_S), Ranges(torch, "auto")
        return lambda on: (samples.turn(on), ranges.turn(on))

    made: dict[str, Callable[[], Switch | None]] = {
        NOTHING: lambda: bool,
        "both, as by default": by_default,
        "--annotate auto": lambda: Ranges(torch, "auto").turn,
        "--annotate modules": lambda: Ranges(torch, "modules").turn,
        "--annotate modules, forward": lambda: Ranges(torch, "modules").turn_forward,
        **{
            f"samples by a thread, every {1e3 * period_s:g} ms": partial(
                lambda period_s: Samples(folder, period_s).turn, period_s
            )
            for period_s in PERIODS_S
        },
        **{f"samples by {name}": partial(outside, name) for name in OUTSIDE if shutil.which(name)},
    }
    chosen = {
        name: make()
        for name, make in made.items()
        if name == NOTHING or not only or any(word in name for word in only)
    }
    return {name: switch for name, switch in chosen.items() if switch}


_capturing = False


def _capture(torch: Any, on: bool) -> None:
    """Start or stop the recording, unless that is what it does already."""
    global _capturing
    if on != _capturing:
        (torch.cuda.profiler.start if on else torch.cuda.profiler.stop)()
        _capturing = on


def measure(
    seconds: float, captures: int, out: Path | None, only: list[str], loops: list[str]
) -> Times:
    """For each loop and each thing to switch, whether it was on and the time per step in ms."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    if device == "cpu":
        print("no GPU here: ranges go nowhere, times mean little", file=sys.stderr)
        ranges_go_nowhere()
    found: Times = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ended:
        every = switches(torch, captures, folder, only, ended)
        for loop in loops:
            step = LOOPS[loop](device)
            found[loop] = {name: [] for name in every}
            for _ in range(5):
                step()
            begun, done = time.monotonic(), 0
            # The things take turns, so that what drifts affects all of them.
            while done < (captures or 1) or (
                not captures and time.monotonic() - begun < seconds / len(loops)
            ):
                for name in random.sample(sorted(every), len(every)):
                    wait()
                    turn = (
                        blocks_ms(step, every[name], wait)
                        if captures
                        else turn_ms(step, every[name])
                    )
                    found[loop][name] += turn
                done += 1
                # Whatever ends this process early, the steps so far are known.
                if out:
                    out.write_text(json.dumps(found), "utf-8")
    return found


def parted(times: list[tuple[bool, float]]) -> tuple[Array, Array]:
    """The times without and with."""
    off, on = ([ms for with_it, ms in times if with_it is each] for each in (False, True))
    return np.array(off), np.array(on)


def show(found: Times) -> None:
    for loop, every in found.items():
        off = np.median(np.concatenate([parted(times)[0] for times in every.values()]))
        print(f"\n{loop}, {off:.3f} ms per step without           with (95 % interval)   steps")
        for name, times in every.items():
            difference, low, high = interval(*parted(times))
            print(f"  {name:32} {difference:+6.2f} %  ({low:+.2f} to {high:+.2f})  {len(times)}")


def show_quotient(with_samples: Path, without: Path) -> None:
    """The cost of nsys's own samples: that of a recording with them, through one without."""
    both = [json.loads(path.read_text("utf-8")) for path in (with_samples, without)]
    random_draw = np.random.default_rng(0)
    for loop in both[0].keys() & both[1].keys():
        ratios = [on / off for off, on in (parted(each[loop][CAPTURE]) for each in both)]
        medians = [
            np.median(random_draw.choice(each, (RESAMPLES, len(each))), axis=1) for each in ratios
        ]
        low, high = np.percentile(100 * (medians[0] / medians[1] - 1), (2.5, 97.5))
        median = 100 * (np.median(ratios[0]) / np.median(ratios[1]) - 1)
        print(f"{loop:14} samples of nsys  {median:+6.2f} %  ({low:+.2f} to {high:+.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description="What ranges and samples cost, on against off.")
    parser.add_argument("--seconds", type=float, default=60, help="for all loops together")
    parser.add_argument("--captures", type=int, default=0, help="switch the whole recording")
    parser.add_argument("--loops", nargs="+", default=[*LOOPS], choices=LOOPS)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="what to switch")
    parser.add_argument("--json", type=Path, help="write the times of all pairs to this file")
    parser.add_argument("--quotient", nargs=2, type=Path, metavar="JSON")
    parser.add_argument("--show", type=Path, metavar="JSON", help="show times written before")
    options = parser.parse_args()
    if options.quotient:
        show_quotient(*options.quotient)
        return
    if options.show:
        show(json.loads(options.show.read_text("utf-8")))
        return
    random.seed(0)
    show(measure(options.seconds, options.captures, options.json, options.only, options.loops))


if __name__ == "__main__":
    main()
