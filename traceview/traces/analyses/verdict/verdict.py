"""The verdict on a recording, in one line: steps, GPU busy, largest class of kernels, limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview.base import intervals, units
from traceview.base.findings import HIGH
from traceview.base.records import record
from traceview.base.tables import picked
from traceview.base.vocabulary import activities, causes
from traceview.traces.analyses import wording
from traceview.traces.analyses.gpu_idle import beside_work, late_parts, line_sites
from traceview.traces.analyses.verdict.loops import RunShares, long_calls, run_shares, shares_text
from traceview.traces.analyses.verdict.parts import (
    MainLoop,
    SteadyParts,
    main_loop,
    steady_parts,
    steady_rows,
)
from traceview.traces.facts import copies, cpu_work, forecast, launches, operations, pacing
from traceview.traces.facts.idle import cpu_activity, first_calls, gap_bounds, gaps, launching
from traceview.traces.facts.kernel_classes import KernelClass
from traceview.traces.facts.ranges.origins import StepsSource
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.steps.inferred import LEAST_NS
from traceview.traces.facts.steps.steps import pace, steps_source
from traceview.traces.trace import Trace, fact
from traceview.traces.trace.nsys import export_info, program_output

BUSY_PCT = 90.0
"""A GPU that is busy for at least this share of the time is the limit itself."""
MOST_PCT, AHEAD = 50.0, 1.5
"""Below BUSY_PCT the largest part of the time is the limit: where it is half of the time, or half
as much again as the next part. Otherwise the limit is mixed."""
SMALL_PART = 0.1
"""GPU work without steps that takes less of what was recorded is not what most of a run is about,
however busy the GPU is meanwhile: 20 ms of 2.7 s, most of it a first batch (public)."""
LEAST_OPERATIONS = 4
"""Fewer operations, shorter than LEAST_NS in all, are not a program to judge."""
WORTH_SAYING_PCT, ALSO_SAID_PCT, ALWAYS_SAID_PCT = 5.0, 10.0, 100 * HIGH
"""The limit's part of the time is said from the first on, the largest and those that are larger
than the limit's from the second, and any part from the last: a finding on it may be high."""

_CLASSES = {
    KernelClass.GEMM: "GEMMs",
    KernelClass.ATTENTION: "attention",
    KernelClass.CONVOLUTION: "convolutions",
    KernelClass.NORMALIZATION: "normalization",
    KernelClass.ELEMENTWISE: "elementwise kernels",
    KernelClass.CAST_COPY: "casts and copies",
    KernelClass.REDUCTION: "reductions",
    KernelClass.SOFTMAX: "softmax",
    KernelClass.GATHER_SCATTER: "gathers and scatters",
    KernelClass.SORT_SCAN: "sorts and scans",
    KernelClass.OPTIMIZER: "the optimizer",
    KernelClass.RANDOM: "random numbers",
    KernelClass.COMMUNICATION: "communication",
    KernelClass.AUTOTUNER: "autotuning",
}


@record
class Verdict:
    """The result of a recording in one line.

    `steps` counts the steps of the main loop, `warm_up_steps` those of them that are warm-up;
    `step_median_ns` is the median of the others, absent without steps. `gpu_busy_pct` is the busy
    part of the steady time, on the GPU with most steady time; absent where no GPU work is selected,
    or much of it was lost.
    `step_unrecorded_ns` is the step without the recorder (see unrecorded_ns), absent where that is
    about the same or not known. `shares` divides the recording into loops and what is outside of
    them; `shares_text` says so, empty for a selection and where one loop is nearly all.
    `named` are the limits that the text gives a share of the time, the GPU's as gpu-compute.
    """

    text: str
    steps: int
    step_median_ns: int | None
    gpu_busy_pct: float | None
    limit: causes.Limit
    steps_from: StepsSource
    step_unrecorded_ns: int | None = None
    shares: RunShares | None = None
    shares_text: str = ""
    warm_up_steps: int = 0
    named: tuple[causes.Limit, ...] = ()


