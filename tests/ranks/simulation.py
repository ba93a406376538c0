"""Ranks of one job as a schedule: what each CPU launches, what each GPU runs, who waits for whom.

A rank is a list of operations in the order in which its CPU issues them. Work starts when its call
returned, the operation before it on its stream ended, and what it waits for ended. A collective
ends on all of its ranks together: when the last of them started it, plus the time of its transfer.
So who arrived last, and how long the others waited for it, is known exactly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

LAUNCH_NS = 5_000
"""Time of a launch call on the CPU."""
LATENCY_NS = 2_000
"""From the return of a call to the start of its work on an idle stream."""
COMPUTE, COPY, COLLECTIVE, SYNCHRONIZE = range(4)


@dataclass(frozen=True)
class Pause:
    """Time of the CPU outside of launch calls: its `cause` where the GPU idles, and where it is."""

    cause: str
    file: str
    line: int
    function: str
    what: str = ""


@dataclass(slots=True)
class Operation:
    """What a CPU issues. `duration_ns` is GPU time, of a collective that of its transfer.

    `pause_ns` of CPU time in `pause` come before the call. `after` are places of earlier
    operations of the rank. Operations of one `key` are the parts of one collective, of `parts`
    ranks. `kind` is the kind of a collective, or the class of a kernel; `own_rank` and `peer` are
    ranks within its communicator.
    """

    does: int
    step: int
    stream: int = 7
    kind: str = ""
    duration_ns: int = 0
    pause_ns: int = 0
    pause: Pause | None = None
    after: tuple[int, ...] = ()
    key: Hashable = None
    parts: int = 0
    communicator: int = 0
    members: int = 0
    own_rank: int = 0
    peer: int = -1
    bytes: int = -1


@dataclass
class RankProgram:
    """The operations of a rank under construction."""

    rank: int
    operations: list[Operation] = field(default_factory=list)
    step: int = -1
    _pauses: tuple[int, Pause | None] = (0, None)

    def pause(self, duration_ns: float, pause: Pause) -> None:
        """Spend CPU time before the next operation; the longest pause gives its place."""
        before, where = self._pauses
        longer = pause if where is None or duration_ns >= before else where
        self._pauses = before + round(duration_ns), longer

    def add(self, operation: Operation) -> int:
        """Issue an operation and give its place."""
        operation.step = self.step
        operation.pause_ns, operation.pause = self._pauses
        self._pauses = (0, None)
        self.operations.append(operation)
        return len(self.operations) - 1

    def compute(
        self, kind: str, duration_ns: float, after: tuple[int, ...] = (), stream: int = 7
    ) -> int:
        return self.add(
            Operation(COMPUTE, 0, stream, kind, max(round(duration_ns), 500), after=after)
        )

    def copy(self, duration_ns: float, stream: int = 7) -> int:
        return self.add(Operation(COPY, 0, stream, "H2D", max(round(duration_ns), 500)))

    def synchronize(self) -> int:
        """Block the CPU until the GPU has finished all work."""
        return self.add(Operation(SYNCHRONIZE, 0))


@dataclass
class RankTimeline:
    """When each operation of a rank was called and ran, in true time.

    `arrived_ns` is when the last rank started a collective; `last` is True where that was this
    rank. `late_call` is True where the operation waited for its call and not for the GPU.
    """

    program: RankProgram
    call_ns: list[int]
    returned_ns: list[int]
    start_ns: list[int]
    end_ns: list[int]
    arrived_ns: list[int]
    last: list[bool]
    late_call: list[bool]

    def wait_ns(self, place: int) -> int:
        """How long a collective waited for the last rank."""
        return self.arrived_ns[place] - self.start_ns[place]


@dataclass
class _Progress:
    """How far a rank has come: its clock of the CPU, and the last operation of each stream."""

    line: RankTimeline
    now_ns: int
    next: int = 0
    last: dict[int, int] = field(default_factory=dict)


_PENDING = -1


def schedule(programs: Sequence[RankProgram], begin_ns: int = 0) -> list[RankTimeline]:
    """Run the ranks; raise where they wait for each other in a circle."""
    ranks = [_Progress(_empty(program), begin_ns) for program in programs]
    arrivals: dict[Hashable, list[tuple[int, int]]] = {}
    while any(rank.next < len(rank.line.program.operations) for rank in ranks):
        before = sum(rank.next for rank in ranks)
        for number, rank in enumerate(ranks):
            _advance(number, rank, ranks, arrivals)
        if sum(rank.next for rank in ranks) == before:
            raise RuntimeError("the ranks of this job wait for each other")
    return [rank.line for rank in ranks]


def _empty(program: RankProgram) -> RankTimeline:
    count = len(program.operations)
    times = ([0] * count for _ in range(3))
    return RankTimeline(
        program, *times, [_PENDING] * count, [0] * count, [False] * count, [False] * count
    )


def _advance(
    number: int,
    rank: _Progress,
    ranks: list[_Progress],
    arrivals: dict[Hashable, list[tuple[int, int]]],
) -> None:
    """Issue operations of a rank until one needs what other ranks have not done yet."""
    line, end, last = rank.line, rank.line.end_ns, rank.last
    operations = line.program.operations
    for place in range(rank.next, len(operations)):
        op = operations[place]
        needed_ns = 0
        if op.does == SYNCHRONIZE:
            needed: Iterable[int] = last.values()
        elif op.stream in last:
            needed = (*op.after, last[op.stream])
        else:
            needed = op.after
        for each in needed:
            if end[each] == _PENDING:
                return
            if end[each] > needed_ns:
                needed_ns = end[each]
        line.call_ns[place] = call = rank.now_ns + op.pause_ns
        if op.does == SYNCHRONIZE:
            rank.now_ns = max(call + LAUNCH_NS, needed_ns)
            line.returned_ns[place] = line.start_ns[place] = end[place] = rank.now_ns
        else:
            line.returned_ns[place] = rank.now_ns = call + LAUNCH_NS
            called = rank.now_ns + LATENCY_NS
            line.start_ns[place] = start = max(called, needed_ns)
            line.late_call[place] = start == called
            last[op.stream] = place
            if op.does == COLLECTIVE:
                _arrive(number, place, op, ranks, arrivals)
            else:
                end[place] = start + op.duration_ns
        rank.next = place + 1


def _arrive(
    number: int,
    place: int,
    op: Operation,
    ranks: list[_Progress],
    arrivals: dict[Hashable, list[tuple[int, int]]],
) -> None:
    """Note that a rank started its part; the last part ends the collective on all ranks."""
    parts = arrivals.setdefault(op.key, [])
    parts.append((number, place))
    if len(parts) < op.parts:
        return
    lines = [(ranks[each].line, where) for each, where in parts]
    last = max(line.start_ns[where] for line, where in lines)
    for line, where in lines:
        own = line.program.operations[where]
        line.arrived_ns[where] = last
        line.last[where] = line.start_ns[where] == last
        line.end_ns[where] = last + own.duration_ns
    del arrivals[op.key]
