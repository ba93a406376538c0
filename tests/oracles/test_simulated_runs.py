"""The plain simulator of programs: against runs computed by hand, and against itself."""

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.oracles.simulated_blame import KINDS, idle_parts
from tests.oracles.simulated_programs import (
    Action,
    Allocate,
    CallGone,
    Edit,
    Free,
    Fused,
    Graph,
    HandOver,
    Host,
    HostFactor,
    KernelFactor,
    Launch,
    OneLaunch,
    Place,
    Program,
    Readback,
    Record,
    Stream,
    SyncDevice,
    SyncStream,
    Thread,
    Upload,
    Wait,
    WaitGone,
    edited,
    one_launch_fits,
    possible_edits,
)
from tests.oracles.simulated_recordings import PROGRAMS, exported
from tests.oracles.simulated_runs import Run, same_order, simulate
from traceview.traces.trace import Trace

FIRST, SECOND, OTHER_GPU = Stream(7, 0), Stream(13, 0), Stream(19, 1)
Parts = list[tuple[int, int, str, str]]


def program(*threads: tuple[Action, ...], steps: int = 1) -> Program:
    """A program of one process."""
    return Program((tuple(Thread(actions) for actions in threads),), steps)


def calls(run: Run) -> list[tuple[str, int, int]]:
    return [(each.name, each.start, each.end) for each in run.calls]


def operations(run: Run) -> list[tuple[str, int, int]]:
    return [(each.name, each.start, each.end) for each in run.operations]


def blamed(run: Run) -> dict[int, list[Parts]]:
    """The parts of the idle times of each device."""
    found: dict[int, list[Parts]] = {}
    for idle in idle_parts(run):
        parts = [(part.start, part.end, part.kind, part.what) for part in idle.parts]
        found.setdefault(idle.device, []).append(parts)
    return found


# A loop that launches a kernel and waits for it.

LOOP = program((Host(10_000), Launch("k0", FIRST, 3_000), SyncDevice(0)), steps=2)


def test_a_loop_with_a_wait_by_hand() -> None:
    run = simulate(LOOP)
    assert calls(run) == [
        ("cudaLaunchKernel", 10_000, 15_000),
        ("cudaDeviceSynchronize", 15_000, 23_000),
        ("cudaLaunchKernel", 33_000, 38_000),
        ("cudaDeviceSynchronize", 38_000, 46_000),
    ]
    assert operations(run) == [("k0", 16_000, 19_000), ("k0", 39_000, 42_000)]
    assert run.steps() == [(0, 23_000), (23_000, 46_000)]
    assert (run.step_ends_ns(), run.end_ns) == ([19_000, 42_000], 46_000)
    tail = (19_000, 23_000, "tail", "cudaDeviceSynchronize")
    launch = (33_000, 39_000, "launch", "cudaLaunchKernel")
    assert blamed(run) == {0: [[tail, (23_000, 33_000, "host", ""), launch]]}


@pytest.mark.parametrize(
    ("edit", "kernels", "step_ends", "end"),
    [
        # The call returns 3 µs after its begin at 15 and 33 µs; the second launch is at 28 µs.
        (WaitGone(Place(1, 0, 2)), [(16, 19), (34, 37)], [19, 37], 36 + 1),
        # The first wait ends at 17 + 4 µs, the second launch is at 31 µs.
        (KernelFactor("k0", 1 / 3), [(16, 17), (37, 38)], [17, 38], 38 + 4),
        # The first launch is at 5 µs, the wait ends at 14 + 4 µs, the second launch is at 23 µs.
        (HostFactor(Place(1, 0, 0), 0.5), [(11, 14), (29, 32)], [14, 32], 32 + 4),
    ],
)
def test_edits_of_the_loop_by_hand(
    edit: Edit, kernels: list[tuple[int, int]], step_ends: list[int], end: int
) -> None:
    run = simulate(LOOP, [edit])
    assert operations(run) == [("k0", 1_000 * begin, 1_000 * end) for begin, end in kernels]
    assert run.step_ends_ns() == [1_000 * each for each in step_ends]
    assert run.end_ns == 1_000 * end


