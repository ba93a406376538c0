"""Programs for the plain simulator: what each thread of each process does, and edits of that.

A process has threads, a thread has a list of actions, and does it once in every step. All times
are nanoseconds. How a program runs is told in `simulated_runs`.

A thread that another one hands over to runs only then: its list is done once per hand-over while
the other one stands still, as PyTorch runs a backward pass on a thread of autograd. All other
threads run freely beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

CALL = 5_000
"""Time on the CPU of a call that enqueues a kernel or an asynchronous copy."""
GRAPH_CALL = 10_000
EVENT_CALL = 2_000
"""Time of cudaEventRecord and cudaStreamWaitEvent."""
SYNC = 3_000
"""Time of a synchronizing call that finds nothing to wait for."""


class Stream(NamedTuple):
    """A stream of a process. No two streams of a process have the same number."""

    number: int
    device: int


@dataclass(frozen=True, slots=True)
class Host:
    """The CPU works outside of CUDA."""

    ns: int


@dataclass(frozen=True, slots=True)
class Launch:
    """cudaLaunchKernel. `in_graph`: the kernel belongs to the launch before it; see `OneLaunch`."""

    name: str
    stream: Stream
    ns: int
    call_ns: int = CALL
    in_graph: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """cudaGraphLaunch of a chain of `count` kernels."""

    name: str
    stream: Stream
    count: int
    ns: int


@dataclass(frozen=True, slots=True)
class Upload:
    """cudaMemcpyAsync from pinned memory: does not block."""

    stream: Stream
    ns: int


@dataclass(frozen=True, slots=True)
class Readback:
    """cudaMemcpy from the device: blocks until the copy has ended."""

    stream: Stream
    ns: int


@dataclass(frozen=True, slots=True)
class SyncDevice:
    """cudaDeviceSynchronize: waits for all that the process enqueued on a device so far."""

    device: int
    waits: bool = True


@dataclass(frozen=True, slots=True)
class SyncStream:
    """cudaStreamSynchronize."""

    stream: Stream
    waits: bool = True


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """cudaEventSynchronize. An event that was not recorded yet has nothing to wait for."""

    event: str
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """cudaEventRecord: the event stands for the last operation that is on the stream now."""

    event: str
    stream: Stream


@dataclass(frozen=True, slots=True)
class Wait:
    """cudaStreamWaitEvent: what is enqueued next on the stream starts after the event."""

    stream: Stream
    event: str


@dataclass(frozen=True, slots=True)
class Allocate:
    """cudaMalloc: costs time of the CPU and waits for nothing."""

    ns: int


@dataclass(frozen=True, slots=True)
class Free:
    """cudaFree: costs time of the CPU and waits like SyncDevice."""

    device: int
    ns: int
    waits: bool = True


@dataclass(frozen=True, slots=True)
class HandOver:
    """Stand still until that thread of the process has done its list of actions."""

    thread: int


Synchronization = SyncDevice | SyncStream | SyncEvent
Action = (
    Host
    | Launch
    | Graph
    | Upload
    | Readback
    | Synchronization
    | Record
    | Wait
    | Allocate
    | Free
    | HandOver
)


def can_wait(action: Action) -> bool:
    """Whether a call may return only after work of the GPU has ended."""
    if isinstance(action, Synchronization | Free):
        return action.waits
    return isinstance(action, Readback)


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the CPU. One that others hand over to begins when it is first told to."""

    actions: tuple[Action, ...]
    begins_ns: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """The threads of each process. The first process has number 1, a first thread number 0.

    The first thread of each process marks its steps.
    """

    processes: tuple[tuple[Thread, ...], ...]
    steps: int

    def places(self) -> Iterator[tuple[Place, Action]]:
        """All actions of a step, and where they stand."""
        for process, threads in enumerate(self.processes, start=1):
            for number, thread in enumerate(threads):
                for index, action in enumerate(thread.actions):
                    yield Place(process, number, index), action


class Place(NamedTuple):
    """An action of a thread, the same one in every step."""

    process: int
    thread: int
    action: int


# Edits.


class KernelFactor(NamedTuple):
    """The kernels of this name take `factor` times as long, those of graphs too."""

    name: str
    factor: float


class HostFactor(NamedTuple):
    """This work of the CPU takes `factor` times as long."""

    place: Place
    factor: float


class WaitGone(NamedTuple):
    """This synchronization waits for nothing, and returns after SYNC."""

    place: Place


class CallGone(NamedTuple):
    """This cudaMalloc or cudaFree is made, but takes no time and waits for nothing."""

    place: Place


class OneLaunch(NamedTuple):
    """The launches of a step of the first thread, in each process, become one graph.

    The first of them keeps its time, the others take none, and so does the CPU's own work between
    the first and the last. A kernel starts when its stream lets it, but not before LATENCY after
    the call of the first, and not before the time at which its own call stood in the program.
    """


class Fused(NamedTuple):
    """Each chain of several kernels of these names is one kernel, of `factor` of their time.

    A chain is of launches of a thread that follow each other on their stream, up to where the
    thread waits; or the kernels of one graph. Its last launch stays, the others are not made. Where
    nothing but the CPU's own work and events stand between two of them, that goes, too: it was for
    them.
    """

    names: tuple[str, ...]
    factor: float


Edit = KernelFactor | HostFactor | WaitGone | CallGone | OneLaunch | Fused


def edited(program: Program, edits: Iterable[Edit]) -> Program:
    """The program with these changes, one after the other."""
    for edit in edits:
        program = _edited(program, edit)
    return program


