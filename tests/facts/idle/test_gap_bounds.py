"""Where idle gaps begin and end, and the operations around them."""

from tests.facts.arrays import api_calls, columns, gaps_of, ints, operations
from traceview.traces.facts.idle.gap_bounds import find_gaps
from traceview.traces.facts.operations import CallKind


def test_gaps_lie_between_the_union_of_work():
    #  0: 10–50   1: 20–30 inside it   2: 60–70   3: 70–80 touches   4: 95–99
    start, end = columns([(10, 50), (20, 30), (60, 70), (70, 80), (95, 99)])
    gaps = find_gaps(ints([0] * 5), start, end)

    assert gaps.start_ns.tolist() == [50, 80]
    assert gaps.end_ns.tolist() == [60, 95]
    assert gaps.idle_ns.tolist() == [10, 15]
    assert list(zip(gaps.before.tolist(), gaps.after.tolist(), strict=True)) == [(0, 2), (3, 4)]


def test_each_device_has_gaps_of_its_own():
    start, end = columns([(0, 10), (5, 20), (30, 40), (50, 60)])
    gaps = find_gaps(ints([0, 1, 0, 1]), start, end)

    assert gaps.device.tolist() == [0, 1]
    assert gaps.start_ns.tolist() == [10, 20]
    assert gaps.end_ns.tolist() == [30, 50]


def test_no_work_has_no_gaps():
    assert len(find_gaps(ints([]), ints([]), ints([]))) == 0


def test_work_is_queued_when_its_call_returns_or_it_starts():
    ops = operations([(0, 10), (20, 30), (45, 60)])
    calls = api_calls([(0, 2), (12, 15), (35, 50)])
    _, launches = gaps_of(ops, calls)

    assert launches.issued_ns.tolist() == [12, 35]
    # The second call goes on while its work runs.
    assert launches.queued_ns.tolist() == [15, 45]


def test_a_copy_is_queued_when_its_call_starts():
    ops = operations([(0, 10), (80, 90)])
    calls = api_calls([(0, 2), (20, 95)], does=[CallKind.LAUNCH, CallKind.COPY])
    _, launches = gaps_of(ops, calls)

    assert launches.queued_ns.tolist() == [20]


def test_work_without_a_call_is_not_known():
    ops = operations([(0, 10), (20, 30)], call=[0, -1])
    _, launches = gaps_of(ops, api_calls([(0, 2)]))

    assert launches.known.tolist() == [False]
