"""The analysis `steps`: durations, warm-up, outliers and their reasons."""

import shlex

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from tests.conftest import DATA
from traceview.analyses.steps.analysis import ANALYSIS
from traceview.analyses.steps.parts import COMPUTING, IDLE, OWN_WORK, PARTS
from traceview.analyses.steps.reasons import Reason, step_reasons
from traceview.analyses.steps.wording import reason_clause
from traceview.findings import Subject, filled
from traceview.trace.load import load

MS = 1_000_000


def loop(steps=8, *, busy=30 * MS, idle=3 * MS, process=1, **changed):
    """A loop whose GPU works `busy` and is idle `idle` in each step, as a CPU that launches late.

    `changed` gives other (busy, idle) times to steps by name, and `in_gap` what the CPU does in
    the idle time of a step: a function of the export and the interval.
    """
    in_gap = changed.pop("in_gap", {})
    export, clock = Export(), 0
    export.launch((0, 10), (20, 30), name="first", process=process)
    for number in range(steps):
        name = f"step_{number}"
        work, late = changed.get(name, (busy, idle))
        begin, end = clock + late, clock + late + work
        export.range(name, clock + 1, end, process=process)
        if name in in_gap:
            in_gap[name](export, clock + 100, begin - 100)
        export.launch((begin - 50, begin - 10), (begin, end), process=process)
        clock = end
    return export


def figures(result, *columns):
    return {row[0]: row[1:] for row in rows(result, "steps", "step", *columns)}


def test_a_plain_loop(tmp_path):
    result = ask(ANALYSIS, loop(step_0=(30 * MS, 200 * MS)), tmp_path)

    assert rows(result, "series", "series", "steps", "warm_up_steps", "outliers") == [
        ("step_#", 8, 1, 0)
    ]
    assert rows(result, "series", "median_ns", "p90_ns", "gpu_busy_pct") == [
        (33 * MS, 33 * MS, 100 * 30 / 33)
    ]
    columns = ("kind", "duration_ns", "gpu_busy_ns", "gpu_idle_ns", "launches", "operations")
    assert figures(result, *columns)["step_3"] == ("steady", 33 * MS, 30 * MS, 3 * MS, 1, 1)
    assert figures(result, "kind")["step_0"] == ("warm-up",)
    assert not result.findings


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
        (None, "idle time (launch-late)"),
        (allocate, "idle time (allocation)"),
        (synchronize, "idle time (sync-drain after cudaStreamSynchronize in step_3)"),
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
    assert figures(result, "why")["step_4"] == ("7.00 ms more idle time (module-load)",)


def test_of_a_step_that_also_loads_code_the_rest_can_be_saved(tmp_path):
    export = loop(step_4=(45 * MS, 10 * MS), in_gap={"step_4": load_code})

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # 55 ms less the 10 ms in which code was loaded, beyond the median of 33 ms.
    assert finding.time_at_stake_ns == 12 * MS
    assert finding.message == (
        "step_4 took 55.0 ms (median 33.0 ms), with 15.0 ms more GPU work and 7.00 ms more idle "
        "time (module-load). 10.0 ms of it was idle time in warm-up or first uses."
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
        "2 of 16 steps of epoch_#/batch_# are outliers, 101 ms over the median in total."
    )
    assert finding.action.endswith("--range 'epoch_0/batch_5'.")


def test_more_gpu_work_and_idle_time_are_kept_apart(tmp_path):
    result = ask(ANALYSIS, loop(step_5=(41 * MS, 4 * MS)), tmp_path)

    assert figures(result, "why")["step_5"] == ("11.0 ms more GPU work",)


def test_work_of_other_processes_is_a_part_of_its_own(tmp_path):
    # In the idle time of steps 4 and 6, while their kernels come that much later.
    export = loop(step_4=(30 * MS, 12 * MS), step_6=(30 * MS, 12 * MS))
    fourth, sixth = 4 * 33 * MS, 5 * 33 * MS + 42 * MS
    export.launch((0, 1), (fourth + 1 * MS, fourth + 11 * MS), process=2)
    export.launch((0, 1), (sixth + 1 * MS, sixth + 11 * MS), stream=9, thread=3)

    why = figures(ask(ANALYSIS, export, tmp_path), "why")

    assert why["step_4"] == ("10.0 ms more GPU work of other processes",)
    # Launched before any step began.
    assert why["step_6"] == ("10.0 ms more GPU work from outside the steps",)


def test_idle_time_while_the_cpu_is_between_two_steps(tmp_path):
    export, clock = Export(), 0
    export.launch((0, 10), (20, 30), name="first")
    for number in range(8):
        wait = 9 * MS if number == 5 else 1 * MS
        begin = clock + wait
        export.range(f"step_{number}", begin - 100, begin + 10 * MS)
        export.launch((begin - 90, begin - 10), (begin, begin + 10 * MS))
        clock = begin + 10 * MS

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message == (
        "step_5 took 19.0 ms (median 11.0 ms), with 8.00 ms more idle time (launch-late) while the "
        "CPU was between steps."
    )


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


def test_selected_steps_keep_their_figures(tmp_path):
    export = loop(step_4=(30 * MS, 10 * MS))

    whole = figures(ask(ANALYSIS, export, tmp_path), "kind", "duration_ns", "why")
    part = ask(ANALYSIS, export, tmp_path, include=("step_[45]",))
    without = ask(ANALYSIS, export, tmp_path, exclude=("step_4",))

    assert figures(part, "kind", "duration_ns", "why") == {
        n: whole[n] for n in ("step_4", "step_5")
    }
    assert rows(part, "series", "steps", "outliers") == [(2, 1)]
    first = ask(ANALYSIS, loop(step_0=(30 * MS, 200 * MS)), tmp_path, include=("step_0",))
    assert rows(first, "series", "warm_up_steps", "median_ns", "p90_ns") == [(1, 33 * MS, None)]
    assert not without.findings


