"""The figures of the ranks of a recording: collectives, messages, and the work before each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.hardware.rates import rates_of
from traceview.base.intervals import Intervals
from traceview.base.tables import NULL, Integers, Texts
from traceview.base.vocabulary.activities import ACTIVITIES, SLEEP
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.comparison import run_figures
from traceview.traces.comparison.window import placed_idle
from traceview.traces.facts import kernel_classes, memory, operations
from traceview.traces.facts.collectives import transfers
from traceview.traces.facts.idle import first_calls, lines, stack_sites
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.launches import waits
from traceview.traces.facts.samples import stack_lines
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import step_of_operations, steps
from traceview.traces.ranks import figures, rank_graph, rank_windows
from traceview.traces.ranks.figures import Place, RankFigures, RankName, RankSteps, WorkPart
from traceview.traces.trace import Selection, Trace

# The place of the program in the idle time before each collective.

_LINE = re.compile(r"(.+):(\d{1,9})")
_WORTH_NS = 10_000
"""Shorter gaps last no longer than a launch, and are not assigned to a place."""


class IdlePlaces(NamedTuple):
    """Places; for each window the row of its main place (−1: none) and the idle time there."""

    places: tuple[figures.Place, ...]
    place: Integers
    place_ns: Integers


def idle_places(trace: Trace, device: int, before: Integers, start: Integers) -> IdlePlaces:
    """The places of a GPU's idle time in windows [before, start), sorted by start."""
    every = every_gap(trace)
    rows = np.flatnonzero((every.device == device) & (every.idle_ns >= _WORTH_NS))
    window = np.searchsorted(start, every.end_ns[rows], side="left")
    inside = window < len(start)
    inside[inside] = before[window[inside]] <= every.start_ns[rows[inside]]
    rows, window = rows[inside], window[inside]
    most, time = np.full(len(start), figures.UNKNOWN, np.int64), np.zeros(len(start), np.int64)
    if not len(rows):
        return IdlePlaces((), most, time)
    idle = placed_idle(trace, rows)
    rows, window, text = rows[idle.row], window[idle.row], idle.place
    placed = ~text.isin([""]) & (text.codes >= 0)
    pairs = groups.group(window[placed], text.codes[placed])
    total = groups.sums(pairs, idle.duration_ns[placed])
    # Ascending, so that the last to write is the place with most time.
    order = np.argsort(total, kind="stable")
    of = window[placed][pairs.first[order]]
    most[of], time[of] = text.codes[placed][pairs.first[order]], total[order]
    # Collectives with the same window start share the place of the first of them.
    first = np.flatnonzero(groups.opens(before))
    leader = first[np.cumsum(groups.opens(before)) - 1]
    shorter = time < time[leader]
    most, time = np.where(shorter, most[leader], most), np.where(shorter, time[leader], time)
    used, place = np.unique(most, return_inverse=True)
    unknown = int(used[0] == figures.UNKNOWN)
    places = tuple(_place_of_text(trace, rows, text, int(code)) for code in used[unknown:])
    return IdlePlaces(places, place.astype(np.int64) - unknown, time)


def _place_of_text(trace: Trace, rows: Integers, text: Texts, code: int) -> figures.Place:
    """The place for a text from placed_idle: a source line or a range."""
    name, gaps = str(text.values[code]), rows[text.codes == code]
    match = _LINE.fullmatch(name)
    samples, sites = lines.idle_samples(trace), stack_sites.stack_sites(trace)
    samples = samples.take(np.isin(samples.gap, gaps))
    function, what = "", ""
    if len(samples.gap):
        # The function and the activity with most samples in the gaps.
        by = groups.group(samples.site)
        most = int(samples.site[by.first[np.argmax(groups.sums(by, samples.time_ns))]])
        activity = ACTIVITIES[int(np.argmax(np.bincount(samples.doing, samples.time_ns)))]
        function, what = str(sites.function[most] or ""), activity.name if activity.rank else ""
    if match:
        return figures.Place(match[1], int(match[2]), function, what=what)
    return figures.Place(range_path=name, what=what)


