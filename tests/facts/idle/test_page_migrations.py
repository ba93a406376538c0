"""Idle time in which pages of unified memory moved: whose fault it is, to the nanosecond."""

import random

import numpy as np
import pytest

from tests.build import Export
from tests.facts.idle.test_parts import US, parts, parts_of
from traceview.base import intervals
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.idle.page_migrations import _cut

SYNC = "cudaDeviceSynchronize_v3020"
FIRST = (0, 5 * US), (10 * US, 100 * US)
SECOND = (300 * US, 305 * US), (310 * US, 400 * US)


def program() -> Export:
    return Export().launch(*FIRST).launch(*SECOND)


def test_pages_that_the_cpu_touches_hold_its_thread_up(tmp_path):
    export = program().migration((150 * US, 170 * US), kind="UVM D2H")
    export.migration((165 * US, 180 * US), kind="UVM D2H", cause="speculative prefetch")
    assert parts(export, tmp_path) == [
        ("launch-late", 50 * US),
        ("page-migration", 30 * US),
        ("launch-late", 130 * US),
    ]


def test_a_prefetch_beside_python_holds_nothing_up(tmp_path):
    export = program().migration((150 * US, 170 * US), cause="user prefetch")
    assert parts(export, tmp_path) == [("launch-late", 210 * US)]


def test_a_synchronization_waits_for_a_prefetch(tmp_path):
    export = Export().launch(*FIRST).sync(SYNC, 50 * US, 210 * US)
    export.migration((101 * US, 205 * US), cause="user prefetch").launch(*SECOND)
    found = parts(export, tmp_path)
    assert [time for name, time in found if name == "page-migration"] == [104 * US]


def test_work_waits_for_pages_that_are_prefetched(tmp_path):
    """Launched early, it starts when they have moved."""
    export = Export().launch(*FIRST).launch((20 * US, 25 * US), (300 * US, 400 * US))
    export.migration((110 * US, 290 * US), cause="user prefetch")
    assert ("page-migration", 180 * US) in parts(export, tmp_path)


def test_pages_of_another_gpu_hold_nothing_up(tmp_path):
    export = program().migration((150 * US, 170 * US), kind="UVM D2H", device=1)
    assert parts(export, tmp_path) == [("launch-late", 210 * US)]


@pytest.mark.parametrize("seed", range(20))
def test_random_migrations_take_what_they_overlap(seed, tmp_path):
    """Of kernels launched one by one, all idle time in which a page moves, and no other."""
    draw, export, now = random.Random(seed), Export(), 0
    for _ in range(20):
        start = now + draw.randrange(10, 60) * US
        end = start + draw.randrange(10, 60) * US
        export.launch((start - 6 * US, start - 2 * US), (start, end)).sync(SYNC, start, end + US)
        now = end
    for _ in range(60):
        start = draw.randrange(now)
        export.migration((start, start + draw.randrange(1, 9_000)), kind="UVM D2H")
    trace = export.load(tmp_path)
    parts_of(trace)
    every, copies = gaps(trace), trace.recorded("copies")
    moved = intervals.union(copies["start_ns"], copies["end_ns"])
    within = intervals.overlap(moved, every.start_ns, every.end_ns)
    migrating = every.cause == CAUSE_NAMES.index("page-migration")
    assert (within[migrating] == every.idle_ns[migrating]).all()
    assert (within[~migrating] == 0).all()


@pytest.mark.parametrize("seed", range(30))
def test_cuts_are_those_of_each_nanosecond(seed):
    draw = np.random.default_rng(seed)
    start = draw.integers(0, 50, 8)
    covered = intervals.union(start, start + draw.integers(1, 6, 8))
    begin = draw.integers(0, 50, 6)
    until, chosen = begin + draw.integers(1, 20, 6), draw.random(6) < 0.7
    row, first, last, inside = _cut(covered, begin, until, chosen)
    assert (first < last).all()
    for number in range(6):
        own = row == number
        times = [np.arange(one, two) for one, two in zip(first[own], last[own], strict=True)]
        assert np.concatenate(times).tolist() == [*range(begin[number], until[number])]
        for piece, within in zip(times, inside[own], strict=True):
            expected = intervals.inside(covered, piece) & chosen[number]
            assert (expected == within).all()
