"""The tables of small traces, row by row."""

from pathlib import Path
from typing import Any

import pytest

from tests.trace.kineto.traces import (
    H100,
    MI300,
    PID,
    Digits,
    Event,
    call,
    copy,
    kernel,
    span,
    training,
    write,
)
from traceview.base.errors import MissingTableError
from traceview.traces.analyses.base import Result
from traceview.traces.reporting import analyze
from traceview.traces.trace import Trace
from traceview.traces.trace.kineto.stacks import parse_frame
from traceview.traces.trace.load import load


def loaded(folder: Path, events: list[Event], **around: Any) -> Trace:
    return load(write(folder / "t.json", events, **around))


@pytest.fixture
def trained(tmp_path: Path) -> Trace:
    return loaded(tmp_path, training())


def test_kernels(trained: Trace):
    row = next(trained.kernels.rows())
    assert row["name"] == row["short_name"] == "gemm"
    assert (row["start_ns"], row["end_ns"]) == (120_000, 320_000)
    assert (row["grid_x"], row["block_x"], row["registers_per_thread"]) == (264, 128, 32)
    assert row["dynamic_shared_memory_bytes"] == 1024
    assert (row["stream_id"], row["context_id"], row["correlation_id"]) == (7, 1, 2)
    assert trained.kernels.texts("short_name")[1] == "add"
    assert trained.warnings == ()


def test_kernels_that_torch_did_not_demangle(tmp_path: Path):
    """As on Windows."""
    symbol = "_ZN2at6native6kernelIfLi4EEEvPfi"
    events = [kernel(name, at, 50, at) for at, name in ((100, symbol), (200, "_Zwrong"))]
    kernels = loaded(tmp_path, events).kernels

    assert [*kernels.texts("name")] == ["void at::native::kernel<float, 4>(float*, int)", "_Zwrong"]
    assert [*kernels.texts("short_name")] == ["kernel", "_Zwrong"]
    assert [*kernels.texts("mangled_name")] == [symbol, None]


def test_occupancy_limits_come_from_device_properties(trained: Trace):
    device = next(trained.devices.rows())
    assert device["compute_capability"] == "9.0"
    assert (device["sm_count"], device["max_warps_per_sm"]) == (132, 64)
    assert device["max_shared_memory_per_sm_bytes"] == 233472


def test_copies(trained: Trace):
    row = next(trained.copies.rows())
    assert (row["direction"], row["bytes"]) == ("H2D", 4096)
    assert (row["source_memory"], row["destination_memory"]) == ("pageable", "device")


def test_calls_and_their_thread(trained: Trace):
    assert trained.api_calls.cells("name")[:2] == ["cudaMemcpyAsync", "cudaLaunchKernel"]
    assert trained.threads.cells("thread_id") == [PID]
    assert trained.processes.cells("name") == ["py"]


def test_ranges_and_operators(trained: Trace):
    names = trained.ranges.cells("name")
    assert names[:2] == ["ProfilerStep#0", "aten::mm, sizes = [[64, 32], [32, 16]]"]
    assert trained.ranges.cells("domain")[:2] == [None, "PyTorch operators"]


def test_steps_among_the_operators_as_in_2021(tmp_path: Path):
    events = [event | {"cat": "Operator"} for event in training() if event["name"][:4] == "Prof"]
    trace = loaded(tmp_path, [*events, span("Operator", 7, 1, 2)])
    assert trace.ranges.cells("domain") == ["PyTorch operators", None, None, None]


def test_memory_starts_with_what_was_allocated_before(trained: Trace):
    rows = [(r["operation"], r["bytes"]) for r in trained.memory_events.rows()]
    assert rows[:3] == [("allocation", 5000), ("allocation", 1024), ("release", 1024)]


def test_stacks_at_equal_distances(trained: Trace):
    samples, frames = trained.table("python_samples"), trained.table("python_frames")
    assert set(samples["time_ns"][1:] - samples["time_ns"][:-1]) == {10_000}
    at = samples["time_ns"].tolist().index(300_000)
    own = frames["stack"] == samples["stack"][at]
    found = [(r["function"], r["file"], r["line"]) for r in frames.take(own).rows()]
    assert found == [
        ("Tensor.item", "", None),
        ("train_step", "train.py", 4),
        ("<module>", "train.py", 9),
    ]


def test_call_sites(trained: Trace):
    sites = [(r["file"], r["line"], r["function"], r["hint"]) for r in trained.call_sites.rows()]
    assert sites[:2] == [
        ("train.py", 4, "train_step", None),
        ("train.py", 4, "train_step", "Tensor.item"),
    ]


