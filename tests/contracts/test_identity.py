"""Ids repeat between processes, GPUs, contexts and machines: nothing is joined on less than all."""

import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.build import Export, process_id
from traceview.traces.analyses import ALL, gpu_idle, kernel_share, run_ahead, sync_stalls
from traceview.traces.facts.operations import first_launches, operations
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree
from traceview.traces.facts.steps.steps import steps

HERE, THERE = 1, 101  # the same process id on two machines


def pair(left: dict, right: dict) -> Export:
    """The same program twice, whose ids are all the same but for those given.

    The kernels of the second run three times as long and start a little later.
    """
    export = Export()
    for where, length in ((left, 10), (right, 30)):
        place = {name: value for name, value in where.items() if name != "device"}
        for step in range(4):
            at = step * 1000
            name = f"{where['process']}_{where.get('device', 0)}"
            export.range(f"step_{step}", at, at + 900, **place)
            export.range(f"on_{name}", at + 10, at + 20, **place)
            export.launch((at + 11, at + 12), (at + 100, at + 100 + length), **where)
            export.sync("cudaStreamSynchronize_v3020", at + 50, at + 100 + length, **where)
    return export


PAIRS = {
    "two processes on one GPU": ({"process": 1}, {"process": 2}),
    "two processes on two GPUs": ({"process": 1}, {"process": 2, "device": 1}),
    "one process id on two machines": ({"process": HERE}, {"process": THERE}),
    "two processes on two machines": ({"process": HERE}, {"process": 102, "device": 1}),
}
each = pytest.mark.parametrize("where", PAIRS.values(), ids=PAIRS.keys())


@each
def test_a_kernel_belongs_to_the_range_of_its_own_process(tmp_path, where):
    trace = pair(*where).load(tmp_path)
    tree, done = range_tree(trace), operations(trace)
    paths = attributed_operations(trace).path(tree)
    lengths = (done.end_ns - done.start_ns).tolist()
    for length, path, process in zip(lengths, paths, done.process, strict=True):
        own = where[0] if length == 10 else where[1]
        assert tree.paths[path].endswith(f"on_{own['process']}_{own.get('device', 0)}")
        assert trace.processes["process_id"][process] == process_id(own["process"])


@each
def test_streams_of_equal_numbers_are_told_apart(tmp_path, where):
    found = rows(
        ask(run_ahead.ANALYSIS, pair(*where), tmp_path),
        "streams",
        "host_id",
        "process_id",
        "device_id",
        "operations",
        "queue_wait_max_ns",
    )
    several = any(each["process"] > 100 for each in where)
    expected = [
        (
            (1 + one["process"] // 100) if several else None,
            process_id(one["process"]),
            one.get("device", 0),
            4,
            88,
        )
        for one in where
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


@each
def test_every_wait_is_for_the_work_of_its_own_process(tmp_path, where):
    """Each wait is benign for as long as its kernel runs, which is 10 or 30 ns."""
    found = rows(ask(sync_stalls.ANALYSIS, pair(*where), tmp_path), "sites", "benign_ns")
    assert sum(each[0] for each in found) == 4 * (10 + 30)


@each
def test_steps_of_equal_names_are_two_series(tmp_path, where):
    trace = pair(*where).load(tmp_path)
    found = steps(trace)
    assert found.operations.tolist() == [1] * 8
    took = found.gpu_end_ns - found.gpu_start_ns
    assert sorted(took.tolist()) == [10] * 4 + [30] * 4
    assert {len(set(took[found.series == series].tolist())) for series in (0, 1)} == {1}


def test_one_gpu_number_on_two_machines_is_two_gpus(tmp_path):
    result = ask(gpu_idle.ANALYSIS, pair({"process": HERE}, {"process": THERE}), tmp_path)

    columns = ("host_id", "device_id", "busy_ns")
    assert rows(result, "devices", *columns) == [(1, 0, 40), (2, 0, 120)]
    assert {row[0] for row in rows(result, "causes", "host_id")} == {1, 2}
    assert {row[0] for row in rows(result, "gaps", "host_id")} == {1, 2}


def test_two_processes_on_one_gpu_share_its_busy_time(tmp_path):
    result = ask(gpu_idle.ANALYSIS, pair({"process": 1}, {"process": 2}), tmp_path)

    # The long kernels cover the short ones.
    assert rows(result, "devices", "host_id", "device_id", "busy_ns") == [(None, 0, 120)]


def test_findings_and_head_name_the_machine(tmp_path):
    trace = pair({"process": HERE}, {"process": THERE}).load(tmp_path)
    report = traceview.analyze(trace)
    said = " ".join(each.finding.message for each in report.findings)
    assert "GPU 0 of host 1 is" in said
    # Both machines got the same verdict, which is said once.
    assert "1 other GPU got the same verdict" in said
    assert [(gpu.host_id, gpu.device_id) for gpu in report.trace.gpus] == [(1, 0), (2, 0)]
    assert [each.host_id for each in report.trace.processes] == [1, 2]


def test_a_gpu_that_nothing_describes(tmp_path):
    export = (
        Export()
        .gpu(0)
        .gpu_unknown(3)
        .range("a", 0, 50)
        .launch((0, 2), (10, 20), device=3)
        .launch((2, 3), (10, 40), device=0)
    )
    trace = export.load(tmp_path)
    report = traceview.analyze(trace)

    told = [(gpu.device_id, gpu.name) for gpu in report.trace.gpus]
    assert told == [(0, "NVIDIA H200"), (3, None)]
    devices = report.outcomes["gpu-idle"].tables["devices"]
    assert devices["device_id"].tolist() == [0, 3]
    assert devices["busy_ns"].tolist() == [30, 10]
    assert set(report.outcomes) == {analysis.name for analysis in ALL}


def test_kernels_of_one_name_and_range_say_in_how_many_processes_they_ran(tmp_path):
    export = Export()
    for process in (1, 2, THERE):
        export.range("step", 0, 100, process=process)
        export.launch((1, 2), (10, 20), process=process)
    export.launch((3, 4), (20, 30), process=1, name="alone")

    result = ask(kernel_share.ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "short_name", "calls", "processes") == [
        ("k", 3, 3),
        ("alone", 1, 1),
    ]
    assert rows(result, "ranges", "range_path", "calls", "processes") == [
        ("step", 3, 3),
        ("step", 1, 1),
    ]


def test_code_is_loaded_once_a_context(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), device=0)
        .launch((1, 2), (20, 30), device=1)
        .launch((2, 3), (30, 40), device=0)
        .launch((3, 4), (40, 50), device=0, process=2)
    )
    assert first_launches(export.load(tmp_path)).tolist() == [True, True, False, True]