@fact
def verdict(trace: Trace) -> Verdict:
    """The verdict on the selected part of a trace."""
    result = replace(_limited(trace), warm_up_steps=main_loop(trace).warm_up)
    if trace.selection:
        return result
    parts = steady_parts(trace)
    shares = run_shares(trace, parts.device if parts else None)
    # Without GPU work and without steps there is nothing that a recording could be mostly about.
    warms_up = parts is not None and _warms_up(trace, parts.device)
    text = shares_text(shares, warms_up, long_calls(trace)) if parts or shares.loops else ""
    return replace(result, shares=shares, shares_text=text)


def _limited(trace: Trace) -> Verdict:
    loop, parts = main_loop(trace), steady_parts(trace)
    source: StepsSource = steps_source(trace) if loop.steps else "none"
    if parts is None or "kernels" in trace.unread:
        return Verdict(_no_work(trace), loop.steps, loop.median_ns, None, "unknown", source)
    if parts.unknown is not None:
        text = f"{_steps_phrase(trace, loop, parts)} · {_unknown_phrase(trace, parts.unknown)}"
        return Verdict(text, loop.steps, loop.median_ns, None, "unknown", source)
    few = len(steady_rows(trace, parts.device)) < LEAST_OPERATIONS
    too_few = few and parts.busy_ns < LEAST_NS
    if too_few or first_calls.is_start_up_alone(trace):
        # Where a memset or two are all that ran, no share of the time means anything.
        little = "Next to no GPU work was recorded: "
        after = _after_idle(trace, parts.device)
        if not first_calls.runs_kernels(trace):
            printed = "The program printed an error and ran no kernel"
            nothing = "No kernel ran, nothing but a start was recorded"
            little = f"{printed if program_output.PROGRAM_ERROR in trace.run else nothing}: "
            after = ""
        text = little + _all_work(trace, parts.device) + after
        cold = first_calls.cold_passes(trace)
        compiled_ns = cold.compiled_ns if cold and cold.is_compilation else 0
        compiled = [f"{units.duration(compiled_ns)} of compilation"] if compiled_ns else []
        if not compiled and wording.is_compiled(trace, 0):
            compiled = ["torch.compile's kernels ran: it may have compiled meanwhile"]
        beside = [*_beside_phrase(trace), *_outer_phrase(trace, parts)]
        text = " · ".join([text, *compiled, *beside])
        busy_pct = None if first_calls.shows_first_calls_alone(trace) else parts.busy_pct
        return Verdict(text, loop.steps, loop.median_ns, busy_pct, _once(trace), source)
    if first_calls.shows_first_calls_alone(trace):
        text = " · ".join([_steps_phrase(trace, loop, parts), *_outer_phrase(trace, parts)])
        return Verdict(text, loop.steps, loop.median_ns, None, _once(trace), source)
    limit = limit_of(parts)
    drained = bool(loop.steps) and launching.drained_in_steps(trace, parts.device)
    phrases = [*_phrases(trace, loop, parts, limit, drained)]
    if not loop.steps and not first_calls.runs_kernels(trace):
        phrases = [f"No kernel ran: {units.duration(parts.span_ns)} of copies and memsets alone"]
    elif parts.pct("copies") >= BUSY_PCT and parts.device in gaps.long_starts(trace):
        times = parts.span_ns, gaps.long_starts(trace)[parts.device]
        copied, waited = map(units.duration, times)
        phrases = [f"Little but loading was recorded: {copied} of copies, {waited} idle"]
    text = " · ".join([*_beside_phrase(trace), *phrases, *_outer_phrase(trace, parts)])
    plain_ns = unrecorded_ns(trace, loop.median_ns)
    told = Verdict(text, loop.steps, loop.median_ns, parts.busy_pct, limit, source, plain_ns)
    return replace(told, named=_named(parts, limit, drained))


def _once(trace: Trace) -> causes.Limit:
    """The limit of a recording of first calls alone: code that is loaded or compiled, if known."""
    cold = first_calls.cold_passes(trace)
    return "compilation" if cold and 2 * cold.once_ns > cold.total_ns else "unknown"


def _all_work(trace: Trace, device: int) -> str:
    """The selected operations of a GPU and its busy time, those of warm-up included."""
    busy = units.duration(gaps.device_work(trace)[device].all_ns)
    return f"{units.counted(_count(trace, device), 'operation')}, {busy} in all"


def _warms_up(trace: Trace, device: int) -> bool:
    return len(steady_rows(trace, device)) < _count(trace, device)


def _count(trace: Trace, device: int) -> int:
    return int((selected_operations(trace) & (operations.operations(trace).device == device)).sum())


