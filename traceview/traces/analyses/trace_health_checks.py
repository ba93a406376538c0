"""Checks of `trace-health`: lost events, false rates, and what the recorder cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Literal, get_args

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import filled, sentence
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, Table, TableSpec, column_list
from traceview.base.units import Value
from traceview.traces.analyses.wording import by_recorder, flush, of_torch
from traceview.traces.facts.compilation import compiling
from traceview.traces.facts.idle.causes import profiler_overheads
from traceview.traces.facts.launches import cut_window, unpaired
from traceview.traces.facts.operations import (
    CallKind,
    call_kinds,
    captured_calls,
    operations,
)
from traceview.traces.facts.ranges.origins import INFERRED_DOMAIN
from traceview.traces.facts.steps.steps import warm_up_end_ns
from traceview.traces.trace import Trace, fact, model, schema
from traceview.traces.trace.nsys import export_info

Status = Literal["blind", "warning", "note", "ok"]
STATUSES: tuple[Status, ...] = get_args(Status)


@record
class Check:
    """Outcome of one check: `text` over `values`, a sentence as in a rule.

    `lost_ns` is the time that the check finds lost, out of `span_ns`. `all_in_doubt` is
    True where nothing else in the report can be relied on.
    """

    check: str
    status: Status
    text: str
    remedy: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    lost_ns: int = 0
    span_ns: int = 0
    all_in_doubt: bool = False

    @property
    def template(self) -> str:
        """The template of its finding."""
        return sentence(self.text, self.values)

    @property
    def detail(self) -> str:
        """The template with its values."""
        return filled(self.template, self.values)


CHECKS = TableSpec(
    "checks",
    "one row per check; `blind` and `warning` come first",
    column_list("""
        check text: what was checked
        status text: blind (some answer is impossible or wrong), warning, note or ok
        detail sentence: what was found
        remedy sentence?: how to record it
    """),
    brief="check status detail remedy",
)
OVERHEADS = TableSpec(
    "overheads",
    "profiler overhead by purpose",
    column_list("""
        name text: purpose
        kind text: profiler, cupti or queue-full
        calls int64: times it occurred
        total_ns int64: total time
        in_gpu_span_ns int64: part of it between the first and the last GPU work
    """),
    brief="name kind calls total_ns in_gpu_span_ns",
)
DIAGNOSTICS = TableSpec(
    "diagnostics",
    "warnings and errors of the recorder",
    column_list("""
        severity text: warning or error
        times int64: times it was reported
        text sentence: the message
    """),
    brief="severity times text",
)


def record_less(trace: Trace) -> str:
    return by_recorder(
        trace,
        "Record a shorter window (nsys profile --delay, --duration) or fewer event kinds "
        "(--trace).",
        "Record fewer steps (schedule(active=)), or without with_stack and profile_memory.",
        "Record fewer steps (traceview record --steps 10:20).",
    )


def _otherwise(trace: Trace) -> str:
    """The remedy to record again, with fewer options if more than the minimum was recorded."""
    if of_torch(trace):
        return "Record again: fewer steps, or another version of PyTorch."
    chains = model.recording_options(trace).call_chains
    fewer = " (traceview record --backtrace none)" if chains else ""
    return f"Record again: a shorter run, fewer kinds of events{fewer}, or another version of nsys."


LEAST_LOST, LEAST_LOST_FRACTION = 3, 0.1
"""So many copies without a record are a loss, not a call that failed or copied nothing."""
IN_DOUBT_FRACTION = 0.1
"""Where so many rows of a table cannot be true, its other rows are not trusted either."""
_FIGURES = frozenset(
    {"kernels", "copies", "sets", "graph_launches", "api_calls", "synchronizations", "ranges"}
)


def warnings(trace: Trace) -> Table:
    """The recorder's diagnostics above the level of information."""
    diagnostics = trace.recorded("diagnostics")
    return diagnostics.take(~diagnostics.texts("severity").isin(["info", "verbose", "debug"]))


def warning_texts(trace: Trace) -> list[str]:
    return [str(text) for text in warnings(trace).texts("text").decode()]


def without_cuda(trace: Trace) -> bool:
    """Whether nsys was to collect CUDA events and the trace has none.

    nsys warns of that; exports of schema 3.10 and older hold no warnings.
    """
    if len(operations(trace)) or len(trace.recorded("api_calls")):
        return False
    silent = trace.recorder == "nsys" and "diagnostics" not in trace.tables
    warned = any("No CUDA events collected" in text for text in warning_texts(trace))
    return warned or (silent and "api_calls" in trace.tables)


