"""Profile a report on the screen: CPU time and peak memory of every stage, in order.

    python -m benchmarks.report.stages TRACE.sqlite [--least 0.01] [--runs 3]

A stage is loading, one shared fact, the rest of one analysis, or rendering. The time of a fact
excludes the facts it uses, so stages add up to the whole. Times are CPU times, as a busy machine
stretches wall time, and medians of all runs, each a fresh process. Peak memory is that of the
process while the stage ran (Linux).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "benchmarks.report.stages"
MIB = 1024


class Clock:
    """CPU seconds and peak MiB of each stage; a nested stage is not part of the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.peak_mib: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._last = time.process_time()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        """Charge the time since the last call to the innermost open stage."""
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
            for name in self._open[-1:]:
                self.peak_mib[name] = max(self.peak_mib[name], _peak_mib())
        _forget_peak()
        self._last = time.process_time()


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text("utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / MIB


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", "utf-8")


def measure(path: str) -> dict[str, Any]:
    """One report in this process."""
    clock = Clock()
    with clock.stage("start-up: imports"):
        _time_facts(clock)
        import traceview
        from traceview.base.memory import keep_freed_memory
        from traceview.render.screen import render_screen
        from traceview.traces import reporting
        from traceview.traces.analyses import ALL

        keep_freed_memory()
    with clock.stage("read"):
        trace = traceview.load(path)
    outcomes = {}
    for analysis in ALL:
        with clock.stage(f"answer: {analysis.name}"):
            outcomes[analysis.name] = analysis.findings(trace)
    with clock.stage("verdict, scoreboard and order of findings"):
        found = reporting.report_of(trace, ALL, outcomes)
    with clock.stage("draw"):
        render_screen(found, width=120)
    return {"seconds": clock.seconds, "peak_mib": clock.peak_mib}


def _time_facts(clock: Clock) -> None:
    """Make each fact a stage; facts take their decorator from the package when imported."""
    from traceview.traces import trace

    plain = trace.fact

    def timed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        room = function.__module__.rpartition(".")[2]
        name = f"fact: {room}.{function.__name__.lstrip('_')}"

        def staged(given: Any) -> Any:
            with clock.stage(name):
                return function(given)

        staged.__module__, staged.__qualname__ = function.__module__, function.__qualname__
        return plain(staged)

    trace.fact = timed  # type: ignore[assignment]


def in_fresh_process(path: str) -> dict[str, Any]:
    command = [sys.executable, "-m", PROGRAM, path, "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def show(path: str, runs: int, least: float) -> None:
    measured = [in_fresh_process(path) for _ in range(runs)]
    seconds = {
        name: statistics.median(each["seconds"][name] for each in measured)
        for name in measured[0]["seconds"]
    }
    total = sum(seconds.values())
    print(f"{path}: {total:.2f} s of CPU, median of {runs}; stages of {least} s and more")
    for name, spent in seconds.items():
        if spent >= least:
            peak = max(each["peak_mib"][name] for each in measured)
            print(f"{spent:7.3f} s {100 * spent / total:5.1f} %  {peak:6.0f} MiB  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time and peak memory of each stage.")
    parser.add_argument("trace")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--least", type=float, default=0.01, metavar="SECONDS")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given.trace)))
    else:
        show(given.trace, given.runs, given.least)


if __name__ == "__main__":
    main()