def limit_of(parts: SteadyParts) -> causes.Limit:
    """The limit of the program, by the parts of the steady time.

    The limit is the GPU's work where it is busy for 90 % of the time (BUSY_PCT). Else data loading,
    where the program waits for data again and again: sooner launches would only wait longer. Else
    the largest part, where it is half of the time, or half as much again as the next. Otherwise it
    is mixed.
    """
    ns = parts.parts_ns
    gpu: causes.Limit = (
        "gpu-compute" if _of(parts, "gpu-compute") >= _of(parts, "gpu-memory") else "gpu-memory"
    )
    work: dict[causes.Limit, int] = {
        gpu: _of(parts, "gpu-compute") + _of(parts, "gpu-memory"),
        "communication": _of(parts, "communication"),
        "copies": _of(parts, "copies"),
    }
    if parts.busy_pct >= BUSY_PCT:
        return max(work, key=lambda each: work[each])
    if parts.starved:
        return "data-loading"
    rest: dict[causes.Limit, int] = {
        limit: time for limit, time in ns.items() if not limit.startswith("gpu-")
    }
    # Kernels beside which the CPU could not launch faster do not keep a step from being shorter.
    beside_ns = max(min(work[gpu], parts.busy_ns - parts.gpu_limited_ns), 0)
    work[gpu] -= beside_ns
    rest["cpu-launch"] = rest.get("cpu-launch", 0) + beside_ns
    ordered = sorted((work | rest).items(), key=lambda part: -part[1])
    (largest, most_ns), (_, next_ns) = ordered[:2]
    clear = 100.0 * most_ns >= MOST_PCT * parts.span_ns or most_ns >= AHEAD * next_ns
    return largest if clear else "mixed"


def waits_for_data(trace: Trace, device: int) -> bool:
    """Whether data loading limits a device: launches that are late are late for want of data.

    Known of the device with the longest steady time, which the verdict is about.
    """
    parts = steady_parts(trace)
    return parts is not None and parts.device == device and limit_of(parts) == "data-loading"


def waits_in(trace: Trace, device: int, doing: int) -> bool:
    """Whether a launch-bound device mostly waits for launches behind one activity of the CPU.

    Such as waits for results that only samples show. Known of the device with the longest steady
    time, as `waits_for_data`.
    """
    parts = steady_parts(trace)
    if parts is None or parts.device != device:
        return False
    spent_ns = parts.named_ns.get(activities.ACTIVITIES[doing], 0)
    return spent_ns > _of(parts, "cpu-launch") and not waits_for_data(trace, device)


def waits_in_pauses(trace: Trace, device: int) -> bool:
    """Whether a device that waits for launches mostly does so in few long pauses of the CPU."""
    every = gaps.gaps(trace)
    late = every.steady(device, causes.LAUNCH_LATE)
    rare = line_sites.in_accidents(trace)
    if not main_loop(trace).steps:
        # What a loop does in each step is no pause, however seldom it launches.
        rare = rare | cpu_activity.seldom_launches(trace)
    rare = late & rare
    return bool(2 * every.idle_ns[rare].sum() > every.idle_ns[late].sum())


def keeps_busy(trace: Trace, device: int) -> bool:
    """Whether a GPU is busy although most of its work waits in no queue, as long work that is
    launched one by one, or in calls that block."""
    rows = operations.operations_by_device(trace)[device]
    rows = rows[selected_operations(trace)[rows]]
    waited_ns = launches.wait_of(trace, rows).median_ns
    at_once = waited_ns is not None and waited_ns <= _AT_ONCE_NS
    return at_once and launching.verdict(trace, device) == "gpu-bound"


_AT_ONCE_NS = 5_000
"""An idle GPU begins work so soon after the call that launches it."""


def late_word(trace: Trace, device: int) -> str:
    """What a device is called whose launches are late, by what they are late for."""
    if pacing.paced(trace, device):
        return "paced"
    if waits_in(trace, device, activities.MESSAGE):
        return "message-bound"
    if waits_in_pauses(trace, device):
        return "paused"
    if waits_for_data(trace, device):
        return "data-loading"
    if waits_in(trace, device, activities.RESULT_WAIT):
        return "sync-drained"
    return "cpu-bound" if late_parts.does_other_work(trace, device) else "launch-bound"


