"""A plain simulator of programs on GPUs: the truth for models that only see the recording.

It runs a program of `simulated_programs` call by call and hides nothing: when each call and each
operation began and ended, what held an operation up, and what a call waited for. From that follow
who is to blame for each idle nanosecond of a GPU (`idle_parts`), what a recorder would have written
(`exported`), and what an edit of the program does (`simulate` with edits).

An operation starts as soon as it may: LATENCY after its call began, PITCH after the operation
before it on its stream ended, and PITCH after the events that its stream waits for. Streams share
nothing: operations of one device overlap freely. A call that blocks returns TAIL after the end of
what it waits for, but not before its own time on the CPU is over.

Calls are made in order of their begin, of the same time in order of process and thread. So all
that an operation or a call depends on is known when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.oracles.simulated_programs import (
    CALL,
    EVENT_CALL,
    GRAPH_CALL,
    SYNC,
    Action,
    Allocate,
    Edit,
    Free,
    Graph,
    HandOver,
    Host,
    Launch,
    Program,
    Readback,
    Record,
    Stream,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Thread,
    Upload,
    Wait,
    can_wait,
    edited,
)

LATENCY = 6_000
"""From the begin of a call to the start of its work on an idle stream."""
PITCH = 1_000
"""From the end of an operation to the start of what waits for it on the GPU."""
TAIL = 4_000
"""From the end of an operation to the return of a call that waits for it."""
WAKE = 2_000
"""From the end of what a thread did to the begin of what another one, woken by it, does."""


API: dict[type[Action], str] = {
    Launch: "cudaLaunchKernel",
    Graph: "cudaGraphLaunch",
    Upload: "cudaMemcpyAsync",
    Readback: "cudaMemcpy",
    SyncDevice: "cudaDeviceSynchronize",
    SyncStream: "cudaStreamSynchronize",
    SyncEvent: "cudaEventSynchronize",
    Record: "cudaEventRecord",
    Wait: "cudaStreamWaitEvent",
    Allocate: "cudaMalloc",
    Free: "cudaFree",
}


class Occurrence(NamedTuple):
    """A point in the course of a program, which its edits do not move.

    `flow` is the number of a thread that runs freely, and `item` counts what it does, with all
    that the threads do which it hands over to.
    """

    process: int
    flow: int
    item: int


class Hold(NamedTuple):
    """What held an operation up until `ns`: a call (`is_call`) or an operation, by its number."""

    ns: int
    is_call: bool
    number: int


@dataclass(frozen=True, slots=True)
class Operation:
    """A kernel or a copy. `call` is the number of its call, `node` its place in a graph.

    `waits` are the operations that its stream had been told to wait for, `before` is the one
    before it on its stream.
    """

    number: int
    process: int
    stream: Stream
    name: str
    start: int
    end: int
    call: int
    node: int
    hold: Hold
    before: int | None
    waits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the CUDA runtime.

    `waits` are the operations that it waits for, the last one on each stream, and `held` is the
    one whose end decided when it returned, absent where its own time on the CPU did.
    """

    number: int
    place: Occurrence
    action: Action
    thread: int
    name: str
    start: int
    end: int
    waits: tuple[int, ...]
    held: int | None

    @property
    def process(self) -> int:
        return self.place.process


class Segment(NamedTuple):
    """What a flow did at one of its places: a call, work of the host, or the wake of a thread."""

    thread: int
    step: int
    start: int
    end: int
    call: int | None
    is_wake: bool


@dataclass(frozen=True)
class Run:
    """All that happened: calls in the order of their begin, operations in that of their calls.

    `flows` has what each free thread did, by its process and number, without a gap.
    """

    program: Program
    calls: list[Call]
    operations: list[Operation]
    flows: dict[tuple[int, int], list[Segment]]

    def steps(self, process: int = 1) -> list[tuple[int, int]]:
        """Begin and end of the steps, as the first thread of a process marks them."""
        flow = self.flows[process, 0]
        spans = []
        for step in range(self.program.steps):
            times = [each for each in flow if each.step == step]
            spans.append((times[0].start, times[-1].end))
        return spans

    def step_ends_ns(self, process: int = 1) -> list[int]:
        """When all work that the process had enqueued by the end of each step had ended.

        0 for a step before the first operation.
        """
        own = [each for each in self.operations if each.process == process]
        return [
            max((each.end for each in own if self.calls[each.call].start < end), default=0)
            for _, end in self.steps(process)
        ]

    @property
    def end_ns(self) -> int:
        """The end of the last operation or of the last thread."""
        threads = [flow[-1].end for flow in self.flows.values() if flow]
        return max([*threads, *(each.end for each in self.operations)], default=0)


