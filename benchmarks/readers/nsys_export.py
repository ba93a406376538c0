"""Time `traceview.load` on one export, and other ways to read its columns.

    python -m benchmarks.readers.nsys_export TRACE.sqlite [--runs 5]

Every run is a fresh process with a warm file cache. The ways take turns, so that load
from elsewhere on the machine affects all of them. Start-up, mostly imports, is counted separately.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAM = "benchmarks.readers.nsys_export"
MIB = 1024  # ru_maxrss counts KiB on Linux
Timed = Mapping[str, float]


def read_bytes(path: str) -> None:
    """Read all bytes of the file and do nothing with them."""
    with Path(path).open("rb", buffering=0) as file:
        piece = bytearray(1 << 20)
        while file.readinto(piece):
            pass


def with_traceview(path: str) -> None:
    """Load all tables of the trace."""
    from traceview.traces.trace.load import load

    load(path)


def with_pandas(path: str) -> None:
    """Read the same columns of the large tables with sqlite3 and pandas.read_sql."""
    import sqlite3

    import pandas as pd

    from traceview.traces.trace.nsys.ranges import RANGES
    from traceview.traces.trace.nsys.tables import API_CALLS, KERNELS

    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for source in (KERNELS, API_CALLS, RANGES):
        names = dict.fromkeys((*source.required, *source.optional, *source.texts))
        columns = ", ".join(f'"{name}"' for name in names)
        pd.read_sql(f"SELECT {columns} FROM {source.table}", connection)
    connection.close()


WAYS: Mapping[str, tuple[Callable[[str], None], str]] = {
    "bytes": (read_bytes, ""),
    "traceview": (with_traceview, "traceview.traces.trace.load"),
    "pandas": (with_pandas, "pandas"),
}


def measure(way: str, path: str) -> Timed:
    """One run in this process: start-up and load in seconds, peak memory in MiB."""
    work, needed = WAYS[way]
    begun = time.perf_counter()
    if needed:
        __import__(needed)
    ready = time.perf_counter()
    work(path)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    return {"start_s": ready - begun, "load_s": done - ready, "peak_mib": peak}


def in_fresh_process(way: str, path: str) -> Timed:
    command = [sys.executable, "-m", PROGRAM, path, "--way", way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    timed: Timed = json.loads(done.stdout)
    return timed


def compare(path: str, runs: int) -> None:
    turns = [{way: in_fresh_process(way, path) for way in WAYS} for _ in range(runs)]
    print(f"{path}: {Path(path).stat().st_size / 1e6:.0f} MB, median (least) of {runs}")
    for way, (work, _) in WAYS.items():
        load = [turn[way]["load_s"] for turn in turns]
        start = statistics.median(turn[way]["start_s"] for turn in turns)
        peak = max(turn[way]["peak_mib"] for turn in turns)
        print(
            f"{way:10} load {statistics.median(load):6.2f} s ({min(load):.2f})"
            f"  start {start:.2f} s  peak {peak:5.0f} MiB  {work.__doc__}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time loading one export.")
    parser.add_argument("trace")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.way, given.trace)))
    else:
        compare(given.trace, given.runs)


if __name__ == "__main__":
    main()
