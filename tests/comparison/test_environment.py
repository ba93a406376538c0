"""What differs between the machines of two sides, and what is refused."""

import pytest

from tests.build import Export
from tests.comparison.sides import a_part, a_run
from tests.places import REPOSITORY
from traceview.base.errors import ComparisonRefusedError
from traceview.traces.comparison.environment import (
    check_comparable,
    check_one_program,
    environment_differences,
)
from traceview.traces.comparison.run_figures import environment_of
from traceview.traces.trace.load import load

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
    hot = differing([a_run(temperature_c="high")], [a_run(temperature_c="low")])
    assert hot[0][0] == "temperature_c"


def test_one_side_with_two_values_differs_from_a_side_with_one():
    before = [a_run(driver="580"), a_run(driver="570")]
    assert differing(before, [a_run(driver="580")]) == [("driver", "580, 570", "580", False)]
    assert differing(before, list(reversed(before))) == []


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (a_run("b.sqlite", gpu="NVIDIA A100"), "the GPU differs: NVIDIA H200 before, NVIDIA A100"),
        (a_run("b.sqlite", digest="a.sqlite"), "a.sqlite and b.sqlite are the same capture"),
        (a_run("b.sqlite", [a_part("copy", "H2D pinned")]), "no kernel was recorded after"),
    ],
)
def test_what_makes_no_sense_is_refused_unless_forced(after, what):
    with pytest.raises(ComparisonRefusedError, match=what) as refused:
        check_comparable([BEFORE], [after])
    assert "pass force=True to compare them" in refused.value.remedy.replace("or pass", "pass")
    assert "pass --force to compare them" in refused.value.command_text
    assert "force=True" not in refused.value.command_text
    check_comparable([BEFORE], [after], force=True)


def test_copies_of_one_capture_on_a_side_are_no_repeated_runs():
    copies = [a_run("run1.sqlite", digest="a"), a_run("run2.sqlite", digest="a")]
    with pytest.raises(ComparisonRefusedError, match=r"run1\.sqlite and run2\.sqlite are the same"):
        check_comparable(copies, [BEFORE])
    with pytest.raises(ComparisonRefusedError, match="pass each capture once"):
        check_comparable([BEFORE], copies)


def test_programs_that_share_a_trivial_kernel_are_refused_to_a_gate():
    fill = a_part(name="fill", time_ns=9)
    before = a_run("a.sqlite", [fill, a_part(name="gemm", time_ns=991)])
    after = a_run("b.sqlite", [fill, a_part(name="softmax", time_ns=1991)])
    with pytest.raises(ComparisonRefusedError) as refused:
        check_one_program([before], [after])
    assert refused.value.what == (
        "the kernels of both sides take 0.9 % of kernel time before and 0.5 % after: "
        "these are different programs"
    )
    check_one_program([before], [a_run("b.sqlite", [fill])])


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
    check_one_program([BEFORE], [graph])


@pytest.fixture
def environment_of_run(tmp_path):
    """What comparisons read of a run of which `traceview record` noted these facts."""

    def read(**run):
        export = Export().launch((10, 12), (20, 30)).run(**run)
        return environment_of(export.load(tmp_path), 0)

    return read


def test_the_state_of_the_gpu_is_that_after_the_run_of_all_gpus_together(environment_of_run):
    found = environment_of_run(
        sm_clock_mhz_before="345,345",
        sm_clock_mhz_after="1980,1410",
        memory_clock_mhz_after="3201,3201",
        power_limit_w_after="700.00,650.00",
        temperature_c_after="41,54",
        clock_reasons_after="0x0000000000000000,0x0000000000000024",
        other_processes_before="2",
        other_processes_after="1",
    )
    assert found["sm_clock_mhz"] == "1410"
    assert found["memory_clock_mhz"] == "3201"
    assert found["power_limit_w"] == "650"
    assert found["temperature_c"] == "54"
    assert found["clock_limits"] == "power cap, temperature"
    assert found["other_processes"] == "2"


def test_the_clock_of_an_idle_gpu_says_nothing_of_the_run(environment_of_run):
    idle = {"sm_clock_mhz_after": "345", "clock_reasons_after": "0x0000000000000001"}
    found = environment_of_run(**idle, temperature_c_after="36")
    assert found["temperature_c"] == "36"
    assert not {"sm_clock_mhz", "clock_limits"} & found.keys()


def test_damaged_values_are_left_out(environment_of_run):
    found = environment_of_run(
        sm_clock_mhz_after="1980,x", clock_reasons_after="?", temperature_c_after=""
    )
    assert not {"sm_clock_mhz", "clock_limits", "temperature_c"} & found.keys()


def test_without_notes_of_the_run_the_maximum_clock_of_the_recorder_stands():
    trace = load(REPOSITORY / "tests/data/foreign/mnist.sqlite.xz")
    assert not trace.run.keys() - {"clock_origin_ns"}
    assert environment_of(trace, 0)["max_sm_clock_mhz"] == "1980"
