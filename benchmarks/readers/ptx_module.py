"""Time `parse_ptx` on modules of growing size; twice the text should take twice the time.

    python -m benchmarks.readers.ptx_module FILE.ptx [--megabytes 5 10 20] [--runs 3] [--pyptx 1]

The functions of FILE are repeated under new names until the text has the size. Every run is a
fresh process; the one that took the least CPU time counts. Memory is the peak, with
the text and the result. `--pyptx` also times the parser of the package pyptx, on texts of the given
sizes.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from traceview.kernels.ptx.parser import parse_ptx

PROGRAM = "benchmarks.readers.ptx_module"
MIB = 1024  # ru_maxrss counts KiB on Linux
FUNCTION = re.compile(r"^\.visible \.entry (\w+)", re.MULTILINE)


def repeated(text: str, characters: int) -> str:
    """A module of about that many characters, from repeated functions of `text`."""
    begin = FUNCTION.search(text)
    if not begin:
        sys.exit("the file has no .visible .entry")
    end = text.rindex("\n}\n") + 3
    functions = text[begin.start() : end]
    copies = max(1, characters // len(functions))
    many = (FUNCTION.sub(rf".visible .entry \1_{n}", functions) for n in range(copies))
    return text[: begin.start()] + "".join(many) + text[end:]


def ours(text: str) -> int:
    """Parse with traceview; returns the number of instructions."""
    return sum(len(function.instructions) for function in parse_ptx(text).functions)


def theirs(text: str) -> int:
    """Parse with pyptx; returns the number of statements."""
    from pyptx.parser import parse

    return sum(len(getattr(each, "body", ())) for each in parse(text).directives)


PARSERS = {"traceview": ours, "pyptx": theirs}
COUNTED = {"traceview": "instructions", "pyptx": "statements"}


def measure(parser: str, path: str, megabytes: int) -> None:
    """Parse once and print time and memory as JSON."""
    text = repeated(Path(path).read_text("utf-8"), megabytes * 1_000_000)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    count = PARSERS[parser](text)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    run = {"seconds": seconds, "cpu_seconds": cpu_seconds, "count": count, "peak_mib": peak}
    print(json.dumps(run))


def best(parser: str, path: str, megabytes: int, runs: int) -> float:
    """Print the best of several runs, each a fresh process; returns CPU seconds per megabyte."""
    command = [sys.executable, "-m", PROGRAM, path, "--once", parser, str(megabytes)]
    done = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(runs)]
    run = min(map(json.loads, done), key=lambda run: run["cpu_seconds"])
    rate = run["cpu_seconds"] / megabytes
    print(
        f"{parser:9} {megabytes:4} MB  {run['seconds']:6.2f} s  {run['cpu_seconds']:6.2f} s CPU"
        f"  {rate:6.3f} s/MB  {run['count']:9,} {COUNTED[parser]}  {run['peak_mib']:5.0f} MiB"
    )
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pyptx", type=int, nargs="+", default=[])
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        measure(options.once[0], options.file, int(options.once[1]))
        return
    rates = [best("traceview", options.file, size, options.runs) for size in options.megabytes]
    print(
        f"per megabyte the largest takes {rates[-1] / rates[0]:.2f} times as long as the smallest"
    )
    for size in options.pyptx:
        rate = best("pyptx", options.file, size, options.runs)
        print(f"traceview is {rate / rates[-1]:.0f} times as fast")


if __name__ == "__main__":
    main()
