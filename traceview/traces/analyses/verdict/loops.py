"""The loops of the program, each with its share of the recording, and the time outside of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from traceview.base import groups, intervals, units
from traceview.base.findings import LoopTime, shortened
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.traces.analyses.gpu_idle import beside_work
from traceview.traces.analyses.verdict.parts import loop_times, steady_rows
from traceview.traces.facts.operations import operations
from traceview.traces.facts.pacing import off_cpu
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.trace import Trace


@record
class LoopShare:
    """A loop of the run: its steps after warm-up, their median, their time as a part of the run.

    Loops of one name on several `threads` count together.
    """

    name: str
    threads: int
    steps: int
    step_median_ns: int
    time_ns: int
    share_of_run_pct: float


@record
class RunShares:
    """The recording, from the first event to the last, divided by what the report speaks of.

    `loops` come in the order of the time that all of their steps take: figures per step are of the
    first one where no other is named. Loops of several threads may run at once. `before_ns` ends
    with the first step after warm-up, or without steps with the first GPU work after warm-up;
    `after_ns` begins with the end of the last. `between_ns` is the rest of what is in no loop.
    """

    run_ns: int
    loops: tuple[LoopShare, ...]
    before_ns: int
    between_ns: int
    after_ns: int

    @property
    def outside_ns(self) -> int:
        return self.before_ns + self.between_ns + self.after_ns


def run_shares(trace: Trace, device: int | None) -> RunShares:
    """The loops of a recording; without steps, the steady GPU work of a device is all of it."""
    (start, end), named = recorded_span(trace), dict[str, list[LoopTime]]()
    for loop in loop_times(trace):
        named.setdefault(loop.name, []).append(loop)
    times = [_together(loop.time for loop in each) for each in named.values()]
    covered = _together(times or [_steady_work(trace, device)])
    if not len(covered.start):
        return RunShares(end - start, (), end - start, 0, 0)
    first, last = int(covered.start[0]), int(covered.end[-1])
    return RunShares(
        end - start,
        tuple(_share(*each, end - start) for each in zip(named.values(), times, strict=True)),
        max(first - start, 0),
        last - first - covered.total(),
        max(end - last, 0),
    )


def long_calls(trace: Trace) -> tuple[str, str]:
    """What takes most of the time before all GPU work, and after it, where that is much of a run.

    That is a call of the thread that launches most, as `9.1 % in cudaHostAlloc`.
    """
    ops, calls, (start, end) = operations(trace), trace.recorded("api_calls"), recorded_span(trace)
    launching = ops.call[ops.launched]
    if not len(launching):
        return "", ""
    thread = int(np.bincount(calls["thread"][launching]).argmax())
    begin, last = int(ops.start_ns.min()), int(ops.end_ns.max())
    return (
        _long_call(trace, thread, (start, begin), end - start),
        _long_call(trace, thread, (last, end), end - start),
    )


def _long_call(trace: Trace, thread: int, window: tuple[int, int], run_ns: int) -> str:
    calls, parts = trace.recorded("api_calls"), list[tuple[int, str]]()
    called = intervals.covered(calls)
    for table in (calls, trace.recorded("os_calls")):
        rows = np.flatnonzero(table["thread"] == thread)
        begun, ended = (table[name][rows].clip(*window) for name in ("start_ns", "end_ns"))
        took, names = ended - begun, table.texts("name").take(rows)
        if table is not calls:
            took -= intervals.overlap(called, begun, ended)
        each = groups.group(names.codes)
        for first, time_ns in zip(each.first, groups.sums(each, took), strict=True):
            # Of the calls of CUDA the first one starts it, whichever that is; it waits for none.
            name = str(names[int(first)])
            once = took[first] > _ONCE * time_ns
            where = f"in {'the first ' if once and 'Synchronize' not in name else ''}{name}"
            if table is not calls:
                where = f"{'waiting for input ' if once and _INPUT.match(name) else ''}in {name}"
            parts.append((int(time_ns), where))
    parts += [(time_ns, "CPU work") for time_ns in _cpu_work_ns(trace, thread, window, parts)]
    most_ns, where = max(parts, default=(0, ""))
    share = 100.0 * most_ns / max(run_ns, 1)
    return f"{units.percent(share)} {where}" if share >= _LEAST_CALL_PCT else ""


def _cpu_work_ns(
    trace: Trace, thread: int, window: tuple[int, int], parts: Sequence[tuple[int, str]]
) -> list[int]:
    """The CPU's work in a window: what a finding tells, else what a compiled program does beside
    the `parts` that are its calls.
    """
    since = beside_work.compiled_since(trace, thread)
    start, end = window
    # A call may return a little before the work that it waits for ends.
    side = "After" if end == recorded_span(trace)[1] else "Before"
    claims = beside_work.beside_work(trace)
    told = [each.saved_ns for each in claims if each.words["when"].startswith(side)]
    if told or since is None:
        return [sum(told)] * bool(told)
    begin = max(start, since)
    away = intervals.overlap(off_cpu(trace, thread), np.array([begin]), np.array([end]))
    work_ns = end - begin - max(sum(time_ns for time_ns, _ in parts), int(away[0]))
    return [work_ns] if work_ns >= beside_work.LEAST_NS else []


_INPUT = re.compile(r"f?get(c|char|s|line)$|readline$")
"""Calls that read what a person types, where a single one takes long."""
_ONCE, _LEAST_CALL_PCT = 0.9, 10.0
"""Starting CUDA takes 58 to 309 ms in the first call, others of its name next to nothing, but for
3 of 815 ms that pin 400 MB each (public recordings): 0.45."""


def _together(times: Iterable[Intervals]) -> Intervals:
    starts, ends = zip(*times, strict=True)
    return intervals.union(np.concatenate(starts), np.concatenate(ends))


def _share(loops: Sequence[LoopTime], time: Intervals, run_ns: int) -> LoopShare:
    share = 100.0 * time.total() / max(run_ns, 1)
    steps, first = sum(loop.steps for loop in loops), loops[0]
    return LoopShare(first.name, len(loops), steps, first.median_ns, time.total(), share)


def _steady_work(trace: Trace, device: int | None) -> Intervals:
    ops = operations(trace)
    rows = groups.NO_ROWS if device is None else steady_rows(trace, device)
    if not len(rows):
        return intervals.EMPTY
    return Intervals(ops.start_ns[rows].min(keepdims=True), ops.end_ns[rows].max(keepdims=True))


LEAST_OUTSIDE = 0.1
"""One loop that leaves out less of the recording is what the report seems to be about: all."""
_MOST_LOOPS, _LONGEST_NAME, _LEAST_PCT = 3, 30, 1.0


def shares_text(
    shares: RunShares, warms_up: bool = False, calls: tuple[str, str] = ("", "")
) -> str:
    """`Of 3.98 s recorded: eager_# 0.6 % (6 steps of 3.61 ms) · …`, where it is not one loop.

    Without steps, GPU work after warm-up is said to be that where other work `warms_up`. `calls`
    are what takes much of the time before all GPU work, and after it (`long_calls`).
    """
    left_out = shares.outside_ns > LEAST_OUTSIDE * shares.run_ns
    if len(shares.loops) <= 1 and not left_out:
        return ""
    work = "GPU work after warm-up" if warms_up else "first to last GPU work"
    parts = [*_loops_parts(shares, work), *_outside_parts(shares, calls)]
    return f"Of {units.duration(shares.run_ns)} recorded: {' · '.join(parts)}"


def _loops_parts(shares: RunShares, work: str) -> Iterator[str]:
    if len(shares.loops) <= 1:
        what = "steps" if shares.loops else work
        inside_ns = shares.run_ns - shares.outside_ns
        yield f"{what} {units.percent(100.0 * inside_ns / max(shares.run_ns, 1))}"
        return
    for loop in shares.loops[:_MOST_LOOPS]:
        # As the opening counts them: the steps of one thread.
        each, rest = divmod(loop.steps, loop.threads)
        counted = units.counted(loop.steps if rest else each, "step")
        counted = f"{counted} of {units.duration(loop.step_median_ns)}"
        threads = f"{', in all on' if rest else ' on each of'} {units.count(loop.threads)} threads"
        threads = threads if loop.threads > 1 else ""
        share = units.percent(loop.share_of_run_pct)
        name = loop.name if len(loop.name) <= _LONGEST_NAME else loop.name.rpartition("/")[2]
        yield f"{shortened(name, _LONGEST_NAME)} {share} ({counted}{threads})"
    more = shares.loops[_MOST_LOOPS:]
    if more:
        shares_pct = [loop.share_of_run_pct for loop in shares.loops]
        # Loops that run at once have no share in all.
        share = f" {units.percent(sum(shares_pct[_MOST_LOOPS:]))}" if sum(shares_pct) <= 100 else ""
        yield f"{units.counted(len(more), 'other loop')}{share}"


def _outside_parts(shares: RunShares, calls: tuple[str, str]) -> Iterator[str]:
    before, after = (f" ({call})" if call else "" for call in calls)
    parts = (
        (shares.before_ns, "start-up and warm-up" if shares.loops else "before", before),
        (shares.between_ns, "between steps", ""),
        (shares.after_ns, "after", after),
    )
    for time_ns, name, call in parts:
        share = 100.0 * time_ns / max(shares.run_ns, 1)
        if share >= _LEAST_PCT:
            yield f"{name} {units.percent(share)}{call}"
