"""The analysis `steps`: durations, warm-up and parts of steps, one row per loop."""

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.steps import ANALYSIS

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
        "step_5 took 19.0 ms (median 11.0 ms), with 8.00 ms more idle time waiting for the "
        "CPU to launch work while the CPU was between steps."
    )


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