UPDATE_NSYS = "Update nsys: one of the same year as the driver, or newer, records its events."


def lost_events(trace: Trace) -> list[Check]:
    """Checks of events that the recorder lost: all, of a process with GPU work, or of a helper."""
    if "diagnostics" not in trace.tables:
        return [Check("lost events", "note", "This recorder does not report lost events.")]
    messages = warnings(trace)
    working = _about_gpu_processes(trace, messages)
    texts = [str(text) for text in messages.take(working).texts("text").decode()]
    incomplete = [found for text in texts if (found := export_info.INCOMPLETE.search(text))]
    failed = export_info.import_error(
        text for text in texts if not export_info.INCOMPLETE.search(text)
    )
    kinds = {found["kind"] for found in incomplete}
    cut = cut_window(trace) is not None
    # nsys reports the same of a bounded recording that is complete as for lost events.
    whole = model.recording_options(trace).bounded and _paired(trace)
    # nsys also reports it of a program that made no call of CUDA at all.
    unused = without_cuda(trace)
    if failed is None and "CUDA" in kinds and not (cut or whole or unused):
        failed = export_info.import_error(texts)
    checks = [*_helpers(messages.take(~working))]
    if failed is not None and not export_info.lacks_events(trace.tables) and _paired(trace):
        read, counted = export_info.imported_events(trace.tables)
        values: dict[str, Value] = {"read": read, "counted": counted, "error": failed}
        template = (
            "The recorder failed to read some events back ({error}). {read} of the {counted} that "
            "it counted are here, and all launches have their GPU work."
        )
        checks.append(Check("lost events", "note", template, None, values))
    elif failed is not None:
        return [_unread(trace, failed), *checks]
    if kinds and not cut and not unused:
        values = {"kinds": " and ".join(sorted(kinds))}
        template = "Not all {kinds} events may have been recorded; GPU work and CUDA calls were."
        checks.append(Check("lost events", "note", template, _otherwise(trace), values))
    lost = [text for text in texts if re.search(r"\b(dropped|lost|discarded)\b", text, re.I)]
    lost = [text for text in lost if not re.search(r"\b(no|none|0)\b", text, re.I)]
    # Libraries make a few ranges with names that they have freed: no shorter recording has them.
    lost = [text for text in lost if not re.search(r"\binvalid string handle", text)]
    if lost:
        values = {"warning": lost[0].strip()}
        template = "The recorder warns: {warning}"
        checks.append(Check("lost events", "warning", template, record_less(trace), values))
    return checks or [Check("lost events", "ok", "The recorder reports none.")]


_LOST_STRING = "Cannot find string for an exterior index"
_WITHOUT_XLA = (
    "Record again without the ranges of XLA, as traceview record does: nsys profile "
    "--nvtx-domain-exclude=TSL."
)

_CTRL_C = 2
_CRASHED = (
    "Run the program without the recorder to see whether that ends it, too. Events that were not "
    "yet saved are lost when a program is killed."
)


def _unread(trace: Trace, failed: str) -> Check:
    """That much is missing; the cause is the signal that ended the program, or a newer driver."""
    driver, why = export_info.newer_driver(warning_texts(trace)), "The recorder failed while "
    why, remedy = f"{why}reading its events back", _otherwise(trace)
    if _LOST_STRING in failed:
        remedy = _WITHOUT_XLA
    status = trace.run.get("exit_status", "0")
    if status.isdecimal() and (signal := int(status[:8]) - 128) > 0 and signal != _CTRL_C:
        why, remedy = f"Signal {signal} ended the program", _CRASHED
    if driver is not None:
        why = "The driver (CUDA {driver}) is newer than {nsys}"
        remedy = UPDATE_NSYS
    values = {"error": failed, "driver": driver, "nsys": f"nsys {trace.recorder_version or ''}"}
    text = f"{why}, so much is missing: {{error}}"
    return Check("lost events", "blind", text, remedy, values, all_in_doubt=True)


def _paired(trace: Trace) -> bool:
    """Whether there is GPU work, all of it with its launch, and no launch without its work.

    The end of a bounded recording cuts the last launches off from their work.
    """
    loose = unpaired(trace)
    lost = loose.launches & ~(loose.late & model.recording_options(trace).bounded)
    return bool(len(operations(trace)) and not lost.any() and not loose.operations.any())


