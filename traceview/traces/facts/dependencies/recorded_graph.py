"""The graph of a recording: the edges that it shows, and those inferred from it.

What recorders do not hold is inferred, and its kind of edge says so (`INFERRED`):

- A stream that was made to wait for an event waits for the operation that ended last before, of
  those on other streams that were launched before the wait.
- Work that starts late although nothing known holds it back, within `NEAR_NS` (on GPUs of AMD,
  `AMD_NEAR_NS`) after the end of work launched before it on the same GPU, waited for that.
- A synchronization whose stream is not recorded waits for the work that ended last before it
  returned.
- Two threads of which one makes calls only while the other makes none take turns: each continues
  when the other has handed over, as PyTorch's autograd does.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p
from functools import cached_property

import numpy as np

from traceview.base import groups, intervals
from traceview.base.compiled import library
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, Table, picked, row_numbers
from traceview.traces.facts import operations as work
from traceview.traces.facts.dependencies.graph import Dependencies, Edge, Edges
from traceview.traces.facts.launches import queue_full, waits
from traceview.traces.facts.operations import CallKind, api_calls, correlated, loading_launches
from traceview.traces.facts.pacing import paced_loops
from traceview.traces.trace import Trace, fact_without_ranges

LATENCY_NS = 5_000
"""From the launch call to the start on an idle GPU, where a recording has no such launch: 4.6 to
6.2 µs in the recordings of one H200."""
PITCH_NS = 1_000
"""From the end of a kernel to the start of the queued one behind it: 0.7 to 1.3 µs there."""
TAIL_NS = 5_000
"""From the end of the work to the return of the call that waits for it: 3 to 9 µs there."""
SYNC_NS = 3_000
"""Time of a synchronization with nothing to wait for."""
NEAR_NS = 5_000
"""Work that starts so soon after the end of other work follows it; several pitches."""
AMD_NEAR_NS = 25_000
"""The same on GPUs of AMD: kernels that waited for a collective on another stream began 14 to 19 µs
after its end in a public recording of eight MI300X."""
HELD_NS = 20_000
"""A start so much later than all that is known to hold it back has another reason."""
TURNS = 4
"""Calls in turn, on average, of two threads that hand over to each other; those of threads that run
freely beside each other alternate."""


@record
class Walked:
    """Walks from operations (rows) back to the begin of the idle time before them.

    `idle` is the idle time of any GPU: calls outside of it are beyond all walks.
    """

    operation: RowNumbers
    idle: Intervals


@fact_without_ranges
def dependencies(trace: Trace) -> Dependencies:
    """The graph of the whole recording."""
    return build(trace)


def build(
    trace: Trace,
    since_ns: int | None = None,
    until_ns: int | None = None,
    walked: Walked | None = None,
) -> Dependencies:
    """The graph of the calls from `since_ns` to before `until_ns`, and of what they launched.

    With `walked` it has what those walks can reach.
    """
    return _Builder(trace, since_ns, until_ns, walked).graph()


class _Builder:
    """The graph in the making: items first, then edges of each kind."""

    def __init__(
        self, trace: Trace, since_ns: int | None, until_ns: int | None, walked: Walked | None
    ) -> None:
        self.trace, self.walked = trace, walked is not None
        calls, ops = api_calls(trace), work.operations(trace)
        inside = _between(calls.start_ns, since_ns, until_ns)
        reached = inside
        if walked:
            reached = intervals.overlap(walked.idle, calls.start_ns, calls.end_ns) > 0
            launching = ops.call[walked.operation]
            reached[launching[launching >= 0]] = True
        rows = np.arange(len(calls)) if reached is None else np.flatnonzero(reached)
        rows = rows[groups.order_of(picked(calls.thread, rows))]
        thread, end = picked(calls.thread, rows), picked(calls.end_ns, rows)
        opens = groups.opens(thread)
        latest = _latest_before(end, opens)
        inner = ~opens & (end <= latest)
        around = np.cumsum(~inner) - 1
        self.item_of_call = np.full(len(calls), -1, np.int32)
        self.item_of_call[rows] = around
        self.call = row_numbers(rows[~inner])
        self.thread, self.does = picked(calls.thread, self.call), picked(calls.does, self.call)
        self.opens = groups.opens(self.thread)
        launched = self.item_of_call[np.maximum(ops.call, 0)] if len(calls) else ops.call
        launched = np.where(ops.call >= 0, launched, -1)
        chosen = np.arange(len(ops))
        if inside is not None:
            known = _between(ops.start_ns, since_ns, until_ns)
            assert known is not None
            chosen = np.flatnonzero(np.where(ops.call >= 0, launched >= 0, known))
        self.operation = row_numbers(chosen)
        self.whole = walked is None
        self.wanted = np.full(len(chosen), self.whole)
        if walked:
            self.wanted[walked.operation] = True
        self.ops = ops
        self.launch = picked(launched, chosen).astype(np.int32)
        self.calls = len(self.call)
        self.start = np.concatenate([calls.start_ns[self.call], ops.start_ns[chosen]])
        self.end = np.concatenate([calls.end_ns[self.call], ops.end_ns[chosen]])
        self.stream, self.process = ops.stream[chosen], picked(ops.process, chosen)
        self.op_start, self.op_end = self.start[self.calls :], self.end[self.calls :]
        self.launched_ns = np.full(len(chosen), np.iinfo(np.int64).min)
        call = picked(ops.call, chosen)
        by_call = np.flatnonzero(call >= 0)
        self.launched_ns[by_call] = calls.start_ns[call[by_call]]
        loaded = np.flatnonzero(picked(loading_launches(trace), chosen))
        # Code is loaded before the kernel is enqueued.
        enqueued_ns = np.minimum(calls.end_ns[call[loaded]], self.op_start[loaded]) - LATENCY_NS
        self.launched_ns[loaded] = np.maximum(enqueued_ns, self.launched_ns[loaded])
        self.of: list[Array] = []
        self.on: list[Array] = []
        self.lag: list[Array] = []
        self.kind: list[Array] = []
        self.loose: list[Array] = []

    def add(self, of: Array, on: Array, lag: Array, kind: Edge, loose: Mask | None = None) -> None:
        """Add edges; `loose` are those that did not hold their item up, whatever their lag."""
        self.of.append(of)
        self.on.append(on)
        self.lag.append(lag)
        self.kind.append(np.full(len(of), kind, np.uint8))
        self.loose.append(np.zeros(len(of), bool) if loose is None else loose)

    def graph(self) -> Dependencies:
        self._operations()
        self._threads()
        begin = self._bound(self.start)
        own = self.end - self.start
        finish = self._waiting(own)
        chosen = self._reached(begin, finish)
        items = np.append(np.arange(self.calls), chosen + self.calls)
        number = np.full(len(own), -1, np.int32)
        number[items] = np.arange(len(items))
        return Dependencies(
            self.calls,
            self.call,
            self.operation[chosen],
            self.item_of_call if self.whole else groups.NO_ROWS,
            self.thread,
            self.does,
            self.start[items],
            self.end[items],
            own[items],
            _of_items(begin, items, number),
            _of_items(finish, items, number),
            self.launch[chosen],
            self.latency,
            self.pitch,
        )

    def _reached(self, *edges: Edges) -> Integers:
        """The operations that walks begin at or come to: all where nothing is walked."""
        reached = self.wanted.copy()
        for each in edges:
            reached[each.on[each.on >= self.calls] - self.calls] = True
        return np.flatnonzero(reached)

    # What operations wait for.

    def _operations(self) -> None:
        by_stream = groups.order_of(self.stream)
        behind = np.full(len(by_stream), -1, np.int64)
        behind[by_stream[1:]] = np.where(
            groups.opens(self.stream[by_stream])[1:], -1, by_stream[:-1]
        )
        of = np.flatnonzero(self.wanted)
        on, start, launched_ns = behind[of], self.op_start[of], self.launched_ns[of]
        follows, launched = on >= 0, self.launch[of] >= 0
        free_ns = np.where(follows, self.op_end[np.maximum(on, 0)], _NEVER)
        held = start - launched_ns
        idle = launched & (free_ns < launched_ns)
        first = np.ones(len(of), bool)
        first[1:] = self.launch[of[1:]] != self.launch[of[1:] - 1]
        sample = idle & first & (held < 10 * LATENCY_NS) & (held >= 0)
        self.latency = _usual(held[sample], LATENCY_NS)
        # Work that came no later than its launch takes does not show the pitch of its stream.
        queued = follows & launched & ~idle & (held > self.latency)
        since = start - free_ns
        self.pitch = _usual(since[queued & (since <= 2 * PITCH_NS) & (since >= 0)], PITCH_NS)
        rows = np.flatnonzero(follows)
        lag = np.full(len(rows), self.pitch)
        # Work launched on an idle stream did not wait for it.
        self.add(of[rows] + self.calls, on[rows] + self.calls, lag, Edge.STREAM, idle[rows])
        rows = np.flatnonzero(launched)
        lag = self.latency + launched_ns[rows] - self.start[self.launch[of[rows]]]
        self.add(of[rows] + self.calls, self.launch[of[rows]], lag, Edge.LAUNCH)
        expected = np.full(len(self.operation), _NEVER)
        stream = np.where(follows & ~idle, free_ns + self.pitch, _NEVER)
        launch = np.where(launched, launched_ns + self.latency, _NEVER)
        expected[of] = np.maximum(stream, launch)
        if len(of) == len(self.operation):
            self._nodes(expected)
        self._events(expected)
        self._held(expected)

    def _nodes(self, expected: Array) -> None:
        """Edges between nodes of one graph launch on different streams.

        Walks do without: what ended last before a gap is where they end.
        """
        launched = self.launch[self.launch >= 0]
        if not len(launched) or np.bincount(launched).max() < 2:
            return
        order = np.lexsort((self.op_start, self.launch))
        same = (self.launch[order][1:] == self.launch[order][:-1]) & (self.launch[order][1:] >= 0)
        if not same.any():
            return
        begins = np.concatenate(([True], ~same))
        place = np.maximum.accumulate(
            np.where(
                _latest_before(self.op_end[order], begins, own=True) == self.op_end[order],
                np.arange(len(order)),
                0,
            )
        )
        before = np.concatenate(([-1], order[place[:-1]]))
        rows = np.flatnonzero(~begins)
        of, on = order[rows], before[rows]
        fits = (self.stream[of] != self.stream[on]) & (self.op_end[on] <= self.op_start[of])
        fits &= self.op_end[on] + self.pitch > expected[of]
        of, on = of[fits], on[fits]
        self.add(of + self.calls, on + self.calls, np.full(len(of), self.pitch), Edge.GRAPH)
        expected[of] = self.op_end[on] + self.pitch

    def _events(self, expected: Array) -> None:
        """Edges for events that streams were made to wait for."""
        syncs = self.trace.recorded("synchronizations")
        made = np.flatnonzero(
            syncs.texts("kind").isin(["stream-wait-event"]) & ~syncs.is_null("stream_id")
        )
        if not len(made):
            return
        stream, when = self._streams_of(syncs, made), syncs["start_ns"][made]
        found_of: list[Array] = [groups.NO_ROWS]
        found_limit: list[Array] = [groups.NO_ROWS]
        for each in groups.different(stream[stream >= 0]).tolist():
            times = np.sort(when[stream == each])
            rows = np.flatnonzero((self.stream == each) & (self.launch >= 0))
            rows = rows[np.argsort(self.launched_ns[rows], kind="stable")]
            waited = np.searchsorted(times, self.launched_ns[rows], side="right")
            new = np.flatnonzero(np.diff(waited, prepend=0))
            found_of.append(rows[new])
            found_limit.append(times[waited[new] - 1])
        of, limit = np.concatenate(found_of), np.concatenate(found_limit)
        on = self._ended_last(of, self.op_start[of], limit)
        fits = on >= 0
        fits &= self.wanted[of] & (self.stream[np.maximum(on, 0)] != self.stream[of])
        of, on = of[fits], on[fits]
        self.add(of + self.calls, on + self.calls, np.full(len(of), self.pitch), Edge.EVENT)
        expected[of] = np.maximum(expected[of], self.op_end[on] + self.pitch)

    def _held(self, expected: Array) -> None:
        """Edges for work that starts late behind the end of other work of its process."""
        late = self.wanted & (self.op_start - expected > HELD_NS) & (expected > _NEVER)
        of = np.flatnonzero(late)
        if not len(of):
            return
        on = self._ended_last(of, self.op_start[of], self.launched_ns[of])
        near_ns = AMD_NEAR_NS if self.trace.run.get("gpu_vendor") == "AMD" else NEAR_NS
        near = (on >= 0) & (self.op_start[of] - self.op_end[np.maximum(on, 0)] <= near_ns)
        of, on = of[near], on[near]
        self.add(of + self.calls, on + self.calls, np.full(len(of), self.pitch), Edge.HELD)

    def _ended_last(self, of: Array, until: Array, launched: Array, calls: bool = False) -> Array:
        """The operation that ended last up to a time, among those launched before another, or −1.

        One per row; `of` are operations, or with `calls` items of calls, of the same process.
        """
        result = np.full(len(of), -1, np.int64)
        by_end = self._by_end
        process = self._call_process[of] if calls else self.process[of]
        for number, places in groups.rows_of(process).items():
            rows = by_end.get(number)
            if rows is None:
                continue
            ends, begun = self.op_end[rows], self.launched_ns[rows]
            at = np.searchsorted(ends, until[places], side="right") - 1
            pending = np.arange(len(places))
            # Work launched too late is seldom among the last to end: a few looks back find it.
            for _ in range(_LOOKS):
                pending = pending[at[pending] >= 0]
                fits = begun[at[pending]] < launched[places[pending]]
                if not calls:
                    fits &= rows[at[pending]] != of[places[pending]]
                result[places[pending[fits]]] = rows[at[pending[fits]]]
                pending = pending[~fits]
                at[pending] -= 1
        return result

    @cached_property
    def _by_end(self) -> dict[int, Array]:
        result = {}
        for number, rows in groups.rows_of(self.process).items():
            result[number] = rows[np.argsort(self.op_end[rows], kind="stable")]
        return result

    @cached_property
    def _call_process(self) -> Array:
        return picked(self.trace.recorded("api_calls")["process"], self.call)

    # What calls wait for.

    def _threads(self) -> None:
        """Edges along threads, and where threads take turns."""
        rows = np.flatnonzero(~self.opens)
        turns, other = self._turns()
        free = np.ones(self.calls, bool)
        free[turns] = False
        lag = np.where(free[rows], self.start[rows] - self.end[rows - 1], 0)
        # The call before may reach into this one.
        lag = np.minimum(lag, self.start[rows] - self.end[rows - 1])
        # Walks look for what the thread did, not for why.
        for loop in () if self.walked else paced_loops(self.trace):
            item = self.item_of_call[loop.call]
            known = (item > 0) & ~self.opens[item]
            item, waited_ns = item[known], loop.waited_ns[known]
            place = np.searchsorted(rows, item)
            lag[place] = np.minimum(lag[place], np.maximum(lag[place] - waited_ns, 0))
            of, on = item[1:], item[:-1]
            self.add(of, on, self.start[of] - self.end[on], Edge.PACE)
        self.add(rows, rows - 1, lag, Edge.THREAD)
        self.add(turns, other, self.start[turns] - self.end[other], Edge.HAND_OVER)

    def _turns(self) -> tuple[Array, Array]:
        """Calls that continue when another thread has handed over, and that thread's last call."""
        of: list[Array] = [groups.NO_ROWS]
        on: list[Array] = [groups.NO_ROWS]
        for rows in groups.rows_of(self._call_process).values():
            thread = self.thread[rows]
            threads = groups.different(thread)
            if not 1 < len(threads) <= _MOST_THREADS:
                continue
            order = rows[np.argsort(self.start[rows], kind="stable")]
            for one in range(len(threads)):
                for two in range(one + 1, len(threads)):
                    both = order[np.isin(self.thread[order], threads[[one, two]])]
                    changes = np.flatnonzero(self.thread[both][1:] != self.thread[both][:-1]) + 1
                    least = min(
                        int((self.thread[both] == threads[each]).sum()) for each in (one, two)
                    )
                    apart = self.start[both[changes]] >= self.end[both[changes - 1]]
                    rare = least < 2 * TURNS
                    if rare or TURNS * len(changes) > 2 * least or not apart.all():
                        continue
                    of.append(both[changes])
                    on.append(both[changes - 1])
            # A thread's first call: something of its process came before.
            first = order[self.opens[order]][1:]
            place = np.searchsorted(self.start[order], self.start[first], side="left") - 1
            before = order[np.maximum(place, 0)]
            fits = (place >= 0) & (self.end[before] <= self.start[first])
            of.append(first[fits])
            on.append(before[fits])
        all_of, all_on = np.concatenate(of), np.concatenate(on)
        # Of several threads that could have handed over, the last to end did.
        latest: Array = np.lexsort((-self.end[all_on], all_of))
        all_of, all_on = all_of[latest], all_on[latest]
        kept = groups.opens(all_of) if len(all_of) else np.zeros(0, bool)
        return all_of[kept], all_on[kept]

    def _waiting(self, own: Array) -> Edges:
        """Edges behind which calls return, and in `own` their time without a wait."""
        self.of, self.on, self.lag, self.kind, self.loose = [], [], [], [], []
        every = waits(self.trace)
        item = self.item_of_call[every.call]
        # A wait inside another call is that call's.
        chosen = np.flatnonzero(item >= 0)
        item, does = item[chosen], every.does[chosen]
        names = self.trace.recorded("api_calls").texts("name")
        frees = names.isin(_FREES)[every.call[chosen]]
        copying = np.isin(does, _COPYING)
        self._copies(item[copying])
        syncing = (does == CallKind.SYNCHRONIZE) | frees
        kind, stream = self._recorded_waits(every.call[chosen])
        whole = syncing & (frees | (kind == _CONTEXT))
        self._whole(item[whole], np.where(kind == _CONTEXT, stream, -1)[whole])
        known = syncing & ~frees & (kind == _STREAM)
        # A stream without work has no row.
        working = known & (stream >= 0)
        self._whole(item[working], stream[working])
        rest = item[syncing & ~whole & ~known]
        rest = np.concatenate([rest, self._behind_full_queue()])
        rest = groups.different(rest)
        on = self._ended_last(rest, self.end[rest], self.start[rest], calls=True)
        found = on >= 0
        self._add_waits(rest[found], on[found])
        self._judge_waits(own)
        return self._bound(self.end)

    def _behind_full_queue(self) -> Array:
        """Calls that enqueue work while the launch queue is full, and wait for room.

        Between two that were held far longer than usual, all longer ones waited, too.
        """
        full = queue_full(self.trace)
        enqueues = np.zeros(self.calls + 1, bool)
        enqueues[self.launch] = True
        result = [groups.NO_ROWS]
        for thread, held in full.by_thread.items():
            rows = np.flatnonzero(enqueues[:-1] & (self.thread == thread))
            took = self.end[rows] - self.start[rows]
            during = (self.start[rows] >= held.start[0]) & (self.end[rows] <= held.end[-1])
            result.append(rows[during & (took > _usual(took, 0))])
        return np.concatenate(result)

    def _judge_waits(self, own: Array) -> None:
        """The lag of waits, which of them held their call up, and in `own` its time without them.

        A synchronization with nothing left to wait for shows what it costs by itself.
        """
        of, on = (np.concatenate([groups.NO_ROWS, *each]) for each in (self.of, self.on))
        does = self.does[of]
        since, begun = self.end[of] - self.end[on], self.end[on] > self.start[of]
        syncs = does == CallKind.SYNCHRONIZE
        waits = np.zeros(self.calls, bool)
        waits[of[begun]] = True
        free = ~waits & (self.does == CallKind.SYNCHRONIZE)
        cost = _usual(own[: self.calls][free], SYNC_NS)
        # Of the works that a call waits for the last one counts.
        tails = begun & (syncs if (syncs & begun).any() else since <= 2 * TAIL_NS)
        tail = np.full(self.calls, _NEVER)
        np.maximum.at(tail, of[tails], -since[tails])
        usual = _usual(-tail[tail > _NEVER], TAIL_NS)
        held = begun | (syncs & (since <= usual) & (own[of] > cost))
        # A call with work of its own, as cudaFree, may have been done with the wait long before.
        frees = does == CallKind.ALLOCATE
        held &= ~frees | (since <= 2 * usual)
        # What a call that enqueues work costs by itself: the quicker ones had room.
        enqueues = ~syncs & np.isin(does, (CallKind.LAUNCH, CallKind.OTHER, *_COPYING))
        launching = self.does == CallKind.LAUNCH
        launch_cost = _usual(own[: self.calls][launching], cost)
        costs = np.where(enqueues, launch_cost, cost)
        names = self.trace.recorded("api_calls").texts("name").codes[self.call]
        alone = np.ones(self.calls, bool)
        alone[of[held]] = False
        for name in groups.different(names[of[held & frees]]).tolist():
            costs[names[of] == name] = _usual(own[: self.calls][alone & (names == name)], cost)
        own[of[held]] = np.minimum(own[of[held]], costs[held])
        lag = np.full(len(of), usual)
        self.of, self.on, self.lag = [of], [on], [lag]
        self.kind, self.loose = [np.full(len(of), Edge.WAIT, np.uint8)], [~held]

    def _copies(self, item: Array) -> None:
        """Blocking copies wait for their own operations."""
        mark = np.zeros(self.calls + 1, bool)
        mark[item] = True
        of = np.flatnonzero((self.launch >= 0) & mark[self.launch])
        # A small upload is copied aside, and its call returns before it runs.
        of = of[self.op_start[of] < self.end[self.launch[of]]]
        self._add_waits(self.launch[of].astype(np.int64), of)

    def _recorded_waits(self, call: Array) -> tuple[Array, Array]:
        """What each call waits for as recorded: a context, a stream (a row of streams), unknown.

        Of a context that is known, −2 − its id stands for the stream.
        """
        syncs, calls = self.trace.recorded("synchronizations"), self.trace.recorded("api_calls")
        kind, stream = np.zeros(len(call), np.uint8), np.full(len(call), -1, np.int64)
        names = calls.texts("name")
        kind[names.isin(_DEVICE_WIDE)[call]] = _CONTEXT
        if not len(syncs):
            return kind, stream
        row = correlated(syncs, calls, call)
        texts = syncs.texts("kind")
        context, by_stream = texts.isin(["context"]), texts.isin(["stream"])
        found = np.flatnonzero(row >= 0)
        contexts = found[context[row[found]]]
        kind[contexts], stream[contexts] = _CONTEXT, -2 - syncs["context_id"][row[contexts]]
        found = found[by_stream[row[found]] & ~syncs.is_null("stream_id")[row[found]]]
        stream[found], kind[found] = self._streams_of(syncs, row[found]), _STREAM
        return kind, stream

    def _streams_of(self, syncs: Table, rows: Array) -> Integers:
        """The stream of these rows of synchronizations, a row of streams, −1 without work on it."""
        streams = self.ops.streams
        ids = groups.group(
            *(
                np.concatenate([streams[:, column], syncs[name][rows]])
                for name, column in (("process", 0), ("context_id", 2), ("stream_id", 3))
            )
        ).ids
        row_of = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
        row_of[ids[: len(streams)]] = np.arange(len(streams))
        return row_of[ids[len(streams) :]]

    def _whole(self, item: Array, stream: Array) -> None:
        """Calls that wait for all work of their process, or of a stream, launched before them.

        Of each stream the last operation since the thread's wait before counts, and those that a
        few waits before it waited for, in case these are edited away.
        """
        thread = self.thread[item]
        for number in groups.different(thread).tolist():
            mine = np.flatnonzero(thread == number)
            mine = mine[np.argsort(self.start[item[mine]], kind="stable")]
            for wanted in groups.different(stream[mine]).tolist():
                calls = item[mine[stream[mine] == wanted]]
                process = self._call_process[calls[0]]
                fits = (self.process == process) & (self.launch >= 0)
                if wanted >= 0:
                    fits &= self.stream == wanted
                elif wanted < -1:
                    fits &= self.ops.streams[self.stream, 2] == -2 - wanted
                ops = np.flatnonzero(fits)
                first = np.searchsorted(self.start[calls], self.launched_ns[ops], side="right")
                # Of each stream the last operation before the wait that it is the first one for.
                order = np.lexsort((ops, self.stream[ops], first))
                ops, first = ops[order], first[order]
                last = np.append(groups.opens(first, self.stream[ops])[1:], True)[: len(ops)]
                ops, first = ops[last], first[last]
                for later in range(_WAITS_BACK):
                    inside = np.flatnonzero(first + later < len(calls))
                    of, on = calls[first[inside] + later], ops[inside]
                    # The work of another device may end later than a wait for one of them.
                    ended = self.op_end[on] <= self.end[of]
                    self._add_waits(of[ended], on[ended])

    def _add_waits(self, of: Array, on: Array) -> None:
        self.add(of, on + self.calls, np.full(len(of), TAIL_NS), Edge.WAIT)

    # The edges of all items, and an order of items along them.

    def _bound(self, time: Array) -> Edges:
        """All edges added so far, by item, the binding one of each with the lag recorded."""
        none = np.zeros(0, np.int32)
        of, on = (np.concatenate([none, *map(row_numbers, each)]) for each in (self.of, self.on))
        lag = np.concatenate([groups.NO_ROWS, *self.lag]).astype(np.int64, copy=False)
        kind = np.concatenate([np.zeros(0, np.uint8), *self.kind])
        loose = np.concatenate([np.zeros(0, bool), *self.loose]).view(np.uint8)
        made = _Made(len(of), *map(library.address, (of, on, lag, kind, loose)))
        items = len(self.start)
        first = np.empty(items + 1, np.int64)
        result = Edges(first, np.empty_like(on), np.empty_like(lag), np.empty_like(kind))
        columns = (first, result.on, result.lag_ns, result.kind)
        library.call("traceview_bind", made, items, self.start, self.end, time, *columns)
        return result


