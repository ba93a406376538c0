"""The tools that tool_comparison.py compares: their commands, and their time per kernel."""

from __future__ import annotations

import csv
import io
import json
import mmap
import re
import shutil
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROGRAM = "benchmarks.report.compared_tools"
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
PANDAS, JSON_LOAD = "pandas (five sums)", "json.load (one sum)"
NSYS = f"nsys stats ({len(NSYS_REPORTS)} reports)"
NSYS_AI = f"nsys-ai, Parquet ({len(NSYS_AI_SKILLS)} skills)"
NSYS_AI_DIRECT = f"nsys-ai, SQLite ({len(NSYS_AI_SKILLS)} skills)"
FORMATS = (JSON, HTML)
RIVALS = (JSON_LOAD, PANDAS, NSYS_AI, NSYS_AI_DIRECT, NSYS)
"""Cheapest first, so that an interrupted benchmark has most of them."""
Command = tuple[str, ...]
Sums = Mapping[str, tuple[int, int]]
"""Calls and nanoseconds of each kernel."""


class FailedError(Exception):
    """A command of a tool ended with an error."""


class WrongError(Exception):
    """A tool skipped part of the timed work, or got it wrong."""


@dataclass(frozen=True)
class Way:
    """A tool: its commands in order, and how to read time per kernel from its output.

    `copy` is where it reads a copy of the trace, `cache` what an earlier run of it left behind.
    """

    name: str
    commands: tuple[Command, ...]
    sums: Callable[[Sequence[str]], Sums] | None = None
    cache: Path | None = None
    copy: Path | None = None


def ways(trace: Path, nsys: str | None, nsys_ai: str | None) -> Iterator[Way]:
    """The installed tools that read this format. nsys and nsys-ai write beside it: a copy."""
    report = (sys.executable, "-m", "traceview", "report", str(trace))
    page = str(trace.with_suffix(".html"))
    yield Way(OURS, (report,))
    yield Way(JSON, ((*report, "--json"),), traceview_sums)
    yield Way(HTML, ((*report, "--html", page, "--force"),))
    sums = (sys.executable, "-m", PROGRAM, str(trace))
    if trace.suffix == ".json":
        yield Way(JSON_LOAD, (sums,), printed_sums)
        return
    yield Way(PANDAS, (sums,), printed_sums)
    if nsys_ai:
        yield from nsys_ai_ways(trace, nsys_ai)
    if nsys:
        copy = trace.with_name(f"{trace.stem}-nsys.sqlite")
        chosen = [part for name in NSYS_REPORTS for part in ("--report", name)]
        stats = (nsys, "stats", "--format", "csv", "--force-export=false", *chosen, str(copy))
        yield Way(NSYS, (stats,), nsys_sums, copy=copy)


def nsys_ai_ways(trace: Path, nsys_ai: str) -> Iterator[Way]:
    """Its default, a cache in Parquet and then its skills, and the skills on the SQLite file.

    It prints rounded milliseconds, so its sums cannot be compared.
    """
    copy = trace.with_name(f"{trace.stem}-nsys-ai.sqlite")
    skills = [(nsys_ai, "skill", "run", skill, str(copy)) for skill in NSYS_AI_SKILLS]
    cache = copy.with_suffix(".nsys-cache")
    yield Way(NSYS_AI, ((nsys_ai, "warm", str(copy)), *skills), cache=cache, copy=copy)
    direct = tuple((*skill, "--no-cache") for skill in skills)
    yield Way(NSYS_AI_DIRECT, direct, cache=cache, copy=copy)


def prepare(trace: Path, way: Way) -> None:
    """Provide the tool's files and remove its cache: a first run is timed."""
    if way.copy:
        shutil.copyfile(trace, way.copy)
        _add_sync_names(way.copy)
    if way.cache:
        shutil.rmtree(way.cache, ignore_errors=True)


def _add_sync_names(copy: Path) -> None:
    """A table of names that each export has, without which nsys-ai leaves out a skill."""
    with sqlite3.connect(copy) as connection:
        head = "CREATE TABLE IF NOT EXISTS ENUM_CUPTI_SYNC_TYPE"
        connection.execute(f"{head} (id INTEGER PRIMARY KEY, name TEXT, label TEXT)")
        kinds = ("Event sync", "Stream wait event", "Stream sync", "Context sync")
        rows = [(at, kind.upper().replace(" ", "_"), kind) for at, kind in enumerate(kinds, 1)]
        connection.executemany("INSERT OR IGNORE INTO ENUM_CUPTI_SYNC_TYPE VALUES (?, ?, ?)", rows)
    connection.close()


def clean(way: Way) -> None:
    """Remove what the tool needed and left."""
    if way.copy:
        for path in way.copy.parent.glob(f"{way.copy.stem}.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def true_sums(trace: Path) -> Sums:
    """Sums by SQLite itself, or of the lines of a JSON file: slow, with little memory."""
    if trace.suffix == ".json":
        return line_sums(trace)
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


def line_sums(trace: Path) -> Sums:
    """Sums over the lines that libkineto writes for a kernel, without parsing JSON."""
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    with trace.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for found in re.finditer(rb'"kernel", "name": "([^"]*)".*\n.*"dur": ([\d.]+)', text):
            name, us = found.group(1).decode(), found.group(2)
            calls, total = sums[name]
            sums[name] = (calls + 1, total + int(us.replace(b".", b"")))
    return dict(sums)


def printed_sums(outputs: Sequence[str]) -> Sums:
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


def loaded_sums(path: str) -> Sums:
    """Sums the way most people read a Chrome trace: all of it, as objects of Python."""
    with Path(path).open("rb") as file:
        events = json.load(file)["traceEvents"]
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for event in events:
        if event.get("cat") == "kernel":
            calls, total = sums[event["name"]]
            sums[event["name"]] = (calls + 1, total + round(event["dur"] * 1000))
    return sums


if __name__ == "__main__":
    printed = loaded_sums if sys.argv[1].endswith(".json") else pandas_sums
    print(json.dumps(printed(sys.argv[1])))