def _about_gpu_processes(trace: Trace, messages: Table) -> Mask:
    """True for messages about no process, or about one that launched work on a GPU.

    In a recording without any such process, every message counts.
    """
    calls = trace.recorded("api_calls")
    launching = groups.different(calls["process"][call_kinds(trace) == CallKind.LAUNCH])
    working = groups.different(np.concatenate([launching, operations(trace).process]))
    if not len(working):
        return np.ones(len(messages), bool)
    own = np.isin(messages["process_id"], trace.processes["process_id"][working])
    return own | messages.is_null("process_id")


def _helpers(messages: Table) -> Iterator[Check]:
    """A note on processes without GPU work that lost events."""
    lost = messages.texts("text").matching(export_info.INCOMPLETE.search)
    if processes := len(groups.different(messages["process_id"][lost])):
        yield Check(
            "lost events",
            "note",
            "{processes:helper process|helper processes} without GPU work lost events, which "
            "affects no answer.",
            values={"processes": processes},
        )


def recorded_window(trace: Trace) -> Iterator[Check]:
    """A note where the recording begins and ends in the middle of the program."""
    if window := cut_window(trace):
        alone = unpaired(trace)
        counts = {"early": int(alone.early.sum()), "late": int(alone.late.sum())}
        yield Check(
            "window",
            "note",
            "The recording is a window of {window_ns}, cut out of a longer run.[ {early:operation} "
            "at its beginning were launched before it.][ {late:launch call} at its end started "
            "work after it.]",
            values={"window_ns": window.last_ns - window.first_ns, **counts},
        )


def missing_copies(trace: Trace) -> Iterator[Check]:
    """Copies that the program called for and whose GPU work was not recorded.

    Those of compilers do not count: XLA compares the results of its trials by copies that nsys
    does not record.
    """
    ops, does, api = operations(trace), call_kinds(trace), trace.recorded("api_calls")
    copying = np.isin(does, [CallKind.COPY, CallKind.COPY_ASYNC]) & ~captured_calls(trace)
    has_work = np.zeros(len(does), bool)
    has_work[ops.call[ops.launched]] = True
    copying[copying] = ~compiling(trace, api["start_ns"][copying], api["end_ns"][copying])
    missing = copying & ~has_work
    if cut_window(trace) is not None:
        # Work of the last moments ran after the window.
        missing &= api["start_ns"] <= api["start_ns"][has_work].max(initial=0)
    lost, calls = int(missing.sum()), int(copying.sum())
    if len(ops) and lost >= max(LEAST_LOST, LEAST_LOST_FRACTION * calls):
        yield Check(
            "copies",
            "warning",
            "{lost} of {calls:copy call} have no record of their copy, so memory-copies misses "
            "them and gpu-idle may call their time idle.",
            flush(trace),
            {"lost": lost, "calls": calls},
        )


def impossible_rows(trace: Trace) -> Iterator[Check]:
    """What the rows that the reader left out mean for the figures."""
    lost = [left_out for left_out in trace.impossible if left_out.reason != "twice"]
    repeated = sum(same.rows for same in trace.impossible if same.reason == "twice")
    figures = [left_out for left_out in lost if left_out.table in _FIGURES]
    # A few calls of the operating system are no work, and the head of the report names them.
    if any(each in figures or each.rows >= IN_DOUBT_FRACTION * each.of for each in lost):
        yield Check(
            "rows",
            "blind" if figures else "warning",
            "The report leaves out {lost:row} that cannot be true, so times and counts lack that "
            "work.",
            _otherwise(trace),
            {"lost": sum(left_out.rows for left_out in lost)},
            all_in_doubt=any(one.rows >= IN_DOUBT_FRACTION * one.of for one in figures),
        )
    if repeated:
        text = "The recording holds {repeated:row} twice; each counts once."
        yield Check("rows", "note", text, None, {"repeated": repeated})


_APART_NS, _OFTEN_APART = 100_000, 0.05
"""How far clocks of CPU and GPU may be apart, and the part of operations from which on they are: of
73 recordings, public ones among them, none has a single such operation."""


