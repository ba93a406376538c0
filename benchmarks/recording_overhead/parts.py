"""Measure what each part of a recording costs two training loops on a GPU.

    python -m benchmarks.recording_overhead.parts [--runs 5] [--steps 150] [--seconds 340]
        [--ways WAY...] [--csv FILE]

One loop is launch-bound: the steps of a small transformer take a thousand small kernels each, which
the CPU launches more slowly than the GPU runs them, so that every microsecond on the CPU counts.
The other is GPU-bound. A fresh process measures the median step of both. The ways to record take
turns, and a run of one is compared with the run of nsys alone in the same turn; the interval is the
least and the greatest of these ratios (of five: 94 % confidence for the median).

Without nsys the parts are measured on top of the plain program. `--seconds` ends the turns early.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from traceview.base.errors import TraceviewError
from traceview.traces.recorders.nsys import ATTEMPTS, find
from traceview.traces.recorders.options import (
    Abilities,
    RecordOptions,
    abilities,
    environment,
    profile_command,
)

PROGRAM = "benchmarks.recording_overhead.parts"
FIGURES = "figures "
LOOPS = ("launch-bound", "GPU-bound")
PLAIN, BASE = "no profiler", "nsys alone"
STEPS = 150

# By name of the part of a recording.
ALONE = RecordOptions(kernels=False, sync_sites=False, annotate="off", python_samples=False)
WAYS: dict[str, RecordOptions] = {
    BASE: ALONE,
    "+ sync sites": replace(ALONE, sync_sites=True),
    "+ annotate auto": replace(ALONE, annotate="auto"),
    "+ annotate modules": replace(ALONE, annotate="modules"),
    "+ samples of nsys": replace(ALONE, nsys_options=("--python-sampling=true",)),
    "+ samples of our own": replace(ALONE, python_samples=True),
}


def launch_bound(device: str) -> Callable[[], object]:
    """One step of a transformer so small that launches are all that it costs."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, device=device)
    model = torch.nn.TransformerEncoder(layer, 6)
    optimizer = torch.optim.Adam(model.parameters(), fused=False, foreach=False)
    x = torch.randn(4, 16, 64, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def gpu_bound(device: str) -> Callable[[], object]:
    """One step of an MLP so wide that the GPU is all that it costs; ends with a wait for it."""
    import torch

    size = 4096 if device == "cuda" else 256
    kind = {"device": device, "dtype": torch.bfloat16}
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size, **kind) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, fused=device == "cuda")
    x = torch.randn(4 * size, size, **kind)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def measured(steps: int) -> dict[str, float]:
    """Median step of each loop in this process, in ms; the GPU-bound one takes fewer steps."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    figures = {}
    loops = ((launch_bound, steps), (gpu_bound, steps // 3))
    for name, (made, count) in zip(LOOPS, loops, strict=True):
        step, times = made(device), []
        for _ in range(max(count // 8, 1)):
            step()
        wait()
        for _ in range(count):
            begun = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - begun))
        wait()
        figures[name] = statistics.median(times)
    return figures


def run(way: str, steps: int, able: Abilities | None) -> dict[str, float]:
    """The figures of a fresh process recorded in this way; without nsys only its hooks run."""
    options = WAYS.get(way, ALONE)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            PROGRAM,
            "--measure",
            "--steps",
            str(steps),
        ]
        added = environment(options, Path(folder, "gathered"))
        if able and way != PLAIN:
            command = profile_command(find(), able, options, Path(folder, "out"), command)
        variables = {**os.environ, **added, "TMPDIR": folder}
        for _ in range(ATTEMPTS):
            done = subprocess.run(command, capture_output=True, text=True, env=variables)
            lines = [line for line in done.stdout.splitlines() if line.startswith(FIGURES)]
            if lines:
                break
        else:
            sys.exit(f"{command} gave no figures:\n{done.stdout}\n{done.stderr}")
        figures: dict[str, float] = json.loads(lines[0].removeprefix(FIGURES))
        return figures


def known_abilities() -> Abilities | None:
    try:
        return abilities(find())
    except TraceviewError:
        return None


def compare(runs: int, steps: int, seconds: float, out: Path | None, only: list[str]) -> None:
    able = known_abilities()
    ways = [PLAIN, *(way for way in WAYS if way != "+ samples of nsys" or able)]
    ways = [way for way in ways if way == BASE or not only or way in only]
    begun = time.monotonic()
    turns: list[dict[str, dict[str, float]]] = []
    longest = 0.0
    while len(turns) < runs and time.monotonic() - begun + longest < seconds:
        started = time.monotonic()
        # Alternating order, so that what drifts during a turn affects all of them.
        order = ways if len(turns) % 2 == 0 else ways[::-1]
        turns.append({way: run(way, steps, able) for way in order})
        longest = max(longest, time.monotonic() - started)
        print(f"turn {len(turns)}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        # Whatever ends this process early, the turns so far are known.
        if out:
            write(out, turns)
    print(f"{len(turns)} turns{'' if able else '; no nsys here'}")
    for loop in LOOPS:
        print(f"\n{loop:22} step (ms)   of {BASE} (least to greatest of the turns)")
        for way in ways:
            ratios = [100 * (turn[way][loop] / turn[BASE][loop] - 1) for turn in turns]
            step = statistics.median(turn[way][loop] for turn in turns)
            between = f"({min(ratios):+.1f} to {max(ratios):+.1f})"
            print(f"{way:22} {step:9.3f}  {statistics.median(ratios):+6.1f} %  {between}")


def write(out: Path, turns: list[dict[str, dict[str, float]]]) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["turn", "way", "loop", "median_ms"])
        for number, turn in enumerate(turns):
            for way, figures in turn.items():
                writer.writerows([number, way, loop, ms] for loop, ms in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description="What each part of a recording costs.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=340, help="begin no turn that ends later")
    parser.add_argument("--csv", type=Path, help="write the figures of every run to this file")
    parser.add_argument("--ways", nargs="+", default=[], metavar="WAY", help=f"beside {BASE!r}")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(FIGURES + json.dumps(measured(given.steps)), flush=True)
    else:
        compare(given.runs, given.steps, given.seconds, given.csv, given.ways)


if __name__ == "__main__":
    main()
