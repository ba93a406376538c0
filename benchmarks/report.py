"""The whole report beside other tools, on traces of several lengths: right first, then fast.

    python benchmarks/report.py [--kernels 1000 100000 1000000] [--runs 5]
        [--nsys PATH] [--nsys-ai PATH] [--folder .cache/benchmark]

Every run is a process of its own, from start to exit, with the file in the cache of the system. The
tools take turns, so that whatever else the machine does meets all of them. CPU is user and system
time of the process and its children. Before any time is taken, each tool's sum and count of every
kernel are compared with those of plain pandas: a tool that is wrong ends the benchmark.

nsys stats runs the reports that answer what ours does, nsys-ai its cache and then its skills. Both
write beside their input and get a copy. A tool that is not there is left out, as is one that took
more than --patience seconds on a shorter trace.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
MIB = 1024  # ru_maxrss counts KiB on Linux
NSYS_REPORTS = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_kern_exec_sum",
    "nvtx_kern_sum",
)
NSYS_AI_SKILLS = (
    "top_kernels",
    "gpu_idle_gaps",
    "cpu_gpu_pipeline",
    "sync_cost_analysis",
    "memory_transfers",
    "nvtx_kernel_map",
    "iteration_timing",
)
Sums = Mapping[str, tuple[int, int]]
"""Calls and nanoseconds of each kernel."""


@dataclass(frozen=True)
class Way:
    """A tool: its commands, one after the other, and what its output says of kernels."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    sums: Callable[[Sequence[str]], Sums] | None = None
    cache: Path | None = None


@dataclass(frozen=True)
class Timed:
    wall_s: float
    cpu_s: float
    peak_mib: float


def pandas_sums(path: str) -> Sums:
    """What most people write: read_sql, merge with the names, group."""
    import sqlite3

    import pandas as pd

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        kernels = pd.read_sql("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL", connection)
        calls = pd.read_sql("SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME", connection)
        ranges = pd.read_sql("SELECT * FROM NVTX_EVENTS", connection)
        names = pd.read_sql("SELECT * FROM StringIds", connection).set_index("id")["value"]
    kernels["ns"] = kernels["end"] - kernels["start"]
    by_name = kernels.groupby("demangledName")["ns"].agg(["count", "sum"])
    calls["globalPid"] = calls["globalTid"] & ~0xFFFFFF
    calls["ns"] = calls["end"] - calls["start"]
    calls.groupby("nameId")["ns"].agg(["count", "sum", "median"])
    launched = kernels.merge(calls, on=["globalPid", "correlationId"], suffixes=("", "_call"))
    (launched["start"] - launched["end_call"]).clip(lower=0).describe()
    # The innermost range of each launch, where ranges nest: the last one that had begun.
    pd.merge_asof(
        launched.sort_values("start_call"),
        ranges.sort_values("start")[["start", "end", "text", "globalTid"]],
        left_on="start_call",
        right_on="start",
        by="globalTid",
        suffixes=("", "_range"),
    ).groupby("text")["ns"].agg(["count", "sum"])
    reach = kernels.sort_values("start")["end"].cummax()
    (kernels.sort_values("start")["start"] - reach.shift()).clip(lower=0).sum()
    return {str(names[key]): (int(count), int(total)) for key, count, total in by_name.itertuples()}


def traceview_sums(outputs: Sequence[str]) -> Sums:
    rows = json.loads(outputs[-1])["analyses"]["kernel-share"]["tables"]["kernels"]
    return {row["name"]: (row["calls"], row["total_ns"]) for row in rows}


def nsys_sums(outputs: Sequence[str]) -> Sums:
    block = outputs[-1].split("Processing [")[1]
    lines = block.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("Time (%)"))
    rows = csv.DictReader(io.StringIO("\n".join(lines[head:]).strip()))
    return {row["Name"]: (int(row["Instances"]), int(row["Total Time (ns)"])) for row in rows}


