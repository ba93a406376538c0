"""Steps that take longer than others: what their time went to, and how to select one."""

import shlex

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.analyses.test_steps import MS, figures, loop
from tests.build import Export
from tests.conftest import DATA
from traceview.base.findings import Subject, filled
from traceview.traces.analyses.steps import ANALYSIS
from traceview.traces.analyses.steps_findings import Reason, reason_clause, step_reasons
from traceview.traces.facts.idle.step_parts import COMPUTING, IDLE, OWN_WORK, PARTS
from traceview.traces.trace.load import load


def allocate(export, start, end):
    export.call("cudaMalloc_v3020", start, end)


def synchronize(export, start, end):
    export.range("print", start - 40, end + 40)
    export.sync("cudaStreamSynchronize_v3020", start - 150, end)


def load_code(export, start, end):
    export.call("cuModuleLoadData", start, end)


def test_an_outlier_names_what_its_time_went_to(tmp_path):
    slow = {"step_4": (30 * MS, 10 * MS)}

    for does, cause in (
        (None, "idle time waiting for the CPU to launch work"),
        (allocate, "idle time while the CPU allocated or freed memory"),
        (synchronize, "idle time after cudaStreamSynchronize in step_3"),
    ):
        export = loop(**slow, in_gap={"step_4": does} if does else {})
        result = ask(ANALYSIS, export, tmp_path)

        [finding] = result.findings
        assert finding.message == (
            f"step_4 took 40.0 ms (median 33.0 ms), with 7.00 ms more {cause}."
        )
        assert finding.subject == Subject("range", "step_4")
        assert finding.evidence.row["step"] == "step_4"
        assert finding.evidence.end_ns - finding.evidence.start_ns == 40 * MS
        assert finding.evidence.values["more_1_ns"] == 7 * MS
        assert finding.time_at_stake_ns == 7 * MS
        assert finding.action.startswith("Look at what step_4 does")
        assert rows(result, "steps", "step", "kind")[0] == ("step_4", "outlier")


def test_idle_time_that_comes_once_is_no_loss_of_a_step(tmp_path):
    export = loop(step_4=(30 * MS, 10 * MS), in_gap={"step_4": load_code})

    result = ask(ANALYSIS, export, tmp_path)

    assert not result.findings
    assert rows(result, "steps", "step", "kind")[0] == ("step_4", "outlier")
    assert figures(result, "why")["step_4"] == (
        "7.00 ms more idle time while the CPU loaded GPU code",
    )


def test_of_a_step_that_also_loads_code_the_rest_can_be_saved(tmp_path):
    export = loop(step_4=(45 * MS, 10 * MS), in_gap={"step_4": load_code})

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # 55 ms less the 10 ms in which code was loaded, beyond the median of 33 ms; 200 ns of the gap
    # are before that.
    assert finding.time_at_stake_ns == 12 * MS + 200
    assert finding.message == (
        "step_4 took 55.0 ms (median 33.0 ms), with 15.0 ms more GPU work and 7.00 ms more idle "
        "time while the CPU loaded GPU code. 10.0 ms of it was idle time in warm-up or first uses."
    )


def test_loops_of_a_sweep_are_rows_of_their_own(tmp_path):
    export, clock = Export(), 0
    for size in (1, 20, 300):
        for number in range(6):
            export.range(f"step_{number}", clock, clock + size * MS)
            export.launch((clock, clock + 10), (clock + 20, clock + size * MS))
            clock += size * MS

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "series", "series", "steps", "median_ns", "outliers") == [
        ("step_# (3)", 6, 300 * MS, 0),
        ("step_# (2)", 6, 20 * MS, 0),
        ("step_# (1)", 6, 1 * MS, 0),
    ]
    assert rows(result, "steps", "step", "series")[7] == ("step_1 (2)", "step_# (2)")
    assert not result.findings


def epochs(name):
    """Two epochs of eight steps of that name and a number, the 14th of which is slow."""
    export, clock = Export(), 0
    for epoch in range(2):
        for number in range(8):
            took = 90 * MS if (epoch, number) == (1, 5) else 30 * MS
            export.range(f"{name} {number}", clock, clock + took)
            export.launch((clock, clock + 10), (clock + 20, clock + took))
            clock += took
    return export


def test_the_advice_selects_the_step_and_no_other(tmp_path):
    export = epochs("it's")

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith("it's 5 (2) took 90.0 ms")
    [_, text] = shlex.split(finding.action.removesuffix(".")[finding.action.index("--range") :])
    part = ask(ANALYSIS, export, tmp_path, include=(text,))
    assert rows(part, "steps", "step") == [("it's 5 (2)",)]