class _Item(NamedTuple):
    """What a flow does next; a wake has no action."""

    thread: int
    step: int
    action: Action | None


@dataclass
class _Flow:
    process: int
    number: int
    now: int
    items: list[_Item]
    done: list[Segment] = field(default_factory=list)


def simulate(program: Program, edits: Iterable[Edit] = ()) -> Run:
    """Run the program, with these changes."""
    program = edited(program, edits)
    simulation = _Simulation(program)
    while waiting := [each for each in simulation.flows if len(each.done) < len(each.items)]:
        simulation.advance(min(waiting, key=lambda each: (each.now, each.process, each.number)))
    flows = {(each.process, each.number): each.done for each in simulation.flows}
    return Run(program, simulation.calls, simulation.operations, flows)


def _flows(program: Program) -> Iterator[_Flow]:
    for process, threads in enumerate(program.processes, start=1):
        actions = [action for thread in threads for action in thread.actions]
        led = {action.thread for action in actions if isinstance(action, HandOver)}
        for number, thread in enumerate(threads):
            if number not in led:
                steps = range(program.steps)
                items = [each for step in steps for each in _items(threads, number, step)]
                yield _Flow(process, number, thread.begins_ns, items)


def _items(threads: tuple[Thread, ...], number: int, step: int) -> Iterator[_Item]:
    """What a thread does in a step, with all that the threads do which it hands over to."""
    for action in threads[number].actions:
        if isinstance(action, HandOver):
            yield _Item(action.thread, step, None)
            yield from _items(threads, action.thread, step)
            yield _Item(number, step, None)
        else:
            yield _Item(number, step, action)


def _cpu_ns(action: Action) -> int:
    """How long a call takes that does not wait. A readback only waits."""
    match action:
        case Launch():
            return action.call_ns
        case Allocate() | Free():
            return action.ns
        case Graph():
            return GRAPH_CALL
        case Upload():
            return CALL
        case Record() | Wait():
            return EVENT_CALL
    return 0 if isinstance(action, Readback) else SYNC