def test_a_wait_that_is_gone_is_a_call_by_hand() -> None:
    parts = [(19_000, 28_000, "host", ""), (28_000, 34_000, "launch", "cudaLaunchKernel")]
    assert blamed(simulate(LOOP, [WaitGone(Place(1, 0, 2))])) == {0: [parts]}


# Two GPUs of a process.


def test_a_stream_waits_for_another_gpu_by_hand() -> None:
    run = simulate(
        program(
            (
                Launch("k0", FIRST, 2_000),
                Launch("k1", OTHER_GPU, 30_000),
                *(Record("a", OTHER_GPU), Wait(FIRST, "a")),
                Launch("k2", FIRST, 1_000),
            )
        )
    )
    assert operations(run) == [
        ("k0", 6_000, 8_000),
        ("k1", 11_000, 41_000),
        ("k2", 42_000, 43_000),
    ]
    assert calls(run)[2:4] == [
        ("cudaEventRecord", 10_000, 12_000),
        ("cudaStreamWaitEvent", 12_000, 14_000),
    ]
    # k1 was launched at 5 µs, when the first GPU still worked.
    launch = (8_000, 11_000, "launch", "cudaLaunchKernel")
    assert blamed(run) == {0: [[launch, (11_000, 42_000, "other-device", "k1")]]}
    # The step ended on the CPU at 19 µs, with all launched.
    assert (run.step_ends_ns(), run.end_ns) == ([43_000], 43_000)


def test_a_thread_waits_for_another_gpu_by_hand() -> None:
    run = simulate(
        program(
            (
                Launch("k1", OTHER_GPU, 9_000),
                Upload(OTHER_GPU, 20_000),
                Launch("k0", FIRST, 500),
                SyncStream(OTHER_GPU),
                Launch("k0", FIRST, 500),
            )
        )
    )
    assert operations(run) == [
        ("k1", 6_000, 15_000),
        ("H2D", 16_000, 36_000),
        ("k0", 16_000, 16_500),
        ("k0", 46_000, 46_500),
    ]
    assert blamed(run) == {
        0: [
            [
                (16_500, 36_000, "other-device", "H2D"),
                (36_000, 40_000, "tail", "cudaStreamSynchronize"),
                (40_000, 46_000, "launch", "cudaLaunchKernel"),
            ]
        ],
        1: [[(15_000, 16_000, "pitch", "k1")]],
    }


# A thread that does what another one hands over to it.

BACKWARD = program(
    (Launch("k0", FIRST, 500), HandOver(1), Readback(FIRST, 2_000)),
    (Allocate(7_000), Graph("k1", FIRST, 2, 3_000)),
)


def test_a_hand_over_by_hand() -> None:
    run = simulate(BACKWARD)
    assert [(each.thread, *call) for each, call in zip(run.calls, calls(run), strict=True)] == [
        (0, "cudaLaunchKernel", 0, 5_000),
        (1, "cudaMalloc", 7_000, 14_000),
        (1, "cudaGraphLaunch", 14_000, 24_000),
        (0, "cudaMemcpy", 26_000, 38_000),
    ]
    assert operations(run) == [
        ("k0", 6_000, 6_500),
        ("k1", 20_000, 23_000),
        ("k1", 24_000, 27_000),
        ("D2H", 32_000, 34_000),
    ]
    wake, malloc = (6_500, 7_000, "wake", ""), (7_000, 14_000, "call", "cudaMalloc")
    graph = (14_000, 20_000, "launch", "cudaGraphLaunch")
    readback = (27_000, 32_000, "launch", "cudaMemcpy")
    pitch = (23_000, 24_000, "pitch", "k1")
    assert blamed(run) == {0: [[wake, malloc, graph], [pitch], [readback]]}
    assert (run.step_ends_ns(), run.end_ns) == ([34_000], 38_000)


def test_an_allocation_that_is_gone_by_hand() -> None:
    run = simulate(BACKWARD, [CallGone(Place(1, 1, 0))])
    assert calls(run)[1:] == [
        ("cudaMalloc", 7_000, 7_000),
        ("cudaGraphLaunch", 7_000, 17_000),
        ("cudaMemcpy", 19_000, 31_000),
    ]
    assert (run.step_ends_ns(), run.end_ns) == ([27_000], 31_000)