def test_exact_times(tmp_path: Path):
    first, second = Digits("4488084880550.402"), Digits("4488084880550.907")
    events = [kernel("a", first, Digits("0.001"), 1), kernel("b", second, Digits("10"), 2)]
    trace = loaded(tmp_path, events, header={"baseTimeNanoseconds": 1_790_857_026_000_000_000})
    assert trace.kernels["start_ns"].tolist() == [0, 505]
    assert trace.kernels.duration_ns.tolist() == [1, 10_000]
    assert trace.run["clock_origin_ns"] == str(1_790_857_026_000_000_000 + 4488084880550402)


def test_whole_microseconds_since_1970(tmp_path: Path):
    events = [kernel("a", 1661203462598738, 19, 1), kernel("b", 1661203462598760, 1, 2)]
    assert loaded(tmp_path, events).kernels["start_ns"].tolist() == [0, 22_000]


def test_graph_nodes_share_a_correlation(tmp_path: Path):
    events = [call("cudaGraphLaunch", 0, 5, 9), *(kernel("k", 10 + i, 1, 9) for i in range(8))]
    trace = loaded(tmp_path, events)
    assert trace.kernels["graph_node_id"].tolist() == [*range(1, 9)]
    named = [call("cudaGraphLaunch", 0, 5, 9), kernel("k", 9, 1, 9, **{"graph node id": 77})]
    assert loaded(tmp_path, named).kernels["graph_node_id"].tolist() == [77]


def test_synchronizations(tmp_path: Path):
    args = {"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 5, "context": 1}
    waits = {"cuda_sync_kind": "Event Sync", "stream": -1, "correlation": 6}
    events = [
        call("cudaStreamSynchronize", 0, 50, 5),
        span("cuda_sync", "Stream Sync", 10, 30, pid=0, tid=1_000_007, args=args),
        span("cuda_sync", "Event Sync", 60, 5, pid=0, tid=-1, args=waits),
    ]  # fmt: skip
    rows = [(r["kind"], r["stream_id"]) for r in loaded(tmp_path, events).synchronizations.rows()]
    assert rows == [("stream", 7), ("event", None)]


def test_rocm(tmp_path: Path):
    launch = call("hipLaunchKernel", 0, 5, 1, grid=[40, 1, 1], block=[256, 1, 1])
    upload = call("hipMemcpyWithStream", 20, 5, 2, size="2560")
    bare = {"device": 0, "stream": 0, "kind": "Dispatch Kernel"}
    events = [
        launch,
        span("kernel", "k", 10, 5, pid=0, tid=0, args={**bare, "correlation": 1}),
        upload,
        span("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 30, 2, pid=0, tid=0,
             args={"device": 0, "stream": 0, "correlation": 2, "kind": "HtoD"}),
    ]  # fmt: skip
    trace = loaded(tmp_path, events, header={"deviceProperties": [MI300], "roctracer_version": 4.1})
    row = next(trace.kernels.rows())
    assert (row["grid_x"], row["block_x"]) == (40, 256)
    assert trace.copies["bytes"].tolist() == [2560]
    assert trace.devices.cells("compute_capability") == [None]
    assert trace.devices.cells("max_warps_per_sm") == [32]


def test_collectives(tmp_path: Path):
    args = {
        "Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 400,
        "Group size": 4, "dtype": "BFloat16", "Process Group Name": "0",
        "Process Group Ranks": "[0, 2, 4, 6]", "Process Group Description": "mesh_dp",
    }  # fmt: skip
    events = [
        span("cpu_op", "record_param_comms", 0, 20, args=args),
        call("cudaLaunchKernelExC", 5, 5, 1),
        kernel("ncclDevKernel_AllGather_RING_LL(x)", 30, 10, 1, stream=20, **args),
    ]
    footer = {"distributedInfo": {"backend": "nccl", "rank": 4, "world_size": 8}}
    trace = loaded(tmp_path, events, footer=footer)
    call_row = next(trace.table("collective_calls").rows())
    assert (call_row["kind"], call_row["bytes"]) == ("all-gather", 200)
    group = next(trace.table("communicators").rows())
    assert (group["ranks"], group["rank"]) == (4, 2)
    assert (group["name"], group["members"]) == ("mesh_dp", "0,2,4,6")
    assert group["communicator"] == call_row["communicator"]
    assert (trace.run["rank"], trace.run["world_size"]) == ("4", "8")


class TestAbsentOrEmpty:
    def test_a_trace_of_the_cpu_has_no_gpu_tables(self, tmp_path: Path):
        trace = loaded(tmp_path, [span("cpu_op", "aten::mm", 0, 5)])
        assert "kernels" not in trace.tables
        with pytest.raises(MissingTableError, match=r"ProfilerActivity\.CUDA"):
            trace.table("kernels")

    def test_calls_without_copies(self, tmp_path: Path):
        trace = loaded(tmp_path, [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 9, 1, 1)])
        assert len(trace.copies) == 0
        for name in ("memory_events", "python_samples", "synchronizations", "ranges"):
            assert name not in trace.tables

    def test_memory_that_was_traced_and_saw_nothing(self, tmp_path: Path):
        events = [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 9, 1, 1)]
        assert len(loaded(tmp_path, events, header={"profile_memory": 1}).memory_events) == 0