def ways(trace: Path, nsys: str | None, nsys_ai: str | None) -> Iterator[Way]:
    report = (sys.executable, "-m", "traceview", "report", str(trace))
    yield Way("traceview report", (report,))
    yield Way("traceview report --json", ((*report, "--json"),), traceview_sums)
    plain = (sys.executable, __file__, "--pandas", str(trace))
    yield Way("pandas (five sums)", (plain,), lambda outputs: _pairs(json.loads(outputs[-1])))
    if nsys:
        chosen = [part for name in NSYS_REPORTS for part in ("--report", name)]
        stats = (nsys, "stats", "--format", "csv", "--force-export=false", *chosen)
        yield Way("nsys stats (6 reports)", ((*stats, str(_copy(trace, "nsys"))),), nsys_sums)
    if nsys_ai:
        copy = _copy(trace, "nsys-ai")
        skills = ((nsys_ai, "skill", "run", skill, str(copy)) for skill in NSYS_AI_SKILLS)
        commands = ((nsys_ai, "warm", str(copy)), *skills)
        yield Way("nsys-ai (7 skills)", commands, cache=copy.with_suffix(".nsys-cache"))


def _pairs(stored: Mapping[str, list[int]]) -> Sums:
    return {name: (calls, total) for name, (calls, total) in stored.items()}


def _copy(trace: Path, who: str) -> Path:
    copy = trace.with_name(f"{trace.stem}-{who}.sqlite")
    if not copy.exists():
        shutil.copyfile(trace, copy)
    return copy


def check(trace: Path, way: Way) -> str:
    """Raises SystemExit if a tool's sums are not those of pandas."""
    if way.sums is None:
        return "not compared"
    # In a process of its own: what this one holds would count as the peak of its children.
    plain = (sys.executable, __file__, "--pandas", str(trace))
    expected = _pairs(json.loads(_run(plain)[1]))
    found = way.sums([_run(command)[1] for command in way.commands])
    if found != expected:
        odd = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        raise SystemExit(f"{way.name} is wrong about {len(odd)} kernels, such as {odd[0]}")
    return f"{len(found)} kernels equal"


def measure(way: Way) -> Timed:
    # A first look at a trace is what is timed: nsys-ai builds its cache anew.
    if way.cache:
        shutil.rmtree(way.cache, ignore_errors=True)
    done = [_run(command)[0] for command in way.commands]
    wall, cpu = (sum(getattr(each, name) for each in done) for name in ("wall_s", "cpu_s"))
    return Timed(wall, cpu, max(each.peak_mib for each in done))


def _run(command: Sequence[str]) -> tuple[Timed, str]:
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    output = process.stdout.read().decode(errors="replace")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    wall = time.perf_counter() - begun
    return Timed(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / MIB), output


def made(folder: Path, kernels: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kernels}.sqlite"
    if not path.exists():
        command = [sys.executable, HERE / "make_trace.py", path, "--kernels", str(kernels)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def compare(trace: Path, kernels: int, given: argparse.Namespace, tired: set[str]) -> None:
    chosen = [w for w in ways(trace, given.nsys, given.nsys_ai) if w.name not in tired]
    checks = {way.name: check(trace, way) for way in chosen}
    turns = [{way.name: measure(way) for way in chosen} for _ in range(given.runs)]
    for way in chosen:
        mine = [turn[way.name] for turn in turns]
        wall, cpu = (statistics.median(getattr(t, n) for t in mine) for n in ("wall_s", "cpu_s"))
        peak = max(t.peak_mib for t in mine)
        print(
            f"| {kernels:,} | {way.name} | {wall:.2f} | {min(t.wall_s for t in mine):.2f} "
            f"| {cpu:.2f} | {peak:.0f} | {checks[way.name]} |",
            flush=True,
        )
        if wall > given.patience:
            tired.add(way.name)


def machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"{os.cpu_count()} cores, {model}; Python {platform.python_version()}, "
        f"numpy {version('numpy')}; load {os.getloadavg()[0]:.1f} at the start"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole report beside other tools.")
    parser.add_argument("--kernels", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--nsys", default=shutil.which("nsys"))
    parser.add_argument("--nsys-ai", default=shutil.which("nsys-ai"))
    parser.add_argument("--patience", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark"))
    parser.add_argument("--pandas", metavar="TRACE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.pandas:
        print(json.dumps(pandas_sums(given.pandas)))
        return
    print(f"{machine()}; median of {given.runs}\n")
    print("| kernels | tool | wall s | least | CPU s | peak MiB | sums of kernels |")
    print("|---|---|---|---|---|---|---|")
    tired: set[str] = set()
    for kernels in given.kernels:
        compare(made(given.folder, kernels), kernels, given, tired)


if __name__ == "__main__":
    main()
