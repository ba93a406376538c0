"""Attribution to ranges and the figures of steps by brute force, for ranges of every sort.

As `oracle`, of which this is a part: plain loops over SQLite rows, and no code of traceview.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.oracles.brute_force import (
    FOREVER,
    LASTING,
    MARKS,
    UNATTRIBUTED,
    Call,
    Operation,
    busy,
    read,
    rows,
)

DOMAIN_CREATED = 75
LIBRARY = re.compile(r"(cublas|cudnn|nccl)", re.IGNORECASE)
THREAD_BITS = 2**24


@dataclass
class Range:
    start: int
    end: int
    name: str
    thread: int
    library: bool
    parent: Range | None = None
    lent: bool = False

    @property
    def process(self) -> int:
        return self.thread // THREAD_BITS

    @property
    def is_main(self) -> bool:
        return self.thread % THREAD_BITS == self.process % THREAD_BITS

    @property
    def path(self) -> str:
        return f"{self.parent.path}/{self.name}" if self.parent else self.name

    def around(self, inner: Range) -> bool:
        return self.start <= inner.start and inner.end <= self.end


@dataclass
class Attributed:
    """All ranges of a file, its operations, and the range of each launch call."""

    ranges: list[Range]
    operations: list[Operation]
    strict: bool

    @classmethod
    def of(cls, path: Path, *, strict: bool = False) -> Attributed:
        found = read_ranges(path)
        whole = cls(found, read(path).operations, strict)
        for place, each in enumerate(found):
            before = [r for r in found[:place] if r.thread == each.thread and r.around(each)]
            each.parent = before[-1] if before else None
        if not strict:
            whole.lend()
        return whole

    def lend(self) -> None:
        """Hang what a library opened on a worker thread under the main thread's range."""
        for each in [r for r in self.ranges if r.parent is None and r.library and not r.is_main]:
            found = self.open_on(self.main_of(each.process), each.start)
            while found and not found.around(each):
                found = found.parent
            each.parent, each.lent = found, found is not None

    def main_of(self, process: int) -> int:
        return process * THREAD_BITS + process % THREAD_BITS

    def open_on(self, thread: int, time: int) -> Range | None:
        """The range of that thread that started last and is open then."""
        there = [r for r in self.ranges if r.thread == thread and r.start <= time < r.end]
        return there[-1] if there else None

    def borrowed(self, call: Call) -> Range | None:
        process = call.thread // THREAD_BITS
        threads = {r.thread for r in self.ranges if r.process == process}
        opened = {t: r for t in threads if (r := self.open_on(t, call.start))}
        if self.strict:
            return None
        if main := opened.get(self.main_of(process)):
            return main
        return next(iter(opened.values())) if len(opened) == 1 else None

    def range_of(self, call: Call | None) -> tuple[str, bool]:
        """Path of the range of a launch call, and whether it is inferred."""
        if call is None:
            return UNATTRIBUTED, False
        if own := self.open_on(call.thread, call.start):
            return own.path, any(r.lent for r in chain(own))
        other = self.borrowed(call)
        return (other.path, True) if other else (UNATTRIBUTED, False)

    def kernels_by_path(self) -> dict[str, tuple[int, int, int]]:
        """Number, time and inferred time of the kernels of each path."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for op in self.operations:
            if op.kind == "kernel":
                path, inferred = self.range_of(op.call)
                took = op.end - op.start
                for place, more in enumerate((1, took, took * inferred)):
                    found[path][place] += more
        return {path: (figures[0], figures[1], figures[2]) for path, figures in found.items()}

    def step_of(self, call: Call | None, steps: list[Range]) -> Range | None:
        """The step that a call was made in: of its own thread, else of the main thread's."""
        if call is None:
            return None
        own = self.open_on(call.thread, call.start)
        if own is None:
            own = self.borrowed(call)
        if step := around(own, steps):
            return step
        if call.thread in {s.thread for s in steps} or self.strict:
            return None
        threads = {r.thread for r in steps if r.process == call.thread // THREAD_BITS}
        found = {t: s for t in threads if (s := around(self.open_on(t, call.start), steps))}
        main = self.main_of(call.thread // THREAD_BITS)
        if main in found:
            return found[main]
        return next(iter(found.values())) if len(found) == 1 else None


def chain(inner: Range) -> list[Range]:
    return [inner, *(chain(inner.parent) if inner.parent else [])]


def around(inner: Range | None, steps: list[Range]) -> Range | None:
    if inner is None:
        return None
    return next((r for r in chain(inner) if any(r is step for step in steps)), None)


def read_ranges(path: Path) -> list[Range]:
    """In the order in which a later one may be inside an earlier one of its thread."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    strings = {row["id"]: row["value"] for row in rows(connection, "StringIds")}
    events = rows(connection, "NVTX_EVENTS")
    connection.close()

    def text(row: sqlite3.Row) -> str:
        return row["text"] if row["textId"] is None else strings[row["textId"]]

    domains = {
        (row["globalTid"] // THREAD_BITS, row["domainId"]): text(row)
        for row in events
        if row["eventType"] == DOMAIN_CREATED
    }
    found = []
    for row in events:
        end = FOREVER if row["end"] is None else row["end"]
        lasts = row["eventType"] in LASTING and end > row["start"]
        if lasts and not text(row).startswith(MARKS):
            thread = row["globalTid"]
            domain = domains.get((thread // THREAD_BITS, row["domainId"]), "")
            library = bool(LIBRARY.match(domain))
            found.append(Range(row["start"], end, text(row), thread, library))
    return sorted(found, key=lambda r: (r.start, -r.end))


def step_times(
    steps: list[Range], work: dict[int, list[Operation]]
) -> list[tuple[int, int] | None]:
    """Begin and end of each step of one series; None for one without work among some with.

    `work` are the operations of each step by its place in the list.
    """
    return [None if found is None else found[:2] for found in steps_by_loop(steps, work)]


def steps_by_loop(
    steps: list[Range], work: dict[int, list[Operation]]
) -> list[tuple[int, int, int] | None]:
    """The same, and the number of the loop that each is judged in."""
    timed = [place for place in range(len(steps)) if work[place] or not any(work.values())]
    entered = {p: p == q or steps[p].parent is not steps[q].parent for q, p in pairs(timed)}
    number = {place: tuple(map(int, re.findall(r"\d+", steps[place].name))) for place in timed}
    first = number[timed[0]]
    again = {p: p != q and number[p] == first != number[q] for q, p in pairs(timed)}
    loop, loops = {}, -1
    for place in timed:
        loops += entered[place] or again[place]
        loop[place] = loops
    times = timed_steps(steps, work, timed, {p: entered[p] or again[p] for p in timed})
    if alike(
        [
            [end - begin for p in timed if loop[p] == n for begin, end in [times[p]]]
            for n in range(loops + 1)
        ]
    ):
        loop = dict.fromkeys(timed, 0)
        times = timed_steps(steps, work, timed, entered)
    return [(*times[p], loop[p]) if p in loop else None for p in range(len(steps))]


def pairs(timed: list[int]) -> list[tuple[int, int]]:
    """Each place after the one before it; the first after itself."""
    return list(zip([*timed[:1], *timed], timed, strict=False))


def alike(loops: list[list[int]]) -> bool:
    """Whether loops, each the durations of its steps, are judged by one median."""
    several = [took for took in loops if len(took) > 1]
    if sum(map(len, several)) <= sum(map(len, loops)) / 2:
        return True
    middle = median(map(median, several))
    spread = 1.4826 * median(abs(each - median(took)) for took in several for each in took)
    near = [abs(median(took) - middle) <= max(0.1 * middle, spread) for took in several]
    return sum(near) >= 0.9 * len(near)


def timed_steps(
    steps: list[Range],
    work: dict[int, list[Operation]],
    timed: list[int],
    begins: dict[int, bool],
) -> dict[int, tuple[int, int]]:
    """Begin and end of the steps at these places, of which some begin a loop."""
    times: dict[int, tuple[int, int]] = {}
    before: int | None = None
    for place in timed:
        step = steps[place]
        if not work[place]:
            times[place] = (step.start, step.end)
            continue
        end = max(op.end for op in work[place])
        begin = min(step.start, *(op.start for op in work[place]))
        if before is not None:
            begin = max(before, begin) if begins[place] else before
            end = max(end, before)
        times[place] = (min(begin, end), end)
        before = end
    return times


def busy_within(operations: list[Operation], first: int, last: int) -> int:
    """Time of [first, last) in which at least one of the operations runs."""
    return sum(max(0, min(end, last) - max(start, first)) for start, end in busy(operations))