class _Made(Structure):
    _fields_ = (
        ("count", c_int64),
        *((name, c_void_p) for name in ("of", "on", "lag", "kind", "loose")),
    )


_NEVER = int(np.iinfo(np.int64).min) // 4
_LOOKS, _WAITS_BACK = 16, 4
_COPYING = (CallKind.COPY, CallKind.COPY_ASYNC)
_MOST_THREADS = 32
_CONTEXT, _STREAM = 1, 2
_FREES = ("cudaFree", "cuMemFree", "cuMemFree_v2", "hipFree", "cudaFreeHost")
"""They free device memory outside a pool, and wait for the device (CUDA's documentation of
cudaFree; so does hipFree)."""
_DEVICE_WIDE = (
    *("cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize"),
    "hipDeviceSynchronize",
)


def _of_items(edges: Edges, items: Integers, number: RowNumbers) -> Edges:
    """The edges of a part of all items; those left out have none."""
    first = np.append(edges.first[items], edges.first[-1])
    return Edges(first, number[edges.on], edges.lag_ns, edges.kind)


def _between(start: Array, since: int | None, until: int | None) -> Mask | None:
    if since is None and until is None:
        return None
    result = np.ones(len(start), bool)
    if since is not None:
        result &= start >= since
    if until is not None:
        result &= start < until
    return result


def _latest_before(end: Array, opens: Mask, own: bool = False) -> Array:
    """The greatest end before each row in its group of rows; with `own` the row itself counts."""
    if not len(end):
        return end
    least = int(end.min())
    span = int(end.max()) - least + 1
    number = np.cumsum(opens) - 1
    latest = np.maximum.accumulate(end - least + number * span) - number * span + least
    return latest if own else np.concatenate((latest[:1], latest[:-1]))


def _usual(values: Array, otherwise: int) -> int:
    """What an edge takes where nothing else holds its item up: little of what is seen.

    Among short kernels launched one by one most starts are late by their launch, so that a median
    would take that for the pitch of the stream.
    """
    place = len(values) // 10
    return int(np.partition(values, place)[place]) if len(values) else otherwise
