"""Random programs as exports: loops over several streams, graphs, collectives and processes.

A recorder starts and stops when it likes, so the first pass may lack its beginning and the last
its end; a rank has as much work as it has.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tests.build import Export

KINDS = ("launch", "copy", "set", "sync", "graph", "whole graph", "collective", "idle")
SOURCES = ("none", "marked", "last open", "profiler", "added")
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Operation(NamedTuple):
    """One call of a pass, and how often it is made in turn (an inner loop)."""

    kind: str
    name: int
    stream: int
    times: int
    work_ns: int


class Program(NamedTuple):
    """What each process does: `passes` times its operations, cut at both ends of the recording."""

    operations: list[Operation]
    passes: list[int]
    steps: str
    threads: int
    pause_ns: int
    cut_first: int
    cut_last: int


OPERATIONS = st.builds(
    Operation,
    st.sampled_from(KINDS),
    st.integers(0, 3),
    st.sampled_from((7, 7, 7, 13)),
    st.sampled_from((1, 1, 1, 2, 5)),
    st.sampled_from((0, 1, 900, 40_000, 3_000_000)),
)
PROGRAMS = st.builds(
    Program,
    st.lists(OPERATIONS, min_size=1, max_size=8),
    # Passes of each process: ranks have unequal numbers of them.
    st.lists(st.integers(1, 9), min_size=1, max_size=2),
    st.sampled_from(SOURCES),
    st.integers(1, 2),
    st.sampled_from((0, 2_000, 500_000)),
    st.integers(0, 20),
    st.integers(0, 20),
)


def exported(program: Program) -> Export:
    """The export of a program; each process has the GPU of its number."""
    export = Export()
    for process, passes in enumerate(program.passes, start=1):
        calls = [
            (number, operation)
            for number in range(passes)
            for operation in program.operations
            for _ in range(operation.times)
        ]
        last = max(len(calls) - program.cut_last, 1)
        _Process(export, process, program).run(calls[:last][min(program.cut_first, last - 1) :])
    return export


class _Process:
    """One process as it runs: the clock of its CPU, and when each of its streams is free."""

    def __init__(self, export: Export, process: int, program: Program) -> None:
        self.export, self.program = export, program
        self.where = {"process": process, "device": process - 1}
        self.now = 1_000 * process
        self.free: dict[int, int] = {}

    def run(self, calls: list[tuple[int, Operation]]) -> None:
        number, began = -1, self.now
        for pass_number, operation in calls:
            if pass_number != number:
                self.step(number, began, self.now)
                self.now += self.program.pause_ns
                number, began = pass_number, self.now
            self.call(operation, 1 + pass_number % self.program.threads)
        end = None if self.program.steps == "last open" else self.now
        self.step(number, began, end)

    def step(self, number: int, begin: int, end: int | None) -> None:
        process = self.where["process"]
        if number < 0 or self.program.steps == "none":
            return
        if self.program.steps == "profiler":
            self.export.range(f"ProfilerStep#{number}", begin, end, process=process)
        elif self.program.steps == "added":
            name = f"traceview:range:step_{number}"
            self.export.range(name, begin, end, process=process, domain="traceview")
        else:
            # A start/end range may stay open; a push/pop range without an end is a mark.
            kind = "start-end" if end is None else "push-pop"
            self.export.range(f"step {number}", begin, end, process=process, kind=kind)

    def work(self, operation: Operation) -> tuple[int, int]:
        begin = max(self.now + 1_500, self.free.get(operation.stream, 0))
        self.free[operation.stream] = begin + operation.work_ns
        return begin, begin + operation.work_ns

    def call(self, operation: Operation, thread: int) -> None:
        span = self.now, self.now + 1_000
        where = {**self.where, "thread": thread, "stream": operation.stream}
        export, name = self.export, f"kernel_{operation.name}"
        if operation.kind == "launch":
            export.launch(span, self.work(operation), name=name, **where)
        elif operation.kind == "collective":
            export.launch(span, self.work(operation), name=ALLREDUCE, **where)
        elif operation.kind == "copy":
            export.copy(span, self.work(operation), **where)
        elif operation.kind == "set":
            export.set(span, self.work(operation), **where)
        elif operation.kind == "graph":
            nodes = [self.work(operation) for _ in range(1 + operation.name)]
            export.graph_launch(span, nodes, name=name, **where)
        elif operation.kind == "whole graph":
            export.graph_whole(span, self.work(operation), graph_id=operation.name, **where)
        elif operation.kind == "sync":
            end = max(span[1], *self.free.values(), 0)
            export.sync("cudaDeviceSynchronize_v3020", span[0], end, sync_type="context", **where)
            span = span[0], end
        else:
            span = span[0], span[0] + operation.work_ns
        self.now = span[1] + 500
