"""Time the report of a job of many ranks: beside reports of its ranks alone, and as it grows.

    python -m benchmarks.report.rank_jobs [--large 8x1000000]
        [--growth 64x10000 256x10000 1024x10000] [--jobs N] [--dask]
        [--folder .cache/benchmark-ranks]

Prints Markdown. Each job is written, timed and deleted: 1,024 ranks of 10,000 kernels are 2.2 GB.
Every run is a process of its own, from start to exit, with the files in the page cache. Peak memory
is the sum over all processes of the run at its worst moment; pages that they share count in each.

The ranks have the kernels of benchmarks/traces/, an all-reduce per layer of the backward pass that
ends at the same time on all ranks, and one rank arrives 400 us late in every third step: the
report must name that rank. Kernels run on meanwhile, so the others wait without computing only in
the gaps between these: for some 85 us.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.traces.generator import make_trace
from benchmarks.traces.processes import (
    FIRST_PID,
    GAP_NS,
    HOST,
    KERNELS_PER_STEP,
    LAUNCH_PERIOD_NS,
    OPERATIONS_PER_LAYER,
    WARM_UP_NS,
)
from benchmarks.traces.shapes import Shape
from benchmarks.traces.tables import FIRST_CALL_ID

COMMUNICATION_STREAM, NAME_ID = 20, 50_000
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"
TRANSFER_NS, JITTER_NS, LATE_NS, LATE_EVERY = 14_000, 2_000, 400_000, 3
# After the launch call of the operation, before the next one.
CALL_AFTER_NS, CALL_NS = 5_200, 500
PID = HOST | FIRST_PID << 24
RANKS_PER_HOST = 8
MIB = 1 << 20


@dataclass(frozen=True)
class JobSize:
    ranks: int
    kernels: int

    @classmethod
    def of(cls, text: str) -> JobSize:
        return cls(*map(int, text.split("x")))

    @property
    def late_rank(self) -> int:
        return self.ranks // 2


def write_job(folder: Path, size: JobSize) -> None:
    """Write the recordings of a job. All ranks have the kernels of one trace."""
    folder.mkdir(parents=True)
    base = folder / "base"
    make_trace(base, size.kernels, Shape("one rank", processes=1, streams=1), seed=1)
    with sqlite3.connect(base) as connection:
        rows = connection.execute(
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
        )
        ends = np.array(rows.fetchall(), np.int64)[:, 1]
    places = _collectives(size.kernels)
    ready = _ready(size, ends[places] + GAP_NS)
    done = ready.max(axis=0) + TRANSFER_NS
    for rank in range(size.ranks):
        path = folder / f"rank_{rank}.sqlite"
        shutil.copyfile(base, path)
        _add_rank(path, size, rank, places, ready[rank], done)
    base.unlink()


def _collectives(kernels: int) -> np.ndarray:
    """The operation that each all-reduce follows: the last of a layer of the backward pass."""
    number = np.arange(kernels)
    in_step = number % KERNELS_PER_STEP
    is_last = in_step % OPERATIONS_PER_LAYER == OPERATIONS_PER_LAYER - 1
    return np.flatnonzero(is_last & (in_step >= KERNELS_PER_STEP // 2))


def _ready(size: JobSize, after: np.ndarray) -> np.ndarray:
    """When each rank arrives at each all-reduce, with shape (ranks, collectives)."""
    draw = np.random.default_rng(7)
    ready = after + draw.integers(0, JITTER_NS, (size.ranks, len(after)))
    step = _collectives(size.kernels) // KERNELS_PER_STEP
    first = np.flatnonzero(np.diff(step, prepend=-1))
    ready[size.late_rank, first[step[first] % LATE_EVERY == 0]] += LATE_NS
    # The all-reduces of a rank run one after the other.
    for at in range(1, len(after)):
        before = ready[:, at - 1].max() + TRANSFER_NS + GAP_NS
        ready[:, at] = np.maximum(ready[:, at], before)
    return ready


def _add_rank(
    path: Path, size: JobSize, rank: int, places: np.ndarray, start: np.ndarray, end: np.ndarray
) -> None:
    ids = 10 * size.kernels + places
    call = WARM_UP_NS + places * LAUNCH_PERIOD_NS + CALL_AFTER_NS
    tid = PID | FIRST_PID
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            [(NAME_ID, KERNEL), (NAME_ID + 1, KERNEL.partition("(")[0])],
        )
        kernel = (0, 1, None, COMMUNICATION_STREAM)
        shape = (NAME_ID, NAME_ID + 1, NAME_ID, 1, 0, 96, 24, 1, 1, 512, 1, 1, 0, 0, 0, 0)
        connection.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 28)})",
            [
                (a, b, *kernel, n, PID, *shape, n, 102_400, None, 0)
                for a, b, n in zip(start.tolist(), end.tolist(), ids.tolist(), strict=True)
            ],
        )
        connection.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({', '.join('?' * 8)})",
            [
                (at, at + CALL_NS, 0, tid, n, FIRST_CALL_ID, 0, None)
                for at, n in zip(call.tolist(), ids.tolist(), strict=True)
            ],
        )
        connection.execute("CREATE TABLE TRACEVIEW_RUN (name TEXT, value TEXT)")
        run = {
            "rank": rank,
            "world_size": size.ranks,
            "local_rank": rank % RANKS_PER_HOST,
            "host": f"node{rank // RANKS_PER_HOST}",
        }
        connection.executemany("INSERT INTO TRACEVIEW_RUN VALUES (?, ?)", run.items())
    connection.close()


@dataclass(frozen=True)
class Timed:
    wall_s: float
    cpu_s: float
    peak_mib: float
    out: str


def timed(command: list[str]) -> Timed:
    """Run a command in a session of its own, and watch the memory of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with watching(process.pid) as peak:
        out = process.communicate()[0]
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall, cpu, peak[0] / MIB, out)


