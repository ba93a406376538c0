"""The figures of the ranks of a recording, from its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.comparison.extraction.environment import environment_of
from traceview.comparison.extraction.run_figures import digest_of
from traceview.facts.memory.levels import levels
from traceview.facts.operations.kernel_classes import KernelClass, kernel_classes
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.steps.inferred import with_steps
from traceview.facts.steps.steps import step_of_operations
from traceview.hardware.rates import rates_of
from traceview.ranks.extraction.cpu_pace import cpu_pace
from traceview.ranks.extraction.owners import RankOwner, operations_of, rank_names, rank_owners
from traceview.ranks.extraction.rank_collectives import (
    communicators_of,
    group_texts,
    rank_collectives,
)
from traceview.ranks.extraction.windows import RankTime, loop_of, parts_of, rank_steps, rank_time
from traceview.ranks.figures import RankFigures, RankName, RankSteps, WorkPart
from traceview.tables import Integers
from traceview.trace import Selection, Trace
from traceview.vocabulary.causes import CAUSE_NAMES

Parts = Mapping[str, Integers]


def figures_of_ranks(trace: Trace) -> tuple[RankFigures, ...]:
    """The figures of each GPU that a process of the recording works on; none without GPU work.

    `verdict`, `limit` and `findings`, which come from the rank's own report, are left empty.
    """
    trace = with_steps(trace.restricted(Selection()) if trace.selection else trace)
    owners = rank_owners(trace)
    names = rank_names(trace, owners)
    return tuple(_figures(trace, *each) for each in zip(owners, names, strict=True))


def _figures(trace: Trace, owner: RankOwner, name: RankName) -> RankFigures:
    time, loop = rank_time(trace, owner), loop_of(trace, owner)
    steps, exchanged = rank_steps(trace, loop, time), rank_collectives(trace, owner, time, loop)
    pace = cpu_pace(trace, owner, loop)
    if len(pace.cpu_ns):
        steps = replace(steps, cpu_ns=pace.cpu_ns)
    span_ns, parts = _steady_parts(steps, time)
    group_names, group_ranks = group_texts(trace, owner.process)
    origin, level = trace.run.get("clock_origin_ns", ""), levels(trace).get(owner.device)
    rates = rates_of(name.gpu, _sm_count(trace, owner.device))
    idle = parts["idle_ns"].sum(axis=0)
    return RankFigures(
        name=name,
        path=trace.path,
        recorder=trace.recorder,
        digest=digest_of(trace),
        clock_offset_ns=int(origin) if origin.isdecimal() and int(origin) else None,
        collectives=exchanged.collectives,
        steps=steps,
        communicators=communicators_of(trace, owner.process),
        group_names=group_names,
        group_ranks=group_ranks,
        places=exchanged.places,
        cpu_places=pace.places,
        cpu_place_ns=pace.place_ns,
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
        environment=environment_of(trace, owner.device),
        warnings=trace.warnings,
    )


_SUMMED = ("compute_ns", "exposed_ns", "hidden_ns", "copies_ns")


def _steady_parts(steps: RankSteps, time: RankTime) -> tuple[int, Parts]:
    """Duration and parts of the steady steps; without steps, from first to last work."""
    if len(steps):
        kept = ~steps.warm_up
        parts = {each: getattr(steps, each)[kept] for each in (*_SUMMED, "idle_ns")}
        return int(steps.duration_ns[kept].sum()), parts
    begin, end = time.work.start[:1], time.work.end[-1:]
    return int((end - begin).sum()), parts_of(time, begin, end)


def _work(trace: Trace, owner: RankOwner, steady: Integers) -> tuple[WorkPart, ...]:
    """Kernels by class in the steady steps, or without steps in the whole run; most time first."""
    ops, rows = operations(trace), operations_of(trace, owner)
    if len(steady):
        rows = rows[np.isin(step_of_operations(trace)[rows], steady)]
    rows = rows[ops.kind[rows] == Kind.KERNEL]
    kind = kernel_classes(trace)[ops.row[rows]]
    by, kernels = groups.group(kind), trace.recorded("kernels")
    time, calls = groups.sums(by, ops.duration_ns[rows]), groups.count(by)
    grid = [kernels[f"grid_{axis}"][ops.row[rows]].astype(np.int64) for axis in "xyz"]
    blocks = groups.sums(by, grid[0] * grid[1] * grid[2])
    return tuple(
        WorkPart(
            KernelClass(int(kind[by.first[each]])).label,
            int(calls[each]),
            int(time[each]),
            int(blocks[each]),
        )
        for each in groups.most_first(time).tolist()
    )


def _sm_count(trace: Trace, device: int) -> int | None:
    count = trace.devices.cells("sm_count")[device]
    return int(count) if count is not None else None
