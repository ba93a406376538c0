"""What each process did from its first event to its last, and what compilation cost.

Start-up lasts until the first launch, shut-down begins where the last GPU work ends; where a run is
about what the CPU does then, both are CPU work, as in the verdict. In between, training shows in
launches by autograd's threads and in kernels of an optimizer, replay in launches of CUDA graphs,
generation in attention that alternates with the choice of a token, and evaluation in passes of
training's kernels without a backward pass. The phase in which the first steady step begins is
warm-up until then. While code is compiled, the phase is compilation, whatever else happens.
Stretches below 1 ms join the one before.

`busy_pct` is the union of the process's GPU work ÷ the length of the phase. The verdict is
gpu-bound from 90 %, else that of the causes of more than half of the idle time, else mixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceview.base import groups
from traceview.base.tables import Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import Array, Integers, Mask, object_array, picked, unbroken
from traceview.base.vocabulary import activities, causes
from traceview.traces.analyses.base import Analysis, Chart, Result
from traceview.traces.analyses.phases.findings import RULES, replayed_sequences
from traceview.traces.analyses.phases.phases import (
    WITHOUT_WORK,
    Phase,
    Phases,
    phases,
    selected_phases,
)
from traceview.traces.analyses.verdict.parts import steady_parts
from traceview.traces.analyses.verdict.verdict import late_word
from traceview.traces.facts import code, compilation, operations, python_events
from traceview.traces.facts.idle import launching, lines
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.rules import findings
from traceview.traces.trace import Trace

_MOST = 0.5


def verdicts(trace: Trace, every: Phases) -> list[str]:
    """The verdict on each phase, by the cause of most of its idle time if it has much."""
    phase_of_gaps = _phase_of_gaps(trace, every)
    # Idle time of each phase by cause, shape (phases, causes): a gap counts where it ends.
    # Beside time that a longer run repeats, first uses do not count.
    gaps, chosen = every_gap(trace), phase_of_gaps >= 0
    steady = np.bincount(phase_of_gaps[chosen & ~gaps.one_time], minlength=len(every)) > 0
    chosen &= ~gaps.one_time | ~np.append(steady, False)[phase_of_gaps]
    own = unbroken(np.flatnonzero(chosen))
    row = picked(phase_of_gaps, own)
    inside = np.maximum(picked(gaps.start_ns, own), picked(every.start_ns, row))
    length = np.maximum(picked(gaps.end_ns, own) - inside, 0)
    result = np.zeros(len(every) * len(causes.CAUSES), np.int64)
    np.add.at(result, row * len(causes.CAUSES) + picked(gaps.cause, own), length)
    idle = result.reshape(len(every), len(causes.CAUSES))
    # Idle time of each phase in which the program waited for data or loaded it, by samples.
    samples = lines.idle_samples(trace)
    loading = np.isin(samples.doing, (activities.DATA_WAIT, activities.DATA_LOADING))
    # The gaps of samples are rows of the selected gaps.
    selected = np.flatnonzero(selected_operations(trace)[every_gap(trace).after])
    row = phase_of_gaps[selected[samples.gap[loading]]]
    time_ns = samples.time_ns[loading][row >= 0]
    data_ns = np.bincount(row[row >= 0], time_ns, minlength=len(every)).astype(np.int64)
    duration = every.end_ns - every.start_ns
    columns = (each.tolist() for each in (every.phase, duration, every.busy_ns, data_ns))
    rows = zip(*columns, idle, strict=True)
    parts = steady_parts(trace)
    late = late_word(trace, parts.device) if parts else "launch-bound"
    found = (_verdict(Phase(phase), *figures) for phase, *figures in rows)
    return [late if each == "launch-bound" else each for each in found]


def _verdict(phase: Phase, duration_ns: int, busy_ns: int, data_ns: int, idle_ns: Array) -> str:
    if phase == Phase.COMPILATION:
        return "compilation"
    if phase in WITHOUT_WORK or not busy_ns:
        return "no-gpu-work"
    if 100.0 * busy_ns >= (100.0 - launching.IDLE_PCT) * duration_ns:
        return "gpu-bound"
    idle = int(idle_ns.sum())
    return "data-loading" if idle and data_ns > _MOST * idle else launching.of_idle_time(idle_ns)


def _phase_of_gaps(trace: Trace, every: Phases) -> Integers:
    """The phase in which each gap ends; −1 for processes without any."""
    gaps, ops = every_gap(trace), operations.operations(trace)
    process, result = ops.process[gaps.after], np.full(len(gaps), -1, np.int64)
    for number in groups.different(every.process).tolist():
        rows = np.flatnonzero(every.process == number)
        own = np.flatnonzero(process == number)
        at = np.searchsorted(every.start_ns[rows], gaps.end_ns[own], side="right") - 1
        result[unbroken(own)] = picked(rows, np.maximum(at, 0))
    return result


_PROCESS = "process_id int64: process id of the operating system"
_PHASE = (
    "phase text: start-up, compilation, warm-up, training, evaluation, generation, replay (of "
    "CUDA graphs), compute (other GPU work), shut-down or cpu-work (before or after all GPU work)"
)
_BUSY = "busy_pct float64: share of that time in which the GPU ran the process's work"
PHASES = TableSpec(
    "phases",
    "one row per contiguous stretch of a phase, in chronological order",
    column_list(f"""
        {_PROCESS}
        {_PHASE}
        start_ns int64: start time
        end_ns int64: end time
        duration_ns int64: end − start
        {_BUSY}
        verdict text: what limited it: gpu-bound, launch-bound, cpu-bound, paced, paused,
            message-bound, data-loading, sync-drained, dependency-bound, mixed, compilation or
            no-gpu-work
        compiler text?: what compiled during most of a compilation
    """),
    brief="phase start_ns duration_ns busy_pct verdict compiler",
)
TOTALS = TableSpec(
    "totals",
    "one row per process and phase",
    column_list(f"""
        {_PROCESS}
        {_PHASE}
        stretches int64: stretches of that phase
        total_ns int64: their time
        share_pct float64: share of the time of the process
        {_BUSY}
    """),
    brief="process_id phase stretches total_ns share_pct busy_pct",
)

REPLAYS = TableSpec(
    "replays",
    "one row per CUDA graph whose kernels the process also launches one by one, most replays first",
    column_list(f"""
        {_PROCESS}
        first_kernel text: name of the first kernel
        kernels int64: kernels per pass
        passes int64: passes launched kernel by kernel
        pass_ns int64: median time of these, from first start to last end
        replays int64: passes replayed by a graph
        replay_ns int64: median time of these, from first start to last end
        kernel_ns int64: median time in kernels of a replay
        ratio float64: pass_ns ÷ replay_ns
    """),
    brief="first_kernel kernels passes pass_ns replays replay_ns ratio",
    rare=True,
)


COMPILED = TableSpec(
    "compiled",
    "one row per function or line that torch.compile reported, and kind of report, longest first",
    column_list(f"""
        {_PROCESS}
        kind text: compilation, recompilation, backward-compilation, graph-break, uncompiled or
            compile-limit, as in python_events
        file text: source file
        line int64: line of the graph break, else of the function
        function text: the function
        times int64: how often
        total_ns int64: time spent in compilation
        guards_ns int64?: time of one check of its guards, which each call makes; torch measures it
            with cold caches
        reason text?: the guards that failed, or why the graph broke
        source text?: text of the line that broke the graph
    """),
    brief="kind file line function times total_ns guards_ns reason",
    rare=True,
)


def compute(trace: Trace) -> Result:
    every = phases(trace)
    shown = selected_phases(trace)
    rows: list[dict[str, Any]] = [
        {
            "process_id": int(trace.processes["process_id"][process]),
            "kind": kind,
            "reason": "; ".join(each.reasons) or None,
            **{name: getattr(each, name) for name in _OF_CODE},
        }
        for process in compilation.working_processes(trace)
        for kind in python_events.OF_TORCH
        for each in python_events.of_kind(trace, kind, process)
    ]
    rows.sort(key=lambda row: -row["total_ns"])
    duration = every.end_ns - every.start_ns
    # The tool of the longest window inside each phase of compilation.
    windows = compilation.compilation(trace)
    codes = np.full(len(every), -1, np.int32)
    for row in np.flatnonzero(every.phase == Phase.COMPILATION).tolist():
        inside = windows.process == every.process[row]
        inside &= (windows.start_ns < every.end_ns[row]) & (windows.end_ns > every.start_ns[row])
        if inside.any():
            length = np.where(inside, windows.end_ns - windows.start_ns, -1)
            codes[row] = windows.tool[np.argmax(length)]
    table = Table(
        PHASES.columns,
        {
            "process_id": trace.processes["process_id"][every.process],
            "phase": _labels(every.phase),
            "start_ns": every.start_ns,
            "end_ns": every.end_ns,
            "duration_ns": duration,
            "busy_pct": _pct(every.busy_ns, duration),
            "verdict": Texts.of(verdicts(trace, every)),
            "compiler": Texts(codes, object_array(code.TOOLS)),
        },
    )
    tables = {
        "phases": table.take(shown),
        "totals": _totals(trace, every, shown),
        "replays": _replays(trace),
        "compiled": Table.from_rows(COMPILED.columns, rows),
    }
    return Result(tables, tuple(findings(trace, RULES)))


def _replays(trace: Trace) -> Table:
    names, ops = trace.recorded("kernels").texts("short_name"), operations.operations(trace)
    rows = [
        {
            "process_id": int(trace.processes["process_id"][each.process]),
            "first_kernel": names[int(ops.row[each.launched[0]])],
            "kernels": each.kernels,
            "passes": len(each.launched),
            "pass_ns": each.median_ns,
            "replays": each.replays,
            "replay_ns": each.replay_ns,
            "kernel_ns": each.kernel_ns,
            "ratio": each.median_ns / max(each.replay_ns, 1),
        }
        for each in replayed_sequences(trace)
    ]
    return Table.from_rows(REPLAYS.columns, rows)


_OF_CODE = ("file", "line", "function", "times", "total_ns", "guards_ns", "source")


def _labels(phase: Integers) -> Texts:
    return Texts(phase.astype(np.int32), object_array([each.label for each in Phase]))


def _pct(part: Integers, whole: Integers) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.minimum(100.0 * part / np.maximum(whole, 1), 100.0)


def _totals(trace: Trace, every: Phases, shown: Mask) -> Table:
    """Totals by process and phase, the longest phase first within a process."""
    process, phase = every.process[shown], every.phase[shown]
    duration = (every.end_ns - every.start_ns)[shown]
    kinds = groups.group(process, phase)
    total = groups.sums(kinds, duration)
    whole = groups.sums(groups.group(process), duration)
    number = groups.group(process).ids[kinds.first] if len(process) else kinds.first
    table = Table(
        TOTALS.columns,
        {
            "process_id": trace.processes["process_id"][process[kinds.first]],
            "phase": _labels(phase[kinds.first]),
            "stretches": groups.count(kinds),
            "total_ns": total,
            "share_pct": _pct(total, whole[number]),
            "busy_pct": _pct(groups.sums(kinds, every.busy_ns[shown]), total),
        },
    )
    return table.take(np.lexsort((-total, number)))


ANALYSIS = Analysis(
    name="phases",
    title="Phases",
    question="What did the program do when, and how long did it compile?",
    needs=("kernels", "api_calls"),
    tables=(PHASES, TOTALS, REPLAYS, COMPILED),
    compute=compute,
    charts=(Chart("bars", "totals", "Time of the process by phase", "phase", "total_ns"),),
)