def rank_collectives(
    trace: Trace, owner: rank_windows.RankOwner, time: rank_windows.RankTime, loop: Integers
) -> tuple[figures.RankCollectives, tuple[figures.Place, ...]]:
    """The collectives of a rank, and the places that their `place` column refers to.

    `loop` has the rows of its loop in the table of steps.
    """
    moved, rows = transfers(trace), exchanges_of(trace, owner)
    if not len(rows):
        return figures.no_collectives(), ()
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    # The last end at or before each start; else the start itself.
    ends = np.sort(end)
    number = np.searchsorted(ends, start, side="right")
    before = np.where(number > 0, ends[np.maximum(number, 1) - 1], start)
    idle = idle_places(trace, owner.device, before, start)
    # The position in the loop of the step that launched each, −1 outside the loop.
    step = step_of_operations(trace)[moved.operation[rows]]
    position = np.full(int(max(step.max(initial=-1), loop.max(initial=-1))) + 2, -1, np.int64)
    position[loop] = np.arange(len(loop))
    numbers = {name: number for number, name in enumerate(figures.KINDS)}
    named = np.array([numbers.get(name, figures.OTHER) for name in moved.kinds], np.int8)
    kind = named[moved.kind[rows]]
    sends, receives, message = moved.sends[rows], moved.receives[rows], kind == figures.SEND_RECEIVE
    kind[message & sends & ~receives] = figures.SEND
    kind[message & receives & ~sends] = figures.RECEIVE
    collectives = figures.RankCollectives(
        start_ns=start,
        end_ns=end,
        kind=kind,
        communicator=_communicators(trace, moved.communicator[rows]),
        bytes=moved.bytes[rows],
        bus_bytes=moved.bus_bytes[rows],
        members=moved.ranks[rows],
        peer=moved.peer[rows],
        stream=moved.stream[rows].astype(np.int64),
        exposed_ns=end - start - intervals.overlap(time.compute, start, end),
        step=position[step],
        work_ns=intervals.overlap(time.busy_without_communication, before, start),
        idle_ns=time.idle_ns(before, start),
        place=idle.place,
        place_ns=idle.place_ns,
    )
    return collectives, idle.places


def _communicators(trace: Trace, named: Integers) -> Integers:
    """The communicator of each collective: of a job with one process group, that of all.

    Collectives launched before the recording have no name, nor those of torch before 2.3: eight
    ranks that began to record at different collectives would pair with strangers (a public
    recording).
    """
    known = groups.different(named[named != NULL])
    if trace.run.get("pg_count") != "1" or len(known) > 1:
        return named
    return np.full(len(named), known[0] if len(known) else 0)


def exchanges_of(trace: Trace, owner: rank_windows.RankOwner) -> Integers:
    """Rows of the collectives of a rank in transfers, in order of start."""
    moved, process = transfers(trace), operations.operations(trace).process
    chosen = moved.is_collective & (moved.device == owner.device)
    return np.flatnonzero(chosen & (process[moved.operation] == owner.process))


def communicators_of(trace: Trace, process: int) -> Mapping[int, tuple[int, int]]:
    """Size and own rank of each communicator of a process; rank −1 if it has several ranks."""
    communicators = trace.recorded("communicators")
    joined = communicators.take(communicators["process"] == process)
    columns = (joined[name].tolist() for name in ("communicator", "ranks", "rank"))
    size_and_rank: dict[int, tuple[int, int]] = {}
    for number, size, rank in zip(*columns, strict=True):
        size_and_rank[number] = (size, figures.UNKNOWN if number in size_and_rank else rank)
    return size_and_rank


def group_texts(
    trace: Trace, process: int
) -> tuple[Mapping[int, str], Mapping[int, tuple[int, ...]]]:
    """Names and global ranks of process groups, by communicator and only where recorded."""
    communicators = trace.recorded("communicators")
    joined = communicators.take(communicators["process"] == process)
    number = joined["communicator"].tolist()
    names = dict(zip(number, joined.texts("name").decode(), strict=True))
    members = dict(zip(number, joined.texts("members").decode(), strict=True))
    return (
        {one: str(name) for one, name in names.items() if name},
        {one: tuple(map(int, str(text).split(","))) for one, text in members.items() if text},
    )


# The time that a rank's CPU needs for each step, and where its program spends it.

MOST_PLACES = 32
LAUNCH_NS = 100_000
"""A longer launch call waits for a full queue; the excess is not the CPU's own time."""
_MOST_PERIODS = 10
_SLEEPS = re.compile(r"\bsleep\(")