def test_a_name_that_is_the_path_of_another_range_selects_no_step_alone(tmp_path):
    export, at = Export(), 0
    for number in range(8):
        took = 90 * MS if number == 5 else 30 * MS
        export.range(f"a/s {number}", at, at + took)
        export.launch((at, at + 10), (at + 20, at + took))
        at += took
    export.range("a", 900 * MS, 990 * MS).range("s 5", 910 * MS, 920 * MS)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.action == "Look at what a/s 5 does that the others do not."


@pytest.mark.parametrize(("name", "more"), [("a\nb", ()), ("x" * 200, ()), ("s", ("s 5 (2)",))])
def test_no_advice_to_select_what_cannot_be_named(tmp_path, name, more):
    export = epochs(name)
    for place, each in enumerate(more):
        export.range(each, 900 * MS + place, 901 * MS)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.action.endswith("does that the others do not.")


@pytest.mark.parametrize("name", ["matmul", "add"])
def test_a_sweep_over_sizes_has_no_slow_steps(name):
    """Its loops repeat step_0, step_1 … for one size after another, and load code for each."""
    trace = load(DATA / "workloads" / f"{name}.sqlite.xz")

    result = ANALYSIS.compute(trace)

    assert not result.findings
    assert not result.tables["series"]["outliers"].any()
    steps = {"matmul": [3] * 10, "add": [4] * 3}[name]
    assert result.tables["series"]["steps"].tolist() == steps


def test_the_slow_batch_of_each_epoch_is_found_over_the_epochs():
    result = ANALYSIS.compute(load(DATA / "training.sqlite.xz"))

    [finding] = result.findings
    assert finding.message.startswith(
        "2 of 15 steps of epoch_#/batch_# are outliers, 101 ms over the median in total."
    )
    assert finding.action.endswith("--range 'epoch_0/batch_5'.")


def test_processes_that_are_slow_at_once_are_one_finding(tmp_path):
    export, clock = Export(), 0
    for number in range(10):
        work = 90 * MS if number == 7 else 30 * MS
        for process in (1, 2):
            export.range(f"step_{number}", clock + 1, clock + work, process=process)
            call = (clock + 10, clock + 20)
            export.launch(call, (clock + 100, clock + work), process=process, device=process - 1)
        clock += work

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert "90.0 ms (median 30.0 ms)" in finding.message


def test_several_outliers_are_one_finding(tmp_path):
    slow = {f"step_{n}": (30 * MS, n * MS) for n in (10, 20, 30)}

    [finding] = ask(ANALYSIS, loop(40, **slow), tmp_path).findings

    assert finding.message.startswith(
        "3 of 40 steps of step_# are outliers, 51.0 ms over the median in total. The longest, "
        "step_30, took 60.0 ms (median 33.0 ms), with 27.0 ms more idle"
    )
    assert finding.time_at_stake_ns == 51 * MS


def more(**parts):
    """What each of PARTS took more than its median, by part."""
    named = {"work": OWN_WORK, "late": f"{IDLE}launch-late", "drain": f"{IDLE}sync-drain"}
    result = np.zeros(len(PARTS))
    for name, value in parts.items():
        result[PARTS.index(named.get(name, COMPUTING))] = value
    return result


@pytest.mark.parametrize(
    ("parts", "between", "drain", "text"),
    [
        (
            {"work": 60.0, "late": 40.0},
            0,
            None,
            "60.0 ns more GPU work and 40.0 ns more idle time waiting for the CPU to launch work",
        ),
        # Less than a quarter of the excess is no reason.
        ({"work": 90.0, "late": 10.0}, 0, None, "90.0 ns more GPU work"),
        (
            {"late": 100.0},
            50,
            None,
            "100 ns more idle time waiting for the CPU to launch work while the CPU was between "
            "steps",
        ),
        ({"late": 100.0}, 49, None, "100 ns more idle time waiting for the CPU to launch work"),
        (
            {"drain": 100.0},
            100,
            ("cudaMemcpy", "step_1/loss"),
            "100 ns more idle time after cudaMemcpy in step_1/loss",
        ),
        ({"cpu": 100.0}, 0, None, "100 ns more CPU time"),
        ({}, 0, None, "100 ns more in no single part"),
    ],
)
def test_the_reasons_of_a_step_are_the_parts_that_grew(parts, between, drain, text):
    assert filled(*reason_clause(step_reasons(more(**parts), 100.0, between, drain))) == text


def test_reasons_are_values():
    template, values = reason_clause([Reason(f"{IDLE}sync-drain", 5.0, call="cudaMemcpy")])

    assert template == "{more_1_ns} more idle time after {call_1}"
    assert values == {"more_1_ns": 5.0, "part_1": "idle: sync-drain", "call_1": "cudaMemcpy"}