def clocks(trace: Trace) -> Iterator[Check]:
    """GPU work that begins before it is launched, or goes on after the CPU has waited for it."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    rows = np.flatnonzero(ops.launched)
    call = ops.call[rows]
    early = ops.start_ns[rows] < calls["start_ns"][call] - _APART_NS
    late = np.zeros(len(rows), bool)
    waits = np.flatnonzero(calls.texts("name").matching(_WAITS_FOR_ALL.search))
    for process in groups.different(calls["process"][waits]):
        # The first wait of the whole process that begins behind the launch call.
        own = waits[calls["process"][waits] == process]
        own = own[np.argsort(calls["start_ns"][own], kind="stable")]
        mine = np.flatnonzero(calls["process"][call] == process)
        if len(groups.different(ops.device[rows[mine]])) > 1:
            # A thread waits for its current GPU alone.
            continue
        after = np.searchsorted(calls["start_ns"][own], calls["end_ns"][call[mine]])
        known = after < len(own)
        ended_ns = calls["end_ns"][own[after[known]]] + _APART_NS
        late[mine[known]] = ops.end_ns[rows[mine[known]]] > ended_ns
    count = int((early | late).sum())
    if count >= max(LEAST_LOST, _OFTEN_APART * len(rows)):
        yield Check(
            "clocks",
            "blind",
            "{wrong} of {launched:operation} begin before they are launched or end after the CPU "
            "has waited for them: the clocks of CPU and GPU do not agree, and times of the GPU may "
            "be wrong.",
            "Do not trust times of single kernels. Record again with another version of the driver "
            "or the recorder, and compare with cudaEventElapsedTime.",
            {"wrong": count, "launched": len(rows)},
            all_in_doubt=2 * count > len(rows),
        )


_WAITS_FOR_ALL = re.compile(r"^(?:cuda|hip)DeviceSynchronize|^cuCtxSynchronize")


# What the recorder cost: the overhead that it lists, and the estimated cost of its events.
#
# Of the overhead, only that in processes with GPU work counts, between their first and last GPU
# work and after warm-up. A compiler that starts beside them delays nothing, nor does the
# profiler's own start-up or what it writes out at the end.
#
# The recorder lists its own start-up and flushes, and not what each event costs the thread that
# it interrupts. The costs per event are measured on an H200's host, nsys 2025.3:
#
# - ranges: with `--pytorch=autograd-nvtx` a GPT step of 12.4 ms was recorded as 23.2 ms: 10.8 ms
# for 4,360 ranges, 2.5 µs each. A plain range costs less. - samples: of equal pairs of launches
# in recordings of eager models, those with a Python sample between them lie 12 to 22 µs farther
# apart, those with a native sample 13 to 20 µs. - call chains: the call after a blocking copy
# comes 14 µs later where its chain was recorded.


@record
class Cost:
    """Time `lost_ns` that the profiler took of `span_ns`, and the purpose of most of it.

    In `idle_ns` of it no GPU worked. `after_warm_up` is False where no warm-up is known, so that
    all GPU work counts.
    """

    lost_ns: int
    idle_ns: int
    span_ns: int
    mostly: str
    after_warm_up: bool


@fact
def profiler_cost(trace: Trace) -> Cost | None:
    """The overhead on all processes together; None without any."""
    overheads = trace.recorded("overheads")
    own = overheads.take(profiler_overheads(trace))
    first, last = _working(trace)
    process = np.where(own.is_null("process"), len(trace.processes), own["process"])
    start, end = (
        np.clip(own[name], first[process], last[process]) for name in ("start_ns", "end_ns")
    )
    taken, ops = intervals.union(start, end), operations(trace)
    lost = taken.total()
    if not lost:
        return None
    busy = intervals.overlap(intervals.union(ops.start_ns, ops.end_ns), taken.start, taken.end)
    names = own.texts("name")
    by_purpose = groups.group(names.codes)
    mostly = int(by_purpose.first[np.argmax(groups.sums(by_purpose, end - start))])
    span = int(last[-1] - first[-1])
    warmed_up = warm_up_end_ns(trace) > np.iinfo(np.int64).min
    return Cost(lost, lost - int(busy.sum()), span, str(names[mostly]), warmed_up)


def _working(trace: Trace) -> tuple[Integers, Integers]:
    """Start and end of each process's GPU work after warm-up; the last row is for all processes."""
    ops, processes = operations(trace), len(trace.processes)
    limits = np.iinfo(np.int64)
    first, last = np.full(processes + 1, limits.max), np.zeros(processes + 1, np.int64)
    np.minimum.at(first, ops.process, ops.start_ns)
    np.maximum.at(last, ops.process, ops.end_ns)
    first[-1], last[-1] = first.min(), last.max()
    last = np.maximum(last, warm_up_end_ns(trace))
    return np.clip(first, warm_up_end_ns(trace), last), last