def _cpu_pace(
    trace: Trace, owner: rank_windows.RankOwner, loop: Integers
) -> tuple[Integers, tuple[Place, ...], Integers]:
    """The CPU's time from the start of each step to the start of the next one, in all and by place.

    Shapes (steps,) and (steps, places). Time blocked in synchronizing calls, or in launches by a
    full queue, is left out. Places need sampled stacks of the thread.
    """
    none = np.zeros((len(loop), 0), np.int64)
    if not len(loop) or not len(trace.recorded("api_calls")):
        return np.zeros(0, np.int64), (), none
    all_steps = steps(trace)
    start = all_steps.cpu_start_ns[loop]
    end = np.append(start[1:], all_steps.cpu_end_ns[loop[-1]])
    # The time in which a thread that launches much of the rank's work waited for the GPU.
    calls, ops, held = operations.api_calls(trace), operations.operations(trace), waits(trace)
    own = ops.call[(ops.process == owner.process) & (ops.device == owner.device) & ops.launched]
    count = np.bincount(calls.thread[own], minlength=int(calls.thread.max(initial=0)) + 1)
    launching = count >= rank_graph.LEAST_OF_LAUNCHES * max(len(own), 1)
    syncs = (
        np.isin(held.does, (operations.CallKind.SYNCHRONIZE, operations.CallKind.COPY))
        & launching[held.thread]
    )
    full = (calls.does == operations.CallKind.LAUNCH) & (calls.duration_ns > LAUNCH_NS)
    full &= launching[calls.thread] & ~operations.first_launch_calls(trace)
    blocked = intervals.union(
        np.concatenate((held.start_ns[syncs], calls.start_ns[full] + LAUNCH_NS)),
        np.concatenate((held.end_ns[syncs], calls.end_ns[full])),
    )
    cpu = end - start - intervals.overlap(blocked, start, end)
    places, place_ns = _places(trace, int(all_steps.thread[loop[0]]), start, end, blocked)
    return cpu, places, place_ns


def _places(
    trace: Trace, thread: int, start: Integers, end: Integers, blocked: Intervals
) -> tuple[tuple[Place, ...], Integers]:
    """The lines at which the thread was sampled, and its time there in each step."""
    samples, sites = trace.recorded("python_samples"), stack_sites.stack_sites(trace)
    rows = np.flatnonzero(samples["thread"] == thread)
    time = samples["time_ns"][rows]
    if len(rows) < 2:
        return (), np.zeros((len(start), 0), np.int64)
    lasted = np.diff(time, append=time[-1:] + 1)
    lasted = np.minimum(lasted, _MOST_PERIODS * max(int(np.median(lasted)), 1))
    step = np.searchsorted(start, time, side="right") - 1
    site = samples["stack"][rows].astype(np.int64)
    kept = (step >= 0) & (sites.number[site] >= 0) & ~intervals.inside(blocked, time)
    kept &= time < end[np.maximum(step, 0)]
    step, site, lasted = step[kept], site[kept], lasted[kept]
    if not len(step):
        return (), np.zeros((len(start), 0), np.int64)
    by = groups.group(sites.number[site])
    table = np.zeros((len(start), by.size), np.int64)
    np.add.at(table, (step, by.ids), lasted)
    most = np.argsort(-table.max(axis=0), kind="stable")[:MOST_PLACES]
    return tuple(_place(trace, int(row)) for row in site[by.first[most]]), table[:, most]


def _place(trace: Trace, site: int) -> Place:
    sites = stack_sites.stack_sites(trace)
    doing = int(stack_lines(trace).doing[site])
    if not ACTIVITIES[doing].rank and _SLEEPS.search(str(sites.source[site] or "")):
        doing = SLEEP
    return Place(
        str(sites.file[site] or ""),
        max(int(sites.line[site]), 0),
        str(sites.function[site] or ""),
        what=ACTIVITIES[doing].name if ACTIVITIES[doing].rank else "",
    )


def figures_of_ranks(trace: Trace) -> tuple[RankFigures, ...]:
    """The figures of each GPU that a process of the recording works on; none without GPU work.

    `verdict`, `limit` and `findings`, which come from the rank's own report, are left empty.
    """
    trace = with_steps(trace.but(selection=Selection()) if trace.selection else trace)
    owners = rank_windows.rank_owners(trace)
    names = rank_windows.rank_names(trace, owners)
    loops = [rank_windows.loop_of(trace, owner) for owner in owners]
    graphs = rank_graph.rank_graphs(
        trace,
        {
            owner: (loop, transfers(trace).operation[exchanges_of(trace, owner)])
            for owner, loop in zip(owners, loops, strict=True)
        },
    )
    return tuple(
        replace(_figures(trace, *each), graph=graphs.get(each[0]))
        for each in zip(owners, names, loops, strict=True)
    )


