"""Idle time by the line or function of the program that the launching thread was at, from samples.

A sample that falls into a gap shows what the CPU did instead of launching. A gap longer than two
sampling periods is divided equally among the samples in it. Shorter ones are hit by chance, each
nanosecond of them as likely as any other: their sum, over all gaps of one cause, is divided
equally among the samples in them. So no idle time counts twice, and a gap without samples adds to
no line unless others of its kind have some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, ColumnRecord, Integers, Mask, RowNumbers, Texts
from traceview.base.vocabulary.activities import (
    ACTIVITIES,
    ACTIVITY_NAMES,
    CPU,
    MESSAGE,
    RESULT_WAIT,
    SLEEP,
    TENSORS,
)
from traceview.traces.facts.idle import cpu_activity, cpu_tensors, gaps, stack_sites
from traceview.traces.facts.operations import api_calls
from traceview.traces.facts.ranges.origins import range_waits
from traceview.traces.facts.samples import stack_lines, stacks_at
from traceview.traces.trace import Trace, fact

LONG_PERIODS = 2
MOST_PERIODS = 10
"""A sample stands for at most this many sampling periods of short gaps."""
_BLOCKING = {
    code: re.compile(each.os_calls) for code, each in enumerate(ACTIVITIES) if each.os_calls
}
LEAST_WAIT_NS = 2_000_000
"""Shorter waits for locks, processes and files are left out: a sampler that holds the interpreter
lock makes the sampled thread wait for it, at whatever line it is."""
_SLEEPS = re.compile(r"\bsleep\(")


class Spread(NamedTuple):
    """Idle time per (gap, sample): their indices among those given to `spread_idle`, and ns."""

    gap: Integers
    sample: Integers
    time_ns: Integers


def spread_idle(
    start: Integers, end: Integers, kind: Integers, samples: Integers, period_ns: int
) -> Spread:
    """Divide disjoint gaps, in order, among the samples of one thread, whose times are ascending.

    `kind` is an integer per gap; samples in short gaps stand for all short gaps of equal kind.
    """
    first, last = np.searchsorted(samples, start), np.searchsorted(samples, end)
    count = last - first
    gap = np.repeat(np.arange(len(start)), count)
    rank = np.arange(len(gap)) - np.repeat(np.cumsum(count) - count, count)
    idle = end - start
    share, rest = np.divmod(idle[gap], np.maximum(count[gap], 1))
    time = share + (rank < rest)
    short = idle < LONG_PERIODS * period_ns
    for number in groups.different(kind[short]).tolist():
        alike = short & (kind == number)
        hit = np.flatnonzero(alike[gap])
        if len(hit):
            each_ns, left_ns = divmod(int(idle[alike].sum()), len(hit))
            time[hit] = each_ns + (np.arange(len(hit)) < left_ns)
            time[hit] = np.minimum(time[hit], MOST_PERIODS * period_ns)
    return Spread(gap, first[gap] + rank, time)


@record
class IdleSamples(ColumnRecord):
    """Activity of launching threads in idle gaps with a cause on the CPU, a row per sample or wait.

    `gap` is the row in gaps, `site` the row in stack_sites, `time_ns` the idle time that the sample
    or wait stands for, `doing` its place in ACTIVITIES. `sampled` is False for waits, whose time is
    known. `at_ns` is when the sample was taken, or the wait began.
    """

    gap: Integers
    site: Integers
    time_ns: Integers
    doing: Array
    sampled: Mask
    at_ns: Integers


class Launched(NamedTuple):
    """Gaps of one device whose work a thread launched, in order of time.

    `rows` are rows in gaps; samples in short gaps stand for all short gaps of equal `kind`.
    """

    thread: int
    rows: Integers
    idle: Intervals
    kind: Integers


@fact
def idle_samples(trace: Trace) -> IdleSamples:
    """Activity in idle gaps, from Python samples; for threads without, from native code."""
    return joined([*_of_python(trace), *_of_native(trace)])


def joined(parts: Iterable[IdleSamples]) -> IdleSamples:
    """The samples of all parts, one part after the other."""
    none = np.zeros(0, np.int64)
    empty = IdleSamples(none, none, none, none.astype(np.uint8), none.astype(bool), none)
    every = (empty, *parts)
    columns = ([getattr(part, each.name) for part in every] for each in fields(empty))
    return IdleSamples(*map(np.concatenate, columns))


def _launched(trace: Trace, threads: Mask, thread: int) -> Iterator[Launched]:
    """The gaps with a cause on the CPU whose work one of the threads of a mask launched."""
    every, held_up_by = gaps.gaps(trace), _held_up_by(trace)
    chosen = np.isin(every.cause, cpu_activity.CPU_CAUSES) & (held_up_by >= 0)
    chosen[chosen] = threads[held_up_by[chosen]]
    for device in groups.different(every.device[chosen]).tolist():
        rows = np.flatnonzero(chosen & (every.device == device))
        rows = rows[np.argsort(every.start_ns[rows], kind="stable")]
        kind = 2 * every.cause[rows].astype(np.int64) + every.one_time[rows]
        yield Launched(thread, rows, Intervals(every.start_ns[rows], every.end_ns[rows]), kind)


@fact
def _held_up_by(trace: Trace) -> Integers:
    """The thread that held up the work behind each gap.

    Another one than the launching thread may take its turn, such as the one that pins batches.
    Where ranges tell that the launching thread waited for it, and nothing what it did, that counts.
    """
    every, told = gaps.gaps(trace), np.zeros(len(trace.threads), bool)
    result, calls = every.thread.astype(np.int64), api_calls(trace)
    told[[*range_waits(trace)]] = True
    rows = np.flatnonzero((result >= 0) & (every.call >= 0))
    rows = rows[~told[result[rows]] & (sampled_threads(trace)[result[rows]] < 0)]
    launching = calls.thread[every.call[rows]]
    waits = told[launching]
    result[rows[waits]] = launching[waits]
    return result


def _of_python(trace: Trace) -> Iterator[IdleSamples]:
    samples, sampled_as = trace.recorded("python_samples"), sampled_threads(trace)
    for thread in groups.different(samples["thread"]).tolist():
        own = np.flatnonzero(samples["thread"] == thread)
        times = samples["time_ns"][own]
        for launched in _launched(trace, sampled_as == thread, thread) if len(own) > 1 else ():
            period_ns, stacks = sampling_period_ns(times), samples["stack"][own]
            part = spread_idle(*launched.idle, launched.kind, times, period_ns)
            before = stack_sites.stacks_before(times, stacks, launched.idle.start, period_ns)[
                part.gap
            ]
            sample = own[part.sample]
            doing, stack = doing_at(trace, sample), stacks[part.sample]
            doing = np.where(cpu_tensors.computing(trace)[sample] & (doing == CPU), TENSORS, doing)
            doing, stack = stack_sites.after_waits(trace, doing, stack, before)
            all_sampled = np.ones(len(sample), bool)
            rows, at_ns = launched.rows[part.gap], times[part.sample]
            yield IdleSamples(rows, stack, part.time_ns, doing, all_sampled, at_ns)


def _of_native(trace: Trace) -> Iterator[IdleSamples]:
    recorded = {"native_samples", "thread_runs", "os_calls"} & {*trace.tables}
    if not recorded and not range_waits(trace):
        return
    samples, sampled_as = stack_sites.unwound_samples(trace), sampled_threads(trace)
    launching = groups.different(_held_up_by(trace)[_held_up_by(trace) >= 0])
    for thread in launching[sampled_as[launching] < 0].tolist():
        own = samples.of_thread(thread)
        only = np.arange(len(sampled_as)) == thread
        for launched in _launched(trace, only, thread):
            yield _native_part(
                trace, launched, own, stack_sites.thread_waits(trace, thread, _kinds(trace))
            )


def _native_part(
    trace: Trace, launched: Launched, samples: stack_sites.NativeSamples, waits: stack_sites.OffCpu
) -> IdleSamples:
    pieces = stack_sites.cut_gaps(launched.idle, waits)
    off = pieces.wait >= 0
    start, end = pieces.start[~off], pieces.end[~off]
    kind, period_ns = launched.kind[pieces.gap[~off]], sampling_period_ns(samples.time_ns)
    part = spread_idle(start, end, kind, samples.time_ns, period_ns)
    if "thread_runs" not in trace.tables:
        # The thread may not have run between its samples.
        part = part._replace(time_ns=np.minimum(part.time_ns, LONG_PERIODS * period_ns))
    wait = pieces.wait[off]
    gap = np.concatenate([pieces.gap[off], pieces.gap[~off][part.gap]])
    return IdleSamples(
        launched.rows[gap],
        np.concatenate([waits.site[wait], samples.site[part.sample]]),
        np.concatenate([(pieces.end - pieces.start)[off], part.time_ns]),
        np.concatenate([waits.doing[wait], np.full(len(part.sample), CPU, np.uint8)]),
        np.arange(len(gap)) >= len(wait),
        np.concatenate([pieces.start[off], samples.time_ns[part.sample]]),
    )


def sampling_period_ns(times: Integers) -> int:
    return max(int(np.median(np.diff(times))), 1) if len(times) > 1 else 1


@fact
def sampled_threads(trace: Trace) -> RowNumbers:
    """For each thread, the thread whose samples show what delays its launches, or −1.

    That is the thread itself if it was sampled. autograd's and XLA's threads run no Python: they
    launch for a waiting thread, taken to be the sampled one with most CUDA calls of the process.
    """
    samples, threads = trace.recorded("python_samples"), trace.threads
    result = np.full(max(len(threads), 1), -1, np.int32)
    sampled = groups.different(samples["thread"])
    calls = np.bincount(api_calls(trace).thread, minlength=len(threads))
    main = threads["thread_id"] == trace.processes["process_id"][threads["process"]]
    if not trace.strict:
        # Ascending, so that the best one is assigned last.
        for row in sorted(sampled.tolist(), key=lambda each: (calls[each], main[each])):
            result[: len(threads)][threads["process"] == threads["process"][row]] = row
    result[sampled] = sampled
    return result


def doing_at(trace: Trace, sample: Integers) -> Array:
    """Activity of the thread at each sample, by its frames, else by its system call."""
    samples, lines = trace.recorded("python_samples"), stack_lines(trace)
    stack, time = samples["stack"][sample], samples["time_ns"][sample]
    thread, doing = samples["thread"][sample], lines.doing[stack].copy()
    blocked = _blocked(trace, thread, time)
    calls = api_calls(trace)
    for row in groups.different(thread).tolist():
        own, rows = thread == row, np.flatnonzero(calls.thread == row)
        in_call = intervals.covered(calls, rows)
        blocked[own] = np.where(intervals.inside(in_call, time[own]), CPU, blocked[own])
    blocked[lines.launches[stack]] = CPU
    blocked[_in_sleep_call(trace)[stack] & (blocked == CPU)] = SLEEP
    blocked[stack_sites.result_waits(trace)[stack] & (blocked == CPU)] = RESULT_WAIT
    return np.where(doing == CPU, blocked, doing)


@fact
def _in_sleep_call(trace: Trace) -> Mask:
    """True for the stacks whose innermost frame is at a line of the program that calls `sleep(`."""
    return stacks_at(trace, _SLEEPS)


@fact
def _kinds(trace: Trace) -> Array:
    """The activity that each name in os_calls stands for, by code; CPU if not known to block."""
    names = trace.recorded("os_calls").texts("name").values
    kinds = (
        next((kind for kind, each in _BLOCKING.items() if each.fullmatch(str(name))), CPU)
        for name in names
    )
    return np.array([*kinds, CPU], np.uint8)


def _blocked(trace: Trace, thread: Array, time: Integers) -> Array:
    """The blocking OS call of a thread at each (thread, time), as an index into ACTIVITIES."""
    calls, result = trace.recorded("os_calls"), np.full(len(time), CPU, np.uint8)
    kinds = _kinds(trace)[calls.texts("name").codes]
    for kind in _BLOCKING:
        chosen = kinds == kind
        if kind != SLEEP:
            chosen &= calls.duration_ns >= LEAST_WAIT_NS
        for row in groups.different(thread).tolist():
            own, rows = thread == row, np.flatnonzero(chosen & (calls["thread"] == row))
            inside = intervals.covered(calls, rows)
            result[own] = np.where(intervals.inside(inside, time[own]), kind, result[own])
    for row, waits in range_waits(trace).items():
        own = thread == row
        sends = intervals.inside(waits.get(MESSAGE, intervals.EMPTY), time[own])
        result[own] = np.where(sends, MESSAGE, result[own])
    return result


class IdleLines(NamedTuple):
    """Idle time by line, one row per device, line, library function and activity.

    `site` is the first row of the line in stack_sites, `line` its number there.
    """

    device: Array
    site: Integers
    line: Integers
    doing: Array
    samples: Integers
    time_ns: Integers
    steady_ns: Integers


def sum_lines(trace: Trace, chosen: IdleSamples) -> IdleLines:
    """Add up samples by line, most steady idle time first."""
    every, sites = gaps.gaps(trace), stack_sites.stack_sites(trace)
    device, line = every.device[chosen.gap], sites.number[chosen.site]
    each = groups.group(device, line, sites.inner.codes[chosen.site], chosen.doing)
    steady = np.where(every.one_time[chosen.gap], 0, chosen.time_ns)
    result = IdleLines(
        device[each.first],
        chosen.site[each.first],
        line[each.first],
        chosen.doing[each.first],
        groups.count(each, chosen.sampled),
        groups.sums(each, chosen.time_ns),
        groups.sums(each, steady),
    )
    order = np.lexsort((-result.time_ns, -result.steady_ns))
    return IdleLines._make(column[order] for column in result)


def lines_of(trace: Trace, chosen: IdleSamples) -> Integers:
    """The number of the program's line at each sample, as in IdleLines; −1 without one."""
    return stack_sites.stack_sites(trace).number[chosen.site]


def line_cells(trace: Trace, lines: IdleLines) -> dict[str, Array | Texts]:
    """The columns of the table `lines` that name the line and the activity."""
    sites = stack_sites.stack_sites(trace)
    return {
        "device_id": trace.devices["device_id"][lines.device],
        "file": sites.file.take(lines.site),
        "line": sites.line[lines.site],
        "function": sites.function.take(lines.site),
        "inner": sites.inner.take(lines.site),
        "activity": Texts.of(ACTIVITY_NAMES[each] for each in lines.doing.tolist()),
        "source": sites.source.take(lines.site),
    }