RANGE_NS, SAMPLE_NS, CHAIN_NS = 2_500, 20_000, 15_000
NOTABLE_PCT, LEAST_NS, LISTED_PCT = 10.0, 1_000_000, 1.0
_LEAST_OF_COST = 0.1
_WITHOUT_RANGES = (
    "Record without the ranges of single operators (no --pytorch=autograd-nvtx, no emit_nvtx), or "
    "only a few steps with them."
)
_WITHOUT_SHAPES = (
    "Record without tensor shapes, which take a range per operator: no --shapes, no "
    "--pytorch=autograd-shapes-nvtx. They are for the FLOP of GEMMs, not for times."
)
_WITHOUT_PYTHON = (
    "Record without Python stacks (--no-python-samples, no --python-sampling), or fewer: "
    "nsys profile --python-sampling-frequency=100."
)
_WITHOUT_CHAINS = (
    "Record without call chains: traceview record --backtrace none, or nsys profile "
    "--cudabacktrace=none."
)
_WITHOUT_NATIVE = "Record without native samples: nsys profile --sample=none."


@record
class EventCost:
    """One kind of event: its count on each thread in the steady time, and the cost per event.

    `template` names the events, such as `{ranges:range}`; `remedy` says how not to record them.
    """

    name: str
    template: str
    events: Integers
    each_ns: int
    remedy: str

    @property
    def cost_ns(self) -> Integers:
        return self.events * self.each_ns


def recording_cost(trace: Trace) -> Iterator[Check]:
    """The estimated cost after warm-up, on the thread that it slowed most."""
    ops = operations(trace)
    # What an event of torch.profiler costs was not measured.
    if not len(ops) or trace.recorder == schema.TORCH_PROFILER:
        return
    first, last = max(int(ops.start_ns[0]), warm_up_end_ns(trace)), int(ops.end_ns.max())
    every = list(_events(trace, first, last))
    total_ns = np.sum([each.cost_ns for each in every], axis=0)
    thread = int(np.argmax(total_ns)) if len(total_ns) else -1
    cost_ns = int(total_ns[thread]) if thread >= 0 else 0
    cost_pct = min(100.0 * cost_ns / max(last - first, 1), 100.0)
    if cost_pct < LISTED_PCT:
        return
    costliest = sorted(every, key=lambda each: -int(each.cost_ns[thread]))
    listed = [each for each in costliest if each.cost_ns[thread] >= _LEAST_OF_COST * cost_ns]
    values: dict[str, Value] = {"cost_ns": cost_ns, "cost_pct": cost_pct}
    for each in listed:
        values |= {each.name: int(each.events[thread]), f"{each.name}_each_ns": each.each_ns}
    parts = " and ".join(f"{each.template} ({{{each.name}_each_ns}} each)" for each in listed)
    text = "Recording cost one thread up to {cost_ns}, {cost_pct} of its time (estimate): "
    text += f"{parts}."
    status: Status = "warning" if cost_pct >= NOTABLE_PCT and cost_ns >= LEAST_NS else "ok"
    remedy = None
    if status == "warning":
        text += " Where the CPU limits the program, its steps are shorter without this cost."
        remedy = listed[0].remedy
    yield Check("cost of recording", status, text, remedy, values)


def _events(trace: Trace, first: int, last: int) -> Iterator[EventCost]:
    """The events between two times, by thread."""
    options, threads = model.recording_options(trace), len(trace.threads)

    def by_thread(table: str, time: str, chosen: Array | None = None) -> Integers:
        at, thread = trace.recorded(table)[time], trace.recorded(table)["thread"]
        result = np.zeros(threads, np.int64)
        for part in groups.parts(len(at), threads):
            inside = (at[part] >= first) & (at[part] < last) & (thread[part] >= 0)
            inside = inside if chosen is None else inside & chosen[part]
            result += np.bincount(thread[part][inside], minlength=threads)
        return result

    without = _WITHOUT_SHAPES if options.shapes else _WITHOUT_RANGES
    # Inferred steps are in the table of ranges, and cost nothing.
    recorded = ~trace.recorded("ranges").texts("domain").isin([INFERRED_DOMAIN])
    ranges = by_thread("ranges", "start_ns", recorded)
    yield EventCost("ranges", "{ranges:range}", ranges, RANGE_NS, without)
    samples = by_thread("python_samples", "time_ns")
    yield EventCost(
        "python_samples", "{python_samples:Python sample}", samples, SAMPLE_NS, _WITHOUT_PYTHON
    )
    chained = ~trace.recorded("api_calls").is_null("callchain_id")
    chains = by_thread("api_calls", "start_ns", chained)
    yield EventCost("chains", "{chains:call chain}", chains, CHAIN_NS, _WITHOUT_CHAINS)
    native = by_thread("native_samples", "time_ns")
    yield EventCost("samples", "{samples:native sample}", native, SAMPLE_NS, _WITHOUT_NATIVE)
