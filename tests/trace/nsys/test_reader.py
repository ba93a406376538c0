"""The tables of an export become the tables of a Trace."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.trace.nsys.exports import (
    KERNEL,
    NAMES,
    NVTX,
    OVERHEAD,
    RUNTIME,
    SYNC,
    Row,
    call,
    cells,
    kernel,
    nvtx,
    on_stream,
    pid,
    tid,
    write_export,
)
from traceview.base.errors import TraceFormatError
from traceview.traces.trace.load import load


def sync(number: int, correlation: int | None, event: int | None = 5) -> Row:
    row = on_stream(1, 2, correlationId=correlation)
    return {**row, "syncType": number, "eventId": event}


def test_a_kernel_row(read: Any) -> None:
    row = kernel(
        *(5, 9),
        gridX=2,
        gridY=3,
        gridZ=4,
        blockX=32,
        blockY=2,
        blockZ=1,
        registersPerThread=40,
        staticSharedMemory=16,
        dynamicSharedMemory=1 << 17,
        sharedMemoryExecuted=233_472,
        graphNodeId=77,
    )
    expected = {
        "start_ns": 5,
        "end_ns": 9,
        "process": 0,
        "device": 0,
        "context_id": 1,
        "stream_id": 7,
        "correlation_id": 1,
        "name": "void gemm<float>(int)",
        "short_name": "gemm",
        "mangled_name": None,
        "grid_x": 2,
        "grid_y": 3,
        "grid_z": 4,
        "block_x": 32,
        "block_y": 2,
        "block_z": 1,
        "registers_per_thread": 40,
        "static_shared_memory_bytes": 16,
        "dynamic_shared_memory_bytes": 1 << 17,
        "shared_memory_config_bytes": 233_472,
        "cluster_blocks": None,
        "sm_count": None,
        "max_active_clusters": None,
        "graph_node_id": 77,
    }
    assert list(read({KERNEL: [row]}).table("kernels").rows()) == [expected]


def test_clusters_are_read_where_the_export_has_them(read: Any) -> None:
    rows = [
        kernel(1, 2, clusterX=2, clusterY=2, clusterZ=1, maxActiveClusters=30),
        kernel(3, 4, clusterX=0, clusterY=0, clusterZ=0, maxActiveClusters=0),
        kernel(5, 6, clusterX=None, clusterY=None, clusterZ=None, maxActiveClusters=None),
    ]
    found = cells(read({KERNEL: rows}), "kernels", "cluster_blocks", "max_active_clusters")
    assert found == [(4, 30), (1, None), (None, None)]


def test_a_shared_memory_of_nothing_is_not_known(read: Any) -> None:
    sizes = (0, None, -5, 8192)
    rows = [kernel(at, at + 2, sharedMemoryExecuted=size) for at, size in enumerate(sizes)]
    found = cells(read({KERNEL: rows}), "kernels", "shared_memory_config_bytes")
    assert found == [(None,), (None,), (None,), (8192,)]


def test_what_a_version_lacks_takes_its_default(read: Any) -> None:
    row = {name: value for name, value in kernel(5, 9).items() if name != "shortName"}
    trace = read({KERNEL: [row]})
    columns = ("short_name", "grid_x", "graph_node_id")
    assert cells(trace, "kernels", *columns) == [("void gemm<float>(int)", 0, None)]
    assert trace.warnings == ()


def test_without_a_required_column_a_table_is_absent_and_told(read: Any) -> None:
    row = {name: value for name, value in kernel(5, 9).items() if name != "streamId"}
    trace = read({KERNEL: [row], RUNTIME: [call(1, 2, name=4)]}, names={**NAMES, 4: "cuInit"})
    assert "kernels" not in trace.tables
    assert trace.warnings == (f"table {KERNEL} was not read: it has no column streamId",)
    assert trace.unread == {"kernels": f"table {KERNEL} has no column streamId"}


def test_sorted_by_start_and_stable(read: Any) -> None:
    rows = [kernel(start, 99, correlationId=at) for at, start in enumerate([5, 3, 5, 3])]
    found = cells(read({KERNEL: rows}), "kernels", "start_ns", "correlation_id")
    assert found == [(3, 1), (3, 3), (5, 0), (5, 2)]


def test_names_without_a_row_are_made_up(read: Any) -> None:
    trace = read({KERNEL: [kernel(1, 2, demangledName=987654321, shortName=2)]})
    assert cells(trace, "kernels", "name", "short_name") == [("(unknown name #987654321)", "gemm")]


def test_string_ids_without_a_key_are_found(tmp_path: Path) -> None:
    path = write_export(tmp_path / "t.sqlite", {KERNEL: [kernel(1, 2)]})
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE StringIds RENAME TO old")
        connection.execute("CREATE TABLE StringIds AS SELECT * FROM old")
        connection.execute("DROP TABLE old")
    connection.close()
    assert cells(load(path), "kernels", "short_name") == [("gemm",)]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
        ("my_v2_thing", "my_v2_thing"),
    ],
)
def test_calls_lose_their_version(read: Any, stored: str, shown: str) -> None:
    trace = read({RUNTIME: [call(1, 2, name=4)]}, names={4: stored})
    assert cells(trace, "api_calls", "name") == [(shown,)]


def test_copies_and_sets(read: Any) -> None:
    copy = on_stream(1, 2, bytes=64, copyKind=1, srcKind=1, dstKind=2)
    odd = on_stream(3, 4, bytes=1, copyKind=99, srcKind=None, dstKind=77)
    tables = {"CUPTI_ACTIVITY_KIND_MEMCPY": [copy, odd]}
    tables["CUPTI_ACTIVITY_KIND_MEMSET"] = [on_stream(5, 6, bytes=128)]
    trace = read(tables)
    columns = ("bytes", "direction", "source_memory", "destination_memory")
    assert cells(trace, "copies", *columns) == [
        (64, "H2D", "pinned", "device"),
        (1, "kind 99", "unknown", "kind 77"),
    ]
    assert cells(trace, "sets", "start_ns", "bytes") == [(5, 128)]


def test_the_numbers_of_the_export_itself_come_first(read: Any) -> None:
    enum = [{"id": 31, "name": "CUDA_MEMCPY_KIND_PTOP", "label": "Peer-to-Peer"}]
    copy = on_stream(1, 2, bytes=64, copyKind=31)
    trace = read({"CUPTI_ACTIVITY_KIND_MEMCPY": [copy], "ENUM_CUDA_MEMCPY_OPER": enum})
    assert cells(trace, "copies", "direction") == [("P2P",)]


def test_pages_of_unified_memory_are_a_direction_of_their_own(read: Any) -> None:
    enum = [{"id": 32, "name": "CUDA_MEMCPY_KIND_UVM_HTOD", "label": "Unified Host-to-Device"}]
    moved = [
        on_stream(1, 2, bytes=64, copyKind=32, migrationCause=2),
        on_stream(2, 3, bytes=64, copyKind=12, migrationCause=99),
        on_stream(3, 4, bytes=64, copyKind=1, migrationCause=0),
        on_stream(4, 5, bytes=64, copyKind=1, migrationCause=None),
    ]
    trace = read({"CUPTI_ACTIVITY_KIND_MEMCPY": moved, "ENUM_CUDA_MEMCPY_OPER": enum})
    assert cells(trace, "copies", "direction", "migration_cause") == [
        ("UVM H2D", "page fault"),
        ("UVM D2H", "kind 99"),
        ("H2D", None),
        ("H2D", None),
    ]


def test_the_call_tells_the_kind_of_a_synchronization(read: Any) -> None:
    names = {1: "cudaStreamSynchronize_v3020", 2: "cudaStreamWaitEvent_v3020"}
    names |= {3: "cudaEventSynchronize_v3020", 4: "cuCtxSynchronize"}
    calls = [call(0, 3, name=number, correlationId=number) for number in names]
    other = call(0, 3, name=4, correlationId=1, globalTid=tid(20, 1))
    syncs = [sync(2, 1, 0xFFFFFFFF), sync(2, 2), sync(1, 3), sync(2, 4)]
    trace = read({RUNTIME: [*calls, other], SYNC: syncs}, names=names)
    found = [kind for (kind,) in cells(trace, "synchronizations", "kind")]
    assert found == ["stream", "stream-wait-event", "event", "context"]


def test_without_a_call_the_number_tells_unless_the_row_belies_it(read: Any) -> None:
    none = 0xFFFFFFFF
    syncs = [sync(1, None), sync(2, None), sync(2, None, none), sync(3, 9), sync(4, 9), sync(0, 9)]
    found = [kind for (kind,) in cells(read({SYNC: syncs}), "synchronizations", "kind")]
    assert found == ["event", "stream-wait-event", "stream", "stream", "context", "unknown"]


def test_kinds_of_ranges_and_their_order(read: Any) -> None:
    events = [
        nvtx(5, 6, "inner"),
        nvtx(5, 9, "outer"),
        nvtx(5, None, "endless"),
        nvtx(4, None, "mark", eventType=34),
        nvtx(1, 8, "over", eventType=60, endGlobalTid=tid(10, 12)),
        nvtx(2, None, "a thread's name", eventType=39),
    ]
    trace = read({NVTX: events})
    assert cells(trace, "ranges", "name", "kind", "end_ns", "end_thread") == [
        ("over", "start-end", 8, 1),
        ("endless", "push-pop", None, None),
        ("outer", "push-pop", 9, None),
        ("inner", "push-pop", 6, None),
        ("mark", "mark", None, None),
    ]
    assert trace.threads["thread_id"].tolist() == [11, 12]


def test_ranges_of_several_threads_are_sorted_by_thread(read: Any) -> None:
    events = [nvtx(at, 9, f"{at}", globalTid=tid(10, 12 - at % 2)) for at in range(4)]
    found = cells(read({NVTX: events}), "ranges", "thread", "name")
    assert found == [(0, "1"), (0, "3"), (1, "0"), (1, "2")]


def test_names_of_ranges_and_domains(read: Any) -> None:
    events = [
        nvtx(0, None, "jax", eventType=75, domainId=5),
        nvtx(0, None, None, eventType=75, domainId=5, textId=2, globalTid=tid(20, 1)),
        nvtx(1, 2, None, textId=2, domainId=5),
        nvtx(3, 4, None, textId=None, domainId=0),
        nvtx(5, 6, "", domainId=6),
        nvtx(7, 8, "other", domainId=5, globalTid=tid(20, 1)),
    ]
    assert cells(read({NVTX: events}), "ranges", "name", "domain") == [
        ("gemm", "jax"),
        ("(unnamed)", None),
        ("", None),
        ("other", "gemm"),
    ]


def test_overheads_of_the_profiler_and_of_the_full_queue(read: Any) -> None:
    common = {"start": 1, "end": 2, "globalTid": tid(10, 11), "nameId": 2}
    full = [{**common, "overheadType": 8}, {**common, "overheadType": 1, "globalTid": None}]
    trace = read({"PROFILER_OVERHEAD": [common], OVERHEAD: full})
    assert cells(trace, "overheads", "kind", "name", "thread", "process") == [
        ("profiler", "gemm", 0, 0),
        ("queue-full", "gemm", 0, 0),
        ("cupti", "gemm", None, None),
    ]


def test_memory_events_and_diagnostics(read: Any) -> None:
    event = {"start": 1, "globalPid": pid(10), "deviceId": 0, "bytes": 64, "memKind": 2}
    events = [{**event, "memoryOperationType": at} for at in (0, 1)]
    said = [{"timestamp": -4, "severity": 2, "text": "lost <b>events</b>"}]
    trace = read({"CUDA_GPU_MEMORY_USAGE_EVENTS": events, "DIAGNOSTIC_EVENT": said})
    assert cells(trace, "memory_events", "operation", "memory", "bytes") == [
        ("allocation", "device", 64),
        ("release", "device", 64),
    ]
    assert list(trace.table("diagnostics").rows()) == [
        {
            "time_ns": -4,
            "severity": "warning",
            "text": "lost <b>events</b>",
            "process_id": None,
        }
    ]


def test_rows_for_call_chains_are_no_calls(read: Any) -> None:
    names = {3: "cudaMalloc_v3020", 4: "cudaMalloc"}
    chain = call(2, 7, name=4, eventClass=67, callchainId=12, correlationId=5)
    trace = read({RUNTIME: [call(1, 6, correlationId=5), chain, call(8, 9)]}, names=names)
    columns = ("start_ns", "name", "callchain_id")
    assert cells(trace, "api_calls", *columns) == [(1, "cudaMalloc", 12), (8, "cudaMalloc", None)]


def test_a_text_where_a_number_belongs_is_told(read: Any) -> None:
    with pytest.raises(TraceFormatError, match=r"column start of table .* contains str"):
        read({KERNEL: [kernel(1, 2), kernel("soon", 2)]})  # type: ignore[arg-type]


def test_a_name_of_ten_megabytes(read: Any) -> None:
    long = "k" * 10_000_000
    trace = read({KERNEL: [kernel(1, 2)]}, names={1: long, 2: "k"})
    assert trace.kernels.texts("name")[0] == long
