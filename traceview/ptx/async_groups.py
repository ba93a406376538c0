"""Asynchronous copies and matrix products in flight at each wait of the hottest loop, from PTX.

Simulates the code before the loop and some iterations of the loop, in the order of the listing,
with a queue per kind. A wait for cp.async, bulk stores or wgmma leaves the latest N groups in
flight; an mbarrier wait completes the oldest group of TMA loads or tcgen05 products.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from traceview.ptx.instruction_mix import CLASSES, InstructionMix, class_of
from traceview.ptx.model import Function, Instruction, SourceLine
from traceview.records import record

COPIES = ("cp.async", "TMA")
"""The kinds that bring data into shared memory."""

_ITERATIONS = 12
_NUMBER = re.compile(r"(?<![\w%])(0[xX][0-9a-fA-F]{1,8}|\d{1,9})\b")
_WORK = frozenset({"MMA", "fp32", "fp16", "fp64", "special function"})
_COMMITS = (
    ("wgmma.commit_group", "wgmma"),
    ("cp.async.commit_group", "cp.async"),
    ("cp.async.bulk.commit_group", "bulk store"),
    ("mbarrier.arrive.expect_tx", "TMA"),
    ("tcgen05.commit", "tcgen05"),
)
_WAITS = (
    ("wgmma.wait_group", "wgmma"),
    ("cp.async.wait_", "cp.async"),
    ("cp.async.bulk.wait_group", "bulk store"),
)
_MBARRIER_KINDS = frozenset({"TMA", "tcgen05"})

Place = tuple[SourceLine | None, ...]


@record
class AsyncWait:
    """A wait in the hottest loop, in the steady state.

    `kind` is the kind of work waited for: cp.async, TMA, bulk store, wgmma, tcgen05. `in_flight` is
    the number of groups in flight when the wait begins, `left` the number when it ends. `meanwhile`
    counts the arithmetic between the issue of the youngest group waited for and the wait, by class;
    it is empty if nothing overlaps.
    """

    source: SourceLine | None
    kind: str
    in_flight: int
    left: int
    meanwhile: Mapping[str, int]

    @property
    def is_serial(self) -> bool:
        """Whether it drains the queue with no arithmetic since the last group was issued."""
        return self.left == 0 < self.in_flight and not self.meanwhile


def async_waits(function: Function, mix: InstructionMix) -> tuple[AsyncWait, ...]:
    """The waits of the hottest loop of a PTX function; `mix` is that of the same function."""
    loop = mix.hottest_loop
    if loop is None:
        return ()
    body = [function.instructions[at] for at in sorted(loop.instructions)]
    before = function.instructions[: min(loop.instructions)]
    queues = _Queues(_mbarrier_kinds(body))
    for instruction in before:
        queues.step(instruction)
    waits: list[AsyncWait] = []
    for _ in range(_ITERATIONS):
        waits = [wait for each in body for wait in queues.step(each)]
    # Leave out waits for groups that an earlier wait completed.
    return tuple(wait for wait in waits if wait.in_flight > wait.left)


def _mbarrier_kinds(body: list[Instruction]) -> Mapping[Place, str]:
    """The kind of work that signals an mbarrier at each place, for places with one kind."""
    kinds: dict[Place, set[str]] = defaultdict(set)
    for instruction in body:
        kind = _kind(instruction.opcode, _COMMITS)
        if kind in _MBARRIER_KINDS:
            kinds[_place(instruction)].add(kind)
    return {place: min(each) for place, each in kinds.items() if len(each) == 1}


def _place(instruction: Instruction) -> Place:
    return (instruction.source, *instruction.inlined)


def _kind(opcode: str, starts: tuple[tuple[str, str], ...]) -> str:
    return next((kind for start, kind in starts if opcode.startswith(start)), "")


class _Queues:
    """The groups in flight of each kind, oldest first, each with the work done since its issue."""

    def __init__(self, mbarriers: Mapping[Place, str]) -> None:
        self._mbarriers = mbarriers
        self._groups: dict[tuple[str, Place], list[int]] = defaultdict(list)
        self._work: list[str] = []

    def step(self, instruction: Instruction) -> list[AsyncWait]:
        """Simulate one instruction; return the wait that it is, if any."""
        waits = list(self._waits(instruction))
        if kind := _kind(instruction.opcode, _COMMITS):
            self._groups[self._queue(kind, _place(instruction))].append(len(self._work))
        name = class_of(instruction, "ptx")
        if name in _WORK:
            self._work.append(name)
        return waits

    def _waits(self, instruction: Instruction) -> Iterator[AsyncWait]:
        opcode = instruction.opcode
        if kind := _kind(opcode, _WAITS):
            number = (_NUMBER.findall(instruction.operands) or ["0"])[-1]
            left = int(number, 16 if number[:2] in ("0x", "0X") else 10)
            yield self._wait(instruction, (kind, ()), left)
        elif opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait")):
            place = self._signalled_at(_place(instruction))
            if place is not None:
                queue = self._queue(self._mbarriers[place], place)
                yield self._wait(instruction, queue, max(0, len(self._groups[queue]) - 1))

    def _queue(self, kind: str, place: Place) -> tuple[str, Place]:
        """The key of a queue: one per kind, or one per place if several places signal the kind."""
        several = list(self._mbarriers.values()).count(kind) > 1
        return kind, place if several else ()

    def _signalled_at(self, place: Place) -> Place | None:
        """The place that signals the mbarriers waited for at `place`: the same, or the only one."""
        if place in self._mbarriers:
            return place
        return next(iter(self._mbarriers)) if len(self._mbarriers) == 1 else None

    def _wait(self, instruction: Instruction, queue: tuple[str, Place], allowed: int) -> AsyncWait:
        groups = self._groups[queue]
        completed = groups[: max(0, len(groups) - allowed)]
        self._groups[queue] = groups[len(completed) :]
        counts = Counter(self._work[completed[-1] :] if completed else ())
        meanwhile = {name: counts[name] for name in CLASSES if counts[name]}
        return AsyncWait(
            instruction.source, queue[0], len(groups), len(groups) - len(completed), meanwhile
        )
