"""Random programs for the simulator, and the recording of a run as an nsys export.

Threads that run freely have streams of their own. An event is recorded by one of them, or by the
first thread and those it hands over to, and waited for by all. A wait on the GPU is at once
followed by a launch on its stream, so that no event or synchronization of that stream meets a
wait without an operation behind it. Times are multiples of 100 ns and no two threads begin in
the same one, so that two threads rarely call at once.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.build import Export
from tests.oracles.simulated_programs import (
    Action,
    Allocate,
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
)
from tests.oracles.simulated_runs import Call, Operation, Run

EVENTS, FREE_EVENTS = ("a", "b"), ("c",)
KERNEL_NAMES = st.sampled_from(("k0", "k1", "k2", "k3"))
WORK = st.integers(10, 800).map(lambda hundreds: hundreds * 100)
HOST_WORK = st.integers(1, 600).map(lambda hundreds: hundreds * 100)
CALL_WORK = st.integers(1, 200).map(lambda hundreds: hundreds * 100)


def _actions(streams: list[Stream], events: tuple[str, ...]) -> st.SearchStrategy[list[Action]]:
    """A few actions of a thread that belong together."""
    stream = st.sampled_from(streams)
    device = st.sampled_from(sorted({stream.device for stream in streams}))
    launch = st.builds(Launch, KERNEL_NAMES, stream, WORK)
    waited = st.sampled_from(EVENTS + FREE_EVENTS)
    single: list[st.SearchStrategy[Action]] = [
        *(launch, launch, launch),
        *(st.builds(Host, HOST_WORK), st.builds(Host, HOST_WORK)),
        st.builds(Graph, KERNEL_NAMES, stream, st.integers(1, 4), WORK),
        st.builds(Upload, stream, WORK),
        st.builds(Readback, stream, WORK),
        st.builds(SyncDevice, device),
        st.builds(SyncStream, stream),
        st.builds(SyncEvent, waited),
        st.builds(Record, st.sampled_from(events), stream),
        st.builds(Allocate, CALL_WORK),
        st.builds(Free, device, CALL_WORK),
    ]

    def waiting(behind: Launch, names: list[str]) -> list[Action]:
        return [*(Wait(behind.stream, name) for name in names), behind]

    several = st.builds(waiting, launch, st.lists(waited, min_size=1, max_size=2, unique=True))
    return st.one_of(*(each.map(lambda action: [action]) for each in single), several, several)


@st.composite
def _process(draw: st.DrawFn, process: int, devices: tuple[int, ...]) -> tuple[Thread, ...]:
    def actions(streams: list[Stream], events: tuple[str, ...]) -> list[Action]:
        groups = draw(st.lists(_actions(streams, events), min_size=1, max_size=6))
        return [action for group in groups for action in group]

    streams = [Stream(7 + 6 * i, device) for i, device in enumerate(devices * 2)]
    lists = [actions(streams, EVENTS)]
    for number in range(1, draw(st.integers(1, 3))):
        if draw(st.booleans()):
            lists[0].insert(draw(st.integers(0, len(lists[0]))), HandOver(number))
            lists.append(actions(streams, EVENTS))
        else:
            own = Stream(40 + number, draw(st.sampled_from(devices)))
            lists.append(actions([own], FREE_EVENTS))
    begins = [30 * process + 10 * number for number in range(len(lists))]
    return tuple(Thread(tuple(each), at) for each, at in zip(lists, begins, strict=True))


@st.composite
def _programs(draw: st.DrawFn) -> Program:
    layout = draw(st.sampled_from((((0,),), ((0, 1),), ((0,), (1,)), ((0, 1), (2,)))))
    processes = [draw(_process(number, devices)) for number, devices in enumerate(layout, start=1)]
    return Program(tuple(processes), draw(st.integers(3, 6)))


PROGRAMS = _programs()


@st.composite
def _chains(draw: st.DrawFn) -> Program:
    """A thread that launches many kernels one after the other, on two streams."""
    first, second = Stream(7, 0), Stream(13, 0)
    launch = st.builds(Launch, KERNEL_NAMES, st.sampled_from((first, first, first, second)), WORK)
    other = st.one_of(
        st.builds(Host, HOST_WORK),
        st.builds(Record, st.sampled_from(EVENTS), st.just(first)),
        st.builds(Graph, KERNEL_NAMES, st.just(first), st.integers(1, 4), WORK),
        st.builds(Upload, st.just(second), WORK),
        st.builds(Readback, st.just(first), WORK),
        st.builds(SyncStream, st.just(first)),
        st.builds(Allocate, CALL_WORK),
    )
    host = st.builds(Host, HOST_WORK)
    actions = draw(st.lists(st.one_of(launch, launch, host, host, other), min_size=4, max_size=14))
    return Program(((Thread(tuple(actions)),),), draw(st.integers(3, 6)))


CHAINS = _chains()


VERSIONS = {"cudaLaunchKernel": "v7000", "cudaGraphLaunch": "v10000"}
"""What nsys appends to the names of calls, where it is not v3020."""
NOTHING = 0xFFFFFFFF
"""CUPTI's number where a synchronization has no stream or no event."""


def exported(run: Run) -> Export:
    """What nsys would have recorded: calls, operations, synchronizations and the steps' ranges.

    Graphs are recorded node by node. What happens outside of CUDA is not recorded.
    """
    export = Export()
    for process in range(1, len(run.program.processes) + 1):
        for begin, end in run.steps(process):
            export.range("step", begin, end, process=process, thread=0)
    actions = [action for _, action in run.program.places()]
    names = {each.event for each in actions if isinstance(each, SyncEvent | Wait)}
    events = {name: number for number, name in enumerate(sorted(names), start=1)}
    for call in run.calls:
        work = [each for each in run.operations if each.call == call.number]
        _write(export, call, work, events)
    return export


def _write(export: Export, call: Call, operations: list[Operation], events: dict[str, int]) -> None:
    api = f"{call.name}_{VERSIONS.get(call.name, 'v3020')}"
    span = call.start, call.end
    caller: dict[str, Any] = {"process": call.process, "thread": call.thread}
    work = [(each.start, each.end) for each in operations]
    match call.action:
        case Launch(name, stream):
            export.launch(span, work[0], name=name, api=api, **caller, **_on(stream))
        case Graph(name, stream):
            export.graph_launch(span, work, name=name, **caller, **_on(stream))
        case Upload(stream):
            where = {**caller, **_on(stream), "source": "pinned", "api": api}
            export.copy(span, work[0], kind="H2D", **where)
        case Readback(stream):
            where = {**caller, **_on(stream), "source": "device", "destination": "pageable"}
            export.copy(span, work[0], kind="D2H", api=api, **where)
        case SyncDevice(device):
            where = {**caller, "device": device, "stream": NOTHING, "event": NOTHING}
            export.sync(api, *span, sync_type="context", **where)
        case SyncStream(stream):
            where = {**caller, **_on(stream), "event": NOTHING}
            export.sync(api, *span, sync_type="stream", **where)
        case SyncEvent(event):
            where = {**caller, "stream": NOTHING, "event": events[event]}
            export.sync(api, *span, sync_type="event", **where)
        case Wait(stream, event):
            where = {**caller, **_on(stream), "event": events[event]}
            export.sync(api, *span, sync_type="stream-wait-event", **where)
        case _:
            export.call(api, *span, **caller)


def _on(stream: Stream) -> dict[str, int]:
    return {"stream": stream.number, "device": stream.device}
