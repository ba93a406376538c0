"""The tools that benchmarks/report.py compares: their commands, and their time per kernel."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
OURS, JSON, HTML = "traceview report", "traceview report --json", "traceview report --html"
PANDAS = "pandas (five sums)"
NSYS, NSYS_AI = (
    f"nsys stats ({len(NSYS_REPORTS)} reports)",
    f"nsys-ai ({len(NSYS_AI_SKILLS)} skills)",
)
Command = tuple[str, ...]
Sums = Mapping[str, tuple[int, int]]
"""Calls and nanoseconds of each kernel."""


class WrongError(Exception):
    """A tool skipped part of the timed work, or got it wrong."""


@dataclass(frozen=True)
class Way:
    """A tool: its commands in order, and how to read time per kernel from its output.

    `files` are what it needs beside the trace, by name and how to make them; `cache` is what it
    left behind in an earlier run.
    """

    name: str
    commands: tuple[Command, ...]
    sums: Callable[[Sequence[str]], Sums] | None = None
    cache: Path | None = None
    copy: Path | None = None


def ways(trace: Path, nsys: str | None, nsys_ai: str | None) -> Iterator[Way]:
    """The installed tools. nsys and nsys-ai write beside their input and get a copy."""
    report = (sys.executable, "-m", "traceview", "report", str(trace))
    page = str(trace.with_suffix(".html"))
    yield Way(OURS, (report,))
    yield Way(JSON, ((*report, "--json"),), traceview_sums)
    yield Way(HTML, ((*report, "--html", page, "--force"),))
    yield Way(PANDAS, ((sys.executable, __file__, str(trace)),), pandas_said)
    if nsys:
        copy = trace.with_name(f"{trace.stem}-nsys.sqlite")
        chosen = [part for name in NSYS_REPORTS for part in ("--report", name)]
        stats = (nsys, "stats", "--format", "csv", "--force-export=false", *chosen, str(copy))
        yield Way(NSYS, (stats,), nsys_sums, copy=copy)
    if nsys_ai:
        copy = trace.with_name(f"{trace.stem}-nsys-ai.sqlite")
        skills = ((nsys_ai, "skill", "run", skill, str(copy)) for skill in NSYS_AI_SKILLS)
        commands = ((nsys_ai, "warm", str(copy)), *skills)
        cache = copy.with_suffix(".nsys-cache")
        # It prints rounded milliseconds, so its sums cannot be compared.
        yield Way(NSYS_AI, commands, cache=cache, copy=copy)


def prepare(trace: Path, way: Way) -> None:
    """Provide the tool's files and remove its cache: a first run is timed."""
    if way.copy and not way.copy.exists():
        shutil.copyfile(trace, way.copy)
    if way.cache:
        shutil.rmtree(way.cache, ignore_errors=True)


def true_sums(trace: Path) -> Sums:
    """Sums by SQLite itself: slow, with little memory."""
    query = (
        "SELECT value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " JOIN StringIds ON StringIds.id = demangledName GROUP BY demangledName"
    )
    with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as connection:
        found = {name: (calls, total) for name, calls, total in connection.execute(query)}
    connection.close()
    return found


def traceview_sums(outputs: Sequence[str]) -> Sums:
    rows = json.loads(outputs[-1])["analyses"]["kernel-share"]["tables"]["kernels"]
    return {row["name"]: (row["calls"], row["total_ns"]) for row in rows}


def pandas_said(outputs: Sequence[str]) -> Sums:
    stored = json.loads(outputs[-1])
    return {name: (calls, total) for name, (calls, total) in stored.items()}


def nsys_sums(outputs: Sequence[str]) -> Sums:
    """Sums by nsys stats. Raises WrongError if it skipped a report, which takes no time."""
    blocks = outputs[-1].split("Processing [")[1:]
    for name, block in zip(NSYS_REPORTS, blocks, strict=True):
        if "SKIPPED" in block or block.count("\n") < 3:
            raise WrongError(f"nsys stats did not make {name}: {block[:400]}")
    lines = blocks[0].splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("Time (%)"))
    rows = csv.DictReader(io.StringIO("\n".join(lines[head:]).strip()))
    return {row["Name"]: (int(row["Instances"]), int(row["Total Time (ns)"])) for row in rows}


def pandas_sums(path: str) -> Sums:
    """Sums the way most people compute them: read_sql, merge with the names, group."""
    import pandas as pd

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        read = partial(pd.read_sql, con=connection)
        kernels = read("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        calls = read("SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        ranges = read("SELECT * FROM NVTX_EVENTS")
        names = read("SELECT * FROM StringIds").set_index("id")["value"]
    kernels["ns"] = kernels["end"] - kernels["start"]
    by_name = kernels.groupby("demangledName")["ns"].agg(["count", "sum"])
    calls["globalPid"] = calls["globalTid"] & ~0xFFFFFF
    calls["ns"] = calls["end"] - calls["start"]
    calls.groupby("nameId")["ns"].agg(["count", "sum", "median"])
    launched = kernels.merge(calls, on=["globalPid", "correlationId"], suffixes=("", "_call"))
    (launched["start"] - launched["end_call"]).clip(lower=0).describe()
    # The innermost of nested ranges at each launch: the last one that had started.
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


if __name__ == "__main__":
    print(json.dumps(pandas_sums(sys.argv[1])))