@contextmanager
def watching(session: int) -> Iterator[list[float]]:
    """The most memory of the processes of a session so far, sampled ten times a second."""
    peak, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            peak[0] = max(peak[0], sum(map(_bytes_of, _processes(session))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def _processes(session: int) -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            yield folder


def _bytes_of(folder: Path) -> int:
    try:
        return int((folder / "statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def report(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "traceview", "report", *arguments]


def check(out: str, size: JobSize) -> None:
    """Raise SystemExit unless the report has all ranks and names the late one."""
    document = json.loads(out)
    stragglers = [row["rank"] for row in document["job"]["tables"]["stragglers"]]
    if len(document["ranks"]) != size.ranks or stragglers[:1] != [size.late_rank]:
        raise SystemExit(f"{size}: {len(document['ranks'])} ranks, stragglers {stragglers[:3]}")


@contextmanager
def written(folder: Path, size: JobSize) -> Iterator[Path]:
    job = folder / f"{size.ranks}x{size.kernels}"
    write_job(job, size)
    try:
        yield job
    finally:
        shutil.rmtree(job)


def large(folder: Path, size: JobSize, jobs: int, ways: list[list[str]]) -> None:
    """A job beside the reports of its ranks, one after the other, divided by the processes."""
    with written(folder, size) as job:
        paths = sorted(job.glob("*.sqlite"))
        subprocess.run(["cat", *paths], stdout=subprocess.DEVNULL, check=True)
        alone = [timed(report(str(path))) for path in paths]
        divided = sum(each.wall_s for each in alone) / jobs
        cpu = sum(each.cpu_s for each in alone)
        print(f"{size.ranks} reports of {size.kernels:,} kernels, one after the other: ", end="")
        print(f"{divided * jobs:.1f} s ({cpu:.1f} CPU s), divided by {jobs}: {divided:.1f} s\n")
        _head("times that")
        for way in ways:
            ran = timed(report(str(job), "--json", *way))
            check(ran.out, size)
            _row(size, way, ran, f"{ran.wall_s / divided:.2f}")
    print()


def growth(folder: Path, sizes: list[JobSize], ways: list[list[str]]) -> None:
    _head("ms per rank")
    for size in sizes:
        with written(folder, size) as job:
            for way in ways:
                ran = timed(report(str(job), "--json", *way))
                check(ran.out, size)
                _row(size, way, ran, f"{1e3 * ran.wall_s / size.ranks:.0f}")


def _head(last: str) -> None:
    print(f"| ranks | kernels of each | read by | seconds | CPU s | peak memory | {last} |")
    print("|---|---|---|---|---|---|---|")


def _row(size: JobSize, way: list[str], ran: Timed, last: str) -> None:
    cells = [f"{size.ranks:,}", f"{size.kernels:,}", " ".join(way), f"{ran.wall_s:.1f}"]
    cells += [f"{ran.cpu_s:.1f}", f"{ran.peak_mib / 1024:.2f} GB", last]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--large", type=JobSize.of, nargs="*", default=[JobSize(8, 1_000_000)])
    sizes = [JobSize(ranks, 10_000) for ranks in (64, 256, 1024)]
    parser.add_argument("--growth", type=JobSize.of, nargs="*", default=sizes)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dask", action="store_true", help="also on a local Dask cluster")
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark-ranks"))
    options = parser.parse_args()
    ways = [["--jobs", str(options.jobs)]]
    ways += [["--dask", f"local:{options.jobs}"]] if options.dask else []
    for size in options.large:
        large(options.folder, size, options.jobs, ways)
    if options.growth:
        growth(options.folder, options.growth, ways)


if __name__ == "__main__":
    main()
