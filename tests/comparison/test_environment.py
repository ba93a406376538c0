"""What differs between the machines of two sides, and what is refused."""

import pytest

from tests.comparison.sides import a_part, a_run
from traceview.comparison.environment import check_comparable, environment_differences
from traceview.errors import ComparisonRefusedError

BEFORE = a_run("a.sqlite")


def differing(before, after):
    return [(d.name, d.before, d.after, d.refuses) for d in environment_differences(before, after)]


def test_what_explains_most_comes_first_and_equal_values_are_no_difference():
    before = [a_run(torch="2.10.0", driver="580", sm_clock_mhz="1980", python="3.12")]
    after = [a_run(torch="2.11.0", driver="580", sm_clock_mhz="1410", python="3.11")]
    assert differing(before, after) == [
        ("sm_clock_mhz", "1980", "1410", False),
        ("torch", "2.10.0", "2.11.0", False),
        ("python", "3.12", "3.11", False),
    ]


def test_a_measured_value_may_vary_a_little_and_what_is_not_recorded_is_no_difference():
    before = [a_run(sm_clock_mhz="1980", torch="2.11"), a_run(sm_clock_mhz="1970")]
    assert differing(before, [a_run(sm_clock_mhz="1965")]) == []
    assert differing(before, [a_run(sm_clock_mhz="1700")])[0][1:3] == ("1980, 1970", "1700")
    assert differing([a_run(power_w="high")], [a_run(power_w="low")])[0][0] == "power_w"


def test_one_side_with_two_values_differs_from_a_side_with_one():
    before = [a_run(driver="580"), a_run(driver="570")]
    assert differing(before, [a_run(driver="580")]) == [("driver", "580, 570", "580", False)]
    assert differing(before, list(reversed(before))) == []


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (a_run("b.sqlite", gpu="NVIDIA A100"), "the GPU differs: NVIDIA H200 before, NVIDIA A100"),
        (a_run("b.sqlite", digest="a.sqlite"), "a.sqlite and b.sqlite are the same capture"),
        (a_run("b.sqlite", [a_part(name="other")]), "no kernel in common"),
    ],
)
def test_what_makes_no_sense_is_refused_unless_forced(after, what):
    with pytest.raises(ComparisonRefusedError, match=what):
        check_comparable([BEFORE], [after])
    check_comparable([BEFORE], [after], force=True)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        ([], "no recording on the after side"),
        ([a_run("b.sqlite", [a_part("idle", "launch-late")])], "b.sqlite has no GPU work"),
        ([a_run("b.sqlite", [])], "b.sqlite has no GPU work"),
    ],
)
def test_nothing_to_compare_is_refused_even_if_forced(after, what):
    with pytest.raises(ComparisonRefusedError, match=what):
        check_comparable([BEFORE], after, force=True)


def test_a_graph_may_run_the_kernels_of_the_other_side():
    graph = a_run("b.sqlite", [a_part("graph", "CUDA graph")])
    check_comparable([BEFORE], [graph])