def test_a_free_waits_by_hand() -> None:
    freeing = program((Launch("k0", FIRST, 20_000), Free(0, 9_000)))
    assert calls(simulate(freeing))[1] == ("cudaFree", 5_000, 30_000)
    assert calls(simulate(freeing, [CallGone(Place(1, 0, 1))]))[1] == ("cudaFree", 5_000, 5_000)
    short = edited(freeing, [KernelFactor("k0", 0.1)])
    assert calls(simulate(short))[1] == ("cudaFree", 5_000, 14_000)


def test_free_threads_run_beside_each_other_by_hand() -> None:
    """A device-wide wait includes what the other thread launched by then, and no more."""
    run = simulate(
        program(
            (Host(7_000), SyncDevice(0)),
            (Launch("k0", SECOND, 5_000), Host(3_000), Launch("k1", SECOND, 90_000)),
        )
    )
    assert calls(run) == [
        ("cudaLaunchKernel", 0, 5_000),
        ("cudaDeviceSynchronize", 7_000, 15_000),
        ("cudaLaunchKernel", 8_000, 13_000),
    ]
    assert operations(run) == [("k0", 6_000, 11_000), ("k1", 14_000, 104_000)]
    assert run.step_ends_ns() == [104_000]
    assert blamed(run) == {0: [[(11_000, 14_000, "launch", "cudaLaunchKernel")]]}


def test_one_launch_by_hand() -> None:
    several = program(
        (
            *(Launch("k0", FIRST, 1_000), Host(8_000)),
            *(Launch("k1", FIRST, 1_000), Launch("k2", SECOND, 1_000)),
            Host(2_000),
        )
    )
    run = simulate(several)
    assert operations(run) == [
        ("k0", 6_000, 7_000),
        ("k1", 19_000, 20_000),
        ("k2", 24_000, 25_000),
    ]
    assert run.end_ns == 25_000
    run = simulate(several, [OneLaunch()])
    assert operations(run) == [("k0", 6_000, 7_000), ("k1", 8_000, 9_000), ("k2", 6_000, 7_000)]
    assert calls(run)[1:] == [("cudaLaunchKernel", 5_000, 5_000)] * 2
    # The work of the CPU behind the last launch remains.
    assert run.steps() == [(0, 7_000)]


def test_chains_become_one_kernel_by_hand() -> None:
    """The last of three stays, what stands between two of them goes, and k3 belongs to none."""
    several = program(
        (
            *(Launch("k0", FIRST, 1_000), Host(8_000), Launch("k1", FIRST, 3_000), Host(2_000)),
            *(Launch("k3", SECOND, 1_000), Host(4_000), Launch("k0", FIRST, 2_000)),
            *(Graph("k1", FIRST, 2, 1_000), SyncDevice(0), Launch("k1", FIRST, 1_000)),
        )
    )
    run = simulate(several, [Fused(("k0", "k1"), 0.5)])
    assert calls(run) == [
        ("cudaLaunchKernel", 2_000, 7_000),
        ("cudaLaunchKernel", 11_000, 16_000),
        ("cudaGraphLaunch", 16_000, 26_000),
        ("cudaDeviceSynchronize", 26_000, 29_000),
        ("cudaLaunchKernel", 29_000, 34_000),
    ]
    assert operations(run) == [
        ("k3", 8_000, 9_000),
        ("k0", 17_000, 20_000),
        ("k1", 22_000, 23_000),
        ("k1", 35_000, 36_000),
    ]


