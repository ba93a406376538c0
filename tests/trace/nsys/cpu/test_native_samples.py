"""Native samples and the stacks of long calls of the operating system."""

import pytest

from tests.build import Export, global_tid

PROGRAM, LIBC = "/home/ada/sim", "/usr/lib/libc.so.6"
WORK = ((LIBC, None), (PROGRAM, "work(int)"), (PROGRAM, "main"))
NAP = ((LIBC, "usleep"), (PROGRAM, "nap()"), (PROGRAM, "main"))


def rows(trace, table, *columns):
    found = trace.table(table)
    return list(zip(*(found.cells(column) for column in columns), strict=True))


def test_samples_in_order_of_time_with_their_frames(tmp_path):
    export = Export().call("cudaMalloc", 0, 1)
    export.native_sample(900, *WORK).native_sample(300, (PROGRAM, "main"), (LIBC, "_start"))
    trace = export.load(tmp_path)

    assert rows(trace, "native_samples", "time_ns", "thread", "stack") == [(300, 0, 2), (900, 0, 1)]
    assert rows(trace, "native_frames", "stack", "depth", "function", "module") == [
        (1, 0, None, LIBC),
        (1, 1, "work(int)", PROGRAM),
        (1, 2, "main", PROGRAM),
        (2, 0, "main", PROGRAM),
        (2, 1, "_start", LIBC),
    ]


def test_stacks_of_calls_are_numbered_apart_from_those_of_samples(tmp_path):
    export = Export().call("cudaMalloc", 0, 1).native_sample(5, *WORK)
    export.os_call("usleep", 10, 20, *NAP).os_call("read", 30, 31)
    trace = export.load(tmp_path)

    assert rows(trace, "os_calls", "name", "stack") == [("usleep", -1), ("read", None)]
    assert [
        row[1] for row in rows(trace, "native_frames", "stack", "function") if row[0] == -1
    ] == [
        "usleep",
        "nap()",
        "main",
    ]


def test_marks_of_broken_stacks_are_no_frames(tmp_path):
    broken = ("[Broken backtraces]", "[Broken backtraces]")
    trace = Export().call("cudaMalloc", 0, 1).native_sample(5, *WORK, broken).load(tmp_path)
    assert len(trace.table("native_frames")) == 3


def test_a_sample_without_callers_has_no_stack_if_others_have_one(tmp_path):
    export = Export().call("cudaMalloc", 0, 1)
    assert len(export.native_sample(5, *WORK[:1]).load(tmp_path).table("native_frames")) == 1
    (tmp_path / "built.sqlite").unlink()
    both = export.native_sample(6, *WORK).load(tmp_path)
    assert {row[0] for row in rows(both, "native_frames", "stack")} == {2}


def test_processes_that_nothing_else_speaks_of_are_left_out(tmp_path):
    export = Export().call("cudaMalloc", 0, 1).native_sample(5, *WORK, process=7)
    trace = export.load(tmp_path)
    assert len(trace.table("native_samples")) == len(trace.table("native_frames")) == 0
    assert len(trace.threads) == 1


def test_threads_that_call_no_cuda_are_kept(tmp_path):
    export = Export().call("cudaMalloc", 0, 1).native_sample(5, *WORK, thread=9)
    trace = export.os_call("poll", 0, 4, thread=9).load(tmp_path)
    assert len(trace.table("native_samples")) == 1
    assert len(trace.table("os_calls")) == 0


def test_absent_is_not_empty(tmp_path):
    assert "native_samples" not in Export().call("cudaMalloc", 0, 1).load(tmp_path).tables


@pytest.mark.parametrize("schema", ["3.0.0", "3.7.2", "3.11.1"])
def test_older_schemas(schema, tmp_path):
    export = Export(schema).call("cudaMalloc", 0, 1).native_sample(5, *WORK)
    assert len(export.load(tmp_path).table("native_frames")) == 3


def test_damaged_rows_are_survived(tmp_path):
    export = Export().call("cudaMalloc", 0, 1).native_sample(5, *WORK)
    far = {"globalTid": global_tid(1, None), "cpuCycles": 1}
    export.raw("COMPOSITE_EVENTS", id=-(1 << 62), start=1 << 62, **far)
    export.raw("SAMPLING_CALLCHAINS", id=1 << 62, symbol=99, module=98, stackDepth=1 << 40)
    trace = export.load(tmp_path)
    assert len(trace.table("native_frames")) == 3
