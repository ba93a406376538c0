"""Measure the overhead of marking waiting calls on a GPU, with and without nsys.

    python -m benchmarks.recording_overhead.sync_sites [--nsys PATH] [--launches 20000] [--runs 3]

Every figure is the median over fresh processes. `launches` is a loop of small kernels without
anything to mark, like most of a training step. The others are wrapped calls, some of which wait. A
wrapped call on a CPU tensor shows the overhead that remains there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROGRAM = "benchmarks.recording_overhead.sync_sites"
INJECTED = Path(__file__).parents[2] / "traceview" / "traces" / "recorders" / "injected"
FIGURES = "figures "


def us_per_call(work: Callable[[], object], calls: int) -> float:
    """Microseconds per call; the least of five rounds, as disturbances only add time."""
    rounds = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(calls // 5):
            work()
        rounds.append((time.perf_counter() - begun) / (calls // 5) * 1e6)
    return min(rounds)


def measured(launches: int) -> dict[str, float]:
    """All figures of this process, in µs per call."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, host = torch.ones(256, device=device), torch.ones(256)
    number = torch.ones((), device=device)
    pinned = host.pin_memory() if device == "cuda" else host
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "launch of a small kernel": (lambda: x.add_(1), launches),
        "x.item() on the GPU": (lambda: number.item(), launches // 10),
        "x.cpu() on the GPU": (lambda: x.cpu(), launches // 10),
        "host.to('cuda')": (lambda: host.to(device), launches // 10),
        "pinned.to('cuda', non_blocking)": (
            lambda: pinned.to(device, non_blocking=True),
            launches // 10,
        ),
        "x.to(float64)": (lambda: x.to(torch.float64), launches // 2),
        "x[0] = 1.0": (lambda: x.__setitem__(0, 1.0), launches // 2),
        "host.item() on the CPU": (lambda: host[0].item(), launches),
        "torch.cuda.synchronize()": (wait, launches // 10),
    }
    figures = {}
    for name, (work, calls) in ways.items():
        us_per_call(work, max(calls // 20, 5))
        wait()
        figures[name] = us_per_call(work, max(calls, 5))
        wait()
    return figures


def run(launches: int, marked: bool, nsys: str | None) -> dict[str, float]:
    """The figures of a fresh process."""
    environment = {**os.environ, "TRACEVIEW_SYNC_SITES": "1" if marked else "0"}
    environment["PYTHONPATH"] = str(INJECTED)
    command = [sys.executable, "-m", PROGRAM, "--measure", "--launches", str(launches)]
    with tempfile.TemporaryDirectory() as folder:
        if nsys:
            options = ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"]
            command = [nsys, "profile", *options, f"--output={folder}/out", *command]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith(FIGURES)]
    if not lines:
        sys.exit(f"{command} gave no figures:\n{done.stdout}\n{done.stderr}")
    figures: dict[str, float] = json.loads(lines[0].removeprefix(FIGURES))
    return figures


def compare(launches: int, runs: int, nsys: str | None) -> None:
    print(f"median of {runs} runs, µs per call")
    for profiler in (None, nsys) if nsys else (None,):
        # The two take turns, so that other load on the machine affects both.
        turns = [[run(launches, marked, profiler) for marked in (False, True)] for _ in range(runs)]
        print(f"\n{'under nsys' if profiler else 'without nsys':32} without     with     more")
        for name in turns[0][0]:
            plain, marked = (statistics.median(turn[way][name] for turn in turns) for way in (0, 1))
            print(f"{name:32} {plain:7.2f}  {marked:7.2f}  {marked - plain:+7.2f}")
        plain, marked = (
            statistics.median(1e6 / turn[way]["launch of a small kernel"] for turn in turns)
            for way in (0, 1)
        )
        change = 100 * (marked / plain - 1)
        print(f"launches per second: {plain:,.0f} without, {marked:,.0f} with ({change:+.1f} %)")


def main() -> None:
    parser = argparse.ArgumentParser(description="What marking the waiting calls costs.")
    parser.add_argument("--nsys", default=shutil.which("nsys"), help="default: the one on PATH")
    parser.add_argument("--launches", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(FIGURES + json.dumps(measured(given.launches)))
    else:
        compare(given.launches, given.runs, given.nsys)


if __name__ == "__main__":
    main()
