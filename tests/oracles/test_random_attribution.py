"""Ranges of every sort, on random recordings: each figure again by brute force, and the sums."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.build import Export
from tests.examples import examples
from tests.oracles.brute_force import FOREVER
from tests.oracles.brute_force_steps import Attributed, Range, busy_within, steps_by_loop
from traceview.traces.analyses.kernel_share import analysis
from traceview.traces.facts.idle.step_parts import step_parts
from traceview.traces.facts.steps.steps import pace, step_of_operations, steps
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load

pytestmark = pytest.mark.slow

PROCESS, THREAD = st.integers(1, 2), st.integers(0, 3)
RANGE = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["step_1", "step_2", "step_3", "a", "b"]),
        "start": st.integers(0, 80),
        "length": st.integers(1, 50),
        "process": PROCESS,
        "thread": THREAD,
        "domain": st.sampled_from([None, None, "mine", "cuBLAS"]),
        "kind": st.sampled_from(["push-pop", "start-end"]),
        "end_thread": st.one_of(st.none(), THREAD),
        "ends": st.sampled_from([True, True, True, False]),
    }
)
LAUNCH = st.fixed_dictionaries(
    {
        "call": st.integers(0, 100),
        "lasts": st.integers(1, 3),
        "delay": st.integers(0, 30),
        "length": st.integers(1, 12),
        "process": PROCESS,
        "thread": THREAD,
        "device": st.integers(0, 1),
        "stream": st.integers(7, 8),
        "what": st.sampled_from(["kernel", "kernel", "copy", "nodes", "whole", "orphan"]),
    }
)


def written(ranges: list[dict], launches: list[dict], registered: bool) -> Export:
    export = Export(registered_names=registered)
    for each in ranges:
        end = each["start"] + each["length"] if each["ends"] else None
        lent = each["end_thread"] if each["kind"] == "start-end" else None
        where = {name: each[name] for name in ("process", "thread", "domain", "kind")}
        export.range(each["name"], each["start"], end, end_thread=lent, **where)
    orphans: set[tuple[object, ...]] = set()
    for each in launches:
        call = (each["call"], each["call"] + each["lasts"])
        begin = call[0] + each["delay"]
        work = (begin, begin + each["length"])
        where = {name: each[name] for name in ("process", "device", "stream")}
        caller = {**where, "thread": each["thread"]}
        if each["what"] == "kernel":
            export.launch(call, work, **caller)
        elif each["what"] == "copy":
            export.copy(call, work, **caller)
        elif each["what"] == "nodes":
            export.graph_launch(call, [work, (work[1], work[1] + 3)], **caller)
        elif each["what"] == "whole":
            export.graph_whole(call, work, **caller)
        elif (orphan := (*work, *where.values())) not in orphans:
            # Of equal rows without a launch only one counts.
            orphans.add(orphan)
            export.kernel_without_launch(work, **where)
    return export


def attribution_agrees(trace: Trace, oracle: Attributed) -> None:
    ours: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    result = analysis.compute(trace)
    for row in result.tables["ranges"].rows():
        for place, column in enumerate(("calls", "total_ns", "inferred_ns")):
            ours[row["range_path"]][place] += row[column]
    assert {path: tuple(figures) for path, figures in ours.items()} == oracle.kernels_by_path()
    adds_up(trace)


def adds_up(trace: Trace) -> None:
    """Each kernel counts once, and what is inferred is a part of what is attributed."""
    result = analysis.compute(trace)
    ranges, total = result.tables["ranges"], result.summary["kernel_total_ns"]
    assert ranges["total_ns"].sum() == total
    assert ranges["calls"].sum() == len(trace.kernels)
    if total:
        assert ranges["share_pct"].sum() == pytest.approx(100.0, abs=1e-6)
    assert result.summary["inferred_ns"] == ranges["inferred_ns"].sum()
    assert result.summary["inferred_ns"] <= result.summary["attributed_ns"] <= total
    assert (ranges["inferred_ns"] <= ranges["total_ns"]).all()


def steps_agree(trace: Trace, oracle: Attributed) -> None:
    """Which ranges are steps is taken as found; all that is said of them is computed anew."""
    found = steps(trace)
    theirs = [the_range(trace, oracle, row) for row in range(len(found))]
    work = defaultdict(list)
    for op in oracle.operations:
        if step := oracle.step_of(op.call, theirs):
            work[next(row for row, each in enumerate(theirs) if each is step)].append(op)
    for row in range(len(found)):
        ops = work[row]
        assert found.operations[row] == len(ops)
        assert found.gpu_start_ns[row] == min((op.start for op in ops), default=0)
        assert found.gpu_end_ns[row] == max((op.end for op in ops), default=0)
    for series in range(len(set(found.series.tolist()))):
        rows = np.flatnonzero(found.series == series)
        times_agree(trace, oracle, rows.tolist(), theirs, work)


def the_range(trace: Trace, oracle: Attributed, row: int) -> Range:
    """The oracle's range of a step: no two of a thread start at once."""
    found, processes = steps(trace), trace.processes
    process = found.process[row]
    place = int(processes["host_id"][process]) << 48 | int(processes["process_id"][process]) << 24
    thread = place | int(trace.threads["thread_id"][found.thread[row]])
    start, name = int(found.cpu_start_ns[row]), found.names[row]
    matching = [r for r in oracle.ranges if (r.thread, r.start, r.name) == (thread, start, name)]
    assert len(matching) == 1
    assert matching[0].end in (found.cpu_end_ns[row], FOREVER)
    return matching[0]


