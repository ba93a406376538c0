"""Time the first answer to each kernel of the corpus: python -m tests.headless.corpus.seconds

Each is a run of `traceview ptx FILE:kernel` as users have it: a new process, the default budget, no
kernel compiled before. One runs at a time, so that the clock tells what it takes on this machine,
if nothing else runs. `--cores 0` pins all of them to core 0, `--limit 700` ends after 700 s.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from tests.headless.corpus.kernels_of import CorpusKernel, corpus_kernels

LIMIT_S = 690.0
LONGEST_S = 120.0


@dataclass(frozen=True)
class Timed:
    """One answer: seconds of the clock and of all its processes' CPU, and what was left out."""

    kernel: CorpusKernel
    wall_s: float
    cpu_s: float
    status: int | None
    left_out: str = ""

    @property
    def row(self) -> str:
        ended = {0: "", None: f"did not end within {LONGEST_S:g} s"}.get(self.status, "no answer")
        why = self.left_out or ended
        name = f"{self.kernel.project} {self.kernel.name}"
        return f"{self.wall_s:6.1f} s {self.cpu_s:6.1f} s CPU  {name}{'  ' * bool(why)}{why}"


def main() -> None:
    asked = _arguments()
    if asked.cores:
        os.sched_setaffinity(0, asked.cores)
    end, timed = time.monotonic() + asked.limit, list[Timed]()
    there = [k for k in corpus_kernels() if k.path.is_file() and asked.only in k.target]
    for kernel in there:
        if time.monotonic() > end - (max((t.wall_s for t in timed), default=0.0)):
            break
        timed.append(measured(kernel))
        print(timed[-1].row, flush=True)
    print(_summary(timed, len(there)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, nargs="+", metavar="N", help="pin to these cores")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="end after S s")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="kernels with this in the target"
    )
    return parser.parse_args()


def measured(kernel: CorpusKernel) -> Timed:
    """Run traceview in a new process, with an empty cache."""
    command = [sys.executable, "-m", "traceview", "ptx", kernel.target]
    with tempfile.TemporaryDirectory() as cache:
        before, begin = _cpu_seconds(), time.monotonic()
        try:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_S,
                env=os.environ | {"TRACEVIEW_CACHE_DIR": cache},
            )
        except subprocess.TimeoutExpired:
            return Timed(kernel, time.monotonic() - begin, _cpu_seconds() - before, None)
        taken = time.monotonic() - begin, _cpu_seconds() - before
    notes = [line for line in ended.stderr.splitlines() if "not done within" in line]
    return Timed(kernel, *taken, ended.returncode, "; ".join(notes).partition("; --budget")[0])


def _cpu_seconds() -> float:
    """CPU time of all processes that have been waited for; killed tasks are not among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _summary(timed: list[Timed], there: int) -> str:
    if not timed:
        return "nothing was measured: make corpus"
    wall, cpu = [t.wall_s for t in timed], [t.cpu_s for t in timed]
    worst, cores = max(timed, key=lambda t: t.wall_s), len(os.sched_getaffinity(0))
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{datetime.date.today().isoformat()}: {len(timed)} of {there} kernels, {cores} cores, "
        f"load {load}: median {statistics.median(wall):.1f} s, worst {max(wall):.1f} s "
        f"({worst.kernel.name}), {sum(w > 20 for w in wall)} over 20 s; "
        f"CPU median {statistics.median(cpu):.1f} s, worst {max(cpu):.1f} s"
    )


if __name__ == "__main__":
    main()
