"""How long the steps of the program take, which of them are outliers, and why."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview.base import groups, units
from traceview.base.groups import Groups
from traceview.base.tables import Keep, Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import (
    NULL,
    Array,
    Integers,
    Mask,
    RowNumbers,
    object_array,
    picked,
    row_numbers,
)
from traceview.traces.analyses import base, steps_findings, wording
from traceview.traces.facts.idle.step_parts import PARTS, step_parts
from traceview.traces.facts.operations import HOST, process_hosts
from traceview.traces.facts.ranges.ranges import RangeTree, range_tree
from traceview.traces.facts.ranges.selection import selected
from traceview.traces.facts.steps.kinds import requests_by_name
from traceview.traces.facts.steps.steps import loop_names, pace, step_names, steps, steps_source
from traceview.traces.rules import findings
from traceview.traces.trace import Selection, Trace
from traceview.traces.trace.schema import OPERATORS as DOMAIN

SERIES = TableSpec(
    "series",
    "one row per series of steps (ranges of one path pattern on one thread), or per loop "
    "where its loops differ",
    column_list(f"""
        series text: path pattern of the ranges, with # for numbers; numbered where loops differ
        steps int64: number of steps
        warm_up_steps int64: steps at the beginning that take longer than later ones
        outliers int64: later steps that take longer than the limit
        median_ns int64: median time per step after warm-up
        p90_ns int64?: 90th percentile of it
        limit_ns int64: a step that takes longer is warm-up or an outlier
        gpu_busy_pct float64?: percentage of the time of steps after warm-up
        sync_wait_pct float64: CPU time in synchronizations, as a percentage of these steps
        excess_ns int64: time of outliers beyond the median, including one-time idle time
        process_id int64: id of the operating system
        thread_id int64: id of the operating system
        {HOST}
    """),
    brief="series host_id process_id steps warm_up_steps median_ns p90_ns gpu_busy_pct outliers",
)
STEPS = TableSpec(
    "steps",
    "one row per step, outliers first, then in order of time",
    column_list(f"""
        step text: its range as --range takes it: the name, or where names repeat the path with a
            number
        kind text: warm-up, outlier, steady; or without-gpu-work in a loop that has GPU work
        duration_ns int64: from the end of the previous step's GPU work to the end of its own
        why sentence?: parts that make it longer than the median
        gpu_busy_ns int64?: GPU busy time
        gpu_idle_ns int64?: GPU idle time
        sync_wait_ns int64: CPU time in synchronizations and blocking copies in the range
        launches int64: launch calls
        operations int64: GPU operations launched in it
        requests int64?: requests that it serves, as a serving engine names it
        tokens int64?: tokens that it computes, likewise
        lead_ns int64?: end of its GPU work − end of its range
        cpu_ns int64: duration of its range
        cpu_start_ns int64: start of its range
        series text: series it belongs to
        process_id int64: id of the operating system
        thread_id int64: id of the operating system
        {HOST}
    """),
    brief="step host_id kind duration_ns why gpu_busy_ns gpu_idle_ns sync_wait_ns lead_ns",
    adds="launches operations",
)
PART_TABLE = TableSpec(
    "parts",
    "time of each step by part, in chronological order",
    column_list("""
        step text: as in steps
        part text: GPU work, or idle time by cause; CPU parts for a step without GPU work
        part_ns int64: time of the part; with several GPUs, their mean
    """),
    brief="step part part_ns",
    detail=True,
    adds="part_ns",
    keep=Keep("part_ns"),
)


OPERATORS = TableSpec(
    "operators",
    "one row per PyTorch operator, most CPU time of its own first",
    column_list("""
        operator text: name of the operator
        calls int64: number of calls; one inside a call of the same name is part of it
        own_ns int64: CPU time in it, outside the operators and ranges inside it
        total_ns int64: CPU time from start to end of these calls
        share_pct float64: own_ns as a percentage of that of all operators
    """),
    brief="operator calls own_ns total_ns share_pct",
    adds="calls own_ns share_pct",
    rare=True,
)


def operator_table(trace: Trace) -> Table:
    """The selected operators of all threads. Those that never ended count until the last event."""
    ranges = trace.recorded("ranges")
    chosen = ranges.texts("domain").isin([DOMAIN])
    chosen &= selected(trace, ranges["process"], ranges["start_ns"])
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return Table.empty(OPERATORS.columns)
    # Without shapes.
    names = ranges.texts("name")
    names = names.map([each.partition(", sizes = ")[0] for each in names.values.tolist()])
    # Own time, total time and whether inside a range of the same name, per row of ranges.
    # The total time of an inside range is 0.
    tree = range_tree(trace)
    count = len(ranges)
    own, total = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inner = np.zeros(count, bool)
    own[tree.row] = tree.nesting.own_ns
    inner[tree.row] = _inside_its_like(tree, names.codes[tree.row])
    total[tree.row] = tree.nesting.end - tree.nesting.start
    total[inner] = 0
    by = groups.group(names.codes[rows])
    own_ns = groups.sums(by, own[rows])
    table = Table(
        OPERATORS.columns,
        {
            "operator": names.take(rows[by.first]),
            "calls": groups.count(by, ~inner[rows]),
            "own_ns": own_ns,
            "total_ns": groups.sums(by, total[rows]),
            "share_pct": 100.0 * own_ns / max(int(own_ns.sum()), 1),
        },
    )
    return table.take(groups.most_first(own_ns))


def _inside_its_like(tree: RangeTree, name: RowNumbers) -> Mask:
    """True for ranges inside another range of the same name on their thread."""
    parent = tree.nesting.parent
    result = np.zeros(len(parent), bool)
    rows = np.flatnonzero(parent >= 0)
    above = parent[rows]
    # One pass per level of nesting.
    while len(rows):
        result[rows[name[above] == name[rows]]] = True
        above = parent[above]
        deeper = above >= 0
        rows, above = rows[deeper], above[deeper]
    return result


# How long the steps of the program take, which of them are outliers, and why.
#
# A step lasts from the end of the previous step's GPU work to the end of its own, since the CPU
# runs ahead; the first of a loop begins with its range. A step is an outlier beyond median +
# max(5 σ, 10 % of the median), where σ is 1.4826 × the median absolute deviation. Warm-up steps
# are those in the first half of a loop until the first within that limit, which is computed from
# the later half. Idle time that a longer run does not repeat (warm-up, first uses) is not a loss
# of a step.


def compute(trace: Trace) -> base.Result:
    # The parts of a step do not depend on which steps are selected.
    whole = trace.but(selection=Selection()) if trace.selection else trace
    all_steps = steps(whole)
    chosen = selected(trace, all_steps.process, all_steps.cpu_start_ns)
    labels = step_names(whole)
    return base.Result(
        base.Deferred(
            lambda: {
                "series": _series(whole, chosen),
                "steps": _steps(whole, chosen, labels),
                "parts": _parts(whole, chosen, labels),
                "operators": operator_table(trace),
            }
        ),
        tuple(findings(whole, [steps_findings.slow_steps(chosen)])),
        summary={"steps_from": steps_source(whole)},
        notes=_notes(whole, chosen) if len(all_steps) else (_no_steps(whole),),
    )


def _no_steps(trace: Trace) -> str:
    how = wording.by_recorder(
        trace,
        "Put a range around each step of the program: with torch.cuda.nvtx.range(f'step_{i}').",
        "Call prof.step() after each step of the program.",
        "Put a range around each step of the program: with torch.cuda.nvtx.range(f'step_{i}').",
    )
    return f"Neither ranges nor launches repeat, so there are no steps to compare. {how}"


_REPEATED = (
    "The recording has no range around a step. Each step here is one pass of the repeating "
    "launch sequence. It begins after the last launch of the previous pass."
)


def _notes(trace: Trace, chosen: Mask) -> tuple[str, ...]:
    """Notes on the source of steps if not ranges, and on steps that add no time."""
    repeated = (_REPEATED,) if steps_source(trace) == "repetition" else ()
    under = chosen & (steps(trace).operations > 0) & (pace(trace).duration_ns == 0)
    count = int(under.sum())
    if not count:
        return repeated
    return (
        *repeated,
        f"{count} of {units.counted(int(chosen.sum()), 'step')} add no time: their GPU work "
        "ended no later than that of an earlier step.",
    )


_KINDS = ("warm-up", "outlier", "without-gpu-work", "steady")


def _kinds(trace: Trace) -> Texts:
    timed = pace(trace)
    kind = np.select([timed.warm_up, timed.outlier, ~timed.timed], [0, 1, 2], 3)
    return Texts(kind.astype(np.int32), object_array(_KINDS))


def _location(trace: Trace, rows: Array) -> dict[str, Integers]:
    """Process, thread and host of some steps."""
    all_steps = steps(trace)
    process, thread = picked(all_steps.process, rows), picked(all_steps.thread, rows)
    return {
        "process_id": picked(trace.processes["process_id"], process),
        "thread_id": picked(trace.threads["thread_id"], thread),
        "host_id": picked(process_hosts(trace), process),
    }


def _series(trace: Trace, chosen: Mask) -> Table:
    all_steps, timed, parts = steps(trace), pace(trace), step_parts(trace)
    rows = np.flatnonzero(chosen)
    loop = groups.group(timed.loop[rows])
    first = rows[loop.first]
    steady = timed.timed[rows] & ~timed.warm_up[rows]
    working = steady & (all_steps.operations[rows] > 0)
    late = timed.outlier[rows]
    duration_ns, excess = timed.duration_ns[rows], (timed.duration_ns - timed.median_ns)[rows]

    def total(values: Integers, counted: Mask) -> Integers:
        return groups.sums(loop, np.where(counted, values, 0))

    cpu = total((all_steps.cpu_end_ns - all_steps.cpu_start_ns)[rows], steady)
    table = Table(
        SERIES.columns,
        {
            "series": loop_names(trace).take(first),
            "steps": groups.count(loop),
            "warm_up_steps": groups.count(loop, timed.warm_up[rows]),
            "outliers": groups.count(loop, late),
            "median_ns": timed.median_ns[first],
            "p90_ns": _ninetieth(loop, duration_ns, steady),
            "limit_ns": timed.limit_ns[first],
            "gpu_busy_pct": _pct(total(parts.busy_ns[rows], working), total(duration_ns, working)),
            "sync_wait_pct": _pct(total(parts.sync_wait_ns[rows], steady), np.maximum(cpu, 1)),
            "excess_ns": total(excess, late),
            **_location(trace, first),
        },
    )
    spent = table["median_ns"] * table["steps"]
    return table.take(np.argsort(-spent, kind="stable"))


def _ninetieth(loop: Groups, duration_ns: Integers, counted: Mask) -> Integers:
    """90th percentile of the counted times of each loop."""
    rows = np.flatnonzero(counted)
    quantile_ns = groups.quantile(loop.ids[rows], loop.size, duration_ns[rows], 0.9)
    return np.where(groups.count(loop, counted) > 0, np.rint(quantile_ns).astype(np.int64), NULL)


def _pct(part: Integers, whole: Integers) -> npt.NDArray[np.float64]:
    none = np.full(len(part), np.nan)
    return np.divide(100.0 * part, whole, out=none, where=whole > 0)


def _steps(trace: Trace, chosen: Mask, labels: Texts) -> Table:
    all_steps, timed, parts = steps(trace), pace(trace), step_parts(trace)
    excess = np.where(timed.outlier, timed.duration_ns - timed.median_ns, 0)
    by_cost = np.lexsort((all_steps.cpu_start_ns, -excess))
    order = row_numbers(by_cost[chosen[by_cost]])
    none = all_steps.operations[order] == 0
    requests, tokens = requests_by_name(all_steps.names)
    return Table(
        STEPS.columns,
        {
            "step": labels.take(order),
            "kind": _kinds(trace).take(order),
            "duration_ns": timed.duration_ns[order],
            "why": steps_findings.reason_texts(trace).take(order),
            "gpu_busy_ns": np.where(none, NULL, parts.busy_ns[order]),
            "gpu_idle_ns": np.where(none, NULL, parts.idle_ns[order]),
            "sync_wait_ns": picked(parts.sync_wait_ns, order),
            "launches": picked(parts.launches, order),
            "operations": picked(all_steps.operations, order),
            "requests": requests[order],
            "tokens": tokens[order],
            "lead_ns": np.where(none, NULL, (all_steps.gpu_end_ns - all_steps.cpu_end_ns)[order]),
            "cpu_ns": (all_steps.cpu_end_ns - all_steps.cpu_start_ns)[order],
            "cpu_start_ns": all_steps.cpu_start_ns[order],
            "series": loop_names(trace).take(order),
            **_location(trace, order),
        },
    )


def _parts(trace: Trace, chosen: Mask, labels: Texts) -> Table:
    part = step_parts(trace).part_ns
    order = np.argsort(steps(trace).cpu_start_ns, kind="stable")
    order = order[chosen[order]]
    occurring = np.flatnonzero(part.any(axis=0))
    nonzero = np.zeros((len(order), len(occurring)), bool)
    for place, column in enumerate(occurring.tolist()):
        nonzero[:, place] = part[:, column][order] != 0
    step, kind = np.divmod(np.flatnonzero(nonzero.ravel()), max(len(occurring), 1))
    rows, columns = row_numbers(order)[step], row_numbers(occurring)[kind]
    return Table(
        PART_TABLE.columns,
        {
            "step": labels.take(rows),
            "part": Texts(columns, object_array(PARTS)),
            "part_ns": part[rows, columns],
        },
    )


ANALYSIS = base.Analysis(
    name="steps",
    title="Steps",
    question="How long does each step take, which ones are outliers, and why?",
    needs=("ranges",),
    tables=(SERIES, STEPS, PART_TABLE, OPERATORS),
    compute=compute,
    charts=(
        base.Chart(
            "columns",
            "parts",
            "Time of each step by part",
            "step",
            "part_ns",
            stack="part",
            most=400,
        ),
    ),
)
