"""Every figure again by brute force: on the shipped recordings and on random small ones."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import Export
from tests.conftest import GPU_RECORDINGS
from tests.examples import examples
from tests.export_file import SCHEMAS
from tests.oracles import brute_force
from traceview.base import intervals
from traceview.base.tables import Table
from traceview.base.vocabulary.causes import SYNC_DRAIN
from traceview.traces.analyses import memory_copies, run_ahead, sync_stalls
from traceview.traces.analyses.gpu_idle import analysis as gpu_idle
from traceview.traces.analyses.kernel_share import analysis as kernel_share
from traceview.traces.facts.compilation import compilation
from traceview.traces.facts.dependencies.blame import IdlePart
from traceview.traces.facts.idle.causes import idle_graph, idle_parts
from traceview.traces.facts.idle.gap_bounds import gap_bounds
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.operations import api_calls, operations
from traceview.traces.facts.waits import stalls
from traceview.traces.trace import Selection, Trace
from traceview.traces.trace.load import load


@dataclass
class Both:
    """One file, read twice, and the tables of an analysis, computed once."""

    trace: Trace
    recording: brute_force.Recording
    computed: dict[ModuleType, Mapping[str, Table]] = field(init=False, default_factory=dict)

    def tables(self, analysis: ModuleType) -> Mapping[str, Table]:
        if analysis not in self.computed:
            self.computed[analysis] = analysis.compute(self.trace).tables
        return self.computed[analysis]

    @classmethod
    def of(cls, path: Path) -> Both:
        trace, recording = load(path), brute_force.read(path)
        recording.parts = parts_of(trace, recording)
        every = compilation(trace)
        windows = intervals.union(every.start_ns, every.end_ns)
        recording.compiles = [*zip(windows.start.tolist(), windows.end.tolist(), strict=True)]
        return cls(trace, recording)


def parts_of(
    trace: Trace, recording: brute_force.Recording
) -> dict[tuple[int, int], list[brute_force.Part]]:
    """The parts of each gap, with the calls and operations of the other reading."""
    bounds, parts, graph = gap_bounds(trace), idle_parts(trace), idle_graph(trace)
    every, ops = api_calls(trace), operations(trace)
    thread, device = trace.threads["thread_id"], trace.devices["device_id"]
    process = trace.processes["process_id"][trace.threads["process"]]
    calls = {
        (c.process // 2**24 % 2**24, c.thread % 2**24, c.start, c.end): c for c in recording.calls
    }
    works = {(*op.stream_key, op.start, op.end): op for op in recording.operations}
    found: dict[tuple[int, int], list[brute_force.Part]] = defaultdict(list)
    for gap, start, end, kind, item in zip(
        *(getattr(parts, name).tolist() for name in ("gap", "start_ns", "end_ns", "kind", "item")),
        strict=True,
    ):
        on: Any = None
        if 0 <= item < graph.calls:
            row = int(graph.call[item])
            of = int(every.thread[row])
            times = int(every.start_ns[row]), int(every.end_ns[row])
            on = calls[int(process[of]), int(thread[of]), *times]
        elif item >= 0:
            row = int(graph.operation[item - graph.calls])
            stream = ops.streams[ops.stream[row]].tolist()
            at = trace.processes["process_id"][stream[0]], device[stream[1]], *stream[2:]
            on = works[*map(int, at), int(ops.start_ns[row]), int(ops.end_ns[row])]
        place = int(device[bounds.device[gap]]), int(bounds.start_ns[gap])
        found[place].append(brute_force.Part(start, end, IdlePart(kind).name, on))
    return found


def near(ours: object, theirs: object) -> bool:
    """Equal, apart from the rounding of a percentile or a mean."""
    if ours is None or theirs is None:
        return ours is theirs
    return abs(ours - theirs) <= max(1, 1e-9 * abs(theirs))


def kernels_agree(both: Both) -> None:
    theirs = brute_force.kernels_by_name(both.recording)
    ours = {r["name"]: r for r in both.tables(kernel_share)["kernels"].rows()}
    assert ours.keys() == theirs.keys()
    for name, figures in theirs.items():
        exact = {column: ours[name][column] for column in figures if column != "median_ns"}
        assert exact == {column: figures[column] for column in exact}
        assert near(ours[name]["median_ns"], figures["median_ns"])
    total = sum(figures["total_ns"] for figures in theirs.values())
    for row in ours.values():
        assert row["share_pct"] == pytest.approx(100 * row["total_ns"] / max(total, 1))


def kernels_agree_by_range(both: Both) -> None:
    """Kernels with different whole names may share a short one, so names are left aside."""
    theirs: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (path, _), row in brute_force.kernels_by_range(both.recording).items():
        theirs[path][0] += row["calls"]
        theirs[path][1] += row["total_ns"]
    ours: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in both.tables(kernel_share)["ranges"].rows():
        ours[row["range_path"]][0] += row["calls"]
        ours[row["range_path"]][1] += row["total_ns"]
    assert ours == theirs


def devices_agree(both: Both) -> None:
    rows = both.tables(gpu_idle)["devices"].rows()
    ours = {row["device_id"]: row for row in rows}
    theirs = brute_force.devices(both.recording)
    assert ours.keys() == theirs.keys()
    for device, figures in theirs.items():
        assert {column: ours[device][column] for column in figures} == figures


def causes_agree(both: Both) -> None:
    theirs: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for gap in both.recording.gaps:
        for cause, idle in gap.idle_by_cause().items():
            theirs[gap.device, cause][0] += 1
            theirs[gap.device, cause][1] += idle
    tables = both.tables(gpu_idle)
    ours = {
        (row["device_id"], row["cause"]): [row["gaps"], row["idle_ns"]]
        for row in tables["causes"].rows()
    }
    assert ours == theirs
    late = sum(idle for (_, cause), (_, idle) in theirs.items() if cause == "launch-late")
    assert sum(row["idle_ns"] for row in tables["late"].rows()) == late
    for device in tables["devices"].rows():
        mine = [n for (number, _), (_, n) in ours.items() if number == device["device_id"]]
        assert sum(mine) == device["idle_ns"]


def queues_agree(both: Both) -> None:
    tables = run_ahead.ANALYSIS.compute(both.trace).tables
    key = ("process_id", "device_id", "context_id", "stream_id")
    ours = {tuple(row[name] for name in key): row for row in tables["streams"].rows()}
    theirs = brute_force.streams(both.recording)
    assert ours.keys() == theirs.keys()
    for stream, figures in theirs.items():
        for column, value in figures.items():
            assert near(ours[stream][column], value), (stream, column)
        if "mean_queue_depth" in figures:
            mean = ours[stream]["mean_queue_depth"]
            assert mean == pytest.approx(figures["mean_queue_depth"], rel=1e-9)
    for row in tables["devices"].rows():
        figures = brute_force.queue(brute_force.on_device(both.recording, row["device_id"]))
        for column in ("queue_wait_median_ns", "queue_wait_max_ns", "max_queue_depth"):
            assert near(row[column], figures[column]), column


def waits_agree(both: Both, *, idle: bool = True) -> None:
    tables = both.tables(sync_stalls)
    theirs = brute_force.blocking_calls(both.recording)
    listed = {row["api"]: row for row in tables["calls"].rows()}
    columns = ("calls", "wait_ns", "benign_ns") + (("idle_after_ns",) if idle else ())
    ours: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(columns, 0))
    for row in tables["sites"].rows():
        for column in columns:
            ours[row["api"]][column] += row[column]
    for api, row in theirs.items():
        if row["calls"]:
            assert ours[api] == {column: row[column] for column in columns}
            assert (listed[api]["calls"], listed[api]["wait_ns"]) == (row["calls"], row["wait_ns"])
        elif idle:
            # Allocations and loading of code: what they cost, not how often they were called.
            assert ours[api]["idle_after_ns"] == row["idle_after_ns"]


def waits_add_up(both: Both) -> None:
    """The parts make the whole: of each wait, and of the idle time that all waits caused."""
    rows = list(both.tables(sync_stalls)["sites"].rows())
    for row in rows:
        assert row["wait_ns"] == row["benign_ns"] + row["idle_within_ns"]
        assert row["benign_ns"] >= 0
        assert row["idle_within_ns"] >= 0
        assert row["idle_after_ns"] >= row["steady_idle_after_ns"] >= row["upload_idle_after_ns"]
    caused = sum(row["idle_after_ns"] for row in rows)
    gap, of = gaps(both.trace), stalls(both.trace)
    assert caused == int(gap.idle_ns[of.wait >= 0].sum())
    drained = gap.cause == SYNC_DRAIN
    assert (of.wait[drained] >= 0).all()
    whole = both.tables(gpu_idle)["causes"].rows()
    assert caused <= sum(row["idle_ns"] for row in whole)


def copies_agree(both: Both) -> None:
    ours = {"calls": 0, "bytes": 0, "total_ns": 0}
    for row in memory_copies.ANALYSIS.run(both.trace).tables["copies"].rows():
        for column in ours:
            ours[column] += row[column]
    assert ours == brute_force.copies(both.recording)


def calls_agree(both: Both) -> None:
    ours = defaultdict(list)
    for row in both.trace.api_calls.rows():
        ours[row["name"]].append(row["end_ns"] - row["start_ns"])
    assert brute_force.figures(ours) == brute_force.calls_by_name(both.recording)


def names_of(recording: brute_force.Recording) -> list[str]:
    """Some names of ranges of the program: the first, one in the middle, and the last."""
    found = sorted({each.name for ranges in recording.ranges.values() for each in ranges})
    plain = [name for name in found if not set(name) & set("*?[]")]
    return sorted({plain[0], plain[len(plain) // 2], plain[-1]}) if plain else []


def selections_agree(both: Both, most: int = 2) -> None:
    """A selection, what it leaves, one range less another: work, idle time and waits."""
    names = names_of(both.recording)
    whole = selection_agrees(both, Selection())
    for name in names[:most]:
        inside = selection_agrees(both, Selection(include=(name,)))
        outside = selection_agrees(both, Selection(exclude=(name,)))
        for told, one, other in zip(whole, inside, outside, strict=True):
            assert one + other == told
    if len(names) > 1:
        selection_agrees(both, Selection(include=tuple(names[1:]), exclude=tuple(names[:1])))


def selection_agrees(both: Both, asked: Selection) -> tuple[int, int, int]:
    """Number and time of its gaps, and the idle time that its waits caused."""
    theirs = brute_force.selection(
        both.recording, brute_force.Selected(asked.include, asked.exclude)
    )
    chosen = Both(both.trace.but(selection=asked), both.recording) if asked else both
    tables = chosen.tables(gpu_idle)
    devices = {row["device_id"]: row for row in tables["devices"].rows()}
    assert devices.keys() == theirs["devices"].keys()
    for device, figures in theirs["devices"].items():
        assert {column: devices[device][column] for column in figures} == figures
    ours = {
        (row["device_id"], row["cause"]): [row["gaps"], row["idle_ns"]]
        for row in tables["causes"].rows()
    }
    assert ours == theirs["causes"]
    after: dict[str, int] = defaultdict(int)
    for row in chosen.tables(sync_stalls)["sites"].rows():
        after[row["api"]] += row["idle_after_ns"]
    assert {api: idle for api, idle in after.items() if idle} == theirs["idle_after"]
    gaps_told, idle_told = (sum(row[place] for row in ours.values()) for place in (0, 1))
    return gaps_told, idle_told, sum(after.values())


OF_WHOLE_RECORDINGS = (
    kernels_agree,
    kernels_agree_by_range,
    devices_agree,
    causes_agree,
    queues_agree,
    copies_agree,
    calls_agree,
    waits_add_up,
)


@pytest.fixture(scope="module", params=GPU_RECORDINGS)
def shipped(request, unpack):
    return Both.of(unpack(request.param))


@pytest.mark.parametrize(
    "agree", [*OF_WHOLE_RECORDINGS, selections_agree], ids=lambda agree: agree.__name__
)
def test_on_real_recordings(shipped, agree):
    agree(shipped)


def test_waits_on_real_recordings(shipped):
    waits_agree(shipped)


# Mostly a few ns, and sometimes so long that the thresholds of causes matter.
LENGTH = st.integers(1, 12) | st.sampled_from([30, 9_000, 60_000, 250_000])
CALLS = ["cudaMalloc_v3020", "cuLibraryLoadData", "cudaGraphInstantiate_v12000", "cudaEventRecord"]
SYNCS = {
    "cudaStreamSynchronize_v3020": "stream",
    "cudaDeviceSynchronize_v3020": "context",
    "cuEventSynchronize": "event",
}
WORK = ["kernel", "kernel", "kernel", "copy", "copy", "set", "graph", "orphan"]
WHAT = [*WORK, "sync", "push", "pop", "call", "call", "event", "overhead"]
STEP = st.fixed_dictionaries(
    {
        "what": st.sampled_from(WHAT),
        "process": st.integers(1, 2),
        "thread": st.integers(0, 1),
        "device": st.integers(0, 1),
        "stream": st.integers(7, 8),
        "pause": LENGTH,
        "call": LENGTH,
        "delay": LENGTH,
        "length": LENGTH,
        "name": st.sampled_from(["a", "b", "c"]),
        "api": st.sampled_from(sorted(SYNCS)),
        "source": st.sampled_from(["pageable", "pinned"]),
        "kind": st.sampled_from(["H2D", "D2H"]),
        "other": st.sampled_from(CALLS),
        "ends": st.booleans(),
    }
)


class Program:
    """Plays steps as a CUDA program would: calls in order on a thread, work in order on a stream.

    Ranges of a thread nest, and some of them never end.
    """

    def __init__(self, export: Export) -> None:
        self.export = export
        self._clock: dict[tuple[int, int], int] = defaultdict(int)
        self._stream_free: dict[tuple[int, int, int], int] = defaultdict(int)
        self._open: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)

    def play(self, steps: list[dict]) -> Export:
        for step in steps:
            self._play(step)
        for (process, thread), opened in self._open.items():
            while opened:
                name, start = opened.pop()
                end = None if start % 3 == 0 and not opened else self._tick((process, thread), 1)
                self.export.range(name, start, end, process=process, thread=thread)
        return self.export

    def _tick(self, thread: tuple[int, int], pause: int) -> int:
        self._clock[thread] += pause
        return self._clock[thread]

    def _play(self, step: dict) -> None:
        thread = (step["process"], step["thread"])
        caller = {"process": step["process"], "thread": step["thread"]}
        start = self._tick(thread, step["pause"])
        if step["what"] == "push":
            self._open[thread].append((step["name"], start))
        elif step["what"] == "pop":
            if self._open[thread]:
                name, begun = self._open[thread].pop()
                self.export.range(name, begun, start, **caller)
        else:
            self._enqueue(step, (start, self._tick(thread, step["call"])), caller)

    def _enqueue(self, step: dict, call: tuple[int, int], caller: dict) -> None:
        place = {"stream": step["stream"], "device": step["device"]}
        if step["what"] in ("sync", "call", "event", "overhead"):
            self._without_work(step, call, caller)
            return
        work = self._work(step, call[0])
        if step["what"] == "kernel":
            self.export.launch(call, work, name=step["name"], **place, **caller)
        elif step["what"] == "copy":
            ends = {"kind": step["kind"], "source": step["source"]}
            if step["kind"] == "D2H":
                ends |= {"source": "device", "destination": step["source"]}
            self.export.copy(call, work, **ends, **place, **caller)
        elif step["what"] == "set":
            self.export.set(call, work, **place, **caller)
        elif step["what"] == "graph" and step["ends"]:
            self.export.graph_whole(call, work, **place, **caller)
        elif step["what"] == "graph":
            second = self._work(step, work[1])
            self.export.graph_launch(call, [work, second], name=step["name"], **place, **caller)
        else:
            self.export.kernel_without_launch(work, process=step["process"], **place)

    def _without_work(self, step: dict, call: tuple[int, int], caller: dict) -> None:
        place = {"stream": step["stream"], "device": step["device"]}
        if step["what"] == "sync":
            kind = SYNCS[step["api"]]
            self.export.sync(step["api"], *call, sync_type=kind, device=step["device"], **caller)
        elif step["what"] == "event":
            api, kind = "cudaStreamWaitEvent_v3020", "stream-wait-event"
            self.export.sync(api, *call, sync_type=kind, **place, **caller)
        elif step["what"] == "call":
            self.export.call(step["other"], *call, **caller)
        else:
            self.export.overhead(*call, **caller)

    def _work(self, step: dict, after: int) -> tuple[int, int]:
        stream = (step["process"], step["device"], step["stream"])
        start = max(after + step["delay"], self._stream_free[stream])
        self._stream_free[stream] = start + step["length"]
        return start, start + step["length"]


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.lists(STEP, min_size=15, max_size=50))
def test_on_random_recordings(steps):
    with tempfile.TemporaryDirectory() as folder:
        both = Both.of(Program(Export()).play(steps).write(Path(folder) / "random.sqlite"))
        for agree in (*OF_WHOLE_RECORDINGS, waits_agree):
            agree(both)
        # One name is as random as another.
        selections_agree(both, most=1)


NO_WHOLE_GRAPHS = {"3.0.0", "3.7.2"}


@pytest.mark.parametrize("registered", [False, True], ids=["text", "registered"])
@pytest.mark.parametrize("schema", [name for name in SCHEMAS if name[0].isdigit()])
def test_on_every_schema_version(schema, registered, tmp_path):
    kinds = ["kernel", "kernel", "copy", "set", "sync", "push", "pop", "orphan", "graph"]
    kinds += ["call", "event", "overhead"]
    draw = random.Random(schema)
    lengths = ("pause", "call", "delay", "length")
    steps = [
        {
            **{name: draw.randint(1, 12) for name in lengths},
            "what": draw.choice(kinds),
            "process": draw.randint(1, 2),
            "thread": draw.randint(0, 1),
            "device": draw.randint(0, 1),
            "stream": draw.randint(7, 8),
            "name": draw.choice("abc"),
            "api": draw.choice(sorted(SYNCS)),
            "source": draw.choice(["pageable", "pinned"]),
            "kind": draw.choice(["H2D", "D2H"]),
            "other": draw.choice(CALLS),
            "ends": schema not in NO_WHOLE_GRAPHS and draw.random() < 0.5,
        }
        for _ in range(150)
    ]
    export = Program(Export(schema, registered_names=registered)).play(steps)
    both = Both.of(export.write(tmp_path / "version.sqlite"))
    assert both.trace.export_schema_version == schema
    assert all("so it is treated as one" in warning for warning in both.trace.warnings)
    for agree in (*OF_WHOLE_RECORDINGS, waits_agree):
        agree(both)