class TestOwners:
    def test_ids_as_text(self, tmp_path: Path):
        events = [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 9, 1, 1)]
        events[0] |= {"pid": "77", "tid": "main"}
        trace = loaded(tmp_path, events)
        assert trace.processes.cells("process_id") == [77]
        assert trace.threads.cells("thread_id") == [-1]

    def test_python_of_an_ended_thread_has_no_process(self, tmp_path: Path):
        events = [span("cpu_op", "aten::mm", 0, 5), span("python_function", "a.py(1): f", 0, 9)]
        events[1] |= {"pid": 0, "tid": 0}
        trace = loaded(tmp_path, events)
        assert trace.processes.cells("process_id") == [PID]
        assert trace.threads.cells("thread_id") == [0, PID]

    def test_rocm_numbers_gpus_twice(self, tmp_path: Path):
        events = [kernel("k", 9, 1, 1, device=3)]
        trace = loaded(tmp_path, events, header={"deviceProperties": [MI300]})
        assert trace.devices.cells("device_id") == [3]
        assert trace.devices.cells("name") == ["AMD Instinct MI300X"]


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("train.py(4): step", ("train.py", 4, "step")),
        ("/home/u/a(1).py(12): f", ("/home/u/a(1).py", 12, "f")),
        ("torch/nn/modules/linear.py(3): forward",
         ("site-packages/torch/nn/modules/linear.py", 3, "forward")),
        ("threading.py(9): wait", ("/lib/python3/threading.py", 9, "wait")),
        ("nn.Module: Linear_12", ("", None, "Linear")),
        ("<built-in method mm of type object at 0x7f>", ("", None, "mm")),
        ("<built-in function len>", ("", None, "len")),
    ],
)  # fmt: skip
def test_frames(name: str, frame: tuple[str, int | None, str]):
    file, line, function, _ = parse_frame(name)
    assert (file, None if line < 0 else line, function) == frame


def test_copy_without_a_size_is_told(tmp_path: Path):
    trace = loaded(tmp_path, [copy("Memcpy PtoP (Device -> Device)", 0, 5, 1)])
    assert trace.copies.cells("direction") == ["P2P"]
    assert trace.warnings == ("the report counts 1 copy without a size as 0 bytes",)


def test_copy_of_no_bytes_has_a_size(tmp_path: Path):
    trace = loaded(tmp_path, [copy("Memcpy HtoD (Pinned -> Device)", 0, 5, 1, bytes=0)])
    assert trace.copies["bytes"].tolist() == [0]
    assert trace.warnings == ()


def test_streams_that_overlap_are_busy_once(tmp_path: Path):
    events = [
        call("cudaLaunchKernel", 0, 5, 1),
        call("cudaLaunchKernel", 6, 5, 2),
        kernel("a", 20, 100, 1, stream=7),
        kernel("b", 70, 100, 2, stream=7),
        kernel("c", 60, 20, 3, stream=9),
    ]
    outcome = analyze(loaded(tmp_path, events), ("gpu-idle",))["gpu-idle"]
    assert isinstance(outcome, Result)
    (device,) = outcome.tables["devices"].rows()
    assert (device["span_ns"], device["busy_ns"]) == (150_000, 150_000)


def test_several_processes_on_several_gpus(tmp_path: Path):
    events = []
    for rank in range(3):
        of = {"pid": PID + rank, "tid": PID + rank}
        events += [
            call("cudaLaunchKernel", 10 * rank, 5, 100 + rank) | of,
            kernel("k", 10 * rank + 8, 4, 100 + rank, device=rank) | {"pid": rank},
            span("user_annotation", f"rank {rank}", 10 * rank, 9) | of,
        ]
    trace = loaded(tmp_path, events, header={"deviceProperties": [H100 | {"id": 1}]})
    assert trace.processes.cells("process_id") == [PID, PID + 1, PID + 2]
    assert trace.kernels["process"].tolist() == [0, 1, 2]
    assert trace.devices.cells("device_id") == [0, 1, 2]
    assert trace.devices.cells("name") == [None, "NVIDIA H100", None]
    assert trace.ranges["process"].tolist() == [0, 1, 2]


def test_categories_that_are_not_known_cost_nothing_else(tmp_path: Path):
    odd = [span("xpu_runtime", "zeStart", 1, 2), {"ph": "i", "name": "mark", "ts": 1}]
    trace = loaded(tmp_path, [*odd, *training(), *odd])
    assert len(trace.kernels) == 6
    assert trace.warnings == ()