def times_agree(trace: Trace, oracle: Attributed, rows, theirs, work) -> None:
    timed, parts = pace(trace), step_parts(trace)
    here = {place: work[row] for place, row in enumerate(rows)}
    times = steps_by_loop([theirs[row] for row in rows], here)
    devices = sorted({op.device for row in rows for op in work[row]})
    loops = timed.loop[rows] - timed.loop[rows[0]]
    for row, found, loop in zip(rows, times, loops, strict=True):
        assert timed.timed[row] == (found is not None)
        assert found is None or loop == found[2]
        if found is None or not devices:
            continue
        time = found[:2]
        assert (timed.begin_ns[row], timed.end_ns[row]) == time
        on = [[op for op in oracle.operations if op.device == device] for device in devices]
        busy = sum(busy_within(ops, *time) for ops in on) / len(devices)
        assert parts.busy_ns[row] == pytest.approx(busy, abs=3 + 20 * (len(devices) > 1))
        assert parts.part_ns[row].sum() == time[1] - time[0]
        assert (parts.part_ns[row] >= 0).all()
        if len(devices) == 1:
            assert parts.busy_ns[row] == busy


def unique(ranges: list[dict]) -> list[dict]:
    """Without ranges that nothing tells apart: which of two equal ones is meant is not defined."""
    seen: dict[tuple[int, int, int], dict] = {}
    for each in ranges:
        seen.setdefault((each["process"], each["thread"], each["start"]), each)
    return list(seen.values())


@settings(max_examples=examples(40))
@given(st.lists(RANGE, max_size=14), st.lists(LAUNCH, max_size=20), st.booleans(), st.booleans())
def test_on_random_recordings(ranges, launches, registered, strict):
    with tempfile.TemporaryDirectory() as folder:
        path = written(unique(ranges), launches, registered).write(Path(folder) / "random.sqlite")
        trace = load(path)
        trace = trace.but(strict=True) if strict else trace
        oracle = Attributed.of(path, strict=strict)
        attribution_agrees(trace, oracle)
        steps_agree(trace, oracle)


@settings(max_examples=examples(25))
@given(st.lists(LAUNCH, min_size=4, max_size=30), st.integers(2, 6))
@example([], 2)
def test_operations_of_steps_are_those_of_no_other_step(launches, number):
    """A training loop on two ranks: each operation in one step at most, all sums whole."""
    export = written([], launches, registered=False)
    for process in (1, 2):
        for step in range(number):
            export.range(f"step_{step}", step * 20, step * 20 + 18, process=process)
    with tempfile.TemporaryDirectory() as folder:
        trace = export.load(Path(folder))
        found = steps(trace)
        step = step_of_operations(trace)
        assert found.operations.sum() == (step >= 0).sum()
        assert set(np.bincount(found.series).tolist()) == {number}
        adds_up(trace)


STEP = st.tuples(st.integers(0, 30), st.integers(1, 30))
LOOPS = st.lists(st.tuples(st.sampled_from([1, 20]), st.lists(STEP, max_size=5)), max_size=5)


@settings(max_examples=examples(40))
@given(LOOPS, st.booleans(), st.booleans())
def test_on_random_loops(loops, around, ahead):
    """Numbers that start again, with a range around each loop or none, alike or not."""
    with tempfile.TemporaryDirectory() as folder:
        export, clock, cpu = Export(), 0, 0
        for number, (scale, each) in enumerate(loops):
            begun = cpu
            for step, (idle, work) in enumerate(each):
                gpu = clock + idle
                clock = gpu + scale * work
                export.range(f"step_{step}", cpu + 2, cpu + 6)
                export.launch((cpu + 3, cpu + 4), (max(gpu, cpu + 4), max(clock, cpu + 5)))
                clock = max(clock, cpu + 5)
                cpu = cpu + 8 if ahead else clock + idle
            if around and each:
                export.range(f"epoch_{number}", begun, cpu + 1)
                cpu += 2
        path = export.write(Path(folder) / "random.sqlite")
        steps_agree(load(path), Attributed.of(path))