def _figures(
    trace: Trace, owner: rank_windows.RankOwner, name: RankName, loop: Integers
) -> RankFigures:
    time = rank_windows.rank_time(trace, owner)
    steps = rank_windows.rank_steps(trace, loop, time)
    collectives, places = rank_collectives(trace, owner, time, loop)
    cpu_ns, cpu_places, cpu_place_ns = _cpu_pace(trace, owner, loop)
    if len(cpu_ns):
        steps = replace(steps, cpu_ns=cpu_ns)
    span_ns, parts = _steady_parts(steps, time)
    group_names, group_ranks = group_texts(trace, owner.process)
    origin, level = trace.run.get("clock_origin_ns", ""), memory.levels(trace).get(owner.device)
    sm_count = trace.devices.cells("sm_count")[owner.device]
    rates = rates_of(name.gpu, None if sm_count is None else int(sm_count))
    idle = parts["idle_ns"].sum(axis=0)
    return RankFigures(
        name=name,
        path=trace.path,
        recorder=trace.recorder,
        digest=run_figures.digest_of(trace),
        clock_offset_ns=int(origin) if origin.isdecimal() and int(origin) else None,
        collectives=collectives,
        steps=steps,
        communicators=communicators_of(trace, owner.process),
        group_names=group_names,
        group_ranks=group_ranks,
        places=places,
        cpu_places=cpu_places,
        cpu_place_ns=cpu_place_ns,
        work=_work(trace, owner, loop[~steps.warm_up]),
        step_median_ns=int(np.median(steps.duration_ns[~steps.warm_up])) if len(steps) else None,
        busy_pct=100.0 * (span_ns - int(idle.sum())) / span_ns if span_ns else 0.0,
        span_ns=span_ns,
        compute_ns=int(parts["compute_ns"].sum()),
        exposed_ns=int(parts["exposed_ns"].sum()),
        hidden_ns=int(parts["hidden_ns"].sum()),
        copies_ns=int(parts["copies_ns"].sum()),
        idle_ns={name: int(ns) for name, ns in zip(CAUSE_NAMES, idle.tolist(), strict=True) if ns},
        peak_memory_bytes=None if level is None else int(level.bytes.max(initial=0)),
        link_bytes_per_s=rates.nvlink_bytes_per_s if rates else None,
        host_bytes_per_s=rates.link_bytes_per_s if rates else None,
        environment=run_figures.environment_of(trace, owner.device),
        cold=_cold(trace),
        warnings=trace.warnings,
    )


def _cold(trace: Trace) -> first_calls.ColdPasses | None:
    """Its cold passes; some of no time where a start, or one batch, is all that was recorded."""
    alone = first_calls.shows_first_calls_alone(trace)
    return first_calls.cold_passes(trace) or (first_calls.ColdPasses(0, 0, 0) if alone else None)


_SUMMED = ("compute_ns", "exposed_ns", "hidden_ns", "copies_ns")


def _steady_parts(steps: RankSteps, time: rank_windows.RankTime) -> tuple[int, dict[str, Integers]]:
    """Duration and parts of the steady steps; without steps, from first to last work."""
    if len(steps):
        kept = ~steps.warm_up
        parts = {part: getattr(steps, part)[kept] for part in (*_SUMMED, "idle_ns")}
        return int(steps.duration_ns[kept].sum()), parts
    begin, end = time.work.start[:1], time.work.end[-1:]
    return int((end - begin).sum()), rank_windows.parts_of(time, begin, end)


def _work(trace: Trace, owner: rank_windows.RankOwner, steady: Integers) -> tuple[WorkPart, ...]:
    """Kernels by class in the steady steps, or without steps in the whole run; most time first."""
    ops, rows = operations.operations(trace), rank_windows.operations_of(trace, owner)
    if len(steady):
        rows = rows[np.isin(step_of_operations(trace)[rows], steady)]
    rows = rows[ops.kind[rows] == operations.Kind.KERNEL]
    kind = kernel_classes.kernel_classes(trace)[ops.row[rows]]
    by, kernels = groups.group(kind), trace.recorded("kernels")
    time, calls = groups.sums(by, ops.duration_ns[rows]), groups.count(by)
    grid = [kernels[f"grid_{axis}"][ops.row[rows]].astype(np.int64) for axis in "xyz"]
    blocks = groups.sums(by, grid[0] * grid[1] * grid[2])
    order = groups.most_first(time)
    labels = [kernel_classes.KernelClass(number).label for number in kind[by.first[order]].tolist()]
    columns = (values[order].tolist() for values in (calls, time, blocks))
    return tuple(WorkPart(*row) for row in zip(labels, *columns, strict=True))
