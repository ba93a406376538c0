"""The API calls that enqueued the work on GPUs.

GPU events have the correlation id of their call and no process: in a file merged from the traces of
several ranks, calls of several processes share ids.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from traceview import groups, intervals
from traceview.records import record
from traceview.tables import NULL, Integers, Mask, RowNumbers, constant

_NEVER = np.iinfo(np.int64).max
_AS_MANY = 0.98
_SHARED = 0.1


@record
class LaunchCalls:
    """The API calls that enqueued GPU work; they supply what GPU events do not record."""

    process: RowNumbers
    correlation: Integers
    start_ns: Integers
    graph: Mask
    grid: RowNumbers
    block: RowNumbers
    shared: RowNumbers
    bytes: Integers

    def of(self, correlation: Integers) -> Integers:
        """The row of the call with each correlation id, −1 if none; of any process that has it."""
        return _rows(self.correlation, self._keyed, correlation)

    def process_of(self, rows: Integers, main: int) -> RowNumbers:
        """The process of each call; for row −1 it is `main`, the process with most calls."""
        if not any(self.process.strides):
            return constant(main, len(rows), np.int32)
        process = np.full(len(rows), main, np.int32)
        known = rows >= 0
        process[known] = self.process[rows[known]]
        return process

    def of_work(
        self, correlation: Integers, start_ns: Integers, device: Integers, track: Integers
    ) -> Integers:
        """The row of the launch call of each GPU event, −1 if none.

        `track` identifies the stream. Where processes share correlation ids, one process owns all
        calls of a stream: one whose calls precede the work. If there are several, it is the one
        whose place among the processes is that of the GPU among the GPUs, else the one with the
        shortest wait. On a stream that processes share, the work of one id starts in the order of
        the calls with that id.
        """
        rows = np.stack(
            [_rows(self.correlation, keyed, correlation) for keyed in self._keyed_by_process]
        )
        call_ns = np.where(rows >= 0, self.start_ns[rows], _NEVER)
        gpus = groups.different(device).tolist()
        chosen = np.zeros(len(correlation), np.int64)
        for number in groups.different(track).tolist():
            own = np.flatnonzero(track == number)
            if self._is_shared(rows[:, own], correlation[own]):
                chosen[own] = _in_turn(call_ns[:, own], correlation[own], start_ns[own])
            else:
                place = gpus.index(device[own[0]]) if len(gpus) == len(rows) else -1
                chosen[own] = _process_of(call_ns[:, own], start_ns[own], place)
        result: Integers = rows[chosen, np.arange(len(correlation))]
        return result

    @cached_property
    def _keyed(self) -> Integers:
        return np.flatnonzero(self.correlation != NULL)

    @cached_property
    def _keyed_by_process(self) -> list[Integers]:
        keyed = self._keyed
        process = self.process[keyed]
        return [keyed[process == number] for number in groups.different(process).tolist()]

    @cached_property
    def ambiguous(self) -> bool:
        """Whether calls of different processes have equal correlation ids."""
        keyed = self._keyed
        if not len(keyed) or (self.process[keyed] == self.process[keyed[0]]).all():
            return False
        every = groups.group(self.correlation[keyed]).size
        pairs = groups.group(self.correlation[keyed], self.process[keyed]).size
        return pairs > every

    def _is_shared(self, rows: Integers, correlation: Integers) -> bool:
        """Whether a stream has work of several processes: ids repeat, graph launches aside."""
        of_graph = (rows >= 0) & self.graph[rows]
        single = correlation[~of_graph.any(axis=0)]
        return len(single) - groups.group(single).size > _SHARED * len(single)


def _rows(numbers: Integers, keyed: Integers, wanted: Integers) -> Integers:
    """The row, among `keyed`, that has each wanted number, −1 if none has."""
    if not len(keyed):
        return np.full(len(wanted), -1, np.int64)
    keys = numbers[keyed]
    if not groups.in_order(keys):
        order = np.argsort(keys, kind="stable")
        keys, keyed = keys[order], keyed[order]
    row = keyed[np.minimum(intervals.places(keys, wanted, side="left"), len(keys) - 1)]
    return np.where((numbers[row] == wanted) & (wanted != NULL), row, -1)


def _process_of(call_ns: Integers, start_ns: Integers, place: int) -> int:
    """The process whose calls precede a stream's work; `place`, if it is one of several."""
    precedes = call_ns <= start_ns
    count = precedes.sum(axis=1)
    likely = np.flatnonzero(count >= _AS_MANY * max(int(count.max()), 1)).tolist()
    if place in likely or not likely:
        return max(place, 0)
    wait = [np.median((start_ns - call_ns[process])[precedes[process]]) for process in likely]
    return int(likely[int(np.argmin(wait))])


def _in_turn(call_ns: Integers, correlation: Integers, start_ns: Integers) -> Integers:
    """For the n-th GPU event with an id, the process that made the n-th call with that id."""
    order = np.lexsort((start_ns, correlation))
    opens = np.flatnonzero(groups.opens(correlation[order]))
    length = np.diff(np.append(opens, len(order)))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(opens, length)
    by_call = np.argsort(call_ns, axis=0, kind="stable")
    calls = np.maximum((call_ns < _NEVER).sum(axis=0), 1)
    result: Integers = by_call[turn % calls, np.arange(len(order))]
    return result
