"""Answers about long recordings by plain loops, once along the rows.

As `oracle`, of which this is a part: no code of traceview, and none of its shortcuts. What each
answer is, is said by the columns of its table.
"""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracles.brute_force import (
    FOREVER,
    PAGEABLE,
    UNATTRIBUTED,
    Call,
    Operation,
    Range,
    Recording,
    busy,
    covered_by,
    on_device,
    percentile,
    rows,
)
from tests.oracles.brute_force_steps import step_times

LAUNCH = re.compile(r"(cuda|cu)(Launch(?!HostFunc)|GraphLaunch)")
NUMBER = re.compile(r"\d+")
DIRECTIONS = {1: "H2D", 2: "D2H", 8: "D2D", 10: "P2P"}
HOST_MEMORY = {PAGEABLE: "pageable", 1: "pinned"}


def short_name(name: str) -> str:
    """Of the names that the benchmark's traces hold."""
    return name.split("<")[0].split("::")[-1]


def paths(recording: Recording) -> dict[Call, str]:
    """The ranges around each call: one walk along each thread, with a stack."""
    found: dict[Call, str] = {}
    for thread, calls in recording.calls_of.items():
        coming = sorted(recording.ranges[thread], key=lambda each: (-each.start, each.end))
        stack: list[Range] = []
        for call in sorted(calls, key=lambda call: call.start):
            while coming and coming[-1].start <= call.start:
                close(stack, coming[-1].start)
                stack.append(coming.pop())
            close(stack, call.start)
            found[call] = "/".join(each.name for each in stack) or UNATTRIBUTED
    return found


def close(stack: list[Range], time: int) -> None:
    while stack and stack[-1].end <= time:
        stack.pop()


def kernels_by_range(recording: Recording) -> dict[tuple[str, str], tuple[int, int]]:
    """Calls and time of each path and kernel, under the innermost range."""
    path_of = paths(recording)
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for op in recording.operations:
        if op.kind == "kernel":
            row = found[path_of[op.call] if op.call else UNATTRIBUTED, short_name(op.name)]
            row[0] += 1
            row[1] += op.end - op.start
    return {key: (calls, total) for key, (calls, total) in found.items()}


