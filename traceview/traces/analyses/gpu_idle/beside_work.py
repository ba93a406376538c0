"""CPU work before or after all GPU work, where a run is about that: the check of a result, the
data made by the program, the same on the CPU to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import RECORDING, Severity, Subject, filled
from traceview.base.tables import Integers, Mask
from traceview.base.vocabulary.activities import CPU, DATA_LOADING, FILE, TENSORS
from traceview.traces.analyses.gpu_idle.cpu_tasks import cpu_tasks, main_task
from traceview.traces.analyses.gpu_idle.line_sites import (
    LEAST_SAMPLES,
    launching_sites,
    passed_lines,
)
from traceview.traces.facts.idle.first_calls import after_warm_up, series
from traceview.traces.facts.idle.lines import doing_at, sampled_threads, sampling_period_ns
from traceview.traces.facts.idle.page_migrations import fault_times
from traceview.traces.facts.idle.stack_sites import (
    function_name,
    helping_samples,
    innermost_function,
    stack_sites,
    unwound_samples,
)
from traceview.traces.facts.operations import api_calls, operations
from traceview.traces.facts.pacing import off_cpu
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.samples import leaves_at
from traceview.traces.facts.steps.steps import pace
from traceview.traces.rules import FindingRule, TimeClaim
from traceview.traces.trace import Trace, fact
from traceview.traces.trace.model import recording_options

_MOST, LEAST_NS = 0.5, 1_000_000_000
_PART, _TIMES = 0.25, 5
"""The part of the run, the times of all GPU work, and the least time from which on CPU work before
or after all GPU work is what a run is about. By samples at the program's own lines: 5.1 s before
0.8 s (XSBench), 2.3 s before 0.3 s (GMM of CuPy)."""
_TIMES_WHOLE = 2
"""Of a compiled program that ran to its end, so many times, and most of the run: what it does in a
loop is no sample of a longer one. 1.2 s after 0.26 s of 768 steps (GRAMSCHM of PolyBench)."""
_TIMES_UNSEEN = 10
"""Without samples, so many times, and most of the run: 38 s after 0.1 s, 2.2 s before 0.2 s. Or of
a compiled program of which it is not known that it ended: 93 s before 8.6 s of 409 calls (public
recordings)."""
_MOVING = 0.25
"""The CPU may wait for pages that move for more of its work than this. A check of 2.1 GB of results
takes 4.3 s where they are there, 4.9 s with 104 ms of migrations (3.6 with 110, 5.9 with 918 on
other machines; public recordings): what the faults cost besides is of that size."""
_CLOSE = 10
"""What runs between two samples of the work is the work where they are not more periods apart: 14
to 25 of them pass in a start of CUDA with one sample each."""
_NEXT_TO_NONE = 0.005
"""So much of the GPU's time and operations, before or after, is not yet or no more its work: four
fills of 1,060 operations, 0.1 of 217 ms, before data are made for 1.6 s (k-means with Thrust)."""
_NAMED = 0.5
"""A place, or a kind of work, with less of the work than this is not named."""
_LEAST_PART, _MUCH, _LEAST_PART_NS = 0.1, 0.25, 100_000_000
"""The parts of a run that CPU work outside of the steps is worth a finding for, and of medium
severity. Shorter work is not known by samples."""

_HELPER = "another thread, which the launching one waits for,"


class _Work(NamedTuple):
    """CPU work in a window: `sites` are the rows in StackSites of its samples, if there are any.

    `helper` is True where another thread works, for which the launching one waits. In `moved_ns` of
    the window pages of unified memory move.
    """

    worked_ns: int
    window: tuple[int, int]
    sites: Integers
    helper: bool = False
    moved_ns: int = 0

    def part(self, chosen: Mask) -> _Work:
        """What some of its samples are of it."""
        worked_ns = self.worked_ns * int(np.count_nonzero(chosen)) // max(len(self.sites), 1)
        return self._replace(worked_ns=worked_ns, sites=self.sites[chosen])


@fact
def beside_gpu_work(trace: Trace) -> tuple[TimeClaim, ...]:
    """The CPU work before or behind all GPU work, where it takes most of a run."""
    return tuple(_about(trace))


@fact
def beside_steps(trace: Trace) -> tuple[TimeClaim, ...]:
    """Other CPU work that takes much of a run: before, between or behind steps, or all GPU work."""
    return tuple(_much(trace))


def beside_work(trace: Trace) -> tuple[TimeClaim, ...]:
    """All CPU work that is worth a finding, in no order."""
    return beside_gpu_work(trace) + beside_steps(trace)


def _launching_thread(trace: Trace) -> int | None:
    """The thread that launches most; None where something is selected, or nothing launched."""
    ops, calls = operations(trace), api_calls(trace)
    launching = calls.thread[ops.call[ops.launched]]
    if trace.selection or not len(launching) or not len(intervals.covered(ops).start):
        # Operations of no length, as clocks of a few ticks have, are none.
        return None
    return int(np.bincount(launching).argmax())


def _about(trace: Trace) -> Iterator[TimeClaim]:
    ops, thread = operations(trace), _launching_thread(trace)
    if thread is None:
        return
    work = intervals.covered(ops)
    begin, end = _work_that_counts(work, ops.start_ns)
    nearly = begin > work.start[0], end < work.end[-1]
    start, stop = recorded_span(trace)
    steps, sides = bool(pace(trace).timed.any()), ((start, begin), (end, stop))
    seen = [found for side in sides if (found := _by_samples(trace, thread, _window(*side)))]
    part, times = _PART, _TIMES
    compiled = compiled_since(trace, thread) is not None
    if not seen and (compiled or not steps):
        seen, part, times = _by_calls(trace, thread, begin, end), _MOST, _TIMES_UNSEEN
    run_ns, gpu_ns, sites = stop - start, end - begin, stack_sites(trace)
    seen = [_besides_pages(trace, found) for found in seen]
    works = [found for found in seen if found.worked_ns >= LEAST_NS]
    worked_ns = sum(found.worked_ns for found in works)
    whole = all(sites.native[each.sites[0]] if each.sites.size else compiled for each in works)
    many = _TIMES_WHOLE if trace.run.get("exit_status") == "0" else _TIMES_UNSEEN
    whole = whole and worked_ns >= max(_MOST * run_ns, many * gpu_ns)
    whole = whole and not recording_options(trace).bounded
    if not whole and worked_ns < max(part * run_ns, times * gpu_ns):
        return
    severity: Severity = "high" if worked_ns >= _MOST * run_ns else "medium"
    # Where steps are found, they are what was recorded.
    severity = "low" if steps and not whole else severity
    for found in works:
        after = found.window[1] > end
        when = ("nearly all", "the last" if after else "the first")[not nearly[after]]
        words = {
            "when": f"{'After' if after else 'Before'} {when} GPU work",
            "which": "That" if nearly[after] else "From first to last, the",
        }
        for each in _by_task(trace, found, run_ns):
            yield _claim(trace, each, run_ns, words, severity, {"gpu_ns": gpu_ns})


def _much(trace: Trace) -> Iterator[TimeClaim]:
    """The claims on work in the parts of a run, by samples at a place that can be named."""
    thread = _launching_thread(trace)
    if thread is None or recording_options(trace).bounded:
        return
    (start, stop), timed = recorded_span(trace), pace(trace)
    rows = np.concatenate([groups.NO_ROWS, *(after_warm_up(trace, own) for own in series(trace))])
    work = intervals.covered(operations(trace))
    inside = intervals.union(timed.begin_ns[rows], timed.end_ns[rows]) if len(rows) else work
    what, run_ns = "step" if len(rows) else "GPU work", stop - start
    loops = inside if len(rows) else intervals.EMPTY
    first, last = int(inside.start[0]), int(inside.end[-1])
    between = intervals.gaps(inside) if len(rows) else intervals.EMPTY
    sides = (
        (f"Before the first {what}", _window(start, first)),
        (f"Between {what}s", between),
        (f"After the last {what}", _window(last, stop)),
    )
    told = [each.window for each in beside_gpu_work(trace)]
    for when, part in sides:
        free = intervals.without(part, work)
        for window in told:
            free = intervals.without(free, _window(*window))
        found = _by_samples(trace, thread, free, loops) if len(free.start) else None
        found = _besides_pages(trace, found) if found else None
        # What is much of a run, or most of a part that is.
        least_ns = _LEAST_PART * run_ns
        if part.total() >= least_ns:
            least_ns = min(least_ns, _MOST * part.total())
        if not found or found.worked_ns < max(least_ns, _LEAST_PART_NS):
            continue
        for each in _by_task(trace, found, run_ns):
            severity: Severity = "medium" if each.worked_ns >= _MUCH * run_ns else "low"
            claim = _claim(trace, each, run_ns, {"when": when}, severity, {})
            if {"function", "site"} & {*claim.words}:
                yield claim


def _window(start: int | None, end: int | None) -> intervals.Intervals:
    return intervals.Intervals(np.array([start or 0]), np.array([end or 0]))


def _by_task(trace: Trace, work: _Work, run_ns: int) -> Iterator[_Work]:
    """The work; in parts where a kind of it, and the rest, each are much of the run."""
    task = cpu_tasks(trace)[work.sites]
    for number in groups.different(task[task >= 0]).tolist():
        own = work.part(task == number)
        rest = work.part(task != number)
        if min(own.worked_ns, rest.worked_ns) >= _LEAST_PART * run_ns:
            yield own
            work, task = rest, task[task != number]
    yield work


def _claim(
    trace: Trace,
    work: _Work,
    run_ns: int,
    words: Mapping[str, str],
    severity: Severity,
    values: Mapping[str, int],
) -> TimeClaim:
    subject, named, figures = place(trace, work.sites)
    task, part = main_task(trace, work.sites, np.ones(len(work.sites)))
    moved = {"moved_ns": work.moved_ns} if work.moved_ns else {}
    after = words["when"].startswith("After")
    remedy = (_AFTER if after else _BEFORE) + _PAGES * (after and bool(moved))
    if task and part >= _NAMED and len(work.sites) >= LEAST_SAMPLES:
        remedy = task.remedy
        if named and task.what:
            named, figures = {**named, "task": task.what}, {**figures, "task_pct": 100 * part}
    return TimeClaim(
        subject,
        {"worked_ns": work.worked_ns, "run_ns": run_ns, **values, **moved, **figures},
        None,
        {},
        saved_ns=work.worked_ns,
        window=work.window,
        words={"who": _HELPER if work.helper else "the CPU", **words, **named},
        remedy=remedy,
        severity=severity,
    )


def _work_that_counts(work: intervals.Intervals, starts: Integers) -> tuple[int, int]:
    """From when to when the GPUs work, besides next to no work before or after a long pause.

    `starts` are those of all operations, in order.
    """
    pause = np.flatnonzero(work.start[1:] - work.end[:-1] >= LEAST_NS)
    done = np.cumsum(work.length)[pause] / work.total()
    begun = np.searchsorted(starts, work.end[pause]) / len(starts)
    before = pause[np.maximum(done, begun) <= _NEXT_TO_NONE]
    after = pause[np.minimum(done, begun) >= 1 - _NEXT_TO_NONE]
    first = before[-1] + 1 if len(before) else 0
    return int(work.start[first]), int(work.end[after[0] if len(after) else -1])


def _besides_pages(trace: Trace, work: _Work) -> _Work:
    """CPU work without the faults that move pages of unified memory; none where it is mostly that.

    It may wait for the pages then, which memory-copies reports.
    """
    within = [np.array([time]) for time in work.window]
    moving = (intervals.overlap(pages, *within) for pages in fault_times(trace).values())
    moved_ns = sum(int(each[0]) for each in moving)
    left_ns = work.worked_ns - moved_ns if moved_ns <= _MOVING * work.worked_ns else 0
    return work._replace(worked_ns=left_ns, moved_ns=moved_ns)


def _by_samples(
    trace: Trace,
    thread: int,
    windows: intervals.Intervals,
    loops: intervals.Intervals = intervals.EMPTY,
) -> _Work | None:
    """The work of a thread in windows by samples at the program's own lines; None without any.

    Functions of Python that also run in `loops` are warm-up before them: what they call of a
    library may have no frame.

    Or that of a thread that works while this one waits, where it is more. What a library that
    launches does, calls of CUDA, imports and compilation are none.
    """
    samples, own = trace.recorded("python_samples"), sampled_threads(trace)[thread]
    calls, rows = api_calls(trace), np.flatnonzero(samples["thread"] == own)
    if len(rows):
        times, site = samples["time_ns"][rows], samples["stack"][rows]
        doing = doing_at(trace, rows)
        works = np.isin(doing, (CPU, TENSORS, DATA_LOADING))
        # A call of a library that launches has no frame where it is C++.
        works &= ~((doing == CPU) & leaves_at(trace, _OF_GPU)[0][site])
        # To write text is to format it first.
        works |= (doing == FILE) & (cpu_tasks(trace)[site] >= 0)
    else:
        times, _, site = unwound_samples(trace).of_thread(thread)
        works = np.ones(len(times), bool)
    helped = _by_helper(trace, thread, windows)
    if not len(times):
        return helped
    works &= (stack_sites(trace).number[site] >= 0) & ~launching_sites(trace)[site]
    in_calls = intervals.covered(calls, calls.thread == thread)
    called = intervals.inside(in_calls, times)
    works &= ~called
    if len(rows):
        function = stack_sites(trace).function_number[site]
        works &= ~groups.isin(function, function[intervals.inside(loops, times)])
    inside = intervals.inside(windows, times)
    chosen = np.flatnonzero(works & inside)
    worked_ns = len(chosen) * sampling_period_ns(times)
    runs = trace.recorded("thread_runs")
    on_cpu = intervals.covered(runs, np.flatnonzero(runs["thread"] == thread))
    if len(on_cpu.start) and not len(rows):
        # Native code is sampled by cycles of user code: not while pages are made, for example.
        ran_ns = intervals.overlap(on_cpu, times[:-1], times[1:])
        close = np.diff(times) <= _CLOSE * sampling_period_ns(times)
        both = (works & inside)[:-1] & (works & inside)[1:] & close
        worked_ns = max(worked_ns, int(ran_ns[both].sum()))
        period_ns = sampling_period_ns(times)
        # What loads a program, and a recorder, comes before its own lines.
        first, last = times[chosen[[0, -1]]] if len(chosen) else (0, 0)
        own_span = _window(int(first) - period_ns, int(last) + period_ns)
        outside = inside & ~called & intervals.inside(own_span, times)
        if compiled_since(trace, thread) is not None and 2 * len(chosen) > outside.sum():
            # All that a compiled program runs is known: samples tell which part of it is its own.
            left = intervals.intersection(intervals.intersection(windows, on_cpu), own_span)
            left = intervals.without(left, in_calls)
            own_ns = left.total() * len(chosen) // int(outside.sum())
            worked_ns = max(worked_ns, own_ns)
    window = int(windows.start[0]), int(windows.end[-1])
    found = _Work(min(worked_ns, windows.total()), window, site[chosen])
    return helped if helped and helped.worked_ns > found.worked_ns else found


def _by_helper(trace: Trace, thread: int, windows: intervals.Intervals) -> _Work | None:
    """The work of another thread in windows while a thread waits for it; None without any."""
    times, _, site = helping_samples(trace, thread, windows)
    site = site[~launching_sites(trace)[site]]
    worked_ns, window = len(site) * sampling_period_ns(times), (windows.start[0], windows.end[-1])
    if not len(site):
        return None
    return _Work(min(worked_ns, windows.total()), (int(window[0]), int(window[1])), site, True)


def _by_calls(trace: Trace, thread: int, begin: int, end: int) -> list[_Work]:
    """The longest times on the CPU between two calls of CUDA, before `begin` and after `end`.

    Before the first call it is start-up, such as imports, but for a compiled program.
    """
    calls, os_calls = api_calls(trace), trace.recorded("os_calls")
    called = intervals.covered(calls, np.flatnonzero(calls.thread == thread))
    waits = intervals.covered(os_calls, np.flatnonzero(os_calls["thread"] == thread))
    if (since := compiled_since(trace, thread)) is not None:
        called = intervals.union(np.append(since, called.start), np.append(since + 1, called.end))
    between = intervals.gaps(called)
    away = off_cpu(trace, thread)
    if not len(between.start) or not (len(waits.start) or len(away.start)):
        # It may sleep, or wait for input.
        return []
    outside = intervals.without(between, intervals.union(np.array([begin]), np.array([end])))
    outside = intervals.without(intervals.without(outside, waits), away)
    row, found = np.searchsorted(between.end, outside.start, "right"), list[_Work]()
    for side in (outside.end <= begin, outside.start >= end):
        each = np.bincount(row[side], outside.length[side], len(between.end))
        most = int(each.argmax())
        window = int(between.start[most]), int(between.end[most])
        found.append(_Work(int(each[most]), window, np.zeros(0, np.int64)))
    return found


def compiled_since(trace: Trace, thread: int) -> int | None:
    """When a thread of a compiled program begins, as far as is known; None of another program.

    Its libraries are known, and none of them runs another language. It begins with the recording
    where that is of one process, else with its first call of the system.
    """
    modules, on_os = trace.recorded("native_frames").texts("module"), trace.recorded("os_calls")
    if not len(modules) or modules.matching(_RUNS_CODE.search).any():
        return None
    if not np.ptp(trace.threads["process"]):
        return recorded_span(trace)[0]
    starts = on_os["start_ns"][on_os["thread"] == thread]
    return int(starts[0]) if len(starts) else None


_OF_GPU = re.compile(r"\b(torch|jax|jnp|cupy|cp|tf|cuda|cudart)\.|\.(cuda|to)\(")
_RUNS_CODE = re.compile(r"(?i)python|julia|jvm|(^|/)(node|R|libR\.so|ruby|matlab)$")


def place(trace: Trace, site: Integers) -> tuple[Subject, dict[str, str], dict[str, float]]:
    """Where half of the samples or more are, as a subject, words of the message, and its figures.

    That is the innermost line that so many pass through, or a native function.
    """
    sites = stack_sites(trace)
    if len(site) < LEAST_SAMPLES:
        return RECORDING, {}, {}
    if not sites.native[site[0]]:
        passed = passed_lines(trace, np.bincount(site, minlength=len(sites)))
        fits = passed.of_line >= _NAMED * len(site)
        most = passed.innermost(fits)
        line = passed.line_at(trace, most) if fits.any() else None
        if line is None:
            return RECORDING, {}, {}
        site_words = filled("{site:at}", {"site": line.place})
        said = {"site": site_words, "calling": line.named_function, "source": line.source}
        known = {name: text for name, text in said.items() if text}
        return line.subject, known, {"line_pct": 100 * float(passed.of_line[most]) / len(site)}
    function = innermost_function(trace, site, _NAMED)
    if function is None:
        return RECORDING, {}, {}
    name, module = function_name(function.function), function.module.rpartition("/")[2]
    percent = 100 * function.samples / len(site)
    return RECORDING, {"function": name, "module": module}, {"function_pct": percent}


_AFTER = "Take it out of the run, or do it on several threads or on the GPU."
_PAGES = (
    " Unified memory comes back page by page as the CPU reads it: prefetch it before "
    "(cudaMemPrefetchAsync to cudaCpuDeviceId)."
)
_BEFORE = (
    "Take it out of the run (keep what it makes in a file), or do it on several threads or on the "
    "GPU."
)

RULE = FindingRule(
    beside_work,
    "{when} {who} works for {worked_ns} of the {run_ns} recorded[, by samples {function_pct} of it "
    "in {function} ({module})][, by samples {line_pct} of it {site}][ in {calling}]"
    "[ (`{source}`)][, {task_pct} {task}].[ Pages of unified memory that it touches move for "
    "another {moved_ns}.][ {which} GPU work takes {gpu_ns}.]",
)
