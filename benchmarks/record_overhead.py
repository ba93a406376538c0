"""Measure what recording costs a launch-bound training loop on a GPU.

    python benchmarks/record_overhead.py [--steps 300] [--runs 3] [--csv FILE]

Each figure is the median step time of a fresh process, and the median of several such runs, which
take turns. The steps of a small transformer take a thousand small kernels each, which the CPU
launches more slowly than the GPU runs them, so that every microsecond on the CPU counts.

The ways: no profiler, plain `traceview record`, with the Python samples of nsys, and with those of
the sampler inside the process. Without nsys only the last and the first are measured.
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
from pathlib import Path

ROOT = Path(__file__).parents[1]
INJECTED = ROOT / "traceview" / "recorders" / "injected"
FIGURES = "figures "
WARM_UP = 20


def training_step() -> Callable[[], object]:
    """One step of a transformer so small that launches are all that it costs."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, device="cuda")
    model = torch.nn.TransformerEncoder(layer, 6)
    optimizer = torch.optim.Adam(model.parameters(), fused=False, foreach=False)
    x = torch.randn(4, 16, 64, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def measured(steps: int) -> dict[str, float]:
    """Step times of this process in ms."""
    import torch

    step = training_step()
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begun))
    torch.cuda.synchronize()
    quarters = statistics.quantiles(times, n=4)
    return {
        "median_ms": quarters[1],
        "p25_ms": quarters[0],
        "p75_ms": quarters[2],
        "mean_ms": sum(times) / len(times),
    }


def ways(has_nsys: bool) -> dict[str, tuple[bool, bool, tuple[str, ...]]]:
    """By name: whether to record, whether to sample inside the process, and options of record."""
    plain = {
        "no profiler": (False, False, ()),
        "in-process samples alone": (False, True, ()),
    }
    if not has_nsys:
        return plain
    return {
        **plain,
        "record, no samples": (True, False, ("--no-python-samples",)),
        "record, in-process samples": (True, True, ("--no-python-samples",)),
        "record, --python-samples": (True, False, ("--python-samples",)),
    }


def run(steps: int, recorded: bool, sampled: bool, options: tuple[str, ...]) -> dict[str, float]:
    """The figures of a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        program = [str(Path(__file__).resolve()), "--measure", "--steps", str(steps)]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        if sampled:
            environment["TRACEVIEW_PYTHON_SAMPLES"] = folder
            environment["PYTHONPATH"] = os.pathsep.join([str(INJECTED), path])
        command = [sys.executable, *program]
        if recorded:
            out = ["-o", str(Path(folder, "out.sqlite"))]
            command = [sys.executable, "-m", "traceview", "record", *out, *options, *program]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        lines = [line for line in done.stdout.splitlines() if line.startswith(FIGURES)]
        if not lines:
            sys.exit(f"{command} gave no figures:\n{done.stdout}\n{done.stderr}")
        figures: dict[str, float] = json.loads(lines[0].removeprefix(FIGURES))
        if recorded:
            figures["trace_mb"] = Path(folder, "out.sqlite").stat().st_size / 1e6
        return figures


def nsys_works() -> bool:
    from traceview.errors import TraceviewError
    from traceview.recorders.nsys import find

    try:
        return not find().defect
    except TraceviewError:
        return False


def compare(steps: int, runs: int, out: Path | None) -> None:
    every = ways(nsys_works())
    # They take turns, so that other load on the machine affects all of them.
    turns = [{name: run(steps, *way) for name, way in every.items()} for _ in range(runs)]
    print(f"median of {runs} runs of {steps} steps")
    print(f"{'':28} step (ms)   more    trace (MB)")
    medians = {name: statistics.median(turn[name]["median_ms"] for turn in turns) for name in every}
    for name, median in medians.items():
        more = 100 * (median / medians["no profiler"] - 1)
        size = turns[0][name].get("trace_mb")
        print(f"{name:28} {median:9.3f} {more:+6.1f} %  {'' if size is None else f'{size:8.1f}'}")
    if "record, no samples" in medians:
        for name in ("record, in-process samples", "record, --python-samples"):
            more = 100 * (medians[name] / medians["record, no samples"] - 1)
            print(f"{name}: {more:+.1f} % on top of recording")
    if out:
        with out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["run", "way", "median_ms", "p25_ms", "p75_ms", "mean_ms"])
            for number, turn in enumerate(turns):
                for name, figures in turn.items():
                    keys = ("median_ms", "p25_ms", "p75_ms", "mean_ms")
                    writer.writerow([number, name, *(figures[key] for key in keys)])


def main() -> None:
    parser = argparse.ArgumentParser(description="What recording costs a launch-bound loop.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="write the figures of every run to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(FIGURES + json.dumps(measured(given.steps)), flush=True)
    else:
        compare(given.steps, given.runs, given.csv)


if __name__ == "__main__":
    main()
