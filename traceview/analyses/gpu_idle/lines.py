"""Idle time by the line of the program that the launching thread was at, from Python samples.

A sample that falls into a gap shows what the CPU did instead of launching. A gap longer than two
sampling periods is divided equally among the samples in it. Shorter ones are hit by chance, each
nanosecond of them as likely as any other: their sum, over all gaps of one cause, is divided
equally among the samples in them. So no idle time counts twice, and a gap without samples adds to
no line unless others of its kind have some.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.cpu_activity import CPU_CAUSES
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.cuda_api import api_calls
from traceview.facts.samples.stack_lines import (
    CPU,
    DOINGS,
    FILE,
    LOCK,
    PROCESS,
    SLEEP,
    stack_lines,
)
from traceview.tables import Array, Integers, Mask, RowNumbers, Texts
from traceview.trace import Trace, fact

LONG_PERIODS = 2
MOST_PERIODS = 10
"""A sample stands for at most this many sampling periods of short gaps."""
_BLOCKING = {
    SLEEP: re.compile(r"(clock_)?nanosleep|u?sleep"),
    LOCK: re.compile(r"pthread_(mutex|rwlock|spin)_\w*lock|pthread_cond_\w*wait|sem_\w*wait"
                     r"|pthread_join|futex|flock"),
    PROCESS: re.compile(r"p?poll|p?select|epoll_p?wait|recv\w*|accept4?|connect|waitpid|wait[34]"
                        r"|waitid"),
    FILE: re.compile(r"p?readv?(64)?|p?writev?(64)?|f?open(at)?(64)?|f(data)?sync|fread|fwrite"
                     r"|sendfile(64)?"),
}  # fmt: skip
LEAST_WAIT_NS = 2_000_000
"""Shorter waits for locks, processes and files are left out: a sampler that holds the interpreter
lock makes the sampled thread wait for it, at whatever line it is."""
_SLEEPS = re.compile(r"\bsleep\(")


class Spread(NamedTuple):
    """Idle time per (gap, sample): their rows among those given, and the time in ns."""

    gap: Integers
    sample: Integers
    time_ns: Integers


def spread_idle(
    start: Integers, end: Integers, kind: Integers, samples: Integers, period_ns: int
) -> Spread:
    """Divide disjoint gaps, in order, among the samples of one thread, whose times are ascending.

    `kind` is an integer per gap; short gaps stand for each other where it is equal.
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


@dataclass(frozen=True)
class IdleSamples:
    """The samples of launching threads in idle gaps with a cause on the CPU, one row per sample.

    `gap` is the row in gaps, `sample` that in python_samples, `time_ns` the idle time that it
    stands for, `doing` an index into DOINGS.
    """

    gap: Integers
    sample: Integers
    time_ns: Integers
    doing: Array

    def take(self, chosen: Mask) -> IdleSamples:
        return IdleSamples(*(getattr(self, field.name)[chosen] for field in fields(self)))


@fact
def idle_samples(trace: Trace) -> IdleSamples:
    every, samples = gaps(trace), trace.recorded("python_samples")
    known = np.isin(every.cause, CPU_CAUSES)
    sampled_as = sampled_threads(trace)
    parts: list[Spread] = []
    for thread in groups.different(samples["thread"]).tolist():
        own = np.flatnonzero(samples["thread"] == thread)
        times = samples["time_ns"][own]
        if len(own) < 2:
            continue
        period_ns = max(int(np.median(np.diff(times))), 1)
        launched = known & (sampled_as[np.maximum(every.thread, 0)] == thread)
        for device in groups.different(every.device[launched]).tolist():
            rows = np.flatnonzero(launched & (every.device == device))
            rows = rows[np.argsort(every.start_ns[rows], kind="stable")]
            kind = 2 * every.cause[rows].astype(np.int64) + every.one_time[rows]
            part = spread_idle(every.start_ns[rows], every.end_ns[rows], kind, times, period_ns)
            parts.append(Spread(rows[part.gap], own[part.sample], part.time_ns))
    none = np.zeros(0, np.int64)
    gap, sample, time = (np.concatenate([part[i] for part in parts] or [none]) for i in range(3))
    return IdleSamples(gap, sample, time, _doing(trace, sample))


@fact
def sampled_threads(trace: Trace) -> RowNumbers:
    """For each thread, the one whose samples show what delays its launches, or −1.

    That is the thread itself if it was sampled. autograd's and XLA's threads run no Python: they
    launch for a thread that waits, here the sampled one with most CUDA calls of the process.
    """
    samples, threads = trace.recorded("python_samples"), trace.threads
    result = np.full(max(len(threads), 1), -1, np.int32)
    sampled = groups.different(samples["thread"])
    calls = np.bincount(api_calls(trace).thread, minlength=len(threads))
    main = threads["thread_id"] == trace.processes["process_id"][threads["process"]]
    if not trace.strict:
        # Ascending, so that the last to write is the best.
        for row in sorted(sampled.tolist(), key=lambda each: (calls[each], main[each])):
            result[: len(threads)][threads["process"] == threads["process"][row]] = row
    result[sampled] = sampled
    return result


