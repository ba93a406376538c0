"""Garbage collections of Python, and what torch.compile did, as the program noted them itself."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import Subject
from traceview.base.intervals import Intervals
from traceview.base.tables import Integers, Table
from traceview.traces.trace import Trace, fact

COLLECTION, MODULE = "garbage-collection", "module"
COMPILATION, RECOMPILATION, BACKWARD = "compilation", "recompilation", "backward-compilation"
BREAK, LIMIT, UNCOMPILED = "graph-break", "compile-limit", "uncompiled"
OF_TORCH = (COMPILATION, RECOMPILATION, BACKWARD, BREAK, LIMIT, UNCOMPILED)
_NUMBER = re.compile(r"\d+(\.\d+)?")
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""Of the functions for the rest of a frame behind a graph break."""
MOST_VALUES = 3


@fact
def collections(trace: Trace) -> Table:
    """The rows of python_events that are garbage collections."""
    return events_of(trace, COLLECTION)


def asked_for(events: Table) -> int | None:
    """The first of the collections asked for by one line, if they took more than half of all."""
    called = np.flatnonzero(events.texts("source").codes >= 0)
    each = groups.group(events.texts("file").codes[called], events["line"][called])
    took_ns = groups.sums(each, events.duration_ns[called])
    if 2 * int(took_ns.max(initial=0)) <= int(events.duration_ns.sum()):
        return None
    return int(called[each.first[np.argmax(took_ns)]])


LEAST_BEGUN = 3
"""Collections of fewer may begin at one line by chance."""


def begun_at(events: Table) -> int | None:
    """The first of the collections, not asked for, that one line began, if these are most.

    A collection begins where an object is made once there are enough new ones: most often at the
    line that makes most.
    """
    file = events.texts("file")
    # The recorder's own thread makes objects, too.
    ours = file.isin([name for name in file.values if "traceview_injected/" in str(name)])
    own = np.flatnonzero((events.texts("source").codes < 0) & ~events.is_null("line") & ~ours)
    if not len(own):
        return None
    each = groups.group(file.codes[own], events["line"][own])
    count = groups.count(each)
    most = int(np.argmax(count))
    enough = count[most] >= LEAST_BEGUN and 2 * count[most] > len(events)
    return int(own[each.first[most]]) if enough else None


def compilations(trace: Trace, process: int) -> Intervals:
    """When torch.compile compiled for a process."""
    events = events_of(trace, COMPILATION, RECOMPILATION, BACKWARD)
    own = events["process"] == process
    return intervals.covered(events, own)


def events_of(trace: Trace, *kinds: str) -> Table:
    events = trace.recorded("python_events")
    return events.take(events.texts("kind").isin(list(kinds)))


class CompiledCode(NamedTuple):
    """A function that torch.compile handles, or a line in it, and why it did so.

    `times` counts equal events, `total_ns` is their time; `reasons` differ by more than numbers.
    `guards_ns` is the time of a check of its guards, None if unknown.
    """

    file: str
    line: int
    function: str
    source: str | None
    reasons: tuple[str, ...]
    times: int
    total_ns: int
    guards_ns: int | None

    @property
    def name(self) -> str:
        """The function; where it is one of torch, the line that calls it."""
        return self.source or self.function

    @property
    def place(self) -> str:
        """Such as `train.py:31`."""
        return self.subject.name

    @property
    def subject(self) -> Subject:
        """The line as the subject of a finding."""
        return Subject.of_line(self.file, self.line)

    def is_in(self, file: str) -> bool:
        """Whether it is in a file of that path: an event's is relative to the working folder."""
        return f"/{file}".endswith(f"/{self.file}")

    def has(self, file: str, function: str) -> bool:
        """Whether it is in a function, or in what is the rest of it behind a graph break."""
        return self.is_in(file) and _RESUMED.sub(r"\1", function) == self.function


def breaks_at(trace: Trace, file: str, line: int) -> CompiledCode | None:
    """What torch.compile reported of a line at which it breaks a graph."""
    processes = groups.different(events_of(trace, BREAK)["process"]).tolist()
    every = (each for process in processes for each in of_kind(trace, BREAK, process))
    return next((each for each in every if each.line == line and each.is_in(file)), None)


def of_kind(
    trace: Trace, kind: str, process: int, within: Intervals | None = None
) -> list[CompiledCode]:
    """What one kind of events of a process is about, the longest and most frequent first.

    With `within`, only events that overlap these times count.
    """
    events = events_of(trace, kind)
    own = (events["process"] == process) & ~events.is_null("line") & ~events.is_null("file")
    if within is not None:
        own &= intervals.overlap(within, events["start_ns"], events["end_ns"]) > 0
    events = events.take(own)
    file, line = events.texts("file"), events["line"]
    each = groups.group(file.codes, line)
    time, count = groups.sums(each, events.duration_ns), groups.count(each)
    order = np.lexsort((-count, -time))
    return [_code(events, np.flatnonzero(each.ids == number)) for number in order.tolist()]


def _code(events: Table, rows: Integers) -> CompiledCode:
    first, reason = int(rows[0]), events.texts("reason")
    return CompiledCode(
        str(events.texts("file")[first]),
        int(events["line"][first]),
        str(events.texts("function")[first]),
        events.texts("source")[first],
        tuple(alike([str(text) for row in rows.tolist() if (text := reason[row])])),
        len(rows),
        int(events.duration_ns[rows].sum()),
        int(guards_ns.max()) if (guards_ns := events["guards_ns"][rows]).max() > 0 else None,
    )


def alike(reasons: list[str]) -> list[str]:
    """Reasons that differ by numbers only as one, most frequent first: `n == 3 (4, 5, …)`."""
    forms: dict[str, list[str]] = {}
    for reason in reasons:
        forms.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    return [_joined(of) for of in sorted(forms.values(), key=len, reverse=True)]


def _joined(reasons: list[str]) -> str:
    """The first reason, and further values of its last number that changes."""
    numbers = [[match[0] for match in _NUMBER.finditer(reason)] for reason in reasons]
    changing = [place for place, of in enumerate(zip(*numbers, strict=True)) if len({*of}) > 1]
    if not changing:
        return reasons[0]
    values = list(dict.fromkeys(of[changing[-1]] for of in numbers))[1:]
    more = ", …" if len(values) >= MOST_VALUES else ""
    return f"{reasons[0]} (then {', '.join(values[: MOST_VALUES - 1])}{more})"