def test_steps_of_a_program_without_a_gpu(tmp_path):
    export = Export()
    for number, took in enumerate([100, 101, 99, 100, 300, 100]):
        export.range(f"step_{number}", 1000 * number, 1000 * number + took)

    result = ask(ANALYSIS, export, tmp_path)

    assert figures(result, "kind", "duration_ns", "gpu_busy_ns", "lead_ns")["step_4"] == (
        "outlier",
        300,
        None,
        None,
    )
    assert figures(result, "why")["step_4"] == ("200 ns more CPU time",)
    assert rows(result, "series", "gpu_busy_pct") == [(None,)]
    assert not result.findings


def test_names_that_repeat_are_told_apart(tmp_path):
    export = Export()
    for epoch in range(2):
        export.range(f"epoch_{epoch}", 1000 * epoch, 1000 * epoch + 900)
        for batch in range(2):
            start = 1000 * epoch + 100 * batch
            export.range(f"batch_{batch}", start + 1, start + 90)
            export.range("again", start + 2, start + 5)
    again = Export()
    for number in range(3):
        again.range("train", 100 * number, 100 * number + 50)

    assert list(figures(ask(ANALYSIS, export, tmp_path), "kind")) == [
        "epoch_0/batch_0",
        "epoch_0/batch_1",
        "epoch_1/batch_0",
        "epoch_1/batch_1",
    ]
    assert list(figures(ask(ANALYSIS, again, tmp_path), "kind")) == [
        "train (1)",
        "train (2)",
        "train (3)",
    ]


def test_the_same_ids_on_two_hosts_are_two_series(tmp_path):
    export = loop()
    for number in range(4):
        at = number * 1000
        export.range(f"step_{number}", at, at + 900, process=101)
        export.launch((at + 1, at + 2), (at + 3, at + 3 + 100 * number), process=101)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "series", "host_id", "process_id", "steps") == [
        (1, 1000, 8),
        (2, 1000, 4),
    ]
    assert len(set(rows(result, "steps", "step"))) == 12


def test_a_step_that_runs_wholly_under_the_one_before_has_no_time_and_no_parts(tmp_path):
    export = Export()
    for pair in range(4):
        at = pair * MS
        export.range(f"step_{2 * pair}", at, at + 20_000)
        export.launch((at + 1_000, at + 5_000), (at + 10_000, at + 900_000), stream=7)
        export.range(f"step_{2 * pair + 1}", at + 30_000, at + 100_000)
        export.launch((at + 31_000, at + 35_000), (at + 40_000, at + 80_000), stream=8)
        export.sync("cudaStreamSynchronize_v3020", at + 40_000, at + 82_000, stream=8)

    result = ask(ANALYSIS, export, tmp_path)

    columns = ("duration_ns", "gpu_busy_ns", "gpu_idle_ns", "sync_wait_ns")
    assert figures(result, *columns)["step_3"] == (0, 0, 0, 42_000)
    assert {step for step, *_ in rows(result, "parts", "step", "part")} == {
        "step_0",
        "step_2",
        "step_4",
        "step_6",
    }
    assert (result.tables["parts"]["part_ns"] > 0).all()
    [note] = result.notes
    assert note.startswith("4 of 8 steps add no time: their GPU work ended")
    part = ask(ANALYSIS, export, tmp_path, include=("step_[01]",))
    assert part.notes[0].startswith("1 of 2 steps")
    assert not ask(ANALYSIS, export, tmp_path, include=("step_0",)).notes


def test_without_repetition_there_are_no_steps_and_a_note(tmp_path):
    result = ask(ANALYSIS, Export().range("all", 0, 10), tmp_path)

    assert not len(result.tables["series"])
    assert "Neither ranges nor launches repeat" in result.notes[0]


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
            "60.0 ns more GPU work and 40.0 ns more idle time (launch-late)",
        ),
        # Less than a quarter of the excess is no reason.
        ({"work": 90.0, "late": 10.0}, 0, None, "90.0 ns more GPU work"),
        (
            {"late": 100.0},
            50,
            None,
            "100 ns more idle time (launch-late) while the CPU was between steps",
        ),
        ({"late": 100.0}, 49, None, "100 ns more idle time (launch-late)"),
        (
            {"drain": 100.0},
            100,
            ("cudaMemcpy", "step_1/loss"),
            "100 ns more idle time (sync-drain after cudaMemcpy in step_1/loss)",
        ),
        ({"cpu": 100.0}, 0, None, "100 ns more CPU time"),
        ({}, 0, None, "100 ns more in no single part"),
    ],
)
def test_the_reasons_of_a_step_are_the_parts_that_grew(parts, between, drain, text):
    assert filled(*reason_clause(step_reasons(more(**parts), 100.0, between, drain))) == text


def test_reasons_are_values():
    template, values = reason_clause([Reason(f"{IDLE}sync-drain", 5.0, call="cudaMemcpy")])

    assert template == "{more_1_ns} more idle time (sync-drain after {call_1})"
    assert values == {"more_1_ns": 5.0, "part_1": "idle: sync-drain", "call_1": "cudaMemcpy"}