def _of(parts: SteadyParts, limit: causes.Limit) -> int:
    return parts.parts_ns.get(limit, 0)


def _phrases(
    trace: Trace, loop: MainLoop, parts: SteadyParts, limit: causes.Limit, drained: bool
) -> Iterator[str]:
    yield _steps_phrase(trace, loop, parts)
    meanwhile = " meanwhile" if _small_part(trace, loop, parts) else ""
    losses = _losses(parts, limit)
    outside = {each: _where(trace, parts, each) for each in losses}
    # They are parts of the busy time: beside it, all would be more than the whole.
    alone = [
        f"{units.percent(pct)} {each} alone{outside[each]}"
        for each in ("communication", "copies")
        if each in losses and (pct := parts.busy_part_pct(each)) >= WORTH_SAYING_PCT
    ]
    busy = f"GPU busy {units.percent(parts.busy_pct)}{meanwhile}"
    yield f"{busy} ({', '.join(alone)})" if alone else busy
    if pace := pacing.paced(trace, parts.device):
        waited, period = map(units.duration, (pace.usual_wait_ns, pace.period_ns))
        yield f"paced: waits {waited} of the {period} of a pass"
        # What idles beside the pace would wait for it instead.
        return
    if limit in ("gpu-compute", "gpu-memory") and parts.largest and parts.largest.kind in _CLASSES:
        name = _CLASSES[parts.largest.kind]
        fp32 = "fp32 " if parts.largest.fp32_on_cuda_cores else ""
        yield f"{units.percent(parts.largest.pct)} of kernel time in {fp32}{name}"
    for each in losses:
        yield from _loss_phrases(parts, each, outside[each])
    if drained and "synchronization" not in losses:
        yield "the CPU waits in each step"


def _where(trace: Trace, parts: SteadyParts, limit: causes.Limit) -> str:
    """Where a loss is, where that is not all over the steps."""
    where = " outside the steps" if _is_outside(trace, parts.device, limit) else ""
    pauses = limit == "cpu-launch" and waits_in_pauses(trace, parts.device)
    return f", mostly in few long pauses{where}" if pauses else where


def _no_work(trace: Trace) -> str:
    if "kernels" in trace.unread:
        return f"GPU time unknown: {trace.unread['kernels']}."
    if trace.selection:
        return "No GPU work in the selection."
    cut_off, work = "truncated" in trace.run, cpu_work.cpu_work(trace)
    text = "The file ends before any GPU work." if cut_off else "No GPU work was recorded."
    if program_output.PROGRAM_ERROR in trace.run and not len(trace.recorded("api_calls")):
        text = "No GPU work was recorded, and the program printed an error."
    elif (waits := cpu_work.waits_for_gpu(trace)) and export_info.CALL_ERROR not in trace.run:
        waited, span = units.percent(waits.pct), units.duration(waits.span_ns)
        text = f"The CPU waits for the GPU in {waited} of {span}, whose work was not recorded."
    phrases = [*_cpu_phrases(work)] if work else []
    if work is None or not phrases:
        return text
    return f"{text} Of {units.duration(work.span_ns)} on the CPU: {' · '.join(phrases)}"


_MOST_NAMED, _MUCH_IN_SHORT = 3, 0.25
"""Programs of many tiny operators spend 33 and 46 % in short ones, others at most 14 % (public)."""


def _cpu_phrases(work: cpu_work.CpuTimes) -> Iterator[str]:
    """The ranges and calls with most time, and, where they take much, all short ranges together."""
    pct = 100 / max(work.span_ns, 1)
    named = {
        name: f"{units.percent(pct * time_ns)} in {name} "
        f"({units.counted(work.number[name], 'call')})"
        for name, time_ns in work.own_ns.most_common(_MOST_NAMED)
        if pct * time_ns >= WORTH_SAYING_PCT
    }
    if named:
        overlapping = ", overlapping" if len(named) > 1 and named.keys() & work.beside else ""
        yield ", ".join(named.values()) + overlapping
    if work.short_ns >= _MUCH_IN_SHORT * work.span_ns:
        short = units.duration(cpu_work.SHORT_NS)
        yield f"{units.percent(pct * work.short_ns)} in all ranges shorter than {short}"