class _Simulation:
    """The state of a run: what was called and enqueued so far."""

    def __init__(self, program: Program) -> None:
        self.flows = list(_flows(program))
        self.calls: list[Call] = []
        self.operations: list[Operation] = []
        # By process and stream: the last operation, and those to wait for before the next one.
        self.last: dict[tuple[int, Stream], int] = {}
        self.told_to_wait: dict[tuple[int, Stream], set[int]] = {}
        # By process and name: the operation that an event stands for.
        self.events: dict[tuple[int, str], int | None] = {}
        # By process and thread: the last launch that was a call of its own.
        self.launch: dict[tuple[int, int], int] = {}

    def advance(self, flow: _Flow) -> None:
        """Do the next item of a flow."""
        item = flow.items[len(flow.done)]
        begin, call = flow.now, None
        if item.action is None:
            flow.now += WAKE
        elif isinstance(item.action, Host):
            flow.now += item.action.ns
        else:
            call = len(self.calls)
            self.make_call(flow, item, item.action)
            flow.now = self.calls[call].end
        is_wake = item.action is None
        flow.done.append(Segment(item.thread, item.step, begin, flow.now, call, is_wake))

    def make_call(self, flow: _Flow, item: _Item, action: Action) -> None:
        """Make a call: enqueue its work, wait, and note when it returned."""
        self.enqueue_work(flow, item, action)
        self.use_event(flow.process, action)
        end, held = flow.now + _cpu_ns(action), None
        work = self.waited_for(flow.process, action)
        waits = tuple(sorted(number for number in work if number is not None))
        for number in waits:
            if self.operations[number].end + TAIL > end:
                end, held = self.operations[number].end + TAIL, number
        place = Occurrence(flow.process, flow.number, len(flow.done))
        what = (action, item.thread, API[type(action)], flow.now, end)
        self.calls.append(Call(len(self.calls), place, *what, waits, held))

    def enqueue_work(self, flow: _Flow, item: _Item, action: Action) -> None:
        process, number = flow.process, len(self.calls)
        now = Hold(flow.now + LATENCY, True, number)
        match action:
            case Launch(name, stream, ns, _, True):
                launched = self.in_graph(flow, self.launch[process, item.thread])
                self.enqueue(process, stream, name, [ns], launched)
            case Launch(name, stream, ns):
                self.launch[process, item.thread] = number
                self.enqueue(process, stream, name, [ns], now)
            case Graph(name, stream, count, ns):
                self.enqueue(process, stream, name, [ns] * count, now)
            case Upload(stream, ns):
                self.enqueue(process, stream, "H2D", [ns], now)
            case Readback(stream, ns):
                self.enqueue(process, stream, "D2H", [ns], now)

    def use_event(self, process: int, action: Action) -> None:
        match action:
            case Record(event, stream):
                self.events[process, event] = self.last.get((process, stream))
            case Wait(stream, event):
                work = self.events.get((process, event))
                if work is not None:
                    self.told_to_wait.setdefault((process, stream), set()).add(work)

    def waited_for(self, process: int, action: Action) -> list[int | None]:
        """The operations that a call waits for: the last one on each stream that it waits for."""
        if not can_wait(action):
            return []
        match action:
            case Readback(stream) | SyncStream(stream):
                return [self.last.get((process, stream))]
            case SyncEvent(event):
                return [self.events.get((process, event))]
            case SyncDevice(device) | Free(device):
                own = [key for key in self.last if key[0] == process and key[1].device == device]
                return [self.last[key] for key in own]
        raise TypeError(f"{action} does not wait")

    def in_graph(self, flow: _Flow, graph: int) -> Hold:
        """What holds up a kernel of a graph: its launch, or the program did not come so far."""
        launched = Hold(self.calls[graph].start + LATENCY, True, graph)
        return max(launched, Hold(flow.now, True, len(self.calls)), key=lambda hold: hold.ns)

    def enqueue(
        self, process: int, stream: Stream, name: str, times: list[int], launched: Hold
    ) -> None:
        """Put operations of the next call on a stream, one behind the other."""
        for node, ns in enumerate(times):
            number = len(self.operations)
            before = self.last.get((process, stream))
            waits = tuple(sorted(self.told_to_wait.pop((process, stream), ())))
            # Of several that hold it up until the same time the first counts.
            holds = [launched] if node == 0 else []
            own_device_first = sorted(
                waits, key=lambda each: self.operations[each].stream.device != stream.device
            )
            for each in [before, *own_device_first] if before is not None else own_device_first:
                holds.append(Hold(self.operations[each].end + PITCH, False, each))
            hold = max(holds, key=lambda hold: hold.ns)
            span = (hold.ns, hold.ns + ns)
            known = (number, process, stream, name, *span, len(self.calls), node)
            self.operations.append(Operation(*known, hold, before, waits))
            self.last[process, stream] = number


def same_order(one: Run, other: Run) -> bool:
    """Whether both runs of a program, edited or not, had the same waits for the same operations.

    Threads that run freely may overtake each other after an edit, so that an event or a
    synchronization stands for other work. A synchronization that an edit took away says nothing.
    """

    def key(run: Run, number: int | None) -> tuple[Occurrence, int] | None:
        if number is None:
            return None
        return run.calls[run.operations[number].call].place, run.operations[number].node

    def on_gpu(run: Run) -> dict[object, object]:
        return {
            key(run, each.number): (key(run, each.before), {key(run, w) for w in each.waits})
            for each in run.operations
        }

    def on_cpu(run: Run) -> dict[Occurrence, set[object]]:
        return {
            each.place: {key(run, w) for w in each.waits}
            for each in run.calls
            if can_wait(each.action)
        }

    first, second = on_cpu(one), on_cpu(other)
    return on_gpu(one) == on_gpu(other) and all(
        first[place] == second[place] for place in first.keys() & second.keys()
    )
