"""The same answers by brute force: SQLite rows, dicts and loops, and no code of traceview.

Short and obvious before fast; what every gap would ask anew is kept by Recording. Words and
definitions are those of the published contract: operations are kernels, copies, sets and
whole-graph rows; all intervals are half-open.
"""

from __future__ import annotations

import bisect
import itertools
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

OPERATION_TABLES = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "copy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "set": "CUPTI_ACTIVITY_KIND_MEMSET",
    "graph": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
LASTING = (59, 60)
PAGEABLE = 0
HOST_TO_DEVICE, DEVICE_TO_DEVICE = 1, 8
# With call chains recorded, nsys writes most calls twice: this one carries the chain.
BACKTRACE_CLASS = 67
# `traceview record` marks Python calls that wait by ranges, which are no ranges of the program.
MARKS = "traceview:sync:"
FOREVER = 2**62
UNATTRIBUTED = "(unattributed)"


@dataclass(eq=False)
class Call:
    start: int
    end: int
    name: str
    thread: int
    blocks: bool = False
    context: int | None = None

    @property
    def process(self) -> int:
        return self.thread // 2**24 * 2**24


@dataclass(eq=False)
class Operation:
    kind: str
    start: int
    end: int
    name: str
    process: int
    device: int
    context: int
    stream: int
    bytes: int
    call: Call | None
    pageable: bool = False
    from_pageable: bool = False
    within_gpu: bool = False

    @property
    def stream_key(self) -> tuple[int, int, int, int]:
        return (self.process // 2**24 % 2**24, self.device, self.context, self.stream)


@dataclass
class Range:
    start: int
    end: int
    name: str


@dataclass(eq=False)
class Recording:
    operations: list[Operation] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ranges: dict[int, list[Range]] = field(default_factory=lambda: defaultdict(list))
    # The profiler's own time on each thread.
    overheads: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    # What held up the work that ended each gap, by device and start of the gap.
    parts: dict[tuple[int, int], list[Part]] = field(default_factory=dict)
    # When some process compiled, without overlap: given, as the parts are.
    compiles: list[tuple[int, int]] = field(default_factory=list)
    # Work that calls of a process and context wait for, and when it is busy, as far as asked.
    waited: dict[tuple[int, int | None], list[Operation]] = field(default_factory=dict)
    waited_busy: dict[tuple[int, int | None], list[tuple[int, int]]] = field(default_factory=dict)
    # The names of the ranges open in a process at a time, as far as asked.
    open_names: dict[tuple[int, int], set[str]] = field(default_factory=dict)

    @cached_property
    def gaps(self) -> list[Gap]:
        return find_gaps(self)

    @cached_property
    def in_order(self) -> list[Operation]:
        return sorted(self.operations, key=by_start)

    @cached_property
    def calls_of(self) -> dict[int, list[Call]]:
        """The calls of each thread."""
        found = defaultdict(list)
        for call in self.calls:
            found[call.thread].append(call)
        return found

    @cached_property
    def lazy_loads(self) -> set[Call]:
        """First launches of a kernel in its context that last so long that they loaded its code."""
        seen, found = set(), set()
        for op in self.in_order:
            place = (op.process, op.device, op.context, op.name)
            if op.kind == "kernel" and place not in seen:
                seen.add(place)
                if op.call and op.call.end - op.call.start > LAZY_LOAD:
                    found.add(op.call)
        return found

    @cached_property
    def waits(self) -> dict[int, list[Call]]:
        """The blocking calls of each thread."""
        found = {t: [call for call in own if call.blocks] for t, own in self.calls_of.items()}
        return {thread: own for thread, own in found.items() if own}

    @cached_property
    def devices_waited(self) -> dict[Call, set[int]]:
        """The devices that a blocking call may have waited for."""
        calls = [call for own in self.waits.values() for call in own]
        one_of_each = {(call.process, call.context): call for call in calls}
        devices = {
            key: {op.device for op in waited_for(self, call)} for key, call in one_of_each.items()
        }
        return {call: devices[call.process, call.context] for call in calls}


def read(path: Path) -> Recording:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    strings = {row["id"]: row["value"] for row in rows(connection, "StringIds")}
    recording = Recording()
    by_id: dict[tuple[int, int], Call] = {}
    for row in rows(connection, "CUPTI_ACTIVITY_KIND_RUNTIME"):
        if row["eventClass"] == BACKTRACE_CLASS:
            continue
        name = re.sub(r"_v\d+$", "", strings[row["nameId"]])
        call = Call(row["start"], row["end"], name, row["globalTid"])
        call.blocks = name.endswith("Synchronize")
        recording.calls.append(call)
        by_id[call.process, row["correlationId"]] = call
    read_waits(connection, recording, by_id)
    read_overheads(connection, recording, strings)
    # A process numbers its GPUs itself.
    gpus = {
        (row["pid"], row["cudaId"]): row["gpuId"]
        for row in rows(connection, "TARGET_INFO_CUDA_DEVICE")
    }
    for kind, table in OPERATION_TABLES.items():
        for row in rows(connection, table):
            found = operation(kind, row, strings, by_id)
            process = found.process // 2**24 % 2**24
            found.device = gpus.get((process, found.device), found.device)
            recording.operations.append(found)
    for row in rows(connection, "NVTX_EVENTS"):
        end = FOREVER if row["end"] is None else row["end"]
        if row["eventType"] in LASTING and end > row["start"]:
            name = row["text"] if row["textId"] is None else strings[row["textId"]]
            if not name.startswith(MARKS):
                recording.ranges[row["globalTid"]].append(Range(row["start"], end, name))
    connection.close()
    return recording


def read_waits(
    connection: sqlite3.Connection, recording: Recording, by_id: dict[tuple[int, int], Call]
) -> None:
    for row in rows(connection, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"):
        if waited := by_id.get((row["globalPid"], row["correlationId"])):
            waited.context = row["contextId"]


def read_overheads(
    connection: sqlite3.Connection, recording: Recording, strings: dict[int, str]
) -> None:
    for row in rows(connection, "PROFILER_OVERHEAD"):
        if row["globalTid"] and not re.match("dlopen|.* Loading$", strings[row["nameId"]]):
            recording.overheads[row["globalTid"]].append((row["start"], row["end"]))


def rows(connection: sqlite3.Connection, table: str) -> list[sqlite3.Row]:
    there = connection.execute("SELECT name FROM sqlite_master WHERE name = ?", (table,))
    if there.fetchone() is None:
        return []
    return connection.execute(f'SELECT * FROM "{table}"').fetchall()


def operation(
    kind: str, row: sqlite3.Row, strings: dict[int, str], by_id: dict[tuple[int, int], Call]
) -> Operation:
    call = by_id.get((row["globalPid"], row["correlationId"]))
    pageable = kind == "copy" and PAGEABLE in (row["srcKind"], row["dstKind"])
    if call and pageable:
        call.blocks = True
    return Operation(
        kind,
        row["start"],
        row["end"],
        strings[row["demangledName"]] if kind == "kernel" else kind,
        row["globalPid"],
        row["deviceId"],
        row["contextId"],
        row["streamId"],
        row["bytes"] if kind in ("copy", "set") else 0,
        call,
        pageable,
        pageable and row["copyKind"] == HOST_TO_DEVICE and row["srcKind"] == PAGEABLE,
        kind == "copy" and row["copyKind"] == DEVICE_TO_DEVICE,
    )


def percentile(values: Iterable[int], percent: float) -> float:
    """Linear interpolation between the two nearest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def figures(took: dict[str, list[int]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "calls": len(times),
            "total_ns": sum(times),
            "min_ns": min(times),
            "max_ns": max(times),
            "median_ns": percentile(times, 50),
        }
        for name, times in took.items()
    }


def kernels_by_name(recording: Recording) -> dict[str, dict[str, float]]:
    took = defaultdict(list)
    for op in recording.operations:
        if op.kind == "kernel":
            took[op.name].append(op.end - op.start)
    return figures(took)


def calls_by_name(recording: Recording) -> dict[str, dict[str, float]]:
    took = defaultdict(list)
    for call in recording.calls:
        took[call.name].append(call.end - call.start)
    return figures(took)


def busy(operations: Iterable[Operation]) -> list[tuple[int, int]]:
    """Maximal intervals in which at least one of the operations runs."""
    events = [(op.start, 1) for op in operations] + [(op.end, -1) for op in operations]
    # Starts before ends at the same time: work that follows at once leaves no gap.
    events.sort(key=lambda event: (event[0], -event[1]))
    found, running, since = [], 0, 0
    for time, step in events:
        if running == 0 and step == 1:
            since = time
        running += step
        if running == 0:
            found.append((since, time))
    return found


def on_device(recording: Recording, device: int) -> list[Operation]:
    return [op for op in recording.operations if op.device == device]


def devices(recording: Recording) -> dict[int, dict[str, int]]:
    result = {}
    for device in {op.device for op in recording.operations}:
        covered = busy(on_device(recording, device))
        span = covered[-1][1] - covered[0][0]
        work = sum(end - start for start, end in covered)
        result[device] = {"span_ns": span, "busy_ns": work, "idle_ns": span - work}
    return result


def queue(operations: list[Operation]) -> dict[str, Any]:
    """Queue wait and depth of these operations, those without a call left out."""
    launched = [op for op in operations if op.call]
    if not launched:
        return {"queue_wait_median_ns": None, "queue_wait_max_ns": None, "max_queue_depth": 0}
    waits = [max(0, op.start - op.call.end) for op in launched if op.call]
    events = [(op.call.start, 1) for op in launched if op.call] + [(op.end, -1) for op in launched]
    depth, most, area, last = 0, 0, 0, min(events)[0]
    # Ends (-1) sort before starts (+1) of the same time.
    for time, step in sorted(events):
        area += depth * (time - last)
        depth, last = depth + step, time
        most = max(most, depth)
    span = max(events)[0] - min(events)[0]
    return {
        "queue_wait_median_ns": percentile(waits, 50),
        "queue_wait_p90_ns": percentile(waits, 90),
        "queue_wait_max_ns": max(waits),
        "max_queue_depth": most,
        "mean_queue_depth": area / span if span else 0.0,
    }


def streams(recording: Recording) -> dict[tuple[int, int, int, int], dict[str, Any]]:
    grouped = defaultdict(list)
    for op in recording.operations:
        grouped[op.stream_key].append(op)
    return {key: {"operations": len(ops), **queue(ops)} for key, ops in grouped.items()}


def open_on(recording: Recording, thread: int, time: int) -> str | None:
    """Names of the ranges open on that thread at that time, from the outermost down."""
    there = [r for r in recording.ranges.get(thread, []) if r.start <= time < r.end]
    there.sort(key=lambda r: (r.start, -r.end))
    return "/".join(r.name for r in there) or None


def range_path(recording: Recording, call: Call | None) -> str:
    """The innermost range of the calling thread, with all those around it.

    A thread without one gets that of the main thread, else of the only other one that has any.
    """
    if call is None:
        return UNATTRIBUTED
    if own := open_on(recording, call.thread, call.start):
        return own
    main = call.process + call.process // 2**24 % 2**24
    others = {
        thread: path
        for thread in recording.ranges
        if thread // 2**24 == call.process // 2**24
        and (path := open_on(recording, thread, call.start))
    }
    if main in others:
        return others[main]
    return next(iter(others.values())) if len(others) == 1 else UNATTRIBUTED


def kernels_by_range(recording: Recording) -> dict[tuple[str, str], dict[str, int]]:
    result: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: {"calls": 0, "total_ns": 0})
    for op in recording.operations:
        if op.kind == "kernel":
            row = result[range_path(recording, op.call), op.name]
            row["calls"] += 1
            row["total_ns"] += op.end - op.start
    return dict(result)


def waited_for(recording: Recording, call: Call) -> list[Operation]:
    """The work of the device that a call waits for, or of its process if that is not known."""
    key = (call.process, call.context)
    if key not in recording.waited:
        recording.waited[key] = find_waited_for(recording, call)
    return recording.waited[key]


def find_waited_for(recording: Recording, call: Call) -> list[Operation]:
    own = [op for op in recording.operations if op.process == call.process]
    used = {op.device for op in own}
    if len(used) > 1:
        used = {op.device for op in own if op.context == call.context}
    if len(used) == 1:
        return on_device(recording, used.pop())
    return own


def benign(recording: Recording, call: Call) -> int:
    """Time of the call in which the device it waits for was busy."""
    key = (call.process, call.context)
    if key not in recording.waited_busy:
        recording.waited_busy[key] = busy(waited_for(recording, call))
    return covered_by(recording.waited_busy[key], call.start, call.end)


def covered_by(spans: list[tuple[int, int]], first: int, last: int) -> int:
    """Time of [first, last) in the spans, which are in order and apart."""
    total, place = 0, bisect.bisect_right(spans, first, key=lambda span: span[1])
    while place < len(spans) and spans[place][0] < last:
        start, end = spans[place]
        total += min(end, last) - max(start, first)
        place += 1
    return total


RIGHT_AFTER = 10_000
LAZY_LOAD = 200_000
OWN_WORK = 1_000_000
MOST_STAGING = 500_000
LOADS = re.compile(
    r"cu(da)?(Module|Library)(Load|Unload)|cuLink(Add|Complete)"
    r"|cu(ModuleGetFunction|LibraryGetKernel|KernelGetFunction)|cudaFuncGetAttributes"
)
GRAPHS = re.compile(r"(cuda|cu)Graph(Launch|Instantiate|Upload|ExecUpdate)")
ALLOCATES = re.compile(
    r"cuda(Malloc|Free)(?!\w*(Async|FromPool))|cuda(HostAlloc|HostRegister|HostUnregister)$"
    r"|cuMem(Alloc|Free|Host)(?!\w*(Async|FromPool|GetDevicePointer|GetFlags))"
    r"|cuMem(Create|Map|Unmap|Release)$|(cuda|cu)MemPoolTrimTo$|(cuda|hip)DeviceReset$"
)
POOLS = re.compile(r"(cuda|cu)(Mem)?(Alloc|Malloc|Free)\w*(Async|FromPool)")


@dataclass
class Part:
    """What held up the work that ended a gap, in [start, end) of it.

    `kind` is a name of `facts.dependencies.blame.Part`; the simulator is their oracle
    (tests/facts/dependencies/test_brute_force.py). `on` is the call or the operation.
    """

    start: int
    end: int
    kind: str
    on: Call | Operation | None
    cause: str = ""
    blamed: Call | None = None

    @property
    def idle(self) -> int:
        return self.end - self.start

    @property
    def call(self) -> Call | None:
        """The call that the part was spent in."""
        inside = self.kind in ("LAUNCH", "CALL", "TAIL") and isinstance(self.on, Call)
        return self.on if inside else None  # type: ignore[return-value]


@dataclass
class Gap:
    """No work on `device` in [dry, again), and why."""

    device: int
    dry: int
    again: int
    next: Operation
    parts: list[Part] = field(default_factory=list)

    @property
    def idle(self) -> int:
        return self.again - self.dry

    @property
    def cause(self) -> str:
        """The cause with most of the time; of equal ones that of the longest part."""
        of = self.idle_by_cause()
        return max(self.parts, key=lambda part: (of[part.cause], part.idle, -part.start)).cause

    def idle_by_cause(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for part in self.parts:
            found[part.cause] += part.idle
        return found


def find_gaps(recording: Recording) -> list[Gap]:
    """Every gap with the causes of its parts, each told by itself, from the definitions."""
    found = []
    for device in sorted(devices(recording)):
        covered = busy(on_device(recording, device))
        mine = [op for op in recording.in_order if op.device == device and op.end > op.start]
        first = {op.start: op for op in reversed(mine)}
        for (_, dry), (again, _) in itertools.pairwise(covered):
            gap = Gap(device, dry, again, first[again])
            parts = recording.parts[device, dry]
            edges = [dry, *(part.end for part in parts)]
            assert [part.start for part in parts] == edges[:-1]
            assert edges[-1] == again
            for part in parts:
                part.cause = cause_of(recording, gap, part)
            gap.parts = joined(gap, compiled(recording, drained(recording, gap, parts)))
            found.append(gap)
    return found


def cause_of(recording: Recording, gap: Gap, part: Part) -> str:
    """Why the work that ended the gap was held up in this part of it."""
    launch, call = gap.next.call, part.call
    if launch is None:
        return "unknown"
    if part.kind in ("PITCH", "OTHER", "HELD"):
        on_gpu = part.kind != "HELD" and isinstance(part.on, Operation)
        stages = part.kind == "HELD" and gap.next.pageable and part.idle <= MOST_STAGING
        copies = on_gpu and part.on.kind == "copy" and not part.on.within_gpu
        return "copy-wait" if stages or copies else "dependency"
    if 2 * covered_of(part, recording.overheads.get(thread_of(gap, part), [])) > part.idle:
        return "profiler"
    if call is not None:
        if LOADS.match(call.name) or call in recording.lazy_loads:
            return "module-load"
        if part.kind == "LAUNCH" and gap.next.from_pageable:
            return "copy-wait"
        if "GraphLaunch" in launch.name and GRAPHS.match(call.name):
            return "graph-launch"
        if ALLOCATES.match(call.name) or POOLS.match(call.name):
            return "allocation"
    return "sync-drain" if part.kind == "TAIL" else "launch-late"


def thread_of(gap: Gap, part: Part) -> int:
    """The thread that held the work up."""
    call = part.on if isinstance(part.on, Call) else gap.next.call
    return call.thread if call else -1


def drained(recording: Recording, gap: Gap, parts: list[Part]) -> list[Part]:
    """The parts; ordinary launching belongs to the wait before it, for as long as that lasted."""
    wait = drained_by(recording, gap, gap.next.call) if gap.next.call else None
    left, found = wait.end - wait.start if wait else 0, []
    for part in parts:
        ordinary = part.cause == "launch-late" and part.idle <= OWN_WORK
        if not ordinary and part.cause != "sync-drain":
            found.append(part)
            continue
        until = part.end if part.cause == "sync-drain" else min(part.end, part.start + left)
        until = until if wait else part.start
        left = max(0, left - part.idle)
        cut = ((part.start, until, "sync-drain"), (until, part.end, "launch-late"))
        found += [
            replace(part, start=start, end=end, cause=cause, blamed=wait if end == until else None)
            for start, end, cause in cut
            if end > start
        ]
    return found


def compiled(recording: Recording, parts: list[Part]) -> list[Part]:
    """The parts; those for most of which a process compiled are of that cause."""
    for part in parts:
        took = sum(
            max(0, min(end, part.end) - max(start, part.start)) for start, end in recording.compiles
        )
        late = part.cause in ("launch-late", "sync-drain", "garbage-collection")
        if late and 2 * took > part.end - part.start:
            part.cause = "compilation"
    return parts


def joined(gap: Gap, parts: list[Part]) -> list[Part]:
    """Neighbours of one cause and thread as one, in the call that the longest was spent in."""
    found = []
    for (cause, _), each in itertools.groupby(parts, lambda p: (p.cause, thread_of(gap, p))):
        same = list(each)
        longest = max(same, key=lambda part: (part.idle, -part.start))
        blamed = longest.blamed
        if cause in ("allocation", "module-load", "copy-wait") and longest.call:
            call = longest.call
            blocks = call.blocks or LOADS.match(call.name) or ALLOCATES.match(call.name)
            blamed = call if blocks else None
        found.append(replace(longest, start=same[0].start, end=same[-1].end, blamed=blamed))
    return found


def covered_of(part: Part, spans: list[tuple[int, int]]) -> int:
    """How much of the part at least one of the spans covers."""
    inside = [
        (max(a, part.start), min(b, part.end)) for a, b in spans if a < part.end and b > part.start
    ]
    cuts = sorted({time for span in inside for time in span})
    return sum(
        b - a for a, b in itertools.pairwise(cuts) if any(s <= a and b <= e for s, e in inside)
    )


def drained_by(recording: Recording, gap: Gap, call: Call) -> Call | None:
    """The wait that the gap began in or right after."""
    found = []
    for thread, waits in recording.waits.items():
        if waits[0].process != gap.next.process:
            continue
        begun = [wait for wait in waits if wait.start < gap.dry]
        last = max(begun, key=lambda wait: (wait.end, wait.start), default=None)
        if last and last.end <= call.start and waits_on(recording, last, gap.device):
            in_it = last.end >= gap.dry and (
                thread == call.thread or not calls_within(recording, call.thread, last)
            )
            if in_it or right_after(recording, gap, call, last):
                found.append(last)
    return max(found, key=lambda wait: (wait.end, -wait.thread), default=None)


def calls_within(recording: Recording, thread: int, wait: Call) -> bool:
    return any(c.thread == thread and wait.start <= c.start < wait.end for c in recording.calls)


def right_after(recording: Recording, gap: Gap, call: Call, wait: Call) -> bool:
    """The launching thread itself had just left the wait, and enqueued nothing in between."""
    if wait.thread != call.thread or not gap.dry - RIGHT_AFTER <= wait.end < gap.dry:
        return False
    between = [
        op
        for op in recording.operations
        if op.call and op.call.thread == call.thread and wait.end <= op.call.start < call.start
    ]
    return not between


def waits_on(recording: Recording, call: Call, device: int) -> bool:
    """Does the call wait for that device, as far as the recording tells?"""
    found = recording.devices_waited[call]
    return len(found) != 1 or device in found


def open_in(recording: Recording, process: int, time: int) -> set[str]:
    """The names of the ranges open in the process at that time, on any thread."""
    if (process, time) not in recording.open_names:
        recording.open_names[process, time] = {
            each.name
            for thread, ranges in recording.ranges.items()
            if thread // 2**24 == process // 2**24
            for each in ranges
            if each.start <= time < each.end
        }
    return recording.open_names[process, time]


@dataclass(frozen=True)
class Selected:
    """Names of ranges: what was asked for while one of `include` was open in its process, and none
    of `exclude`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def holds(self, recording: Recording, process: int, time: int) -> bool:
        names = open_in(recording, process, time)
        inside = not self.include or bool(names & set(self.include))
        return inside and not names & set(self.exclude)


def selection(recording: Recording, selected: Selected) -> dict[str, Any]:
    """Work and idle time of what is selected, each gap with the work that ended it.

    And the idle time that selected blocking calls caused, by name, whatever work ended it.
    """
    held = {
        op
        for op in recording.operations
        if selected.holds(recording, op.process, op.call.start if op.call else op.start)
    }
    found: dict[int, dict[str, int]] = {}
    causes: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    after: dict[str, int] = defaultdict(int)
    for device in {op.device for op in held}:
        mine = [op for op in held if op.device == device]
        work = sum(end - start for start, end in busy(mine))
        found[device] = {"span_ns": work, "busy_ns": work, "idle_ns": 0}
    for gap in recording.gaps:
        if gap.next in held:
            found[gap.device]["idle_ns"] += gap.idle
            found[gap.device]["span_ns"] += gap.idle
            for cause, idle in gap.idle_by_cause().items():
                causes[gap.device, cause][0] += 1
                causes[gap.device, cause][1] += idle
        for part in gap.parts:
            call = part.blamed
            if call and selected.holds(recording, call.process, call.start):
                after[call.name] += part.idle
    return {"devices": found, "causes": dict(causes), "idle_after": dict(after)}


def by_start(op: Operation) -> int:
    return op.start


def blocking_calls(recording: Recording) -> dict[str, dict[str, int]]:
    """Waits by API name: what was benign, and the idle time that followed."""
    result: dict[str, dict[str, int]] = {}
    none = {"calls": 0, "wait_ns": 0, "benign_ns": 0, "idle_after_ns": 0}
    for call in recording.calls:
        if call.blocks:
            row = result.setdefault(call.name, dict(none))
            row["calls"] += 1
            row["wait_ns"] += call.end - call.start
            row["benign_ns"] += benign(recording, call)
    for gap in recording.gaps:
        for part in gap.parts:
            if part.blamed:
                result.setdefault(part.blamed.name, dict(none))["idle_after_ns"] += part.idle
    return result


def copies(recording: Recording) -> dict[str, int]:
    """Number, bytes and time of all copies."""
    ops = [op for op in recording.operations if op.kind == "copy"]
    return {
        "calls": len(ops),
        "bytes": sum(op.bytes for op in ops),
        "total_ns": sum(op.end - op.start for op in ops),
    }
