"""How long the steps of the program take, which of them are unlike the others, and why.

`facts.series` says which ranges are steps, `facts.loops` which of them are compared, `facts.steps`
how long a step lasts and what makes one a warm-up step or an outlier: its own time, never its place
alone. Idle time that a longer run does not repeat (set-up, first uses) is no loss of a step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Keep, Result, TableSpec
from traceview.analyses.steps.parts import PARTS, step_parts
from traceview.analyses.steps.reasons import reasons
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.hosts import HOST, process_hosts
from traceview.facts.ranges.selection import selected
from traceview.facts.steps.names import loop_names, selects_alone, step_names
from traceview.facts.steps.steps import pace, steps
from traceview.findings import Finding, severity_of, shortened
from traceview.groups import Groups
from traceview.tables import (
    NULL,
    Array,
    Column,
    Integers,
    Mask,
    Table,
    Texts,
    object_array,
    picked,
    row_numbers,
)
from traceview.trace import Selection, Trace

SERIES = TableSpec(
    "series",
    "one row a series of steps: ranges of one path, numbers aside, on one thread; where it holds "
    "unlike loops, one row a loop",
    (
        Column("series", "text", "path of the ranges, numbers as #; a count where loops differ"),
        Column("steps", "int64", "steps"),
        Column("warm_up_steps", "int64", "steps at the beginning that take longer than later ones"),
        Column("outliers", "int64", "later steps that take longer than the others"),
        Column("median_ns", "int64", "median time of a step after warm-up"),
        Column("p90_ns", "int64", "90th percentile of it", nullable=True),
        Column("limit_ns", "int64", "what takes longer is a warm-up step or an outlier"),
        Column("gpu_busy_pct", "float64", "GPU busy during the steps after warm-up", nullable=True),
        Column("sync_wait_pct", "float64", "CPU in synchronizations, of its time in these steps"),
        Column("excess_ns", "int64", "time of the outliers beyond the median, one-time idle too"),
        Column("process_id", "int64", "id of the operating system"),
        Column("thread_id", "int64", "id of the operating system"),
        HOST,
    ),
    brief=(
        "series",
        "host_id",
        "process_id",
        "steps",
        "warm_up_steps",
        "median_ns",
        "p90_ns",
        "gpu_busy_pct",
        "outliers",
    ),
)
STEPS = TableSpec(
    "steps",
    "one row a step, outliers first, then in order of time",
    (
        Column(
            "step",
            "text",
            "its range, as --range selects it: name, path where names repeat, then with a count",
        ),
        Column("kind", "text", "warm-up, outlier, steady; without-gpu-work among steps with some"),
        Column(
            "duration_ns", "int64", "from the end of the GPU work of the step before to its own"
        ),
        Column("why", "text", "what makes it longer than the median", nullable=True, prose=True),
        Column("gpu_busy_ns", "int64", "GPU busy in that time", nullable=True),
        Column("gpu_idle_ns", "int64", "GPU idle in that time", nullable=True),
        Column("sync_wait_ns", "int64", "CPU in synchronizations and blocking copies in the range"),
        Column("launches", "int64", "launch calls"),
        Column("operations", "int64", "GPU work launched in it"),
        Column("lead_ns", "int64", "end of its GPU work less end of its range", nullable=True),
        Column("cpu_ns", "int64", "duration of its range"),
        Column("cpu_start_ns", "int64", "the CPU begins the range"),
        Column("series", "text", "series that it is of"),
        Column("process_id", "int64", "id of the operating system"),
        Column("thread_id", "int64", "id of the operating system"),
        HOST,
    ),
    brief=(
        "step",
        "host_id",
        "kind",
        "duration_ns",
        "why",
        "gpu_busy_ns",
        "gpu_idle_ns",
        "sync_wait_ns",
        "lead_ns",
    ),
    adds=("launches", "operations"),
)
PART_TABLE = TableSpec(
    "parts",
    "what the time of each step consists of, in order of time",
    (
        Column("step", "text", "as in steps"),
        Column("part", "text", "work of the GPU, or idle by cause; of a step without any, the CPU"),
        Column("part_ns", "int64", "its time; with several GPUs, the mean of these"),
    ),
    brief=("step", "part", "part_ns"),
    detail=True,
    adds=("part_ns",),
    keep=Keep("part_ns"),
)


def compute(trace: Trace) -> Result:
    # What a step is made of does not depend on which steps a reader wants to see.
    whole = trace.restricted(Selection()) if trace.selection else trace
    found = steps(whole)
    chosen = selected(trace, found.process, found.cpu_start_ns)
    labels, why = step_names(whole), reasons(whole)
    return Result(
        {
            "series": _series(whole, chosen),
            "steps": _steps(whole, chosen, labels, why),
            "parts": _parts(whole, chosen, labels),
        },
        _findings(whole, chosen, labels, why),
        notes=_notes(whole, chosen) if len(found) else (_NO_STEPS,),
    )


_NO_STEPS = (
    "No range repeats, so there are no steps to compare. Put a range around each step of the "
    "program: with torch.cuda.nvtx.range(f'step_{i}')."
)


def _notes(trace: Trace, chosen: Mask) -> tuple[str, ...]:
    """Says of steps without a time of their own why they have none."""
    under = chosen & (steps(trace).operations > 0) & (pace(trace).took_ns == 0)
    count = int(under.sum())
    if not count:
        return ()
    return (
        f"{count} of {units.counted(int(chosen.sum()), 'step')} took no time beyond that of the "
        "steps before: their GPU work was done no later than that of a step before them.",
    )


_KINDS = ("warm-up", "outlier", "without-gpu-work", "steady")


def _kinds(trace: Trace) -> Texts:
    timed = pace(trace)
    kind = np.select([timed.warm_up, timed.outlier, ~timed.timed], [0, 1, 2], 3)
    return Texts(kind.astype(np.int32), object_array(_KINDS))


def _places(trace: Trace, rows: Array) -> dict[str, Integers]:
    """Process, thread and host of some steps."""
    found = steps(trace)
    process, thread = picked(found.process, rows), picked(found.thread, rows)
    return {
        "process_id": picked(trace.processes["process_id"], process),
        "thread_id": picked(trace.threads["thread_id"], thread),
        "host_id": picked(process_hosts(trace), process),
    }


def _series(trace: Trace, chosen: Mask) -> Table:
    found, timed, parts = steps(trace), pace(trace), step_parts(trace)
    rows = np.flatnonzero(chosen)
    loop = groups.group(timed.loop[rows])
    first = rows[loop.first]
    steady = timed.timed[rows] & ~timed.warm_up[rows]
    working = steady & (found.operations[rows] > 0)
    late = timed.outlier[rows]
    took, excess = timed.took_ns[rows], (timed.took_ns - timed.median_ns)[rows]

    def total(values: Integers, mine: Mask) -> Integers:
        return groups.sums(loop, np.where(mine, values, 0))

    cpu = total((found.cpu_end_ns - found.cpu_start_ns)[rows], steady)
    table = Table(
        SERIES.columns,
        {
            "series": loop_names(trace).take(first),
            "steps": groups.count(loop),
            "warm_up_steps": groups.count(loop, timed.warm_up[rows]),
            "outliers": groups.count(loop, late),
            "median_ns": timed.median_ns[first],
            "p90_ns": _ninetieth(loop, took, steady),
            "limit_ns": timed.limit_ns[first],
            "gpu_busy_pct": _pct(total(parts.busy_ns[rows], working), total(took, working)),
            "sync_wait_pct": _pct(total(parts.sync_wait_ns[rows], steady), np.maximum(cpu, 1)),
            "excess_ns": total(excess, late),
            **_places(trace, first),
        },
    )
    spent = table["median_ns"] * table["steps"]
    return table.take(np.argsort(-spent, kind="stable"))


def _ninetieth(loop: Groups, took: Integers, counted: Mask) -> Integers:
    """90th percentile of the counted times of each loop."""
    rows = np.flatnonzero(counted)
    found = groups.quantile(loop.ids[rows], loop.size, took[rows], 0.9)
    return np.where(groups.count(loop, counted) > 0, np.rint(found).astype(np.int64), NULL)


def _pct(part: Integers, whole: Integers) -> npt.NDArray[np.float64]:
    none = np.full(len(part), np.nan)
    result: npt.NDArray[np.float64] = np.divide(100.0 * part, whole, out=none, where=whole > 0)
    return result


def _steps(trace: Trace, chosen: Mask, labels: Texts, why: Texts) -> Table:
    found, timed, parts = steps(trace), pace(trace), step_parts(trace)
    excess = np.where(timed.outlier, timed.took_ns - timed.median_ns, 0)
    by_cost = np.lexsort((found.cpu_start_ns, -excess))
    order = row_numbers(by_cost[chosen[by_cost]])
    none = found.operations[order] == 0
    return Table(
        STEPS.columns,
        {
            "step": labels.take(order),
            "kind": _kinds(trace).take(order),
            "duration_ns": timed.took_ns[order],
            "why": why.take(order),
            "gpu_busy_ns": np.where(none, NULL, parts.busy_ns[order]),
            "gpu_idle_ns": np.where(none, NULL, parts.idle_ns[order]),
            "sync_wait_ns": picked(parts.sync_wait_ns, order),
            "launches": picked(parts.launches, order),
            "operations": picked(found.operations, order),
            "lead_ns": np.where(none, NULL, (found.gpu_end_ns - found.cpu_end_ns)[order]),
            "cpu_ns": (found.cpu_end_ns - found.cpu_start_ns)[order],
            "cpu_start_ns": found.cpu_start_ns[order],
            "series": loop_names(trace).take(order),
            **_places(trace, order),
        },
    )


def _parts(trace: Trace, chosen: Mask, labels: Texts) -> Table:
    part = step_parts(trace).part_ns
    order = np.argsort(steps(trace).cpu_start_ns, kind="stable")
    order = order[chosen[order]]
    occurring = np.flatnonzero(part.any(axis=0))
    there = np.zeros((len(order), len(occurring)), bool)
    for place, column in enumerate(occurring.tolist()):
        there[:, place] = part[:, column][order] != 0
    step, kind = np.divmod(np.flatnonzero(there.ravel()), max(len(occurring), 1))
    rows, columns = row_numbers(order)[step], row_numbers(occurring)[kind]
    return Table(
        PART_TABLE.columns,
        {
            "step": labels.take(rows),
            "part": Texts(columns, object_array(PARTS)),
            "part_ns": part[rows, columns],
        },
    )


def _findings(trace: Trace, chosen: Mask, labels: Texts, why: Texts) -> tuple[Finding, ...]:
    """One finding a loop whose outliers cost time, idle time aside that comes once."""
    timed = pace(trace)
    lasting = timed.took_ns - step_parts(trace).once_ns
    again = np.flatnonzero(timed.outlier & (lasting > timed.limit_ns) & chosen)
    size = np.bincount(timed.loop)
    findings = []
    for late in np.split(again, np.flatnonzero(np.diff(timed.loop[again])) + 1):
        excess = lasting[late] - timed.median_ns[late]
        at_stake = int(excess.sum())
        severity = severity_of(at_stake, steady_span_ns(trace))
        if not len(late) or severity is None:
            continue
        worst = int(late[np.argmax(excess)])
        label = labels[worst] or ""
        said = _of_one(trace, worst, label, why[worst] or "")
        action = (
            f"Look at what {shortened(label)} does that the others do not"
            f"{_selecting(trace, worst, label)}."
        )
        if len(late) > 1:
            said = _of_several(trace, int(size[timed.loop[worst]]), late, at_stake) + said
        findings.append(Finding(severity, said, action, at_stake))
    return tuple(findings)


_TYPED = 200
"""Nobody types a name of more characters into a shell."""


def _selecting(trace: Trace, step: int, label: str) -> str:
    """How to select that step alone, for a shell; nothing where its name is none to type."""
    if len(label) > _TYPED or not label.isprintable():
        return ""
    if not selects_alone(trace, step, label):
        return ""
    quoted = label.replace("'", "'\"'\"'")
    return f": --range '{quoted}'"


def _of_one(trace: Trace, step: int, label: str, why: str) -> str:
    timed, once = pace(trace), int(step_parts(trace).once_ns[step])
    took, median = (units.duration(int(ns[step])) for ns in (timed.took_ns, timed.median_ns))
    aside = f"; {units.duration(once)} of it idle in set-up or first uses" if once else ""
    return f"{shortened(label)} took {took} (median {median}): {why}{aside}"


def _of_several(trace: Trace, steps: int, late: Integers, at_stake: int) -> str:
    beyond = ", set-up and first uses aside" if step_parts(trace).once_ns[late].any() else ""
    loop = shortened(loop_names(trace)[int(late[0])])
    return (
        f"{len(late)} of {units.counted(steps, 'step')} of {loop} took "
        f"{units.duration(at_stake)} more than the median together{beyond}; the longest, "
    )


ANALYSIS = Analysis(
    name="steps",
    title="Steps",
    question="How long does each step take, which ones are unlike the others, and why?",
    needs=("ranges",),
    tables=(SERIES, STEPS, PART_TABLE),
    compute=compute,
    charts=(
        Chart(
            "columns",
            "parts",
            "What the time of each step consists of",
            "step",
            "part_ns",
            stack="part",
            most=400,
        ),
    ),
)
