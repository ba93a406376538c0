"""Who is to blame for each idle nanosecond of a GPU in a simulated run.

The blame is found by walking back from the operation that ended the idle time, along what truly
held it up: its call, the thread that made the call, what that thread had waited for, and so on.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from tests.oracles.simulated_runs import Call, Operation, Run

KINDS = ("launch", "pitch", "other-device", "host", "call", "tail", "wake")


class Part(NamedTuple):
    """Part of an idle time: its `kind`, of KINDS, and the call or operation to blame.

    launch: from the begin of a call to the start of its work. pitch: behind an operation that had
    ended when the idle time began. other-device: another GPU worked, or passed work on. host: the
    CPU worked outside of CUDA. call: a call that did not wait. tail: from the end of work to the
    return of the call that waited for it. wake: one thread woke another.
    """

    start: int
    end: int
    kind: str
    what: str


class Idle(NamedTuple):
    """An idle time of a device, the number of the operation that ended it, and its parts."""

    device: int
    start: int
    end: int
    operation: int
    parts: list[Part]


def idle_parts(run: Run) -> list[Idle]:
    """The idle times of each device between its first and its last operation, in order of time.

    An operation that takes no time ends an idle time, and another one begins.
    """
    idle = []
    for device in sorted({each.stream.device for each in run.operations}):
        own = [each for each in run.operations if each.stream.device == device]
        own.sort(key=lambda each: (each.start, each.number))
        free = own[0].end
        for operation in own[1:]:
            if operation.start > free:
                parts = _Walk(run, device, free, operation).parts()
                idle.append(Idle(device, free, operation.start, operation.number, parts))
            free = max(free, operation.end)
    return idle


class _Walk:
    """The way back from an operation to the begin of the idle time that it ended."""

    def __init__(self, run: Run, device: int, begin: int, operation: Operation) -> None:
        self.run, self.device, self.begin = run, device, begin
        self.now = operation.start
        self.ended_by = operation
        self.found: list[Part] = []

    def parts(self) -> list[Part]:
        """The parts in order of time; neighbours of equal kind and blame are one."""
        # Where the walk stands: at the start of an operation, or behind a segment of a flow.
        at: Operation | tuple[int, int, int] = self.ended_by
        while self.now > self.begin:
            at = self.held_up(at) if isinstance(at, Operation) else self.on_thread(*at)
        whole = []
        for (kind, what), group in groupby(self.found[::-1], key=lambda part: part[2:]):
            same = list(group)
            whole.append(Part(same[0].start, same[-1].end, kind, what))
        edges = [self.begin, *(part.end for part in whole)]
        assert [part.start for part in whole] == edges[:-1]
        assert edges[-1] == self.ended_by.start
        assert all(part.start < part.end for part in whole)
        return whole

    def back_to(self, time: int, kind: str, what: str) -> None:
        """Blame all from that time on, but no more than the idle time, on this."""
        time = max(time, self.begin)
        if time < self.now:
            self.found.append(Part(time, self.now, kind, what))
            self.now = time

    def held_up(self, operation: Operation) -> Operation | tuple[int, int, int]:
        """Go back along what held up an operation that starts now."""
        if operation.hold.is_call:
            call = self.run.calls[operation.hold.number]
            self.back_to(call.start, "launch", call.name)
            return self.before(call)
        return self.behind(self.run.operations[operation.hold.number], "pitch", "")

    def behind(self, work: Operation, kind: str, what: str) -> Operation:
        """Go back over the time from the end of some work until now, and over the work.

        `what` is the call that waited for it; what waits on the GPU blames the work itself.
        """
        if work.stream.device == self.device:
            self.back_to(work.end, kind, what or work.name)
            # The device is idle since then.
            assert self.now == self.begin
        else:
            if what:
                self.back_to(work.end, kind, what)
            self.back_to(work.start, "other-device", work.name)
        return work

    def before(self, call: Call) -> tuple[int, int, int]:
        return call.place.process, call.place.flow, call.place.item - 1

    def on_thread(self, process: int, flow: int, item: int) -> Operation | tuple[int, int, int]:
        """Go back over a segment of a flow that ends now; before the first one nothing was done."""
        if item < 0:
            self.back_to(self.begin, "host", "")
            return process, flow, item
        segment = self.run.flows[process, flow][item]
        if segment.call is None:
            self.back_to(segment.start, "wake" if segment.is_wake else "host", "")
            return process, flow, item - 1
        call = self.run.calls[segment.call]
        if call.held is not None:
            return self.behind(self.run.operations[call.held], "tail", call.name)
        self.back_to(call.start, "call", call.name)
        return process, flow, item - 1
