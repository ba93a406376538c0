"""How long the steps of the program take, which of them are unlike the others, and why.

`facts.series` says which ranges are steps, `facts.steps` how long a step lasts and what makes one
a warm-up step or an outlier: its own time, never its place alone.
"""

from __future__ import annotations

import numpy as np

from traceview import units
from traceview.analyses.base import (
    Analysis,
    Chart,
    Finding,
    Keep,
    Result,
    TableSpec,
    named,
    severity_of,
)
from traceview.facts.identity import HOST, process_hosts
from traceview.facts.idle import steady_span_ns
from traceview.facts.ranges import range_tree
from traceview.facts.selection import selected
from traceview.facts.step_names import step_names
from traceview.facts.step_parts import PARTS, step_parts
from traceview.facts.step_reasons import reasons
from traceview.facts.steps import pace, series_of, steps
from traceview.tables import NULL, Cell, Column, Integers, Mask, Table, Texts
from traceview.trace import Selection, Trace

SERIES = TableSpec(
    "series",
    "one row a series of steps: ranges of one path, numbers aside, on one thread",
    (
        Column("series", "text", "path of the ranges with their numbers as #"),
        Column("steps", "int64", "steps"),
        Column("warm_up_steps", "int64", "steps at the beginning that take longer than later ones"),
        Column("outliers", "int64", "later steps that take longer than the others"),
        Column("median_ns", "int64", "median time of a step after warm-up"),
        Column("p90_ns", "int64", "90th percentile of it"),
        Column("limit_ns", "int64", "what takes longer is a warm-up step or an outlier"),
        Column("gpu_busy_pct", "float64", "GPU busy during the steps after warm-up", nullable=True),
        Column("sync_wait_pct", "float64", "CPU in synchronizations, of its time in these steps"),
        Column("excess_ns", "int64", "time of the outliers beyond the median"),
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
        Column("step", "text", "name of its range, with the path or a count where names repeat"),
        Column("kind", "text", "warm-up, outlier, steady; without-gpu-work among steps with some"),
        Column(
            "duration_ns", "int64", "from the end of the GPU work of the step before to its own"
        ),
        Column("why", "text", "what makes it longer than the median", nullable=True),
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
        notes=() if len(found) else (_NO_STEPS,),
    )


_NO_STEPS = (
    "No range repeats, so there are no steps to compare. Put a range around each step of the "
    "program: with torch.cuda.nvtx.range(f'step_{i}')."
)


def _kinds(trace: Trace) -> list[str]:
    timed = pace(trace)
    kind = np.select(
        [timed.warm_up, timed.outlier, ~timed.timed],
        ["warm-up", "outlier", "without-gpu-work"],
        "steady",
    )
    return [str(each) for each in kind]


def _places(trace: Trace, rows: Integers) -> dict[str, Integers]:
    """Process, thread and host of some steps."""
    found = steps(trace)
    process = found.process[rows]
    return {
        "process_id": trace.processes["process_id"][process],
        "thread_id": trace.threads["thread_id"][found.thread[rows]],
        "host_id": process_hosts(trace)[process],
    }


def _pattern_texts(trace: Trace, rows: Integers) -> Texts:
    tree = range_tree(trace)
    pattern = tree.path_pattern[tree.path[steps(trace).range[rows]]]
    return Texts.of(tree.patterns[each] for each in pattern)


def _series(trace: Trace, chosen: Mask) -> Table:
    rows = [
        row for each in series_of(steps(trace)) if (row := _one_series(trace, each[chosen[each]]))
    ]
    table = Table.from_rows(SERIES.columns, rows)
    spent = np.array([int(row["median_ns"] or 0) * int(row["steps"] or 0) for row in rows])
    return table.take(np.argsort(-spent, kind="stable"))


def _one_series(trace: Trace, rows: Integers) -> dict[str, Cell] | None:
    if not len(rows):
        return None
    found, timed, parts = steps(trace), pace(trace), step_parts(trace)
    steady = rows[timed.timed[rows] & ~timed.warm_up[rows]]
    took = timed.took_ns[steady]
    on_gpu = steady[found.operations[steady] > 0]
    cpu = int((found.cpu_end_ns - found.cpu_start_ns)[steady].sum())
    late = timed.outlier[rows]
    figures: dict[str, Cell] = {
        "series": _pattern_texts(trace, rows[:1])[0],
        "steps": len(rows),
        "warm_up_steps": int(timed.warm_up[rows].sum()),
        "outliers": int(late.sum()),
        "median_ns": int(timed.median_ns[rows[0]]),
        "p90_ns": round(float(np.percentile(took, 90))) if len(took) else 0,
        "limit_ns": int(timed.limit_ns[rows[0]]),
        "gpu_busy_pct": _busy_pct(parts.busy_ns[on_gpu], timed.took_ns[on_gpu]),
        "sync_wait_pct": 100.0 * int(parts.sync_wait_ns[steady].sum()) / max(cpu, 1),
        "excess_ns": int((timed.took_ns - timed.median_ns)[rows][late].sum()),
    }
    places = {
        name: None if values[0] == NULL else int(values[0])
        for name, values in _places(trace, rows[:1]).items()
    }
    return {**figures, **places}


def _busy_pct(busy: Integers, took: Integers) -> float | None:
    return 100.0 * int(busy.sum()) / int(took.sum()) if took.any() else None


def _steps(trace: Trace, chosen: Mask, labels: list[str], why: list[str | None]) -> Table:
    found, timed, parts = steps(trace), pace(trace), step_parts(trace)
    none = found.operations == 0
    every = np.arange(len(found))
    table = Table(
        STEPS.columns,
        {
            "step": Texts.of(labels),
            "kind": Texts.of(_kinds(trace)),
            "duration_ns": timed.took_ns,
            "why": Texts.of(why),
            "gpu_busy_ns": np.where(none, NULL, parts.busy_ns),
            "gpu_idle_ns": np.where(none, NULL, parts.idle_ns),
            "sync_wait_ns": parts.sync_wait_ns,
            "launches": parts.launches,
            "operations": found.operations,
            "lead_ns": np.where(none, NULL, found.gpu_end_ns - found.cpu_end_ns),
            "cpu_ns": found.cpu_end_ns - found.cpu_start_ns,
            "cpu_start_ns": found.cpu_start_ns,
            "series": _pattern_texts(trace, every),
            **_places(trace, every),
        },
    )
    excess = np.where(timed.outlier, timed.took_ns - timed.median_ns, 0)
    order = np.lexsort((found.cpu_start_ns, -excess))
    return table.take(order[chosen[order]])


def _parts(trace: Trace, chosen: Mask, labels: list[str]) -> Table:
    part = step_parts(trace).part_ns
    order = np.argsort(steps(trace).cpu_start_ns, kind="stable")
    order = order[chosen[order]]
    row, column = np.nonzero(part[order])
    return Table(
        PART_TABLE.columns,
        {
            "step": Texts.of(labels[order[each]] for each in row.tolist()),
            "part": Texts.of(PARTS[each] for each in column.tolist()),
            "part_ns": part[order][row, column],
        },
    )


def _findings(
    trace: Trace, chosen: Mask, labels: list[str], why: list[str | None]
) -> tuple[Finding, ...]:
    """One finding a series whose outliers cost time."""
    found, timed = steps(trace), pace(trace)
    findings = []
    for rows in series_of(found):
        late = rows[timed.outlier[rows] & chosen[rows]]
        excess = (timed.took_ns - timed.median_ns)[late]
        severity = severity_of(int(excess.sum()), steady_span_ns(trace))
        if not len(late) or severity is None:
            continue
        worst = int(late[np.argmax(excess)])
        findings.append(
            Finding(
                severity,
                _message(trace, rows, late, int(excess.sum()), labels[worst], why[worst] or ""),
                f"Look at what {named(labels[worst])} does that the others do not: "
                f"--range '{named(str(found.name[worst]))}'.",
                int(excess.sum()),
            )
        )
    return tuple(findings)


def _message(
    trace: Trace, rows: Integers, late: Integers, excess_ns: int, worst: str, why: str
) -> str:
    timed = pace(trace)
    longest = int(timed.took_ns[late].max())
    median = f"median {units.duration(int(timed.median_ns[late[0]]))}"
    said = f"{named(worst)} took {units.duration(longest)} ({median}): {why}"
    if len(late) == 1:
        return said
    series = named(_pattern_texts(trace, late[:1])[0])
    return (
        f"{len(late)} of {units.counted(len(rows), 'step')} of {series} took "
        f"{units.duration(excess_ns)} more than the median together; the longest, {said}"
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
