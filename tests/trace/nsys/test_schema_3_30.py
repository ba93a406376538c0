"""What schema 3.30 (nsys 2026.5) added: row ids as columns, host functions, JIT, green contexts."""

import sqlite3

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export, global_pid, global_tid, process_id
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS as GPU_IDLE
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS as WAVES
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.trace.sqlite.file import opened

US = 1000
SCHEMA = "3.30.1"
HOST_FUNCTIONS = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH"


def cells(table, *names):
    return list(zip(*(table.cells(name) for name in names), strict=True))


def test_a_row_id_column_is_read_though_it_is_stored_as_null(tmp_path):
    """By sqlite3; the page decoder reads the other columns of the table."""
    export = Export(SCHEMA).range("a", 0, 100).range("b", 10, 20)
    path = export.write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET eventId = eventId + 5 WHERE text = 'b'")
    connection.close()

    with opened(path) as database:
        found = database.read("NVTX_EVENTS", {"eventId": "integer", "start": "integer"})
        other = database.read("NVTX_EVENTS", {"start": "integer", "eventType": "integer"})

    assert found["eventId"].values.tolist() == [1, 7]
    assert found["start"].values.tolist() == other["start"].values.tolist() == [0, 10]
    assert other["eventType"].values.tolist() == [59, 59]


def test_ranges_are_those_of_an_older_schema(tmp_path):
    new = Export(SCHEMA).range("a", 0, 100).range("b", 10, 20, domain="lib").load(tmp_path)
    (tmp_path / "old").mkdir()
    old = Export().range("a", 0, 100).range("b", 10, 20, domain="lib").load(tmp_path / "old")

    names = ("name", "start_ns", "end_ns", "domain", "kind")
    assert cells(new.ranges, *names) == cells(old.ranges, *names)
    assert not new.warnings


def on_stream(start: int, end: int) -> dict[str, int]:
    where = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_pid(1)}
    return {"start": start, "end": end, "correlationId": 9, **where}


def waiting(schema: str = SCHEMA) -> Export:
    """Ten kernels of 20 µs, all launched at once, 80 µs apart."""
    export = Export(schema)
    for place in range(10):
        start = 200 * US + place * 100 * US
        export.launch((place * 5 * US, place * 5 * US + 2 * US), (start, start + 20 * US))
    return export


def test_a_host_function_holds_its_stream_as_a_dependency_does(tmp_path):
    export = waiting()
    for place in range(9):
        start = 220 * US + place * 100 * US
        export.raw(HOST_FUNCTIONS, **on_stream(start + 5 * US, start + 75 * US))

    trace = export.load(tmp_path)

    assert cells(trace.table("host_functions"), "start_ns", "end_ns", "stream_id")[0] == (
        *(225 * US, 295 * US, 7),
    )
    assert {CAUSE_NAMES[cause] for cause in gaps(trace).cause} == {"dependency"}
    finding = next(each for each in GPU_IDLE.run(trace).findings if "queued" in each.message)
    assert "For 630 µs of it streams waited for 9 host functions." in finding.message
    assert finding.action.startswith("Keep host functions")


def test_callbacks_stand_in_for_host_functions_of_unknown_streams(tmp_path):
    export = waiting().drop(HOST_FUNCTIONS)
    export.raw(
        "CUDA_HOST_CALLBACK", start=225 * US, end=295 * US, globalTid=global_tid(1, 4), nameId=1
    )

    trace = export.load(tmp_path)

    assert cells(trace.table("host_functions"), "start_ns", "device", "stream_id") == [
        (225 * US, None, None)
    ]
    finding = next(each for each in GPU_IDLE.run(trace).findings if "queued" in each.message)
    assert "host function" not in finding.message  # 70 of 720 µs


@pytest.mark.parametrize(("operation", "told"), [(3, True), (1, False)])
def test_jit_compilation_is_a_cause_of_its_own(tmp_path, operation, told):
    """A call that the recording lost compiles for 80 of each 100 µs between two kernels."""
    export = Export(SCHEMA)
    for place in range(6):
        at = place * 120 * US
        columns = {"eventClass": 0, "globalTid": global_tid(1, None), "jitEntryType": 1}
        export.raw(
            "CUPTI_ACTIVITY_KIND_JIT",
            start=at + 20 * US,
            end=at + 100 * US,
            jitOperationType=operation,
            cachePath="/home/someone/.nv/ComputeCache/1/2",
            **columns,
        )
        export.launch(
            (at + 105 * US, at + 107 * US), (at + 110 * US, at + 130 * US), name=f"k{place % 2}"
        )

    trace = export.load(tmp_path)

    assert set(trace.table("jit_compilations").cells("operation")) == {
        "compile" if told else "cache load"
    }
    # The launch call after it is a part of its own.
    assert {CAUSE_NAMES[cause] for cause in gaps(trace).cause} == {
        "jit-compile" if told else "module-load",
        "launch-late",
    }
    finding = next(each for each in GPU_IDLE.run(trace).findings if "first uses" in each.message)
    clause = "For 400 µs of it the driver compiled PTX (5 JIT compilations)."
    assert (clause in finding.message) == told
    assert finding.action.startswith("Build the code for this GPU") == told


def test_waves_of_a_green_context_count_its_sms(tmp_path):
    """64 blocks on 32 SMs that hold one each: two full waves, where 132 SMs would stay idle."""
    export = Export(SCHEMA).raw(
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        processId=process_id(1),
        deviceId=0,
        contextId=5,
        parentContextId=1,
        isGreenContext=1,
        numMultiprocessors=32,
    )
    alone = {"blockX": 1024, "registersPerThread": 64, "gridX": 64}
    export.kernel_without_launch((0, 100 * US), greenContextId=5, **alone)
    export.kernel_without_launch((200 * US, 300 * US), **alone)

    result = ask(WAVES, export, tmp_path)

    assert sorted(rows(result, "kernels", "waves", "tail_idle_pct")) == [
        (pytest.approx(64 / 132), pytest.approx(100 * 68 / 132)),
        (2.0, 0.0),
    ]
    assert any("green context of 32 SMs" in note for (note,) in rows(result, "kernels", "note"))