def around(by_range: dict[tuple[str, str], tuple[int, int]]) -> dict[str, list[int]]:
    """The same under every range around."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (path, _), (calls, total) in by_range.items():
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            found["/".join(names[:depth])][0] += calls
            found["/".join(names[:depth])][1] += total
    return found


def range_patterns(
    recording: Recording, by_range: dict[tuple[str, str], tuple[int, int]]
) -> dict[str, dict[str, int | None]]:
    entered: dict[str, int] = defaultdict(int)
    for ranges in recording.ranges.values():
        for path in range_paths(ranges):
            entered[NUMBER.sub("#", path)] += 1
    found: dict[str, dict[str, int | None]] = {}
    for path, (calls, total) in around(by_range).items():
        pattern = NUMBER.sub("#", path)
        row = found.setdefault(pattern, {"calls": 0, "total_ns": 0})
        row["calls"] = int(row["calls"] or 0) + calls
        row["total_ns"] = int(row["total_ns"] or 0) + total
    for pattern, row in found.items():
        times = entered.get(pattern)
        row["instances"] = times
        row["per_instance_ns"] = round(int(row["total_ns"] or 0) / times) if times else None
    return found


def range_paths(ranges: list[Range]) -> Iterator[str]:
    stack: list[Range] = []
    for each in sorted(ranges, key=lambda each: (each.start, -each.end)):
        close(stack, each.start)
        stack.append(each)
        yield "/".join(one.name for one in stack)


def idle_spans(recording: Recording, device: int) -> list[tuple[int, int]]:
    covered = busy(on_device(recording, device))
    return [(end, start) for (_, end), (start, _) in itertools.pairwise(covered)]


def launch_overhead(recording: Recording) -> dict[str, dict[str, float]]:
    """Of recordings whose launch queue is never full."""
    device_of = {op.call: op.device for op in recording.operations if op.call}
    idle = {device: idle_spans(recording, device) for device in set(device_of.values())}
    first = first_launches(recording)
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for call in recording.calls:
        if LAUNCH.match(call.name):
            took = call.end - call.start
            inside = covered_by(idle[device_of[call]], call.start, call.end)
            found[call.name].append((took, inside, took * (call in first)))
    return {
        name: {
            "calls": len(each),
            "total_ns": sum(took for took, _, _ in each),
            "median_ns": percentile((took for took, _, _ in each), 50),
            "max_ns": max(took for took, _, _ in each),
            "exposed_ns": sum(inside for _, inside, _ in each),
            "first_launch_ns": sum(loads for _, _, loads in each),
        }
        for name, each in found.items()
    }


def first_launches(recording: Recording) -> set[Call]:
    """The calls that launched a kernel for the first time in its context."""
    seen: dict[tuple[object, ...], Call | None] = {}
    for op in recording.in_order:
        if op.kind == "kernel":
            seen.setdefault((op.process, op.device, op.context, op.name), op.call)
    return {call for call in seen.values() if call}


@dataclass
class Step:
    """One instance of an outermost range, and what was launched in it."""

    start: int
    end: int
    thread: int
    work: list[Operation]
    name: str
    parent: None = None

    @property
    def gpu_start(self) -> int:
        return min(op.start for op in self.work)

    @property
    def gpu_end(self) -> int:
        return max(op.end for op in self.work)


def series(recording: Recording) -> Iterator[list[Step]]:
    """The outermost ranges of each thread, which are all of one pattern, in order of time."""
    by_thread: dict[int, list[Operation]] = defaultdict(list)
    for op in recording.operations:
        if op.call:
            by_thread[op.call.thread].append(op)
    for thread, ranges in recording.ranges.items():
        mine = [
            Step(each.start, each.end, thread, [], each.name)
            for each, path in zip(
                sorted(ranges, key=lambda each: (each.start, -each.end)),
                range_paths(ranges),
                strict=True,
            )
            if "/" not in path
        ]
        coming = mine[::-1]
        for op in sorted(by_thread[thread], key=lambda op: op.call.start if op.call else FOREVER):
            called = op.call.start if op.call else FOREVER
            while coming and coming[-1].end <= called:
                coming.pop()
            if coming and coming[-1].start <= called:
                coming[-1].work.append(op)
        yield mine


def leads(recording: Recording) -> dict[tuple[int, int], dict[str, int]]:
    """How far the CPU is ahead, by process and begin of the step."""
    found = {}
    for steps in series(recording):
        begun = [step.start for step in steps]
        for place, step in enumerate(steps):
            later = [start for start in begun[place + 1 : place + 200] if start <= step.gpu_start]
            assert len(later) < 199
            found[step.thread // 2**24 % 2**24, step.start] = {
                "cpu_end_ns": step.end,
                "gpu_start_ns": step.gpu_start,
                "gpu_end_ns": step.gpu_end,
                "lead_ns": step.gpu_end - step.end,
                "steps_ahead": len(later),
                "operations": len(step.work),
            }
    return found


def durations(recording: Recording) -> dict[tuple[int, int], dict[str, int]]:
    """Time of each step and what of it the GPU was busy, by process and begin."""
    found = {}
    for steps in series(recording):
        work = {place: step.work for place, step in enumerate(steps)}
        (device,) = {op.device for step in steps for op in step.work}
        covered = busy(on_device(recording, device))
        times = step_times(steps, work)  # type: ignore[arg-type]
        for step, time in zip(steps, times, strict=True):
            assert time is not None
            worked = covered_by(covered, *time)
            found[step.thread // 2**24 % 2**24, step.start] = {
                "duration_ns": time[1] - time[0],
                "gpu_busy_ns": worked,
                "gpu_idle_ns": time[1] - time[0] - worked,
                "cpu_ns": step.end - step.start,
                "launches": sum(op.kind == "kernel" for op in step.work),
            }
    return found


def longest_gaps(recording: Recording, most: int) -> list[tuple[int, int, int, str]]:
    found = sorted(recording.gaps, key=lambda gap: -gap.idle)[:most]
    return [(gap.device, gap.dry, gap.idle, gap.cause) for gap in found]


def copies_by_kind(path: Path) -> dict[tuple[str, str | None], dict[str, int]]:
    """Copies by direction and the kind of host memory."""
    found: dict[tuple[str, str | None], dict[str, int]] = {}
    for row in read(path, "CUPTI_ACTIVITY_KIND_MEMCPY"):
        host = {1: row["srcKind"], 2: row["dstKind"]}.get(row["copyKind"], -1)
        key = (DIRECTIONS[row["copyKind"]], HOST_MEMORY.get(host))
        sums = found.setdefault(key, {"calls": 0, "bytes": 0, "total_ns": 0})
        sums["calls"] += 1
        sums["bytes"] += row["bytes"]
        sums["total_ns"] += row["end"] - row["start"]
    return found


# An SM of compute capability 9.0, from the tables of the CUDA C++ Programming Guide.
SMS, WARPS, BLOCKS, REGISTERS, SHARED = 132, 64, 32, 65_536, 233_472
WARP, REGISTER_UNIT, PARTITIONS, SHARED_UNIT, RESERVED = 32, 256, 4, 128, 1024


def blocks_per_sm(threads: int, registers: int, shared: int, configured: int) -> int:
    warps = math.ceil(threads / WARP)
    of_warp = math.ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps
    block = math.ceil((shared + RESERVED) / SHARED_UNIT) * SHARED_UNIT
    fit = min(WARPS // warps, BLOCKS, by_registers, SHARED // block)
    return min(fit, configured // block) or fit


def waves(path: Path) -> dict[tuple[int, str, str, str], dict[str, Any]]:
    """Tails by GPU, kernel, grid and block. Of traces in which each kernel has one grid."""
    gpus = {
        (row["pid"], row["cudaId"]): row["gpuId"] for row in read(path, "TARGET_INFO_CUDA_DEVICE")
    }
    strings = {row["id"]: row["value"] for row in read(path, "StringIds")}
    kernels: dict[int, list[sqlite3.Row]] = defaultdict(list)
    for row in read(path, "CUPTI_ACTIVITY_KIND_KERNEL"):
        kernels[gpus[row["globalPid"] // 2**24 % 2**24, row["deviceId"]]].append(row)
    found = {}
    for device, mine in kernels.items():
        twice = beside([(row["start"], row["end"]) for row in mine])
        shortest = min(row["end"] - row["start"] for row in mine)
        grouped: dict[tuple[int, str, str, str], list[sqlite3.Row]] = defaultdict(list)
        for row in mine:
            grid = "x".join(str(row[f"grid{axis}"]) for axis in "XYZ")
            block = "x".join(str(row[f"block{axis}"]) for axis in "XYZ")
            grouped[device, strings[row["demangledName"]], grid, block].append(row)
        for key, alike in grouped.items():
            found[key] = tail(alike, twice, shortest)
    return found


def tail(alike: list[sqlite3.Row], twice: list[tuple[int, int]], shortest: int) -> dict[str, Any]:
    one = alike[0]
    shared = one["staticSharedMemory"] + one["dynamicSharedMemory"]
    threads, blocks = (
        one[f"{what}X"] * one[f"{what}Y"] * one[f"{what}Z"] for what in ("block", "grid")
    )
    each = blocks_per_sm(threads, one["registersPerThread"], shared, one["sharedMemoryExecuted"])
    total = sum(row["end"] - row["start"] for row in alike)
    told = {"calls": len(alike), "total_ns": total, "blocks": blocks}
    if not each:
        # A made trace may hold kernels that no GPU would launch.
        unknown = ("blocks_per_sm", "waves", "tail_idle_pct", "tail_loss_ns")
        return {**told, **dict.fromkeys(unknown)}
    idle = 1 - blocks / SMS / each / math.ceil(blocks / SMS / each)
    concurrent = sum(covered_by(twice, row["start"], row["end"]) for row in alike) > total / 2
    lost: int | None = round(total * idle)
    if blocks < each * SMS:
        beyond = max(total - len(alike) * shortest, 0)
        lost = round(beyond * (SMS - blocks) / SMS) if blocks < SMS else None
    return {
        **told,
        "blocks_per_sm": each,
        "waves": blocks / SMS / each,
        "tail_idle_pct": 100 * idle,
        "tail_loss_ns": None if concurrent else lost,
    }


def beside(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """When at least two of the spans are open."""
    events = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    found, depth, since = [], 0, 0
    for time, step in events:
        if depth >= 2 and time > since:
            found.append((since, time))
        depth, since = depth + step, time
    return found


def read(path: Path, table: str) -> list[sqlite3.Row]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    found = rows(connection, table)
    connection.close()
    return found