DIFFERS = 0.05
"""The recorder's cost is worth a word from this share of a step on."""


def unrecorded_ns(trace: Trace, median_ns: int | None) -> int | None:
    """The step without the recorder; None where that is about the same.

    That is what the steps before the recorded window took, if `traceview record --steps` timed
    them, else the median step as replayed without the recorder's cost per call.
    """
    if median_ns is None:
        return None
    measured = forecast.unrecorded_step_ns(trace)
    if measured is not None:
        return measured if measured <= (1 - DIFFERS) * median_ns else None
    times = forecast.without_recorder(trace)
    if times is None:
        return None
    share = times.replayed_ns / max(times.recorded_ns, 1.0)
    return round(share * median_ns) if share <= 1 - DIFFERS else None


def _cold_phrase(cold: first_calls.ColdPasses, parts: SteadyParts) -> str:
    """What was recorded of first passes; of no step in the time that is left without them."""
    once, total = map(units.duration, (cold.once_ns, cold.total_ns))
    passes = units.counted(cold.passes, "pass", "passes")
    if cold.uneven_ns:
        return f"Cold: {passes} of {', '.join(map(units.duration, cold.uneven_ns))}"
    if cold.passes:
        return f"Cold: first uses and compilation take {once} of the {total} of {passes}"
    left = units.duration(parts.span_ns)
    return f"Cold: first uses and compilation take {once} of {total} · no steps found in {left}"


def _after_idle(trace: Trace, device: int) -> str:
    idle_ns = gaps.long_starts(trace).get(device)
    return f" after {units.duration(idle_ns)} idle before the first kernel" if idle_ns else ""


def _steps_phrase(trace: Trace, loop: MainLoop, parts: SteadyParts) -> str:
    if batch := first_calls.first_batch(trace):
        loading, work = map(units.duration, batch)
        return f"One batch: the DataLoader takes {loading}, the GPU {work} from first to last work"
    cold = first_calls.cold_passes(trace)
    if cold:
        return _cold_phrase(cold, parts)
    if loop.median_ns is None:
        after = _after_idle(trace, parts.device)
        if whole_ns := _small_part(trace, loop, parts):
            worked, whole = units.duration(parts.span_ns), units.duration(whole_ns)
            return f"GPU work in {worked} of {whole} recorded{after}"
        return f"No steps found in {units.duration(parts.span_ns)}{after}"
    mean = f" (mean {units.duration(loop.mean_ns)})" if loop.is_uneven else ""
    plain_ns = unrecorded_ns(trace, loop.median_ns)
    plain = ""
    if plain_ns is not None:
        tool = "nsys" if trace.recorder == "nsys" else "the profiler"
        about = "about " if forecast.unrecorded_step_ns(trace) is None else ""
        plain = f" ({about}{units.duration(plain_ns)} without {tool})"
    after = f" after {units.counted(loop.warm_up, 'warm-up step')}" if loop.warm_up else ""
    counted = units.counted(loop.steps - loop.warm_up, "step")
    return f"{counted} of {units.duration(loop.median_ns)}{mean}{plain}{after}"


def _small_part(trace: Trace, loop: MainLoop, parts: SteadyParts) -> int:
    """The time recorded where GPU work without steps takes a small part of it, else 0."""
    if trace.selection or loop.median_ns is not None:
        return 0
    first, last = recorded_span(trace)
    return last - first if parts.span_ns < SMALL_PART * (last - first) else 0


def _unknown_phrase(trace: Trace, unknown: gaps.UnknownIdle) -> str:
    if gap_bounds.holds_communication_alone(trace):
        return "idle time unknown: nothing but collectives was recorded"
    if not unknown.lost:
        time = units.duration(unknown.gaps_ns)
        return f"idle time unknown: work launched before the recording may have run in {time} of it"
    if error := trace.run.get(export_info.CALL_ERROR):
        return f"no kernel ran: calls failed with {error}"
    launched = units.counted(unknown.launches, "launch", "launches")
    lost = f"{units.count(unknown.lost)} of {launched}"
    return f"idle time unknown: the work of {lost} was not recorded"


