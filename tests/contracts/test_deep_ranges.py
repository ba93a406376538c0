"""Ranges that nobody closes nest as deep as there are ranges: the work for a report stays linear.

Calls of functions are counted, Python's and C's, on the thread of the report.
"""

import sqlite3
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.build import Export
from traceview.traces.analyses.base import Result
from traceview.traces.facts.ranges.nesting import depths
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.reporting import without_tables
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load

WHOLE = 10_000_000
LAUNCHES = 50


def pushed(path, count: int, *, closed: bool, names: int) -> Trace:
    """Launches inside ever deeper ranges."""
    export = Export()
    for number in range(count):
        start = number * WHOLE // (2 * count)
        export.range(f"r{number % names}", start, WHOLE - start)
    for number in range(LAUNCHES):
        start = number * WHOLE // LAUNCHES
        export.launch(call=(start, start + 2_000), kernel=(start + 3_000, start + 9_000))
    export.write(path)
    if not closed:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE NVTX_EVENTS SET end = NULL")
    return load(path)


def calls_of(work: Callable[[], object]) -> int:
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def answers(trace: Trace) -> str:
    report = without_tables(trace)
    for outcome in report.outcomes.values():
        if isinstance(outcome, Result):
            dict(outcome.tables)
    return report.to_json()


@pytest.mark.parametrize(("closed", "names"), [(True, 1), (False, 10**9)])
def test_a_report_of_deep_ranges_takes_linear_work(closed, names, tmp_path):
    small, large = (
        calls_of(partial(answers, pushed(tmp_path / f"{n}.sqlite", n, closed=closed, names=names)))
        for n in (1_500, 3_000)
    )
    assert large < 2.2 * small


def test_depths_and_inherited_values_of_a_chain_take_few_turns(tmp_path):
    parent = np.arange(-1, 49_999, dtype=np.int32)
    assert calls_of(lambda: depths(parent)) < 200
    assert depths(parent).tolist() == list(range(50_000))
    tree = range_tree(pushed(tmp_path / "chain.sqlite", 3_000, closed=True, names=1))
    depth = depths(tree.parent)
    values = np.full(len(depth), -1, np.int32)
    values[depth == 100] = 7
    assert calls_of(lambda: tree.own_or_inherited(values)) < 200
    np.testing.assert_array_equal(tree.own_or_inherited(values) == 7, depth >= 100)
