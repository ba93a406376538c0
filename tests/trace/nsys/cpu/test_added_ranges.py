"""Ranges that the recorder adds: in a domain of their own, however they were emitted."""

from tests.build import Export
from traceview.traces.trace.nsys.ranges import DOMAIN
from traceview.traces.trace.nsys.ranges import PREFIX as MARK
from traceview.traces.trace.nsys.ranges import RANGE_PREFIX as PREFIX

TEXT = "train.py:31 in step: loss.item() [Tensor.item]"


def named(trace):
    return [(row["name"], row["domain"]) for row in trace.ranges.rows()]


def test_both_ways_of_emitting_them_are_read(tmp_path):
    trace = (
        Export()
        .range("backward", 0, 100)
        .range(PREFIX + "backward", 10, 20)
        .range(PREFIX + "h.0", 30, 40, domain=DOMAIN, process=2)
        .range(PREFIX + "h.0", 70, 80, domain="of the user")
        .load(tmp_path)
    )
    assert set(named(trace)) == {
        ("backward", None),
        ("backward", DOMAIN),
        ("h.0", DOMAIN),
        (PREFIX + "h.0", "of the user"),
    }


def test_marks_of_waiting_calls_are_apart(tmp_path):
    trace = (
        Export()
        .range(PREFIX + "step_0", 0, 100)
        .range(MARK + TEXT, 10, 20)
        .range(TEXT, 30, 40, domain=DOMAIN)
        .range(PREFIX + "backward", 50, 60, domain=DOMAIN)
        .load(tmp_path)
    )
    assert named(trace) == [("step_0", DOMAIN), ("backward", DOMAIN)]
    assert [row["line"] for row in trace.call_sites.rows()] == [31, 31]


def test_a_program_cannot_take_the_domain_by_its_prefix_alone(tmp_path):
    trace = Export().range(PREFIX.removesuffix(":"), 0, 10).range(PREFIX, 20, 30).load(tmp_path)
    assert named(trace) == [(PREFIX.removesuffix(":"), None), ("", DOMAIN)]
