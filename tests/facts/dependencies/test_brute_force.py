"""The graph of random programs against a simulator that hides nothing.

Where all is recorded, parts of idle time and the effect of edits are exact. Which event a stream
waited for, and that threads hand over to each other, recorders do not hold: it is inferred, and
right for most.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.oracles import simulated_programs as programs
from tests.oracles.simulated_blame import idle_parts as true_parts
from tests.oracles.simulated_recordings import CHAINS, PROGRAMS, exported
from tests.oracles.simulated_runs import Run, same_order, simulate
from traceview.base.errors import InputError
from traceview.traces.edits import gpu_work
from traceview.traces.edits.requests import request
from traceview.traces.edits.scope import EditScope
from traceview.traces.facts.dependencies.blame import IdlePart
from traceview.traces.facts.dependencies.graph import Dependencies
from traceview.traces.facts.dependencies.recorded_graph import dependencies
from traceview.traces.facts.dependencies.replay import Changed, Edit, replay
from traceview.traces.facts.forecast import Model
from traceview.traces.facts.idle.causes import idle_parts
from traceview.traces.facts.idle.gap_bounds import gap_bounds
from traceview.traces.facts.operations import Kind, operations
from traceview.traces.trace import Trace

KINDS = {
    "launch": IdlePart.LAUNCH,
    "call": IdlePart.CALL,
    "host": IdlePart.HOST,
    "tail": IdlePart.TAIL,
    "wake": IdlePart.WAKE,
    "pitch": IdlePart.PITCH,
    "other-device": IdlePart.OTHER,
}
GUESSED = (programs.HandOver, programs.Wait, programs.SyncEvent, programs.Free)
"""A cudaFree that waits does not show what it costs by itself."""
RANDOM = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def actions(program: programs.Program) -> list[Any]:
    return [
        action for process in program.processes for thread in process for action in thread.actions
    ]


def is_recorded(program: programs.Program) -> bool:
    """Whether a recording holds all that the program waits for.

    It holds neither when a second thread began nor which GPU a cudaFree is for.
    """
    for process in program.processes:
        streams = {
            action.stream.device
            for thread in process
            for action in thread.actions
            if hasattr(action, "stream")
        }
        if len(process) > 1 or len(streams) > 1:
            return False
    return not any(isinstance(action, GUESSED) for action in actions(program))


def joined(parts: Any) -> list[tuple[int, int, int]]:
    """Parts in order of time, neighbours of one kind as one."""
    result: list[tuple[int, int, int]] = []
    for start, end, kind in sorted(parts):
        if result and result[-1][1:] == (start, kind):
            result[-1] = (result[-1][0], end, kind)
        else:
            result.append((start, end, int(kind)))
    return result


def gaps_compared(run: Run, trace: Trace) -> list[tuple[Any, Any]]:
    """True and found parts of each idle gap."""
    every, found = gap_bounds(trace), idle_parts(trace)
    device = trace.devices["device_id"]
    true = {
        (idle.device, idle.start): joined(
            (part.start, part.end, KINDS[part.kind]) for part in idle.parts
        )
        for idle in true_parts(run)
    }
    result = []
    for gap in range(len(every)):
        rows = np.flatnonzero(found.gap == gap)
        assert found.duration_ns[rows].sum() == every.idle_ns[gap]
        columns = (found.start_ns[rows], found.end_ns[rows], found.kind[rows])
        mine = joined(zip(*(column.tolist() for column in columns), strict=True))
        place = int(device[every.device[gap]]), int(every.start_ns[gap])
        if place in true:
            result.append((true[place], mine))
    return result


def items_of(run: Run, graph: Dependencies, action: Any) -> np.ndarray[Any, Any]:
    """The items of the calls that an action made in each step."""
    by_time = {
        (int(start), int(end)): item
        for item, (start, end) in enumerate(
            zip(graph.start_ns[: graph.calls], graph.end_ns[: graph.calls], strict=True)
        )
    }
    return np.array(
        [by_time[call.start, call.end] for call in run.calls if call.action is action], np.int64
    )


def edit_of(edit: Any, run: Run, trace: Trace, graph: Dependencies) -> Edit | None:
    """The edit of the simulator as one of the graph."""
    if isinstance(edit, programs.KernelFactor):
        ops, names = operations(trace), trace.recorded("kernels").texts("name")
        rows = graph.operation
        named = [
            ops.kind[row] == Kind.KERNEL and str(names[int(ops.row[row])]) == edit.name
            for row in rows.tolist()
        ]
        items = np.flatnonzero(named) + graph.calls
        return lambda changed: changed.scale(items, edit.factor)
    if isinstance(edit, programs.WaitGone | programs.CallGone):
        place = edit.place
        action = run.program.processes[place.process - 1][place.thread].actions[place.action]
        items = items_of(run, graph, action)
        if isinstance(edit, programs.CallGone):
            return lambda changed: changed.remove_calls(items)
        return lambda changed: changed.wait_for_nothing(items)
    return None


def ends_compared(program: programs.Program, run: Run, trace: Trace) -> dict[str, list[int]]:
    """The error of the end of the run under each edit that keeps the order of work, in ns."""
    graph, result = dependencies(trace), {}
    for edit in programs.possible_edits(program):
        after = simulate(program, [edit])
        mine = edit_of(edit, run, trace, graph)
        if mine is None or not same_order(run, after):
            continue
        ends = np.sort(replay(graph, [mine]).end_ns[graph.calls :])
        true = np.sort([operation.end for operation in after.operations])
        name = type(edit).__name__
        result.setdefault(name, []).append(int(np.abs(ends - true).max(initial=0)))
    return result


def recorded(program: programs.Program, folder: Path) -> tuple[Run, Trace]:
    run = simulate(program)
    return run, exported(run).load(folder)


@pytest.mark.slow
def test_what_is_recorded_is_exact(tmp_path_factory):
    counted: Counter[str] = Counter()

    @settings(RANDOM, max_examples=60)
    @given(PROGRAMS.filter(is_recorded))
    def check(program):
        run, trace = recorded(program, tmp_path_factory.mktemp("run"))
        for true, mine in gaps_compared(run, trace):
            assert mine == true
            counted["gaps"] += 1
        for name, off_ns in ends_compared(program, run, trace).items():
            assert max(off_ns) == 0, name
            counted[name] += len(off_ns)

    check()
    # Hypothesis draws other programs where other modules are loaded.
    assert min(counted[name] for name in ("gaps", "KernelFactor", "WaitGone", "CallGone")) > 2


NAMES = ("k0", "k1", "k2")


def fused(trace: Trace, factor: float) -> Edit | None:
    """`traceview what-if --fuse` of these kernels; None where no two follow each other."""
    try:
        scope = EditScope.of(trace, (), ())
        return gpu_work.fuse(scope, request("fuse", f"{'|'.join(NAMES)}={factor}")).change
    except InputError:
        return None


def follow_each_other(program: programs.Program) -> bool:
    """Whether the program has a chain of more than one kernel."""
    own = [thread.actions for process in program.processes for thread in process]
    several = any(programs.chains(each, NAMES) for each in own)
    graphs = [action for action in actions(program) if isinstance(action, programs.Graph)]
    return several or any(each.name in NAMES and each.count > 1 for each in graphs)


@pytest.mark.slow
def test_chains_that_become_one_kernel_are_exact(tmp_path_factory, monkeypatch):
    # All of a simulated pause is the framework's, however long it is.
    monkeypatch.setattr(Model, "usual_ns", None)
    counted: Counter[bool] = Counter()

    @settings(RANDOM, max_examples=120)
    @given(st.one_of(CHAINS, CHAINS, PROGRAMS.filter(is_recorded)))
    def check(program):
        run, trace = recorded(program, tmp_path_factory.mktemp("run"))
        if not run.operations:
            return
        edit, graph = fused(trace, 0.5), dependencies(trace)
        assert (edit is not None) == follow_each_other(program)
        if edit is None:
            return
        changed = Changed(graph)
        edit(changed)
        times, runs = changed.replay(), changed.own_ns[graph.calls :] > 0
        mine = np.sort(times.end_ns[graph.calls :][runs])
        true = np.sort(
            [each.end for each in simulate(program, [programs.Fused(NAMES, 0.5)]).operations]
        )
        assert mine.tolist() == true.tolist()
        counted[mine[-1] < run.end_ns - 10_000] += 1

    check()
    assert counted[True] > 20


@pytest.mark.slow
def test_what_is_inferred_is_right_for_most(tmp_path_factory):
    counted: Counter[str] = Counter()

    @settings(RANDOM, max_examples=60)
    @given(PROGRAMS)
    def check(program):
        run, trace = recorded(program, tmp_path_factory.mktemp("run"))
        for true, mine in gaps_compared(run, trace):
            counted["gaps"] += 1
            counted["right gaps"] += mine == true
        for off_ns in ends_compared(program, run, trace).values():
            counted["edits"] += len(off_ns)
            counted["right edits"] += sum(off <= 0.02 * run.end_ns for off in off_ns)

    check()
    assert counted["right gaps"] >= 0.85 * counted["gaps"]
    assert counted["right edits"] >= 0.75 * counted["edits"]


@pytest.mark.slow
def test_a_replay_without_edits_is_the_recording(tmp_path_factory):
    @settings(RANDOM, max_examples=50)
    @given(PROGRAMS)
    def check(program):
        _, trace = recorded(program, tmp_path_factory.mktemp("run"))
        graph = dependencies(trace)
        times = Changed(graph).replay()
        assert np.array_equal(times.start_ns, graph.start_ns)
        assert np.array_equal(times.end_ns, graph.end_ns)

    check()