def test_one_launch_fits_where_nothing_blocks() -> None:
    launch = Launch("k0", FIRST, 1_000)
    assert one_launch_fits(program((SyncDevice(0), launch, Host(1), launch, SyncDevice(0))))
    assert not one_launch_fits(program((launch, SyncDevice(0), launch)))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (WaitGone(Place(1, 0, 0)), "is no synchronization"),
        (HostFactor(Place(1, 0, 1), 2), "is no work of the CPU"),
        (CallGone(Place(1, 0, 1)), "neither allocates nor frees"),
        (CallGone(Place(1, 0, 7)), "has no action at"),
    ],
)
def test_an_edit_of_another_action_is_an_error(edit: Edit, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        edited(LOOP, [edit])


# Random programs.


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(PROGRAMS)
def test_the_parts_of_an_idle_time_fill_it(program: Program) -> None:
    run = simulate(program)
    own: dict[int, list[tuple[int, int]]] = {device: [] for device in range(3)}
    for each in run.operations:
        own[each.stream.device].append((each.start, each.end))
    lasted = dict.fromkeys(own, 0)
    for idle in idle_parts(run):
        assert sum(part.end - part.start for part in idle.parts) == idle.end - idle.start
        assert {part.kind for part in idle.parts} <= set(KINDS)
        assert not any(begin < idle.end and end > idle.start for begin, end in own[idle.device])
        lasted[idle.device] += idle.end - idle.start
    for device, spans in own.items():
        times = sorted({time for span in spans for time in span})
        busy = sum(b - a for a, b in pairwise(times) if any(s <= a and b <= e for s, e in spans))
        whole = times[-1] - times[0] if times else 0
        assert lasted[device] == whole - busy


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(PROGRAMS)
def test_an_edit_by_factor_one_changes_nothing(program: Program) -> None:
    run = simulate(program)
    assert run == simulate(program)
    for edit in possible_edits(program, factor=1):
        if isinstance(edit, KernelFactor | HostFactor):
            assert edited(program, [edit]) == program
            assert simulate(program, [edit]) == run


def ends(run: Run) -> dict[object, int]:
    """When each call and each operation ended, by its place in the program."""
    found: dict[object, int] = {call.place: call.end for call in run.calls}
    for each in run.operations:
        found[run.calls[each.call].place, each.node] = each.end
    return found


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(PROGRAMS)
def test_what_every_edit_does(program: Program) -> None:
    """Where all waits stay the same nothing ends later; parts fill the edited run, too."""
    run = simulate(program)
    for edit in possible_edits(program):
        after = simulate(program, [edit])
        idle_parts(after)
        assert len(after.calls) == len(run.calls)
        assert len(after.operations) == len(run.operations)
        if same_order(run, after):
            before, now = ends(run), ends(after)
            assert all(now[place] <= before[place] for place in before)


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(PROGRAMS)
def test_a_run_obeys_its_rules(program: Program) -> None:
    """Work starts as soon as it may; a call that waits returns behind it; threads call in turn."""
    run = simulate(program)
    last: dict[object, int] = {}
    for operation in run.operations:
        stream = operation.process, operation.stream
        after = [run.operations[number].end + 1_000 for number in operation.waits]
        if stream in last:
            after.append(last[stream] + 1_000)
        if operation.node == 0:
            after.append(run.calls[operation.call].start + 6_000)
        assert operation.start == max(after)
        last[stream] = operation.end
    for call in run.calls:
        thread = call.process, call.thread
        assert call.start >= last.get(thread, 0)
        assert all(call.end >= run.operations[w].end + 4_000 for w in call.waits)
        last[thread] = call.end


def rows(trace: Trace, table: str, *columns: str) -> Counter[tuple[object, ...]]:
    cells = [trace.tables[table].cells(column) for column in columns]
    return Counter(zip(*cells, strict=True))


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(PROGRAMS)
def test_the_export_has_what_happened(program: Program) -> None:
    run = simulate(program)
    with tempfile.TemporaryDirectory() as folder:
        trace = exported(run).load(Path(folder))
    assert not trace.warnings
    assert rows(trace, "api_calls", "name", "start_ns", "end_ns") == Counter(calls(run))
    kernels = Counter(each for each in operations(run) if each[0].startswith("k"))
    copies = Counter(each for each in operations(run) if not each[0].startswith("k"))
    assert rows(trace, "kernels", "name", "start_ns", "end_ns") == kernels
    assert rows(trace, "copies", "direction", "start_ns", "end_ns") == copies
    processes = range(1, len(program.processes) + 1)
    steps = Counter(("step", *span) for process in processes for span in run.steps(process))
    assert rows(trace, "ranges", "name", "start_ns", "end_ns") == steps
    kinds = {
        "cudaDeviceSynchronize": "context",
        "cudaStreamSynchronize": "stream",
        "cudaEventSynchronize": "event",
        "cudaStreamWaitEvent": "stream-wait-event",
    }
    waits = Counter((kinds[name], *span) for name, *span in calls(run) if name in kinds)
    assert rows(trace, "synchronizations", "kind", "start_ns", "end_ns") == waits
