"""Facts without ranges are the same whatever the ranges, and read none on shipped recordings."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

import pytest

from tests.build import Export
from tests.places import DATA
from traceview.traces.reporting import without_tables
from traceview.traces.trace import Selection, Trace, fact, fact_without_ranges
from traceview.traces.trace.load import load
from traceview.traces.trace.model import Facts

RECORDINGS = sorted(DATA.glob("*.sqlite.xz"))


class WithoutRanges(Mapping):
    """The tables of a trace, where it is an error to ask for the ranges."""

    def __init__(self, tables):
        self.tables = tables

    def __getitem__(self, name):
        assert name != "ranges", "a fact without ranges reads them"
        return self.tables[name]

    def __iter__(self):
        for name in self.tables:
            assert name != "ranges", "a fact without ranges reads all tables"
            yield name

    def __len__(self):
        return len(self.tables)


def computed(trace: Trace):
    """The facts without ranges that were computed for a trace, as functions."""
    for name in sorted(trace._facts.without_ranges._values):
        module, function = name.rsplit(".", 1)
        yield getattr(import_module(module), function)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_a_report_computes_no_fact_without_ranges_from_them(path):
    trace = load(path)
    without_tables(trace)
    # Where ranges are selected, what was launched in them depends on them.
    selection = Selection(("*",))
    guarded = replace(
        trace, tables=WithoutRanges(trace.tables), selection=selection, _facts=Facts()
    )
    functions = list(computed(trace))
    assert functions
    for function in functions:
        function(guarded)


def test_traces_that_differ_in_ranges_share_the_facts_without_them(tmp_path):
    trace = Export().load(tmp_path)
    counted = []

    @fact_without_ranges
    def apart(of):
        counted.append("apart")
        return len(of.recorded("kernels"))

    @fact
    def number_of_ranges(of):
        counted.append("ranges")
        return len(of.recorded("ranges"))

    other = trace.with_ranges(trace.recorded("ranges"))
    for each in (other, trace, other, trace.but(strict=True)):
        assert apart(each) == 0 == number_of_ranges(each)
    assert counted.count("apart") == 2
    assert counted.count("ranges") == 3
