from tests.analyses.ask import ask, rows
from tests.build import Export
from traceview.analyses.steps import ANALYSIS

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
        (None, "idle by launch-late"),
        (allocate, "idle by allocation"),
        (load_code, "idle by module-load"),
        (synchronize, "idle by sync-drain (cudaStreamSynchronize in step_3)"),
    ):
        export = loop(**slow, in_gap={"step_4": does} if does else {})
        result = ask(ANALYSIS, export, tmp_path)

        [finding] = result.findings
        said = f"step_4 took 40.0 ms (median 33.0 ms): 7.00 ms more {cause}"
        assert finding.message == said
        assert finding.time_at_stake_ns == 7 * MS
        assert finding.action.startswith("Look at what step_4 does")
        assert rows(result, "steps", "step", "kind")[0] == ("step_4", "outlier")


def test_more_gpu_work_is_told_from_idle_time(tmp_path):
    result = ask(ANALYSIS, loop(step_5=(41 * MS, 4 * MS)), tmp_path)

    assert figures(result, "why")["step_5"] == ("11.0 ms more GPU work",)


def test_work_of_others_is_told_apart(tmp_path):
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
        "step_5 took 19.0 ms (median 11.0 ms): 8.00 ms more idle by launch-late while the CPU "
        "was between the steps"
    )


def test_several_outliers_are_one_finding(tmp_path):
    slow = {f"step_{n}": (30 * MS, n * MS) for n in (10, 20, 30)}

    [finding] = ask(ANALYSIS, loop(40, **slow), tmp_path).findings

    assert finding.message.startswith(
        "3 of 40 steps of step_# took 51.0 ms more than the median together; the longest, step_30 "
        "took 60.0 ms (median 33.0 ms): 27.0 ms more idle"
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


def test_without_repetition_there_are_no_steps_and_a_note(tmp_path):
    result = ask(ANALYSIS, Export().range("all", 0, 10), tmp_path)

    assert not len(result.tables["series"])
    assert "No range repeats" in result.notes[0]
