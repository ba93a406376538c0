"""Predecessors of queued work, on its stream or by an event."""

from tests.facts.arrays import api_calls, gaps_of, ints, operations
from traceview.facts.idle.stream_order import (
    EventWaits,
    find_predecessors,
    previous_on_stream,
)
from traceview.groups import order_of


def test_previous_operation_on_the_stream():
    ops = operations([(0, 1), (1, 2), (2, 3), (3, 4)], stream=[0, 1, 0, 1])

    assert previous_on_stream(ops.stream, order_of(ops.stream)).tolist() == [-1, -1, 0, 1]
    assert previous_on_stream(ops.stream[:0], ints([])).tolist() == []


def test_a_wait_for_an_event_puts_other_streams_in_front():
    """Streams 0 and 1; the last kernel is on stream 0, and operation 1 on stream 1 ended last."""
    ops = operations([(0, 10), (5, 50), (60, 70)], stream=[0, 1, 0])
    calls = api_calls([(0, 1), (1, 2), (6, 7)])
    gaps, launches = gaps_of(ops, calls)
    previous = previous_on_stream(ops.stream, order_of(ops.stream))

    def behind(*times):
        waits = EventWaits(ints([0] * len(times)), ints(times))
        found = find_predecessors(gaps, launches, ops, calls, waits, previous)
        return found.operation.tolist(), found.by_event.tolist()

    assert behind() == ([0], [False])
    assert behind(4) == ([1], [True])
    # Before the launch of the operation in front, or after that of the work itself.
    assert behind(0, 6) == ([0], [False])