def _doing(trace: Trace, sample: Integers) -> Array:
    """What the thread did at each sample: by its frames, else by the system call it was in."""
    samples, lines = trace.recorded("python_samples"), stack_lines(trace)
    stack, time = samples["stack"][sample], samples["time_ns"][sample]
    thread, doing = samples["thread"][sample], lines.doing[stack].copy()
    blocked = _blocked(trace, thread, time)
    calls = api_calls(trace)
    for row in groups.different(thread).tolist():
        own, rows = thread == row, np.flatnonzero(calls.thread == row)
        in_call = intervals.union(calls.start_ns[rows], calls.end_ns[rows])
        blocked[own] = np.where(intervals.inside(in_call, time[own]), CPU, blocked[own])
    blocked[lines.launches[stack]] = CPU
    blocked[_in_sleep_call(trace)[stack] & (blocked == CPU)] = SLEEP
    return np.where(doing == CPU, blocked, doing)


@fact
def _in_sleep_call(trace: Trace) -> Mask:
    """True for the stacks whose innermost frame is at a line of the program that calls `sleep(`."""
    frames, frame = trace.recorded("python_frames"), stack_lines(trace).frame
    source = frames.texts("source")
    calls = source.isin([str(text) for text in source.values if _SLEEPS.search(str(text))])
    result: Mask = np.append(calls & (frames["depth"] == 0), False)[frame]
    return result


def _blocked(trace: Trace, thread: Array, time: Integers) -> Array:
    """The blocking call of the operating system at some times, as an index into DOINGS."""
    calls, result = trace.recorded("os_calls"), np.full(len(time), CPU, np.uint8)
    names = calls.texts("name")
    for kind, pattern in _BLOCKING.items():
        chosen = names.isin([str(name) for name in names.values if pattern.fullmatch(str(name))])
        if kind != SLEEP:
            chosen &= calls.duration_ns >= LEAST_WAIT_NS
        for row in groups.different(thread).tolist():
            own, rows = thread == row, np.flatnonzero(chosen & (calls["thread"] == row))
            inside = intervals.union(calls["start_ns"][rows], calls["end_ns"][rows])
            result[own] = np.where(intervals.inside(inside, time[own]), kind, result[own])
    return result


class IdleLines(NamedTuple):
    """Idle time by line, one row per device, line, library function and activity.

    `frame` is the first row of the line in python_frames, −1 where the stack has no frame of the
    program; `line` is equal where the line is. `inner` are the codes of the names in StackLines.
    """

    device: Array
    frame: Integers
    line: Integers
    inner: RowNumbers
    doing: Array
    samples: Integers
    time_ns: Integers
    steady_ns: Integers


def sum_lines(trace: Trace, chosen: IdleSamples) -> IdleLines:
    """Add up samples by line, most steady idle time first."""
    every, lines = gaps(trace), stack_lines(trace)
    stack = trace.recorded("python_samples")["stack"][chosen.sample]
    device, inner = every.device[chosen.gap], lines.inner.codes[stack]
    line = lines_of(trace, chosen)
    each = groups.group(device, line, inner, chosen.doing)
    steady = np.where(every.one_time[chosen.gap], 0, chosen.time_ns)
    result = IdleLines(
        device[each.first],
        lines.frame[stack][each.first],
        line[each.first],
        inner[each.first],
        chosen.doing[each.first],
        groups.count(each),
        groups.sums(each, chosen.time_ns),
        groups.sums(each, steady),
    )
    order = np.lexsort((-result.time_ns, -result.steady_ns))
    return IdleLines._make(column[order] for column in result)


def lines_of(trace: Trace, chosen: IdleSamples) -> Integers:
    """The number of the program's line at each sample, as in IdleLines; −1 without one."""
    stack = trace.recorded("python_samples")["stack"][chosen.sample]
    result: Integers = line_numbers(trace)[stack_lines(trace).frame[stack]]
    return result


@fact
def line_numbers(trace: Trace) -> Integers:
    """For each row of python_frames, the number of its line; −1 for row −1."""
    frames = trace.recorded("python_frames")
    file, function = frames.texts("file"), frames.texts("function")
    ids = groups.group(file.codes, frames["line"], function.codes).ids
    return np.append(ids, -1)


def line_cells(trace: Trace, lines: IdleLines) -> dict[str, Array | Texts]:
    """The columns of the table `lines` that name the line and the activity."""
    frames, known = trace.recorded("python_frames"), lines.frame >= 0
    row = np.where(known, lines.frame, 0) if len(frames) else np.zeros(0, np.int64)

    def texts(name: str) -> Texts:
        column = frames.texts(name)
        return Texts(np.where(known, column.codes[row], np.int32(-1)), column.values)

    number = np.where(known, frames["line"][row], np.iinfo(np.int32).min)
    return {
        "device_id": trace.devices["device_id"][lines.device],
        "file": texts("file"),
        "line": number.astype(np.int32),
        "function": texts("function"),
        "inner": Texts(lines.inner, stack_lines(trace).inner.values),
        "activity": Texts.of(DOINGS[each] for each in lines.doing.tolist()),
        "source": texts("source"),
    }