def _beside_phrase(trace: Trace) -> Iterator[str]:
    """CPU work beside all GPU work where it is what the run is about: "busy" is of the rest."""
    works = [each for each in beside_work.beside_gpu_work(trace) if each.severity == "high"]
    if works:
        sides = dict.fromkeys(each.words["when"].split()[0].lower() for each in works)
        where = " and ".join(sides)
        worked = units.duration(sum(each.saved_ns for each in works))
        yield f"{worked} of CPU work {where} the GPU's"


def _outer_phrase(trace: Trace, parts: SteadyParts) -> Iterator[str]:
    """What is before and after the GPU's work: waits for earlier work, and pages of unified memory,
    where moving them takes longer than the work."""
    waited_ns = gap_bounds.first_wait_ns(trace)
    if waited_ns and not trace.selection:
        yield f"{units.duration(waited_ns)} before that wait for work from before the recording"
    moved = copies.outer_migration_time(trace).get(parts.device, intervals.EMPTY).total()
    if moved > parts.span_ns and not trace.selection:
        yield f"{units.duration(moved)} of page migrations before and after"


def _loss_phrases(parts: SteadyParts, limit: causes.Limit, where: str = "") -> Iterator[str]:
    """Phrases on the share of the time of a limit, those of its named parts apart."""
    named = [each for each in parts.named_pct(limit) if each[0] >= WORTH_SAYING_PCT]
    busy_pct, lost = parts.busy_part_pct(limit), causes.LOST[limit]
    if busy_pct >= WORTH_SAYING_PCT:
        lost = f"waiting for {limit}"
    else:
        busy_pct = 0.0
    left_pct = parts.pct(limit) - busy_pct - sum(pct for pct, _ in named)
    phrases = [(left_pct, lost), *named]
    if named or busy_pct:
        phrases = sorted((each for each in phrases if each[0] >= WORTH_SAYING_PCT), reverse=True)
    yield from (f"{units.percent(pct)} {phrase}{where}" for pct, phrase in phrases)


def _is_outside(trace: Trace, device: int, limit: causes.Limit) -> bool:
    """Whether a program with steps loses most of this time outside of them.

    A benchmark of 100 passes of 290 µs copies its results back in the end, 75 ms.
    """
    timed, rows = pace(trace), [*first_calls.series(trace)]
    if not rows:
        return False
    loops = np.concatenate(rows)
    of_steps = intervals.union(timed.begin_ns[loops], timed.end_ns[loops])
    every, ops = gaps.gaps(trace), operations.operations(trace)
    of_limit = [number for number, cause in enumerate(causes.CAUSES) if cause.limit == limit]
    idle = every.steady(device) & np.isin(every.cause, of_limit)
    start, end = every.start_ns[idle], every.end_ns[idle]
    if limit == "copies":
        copied = steady_rows(trace, device)
        copied = copied[picked(ops.kind, copied) == operations.Kind.COPY]
        start = np.append(start, picked(ops.start_ns, copied))
        end = np.append(end, picked(ops.end_ns, copied))
    inside_ns = intervals.overlap(of_steps, start, end).sum()
    return bool(2 * inside_ns < (end - start).sum())


def _named(parts: SteadyParts, limit: causes.Limit, drained: bool) -> tuple[causes.Limit, ...]:
    """The limits that the phrases of a verdict name, the GPU's as one, without communication."""
    talks = parts.largest is not None and parts.largest.kind == KernelClass.COMMUNICATION
    computes: list[causes.Limit] = ["gpu-compute"] if limit.startswith("gpu-") and not talks else []
    waits: list[causes.Limit] = ["synchronization"] if drained else []
    return (*computes, *_losses(parts, limit), *waits)


def _losses(parts: SteadyParts, limit: causes.Limit) -> list[causes.Limit]:
    """The parts of the time to name: the two largest where the limit is mixed.

    Else the limit, and what is larger or much: nobody should take the limit for all that is lost.
    """
    ordered = sorted(causes.LOST, key=lambda each: -_of(parts, each))
    also = ordered[: 2 if limit == "mixed" else 1]
    limit_pct = parts.pct(limit) if limit in causes.LOST else 100.0
    also += [each for each in ordered if parts.pct(each) >= min(limit_pct, ALWAYS_SAID_PCT)]
    least_pct = {limit: WORTH_SAYING_PCT}
    return [
        each
        for each in dict.fromkeys([limit, *also])
        if each in causes.LOST and parts.pct(each) >= least_pct.get(each, ALSO_SAID_PCT)
    ]