def _edited(program: Program, edit: Edit) -> Program:
    match edit:
        case KernelFactor(name, factor):
            return _changed(program, lambda _, action: _scaled(action, name, factor))
        case HostFactor(place, factor):
            return _at(program, place, lambda action: _host_scaled(action, factor))
        case WaitGone(place):
            return _at(program, place, _without_wait)
        case CallGone(place):
            return _at(program, place, _without_call)
        case OneLaunch():
            return _with_one_launch(program)
        case Fused():
            return _fused(program, edit)


def _changed(program: Program, change: Callable[[Place, Action], Action]) -> Program:
    """The program with every action as `change` makes it."""
    actions = {place: change(place, action) for place, action in program.places()}
    processes = tuple(
        tuple(
            replace(thread, actions=tuple(actions[Place(process, t, i)] for i in range(count)))
            for t, thread in enumerate(threads)
            for count in [len(thread.actions)]
        )
        for process, threads in enumerate(program.processes, start=1)
    )
    return replace(program, processes=processes)


def _at(program: Program, place: Place, change: Callable[[Action], Action]) -> Program:
    if place not in dict(program.places()):
        raise ValueError(f"the program has no action at {place}")
    return _changed(program, lambda at, action: change(action) if at == place else action)


def _scaled(action: Action, name: str, factor: float) -> Action:
    if isinstance(action, Launch | Graph) and action.name == name:
        return replace(action, ns=round(action.ns * factor))
    return action


def _host_scaled(action: Action, factor: float) -> Action:
    if not isinstance(action, Host):
        raise ValueError(f"{action} is no work of the CPU")
    return Host(round(action.ns * factor))


def _without_wait(action: Action) -> Action:
    if not isinstance(action, Synchronization):
        raise ValueError(f"{action} is no synchronization")
    return replace(action, waits=False)


def _without_call(action: Action) -> Action:
    if isinstance(action, Allocate):
        return Allocate(0)
    if isinstance(action, Free):
        return replace(action, ns=0, waits=False)
    raise ValueError(f"{action} neither allocates nor frees")


def _launches(thread: Thread) -> list[int]:
    return [i for i, action in enumerate(thread.actions) if isinstance(action, Launch)]


def _with_one_launch(program: Program) -> Program:
    places = {p: _launches(threads[0]) for p, threads in enumerate(program.processes, start=1)}

    def change(place: Place, action: Action) -> Action:
        launches = places[place.process]
        if place.thread or not launches or not launches[0] < place.action <= launches[-1]:
            return action
        if isinstance(action, Launch):
            return replace(action, call_ns=0, in_graph=True)
        return Host(0) if isinstance(action, Host) else action

    return _changed(program, change)


def chains(actions: tuple[Action, ...], names: tuple[str, ...]) -> list[list[int]]:
    """The launches of each chain of kernels of these names, as indices of a thread's actions."""
    growing: dict[Stream, list[int]] = {}
    result: list[list[int]] = []
    for index, action in enumerate(actions):
        if can_wait(action) or isinstance(action, HandOver):
            growing.clear()
        elif isinstance(action, Launch) and action.name in names:
            if action.stream not in growing:
                growing[action.stream] = []
                result.append(growing[action.stream])
            growing[action.stream].append(index)
        elif isinstance(action, Launch | Graph | Upload):
            growing.pop(action.stream, None)
    return [chain for chain in result if len(chain) > 1]


def _fused(program: Program, edit: Fused) -> Program:
    processes = tuple(
        tuple(replace(each, actions=_with_fused(each.actions, edit)) for each in threads)
        for threads in program.processes
    )
    return replace(program, processes=processes)


def _with_fused(actions: tuple[Action, ...], edit: Fused) -> tuple[Action, ...]:
    """The actions of a thread; those that are not made are no work of the CPU."""
    result = list(actions)
    for chain in chains(actions, edit.names):
        launches = [action for index in chain if isinstance(action := actions[index], Launch)]
        ns = sum(round(each.ns * edit.factor) for each in launches)
        result[chain[-1]] = replace(launches[-1], ns=ns)
        for one, other in pairwise(chain):
            between = range(one + 1, other)
            alone = all(isinstance(actions[index], Host | Record) for index in between)
            for index in (one, *(between if alone else ())):
                result[index] = Host(0)
    for index, action in enumerate(actions):
        if isinstance(action, Graph) and action.name in edit.names and action.count > 1:
            ns = action.count * round(action.ns * edit.factor)
            result[index] = replace(action, count=1, ns=ns)
    return tuple(result)


def one_launch_fits(program: Program) -> bool:
    """Whether a real program could be changed so: nothing blocks between the launches of a step."""
    blocking = Synchronization | Readback | Free | HandOver
    for first, *_ in program.processes:
        launches = _launches(first)
        between = first.actions[launches[0] : launches[-1]] if launches else ()
        if any(isinstance(action, blocking) for action in between):
            return False
    return True


def possible_edits(program: Program, factor: float = 0.5) -> list[Edit]:
    """Every single edit that applies to the program, those by a factor with this one."""
    kernels = {a.name for _, a in program.places() if isinstance(a, Launch | Graph)}
    edits: list[Edit] = [KernelFactor(name, factor) for name in sorted(kernels)]
    for place, action in program.places():
        if isinstance(action, Host):
            edits.append(HostFactor(place, factor))
        elif isinstance(action, Synchronization):
            edits.append(WaitGone(place))
        elif isinstance(action, Allocate | Free):
            edits.append(CallGone(place))
    return [*edits, OneLaunch()]
