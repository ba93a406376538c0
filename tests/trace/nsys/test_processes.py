"""Processes and GPUs of an export: ids that repeat, work of no process, odd figures."""

from typing import Any

import pytest

from tests.trace.nsys.exports import (
    KERNEL,
    RUNTIME,
    call,
    cells,
    kernel,
    pid,
    tid,
)


def test_processes_with_the_same_ids_stay_apart(read: Any) -> None:
    kernels = [kernel(1, 2, globalPid=pid(20)), kernel(3, 4, globalPid=pid(10))]
    calls = [call(0, 1, globalTid=tid(20, 5)), call(1, 2, globalTid=tid(10, 5))]
    named = [
        {"globalPid": pid(10), "pid": 10, "name": "ten"},
        {"globalPid": pid(20), "pid": 20, "name": None},
        {"globalPid": pid(30), "pid": 30, "name": "kworker"},
    ]
    threads = [{"nameId": 2, "priority": 0, "globalTid": tid(10, 5)}]
    trace = read({KERNEL: kernels, RUNTIME: calls, "PROCESSES": named, "ThreadNames": threads})
    assert cells(trace, "processes", "host_id", "process_id", "name") == [
        (1, 10, "ten"),
        (1, 20, None),
    ]
    assert cells(trace, "threads", "process", "thread_id", "name") == [(0, 5, "gemm"), (1, 5, None)]
    assert trace.kernels["process"].tolist() == [1, 0]
    assert cells(trace, "api_calls", "process", "thread") == [(1, 1), (0, 0)]


def test_work_of_no_process_is_of_the_only_one(read: Any) -> None:
    trace = read({KERNEL: [kernel(1, 2, globalPid=None)], RUNTIME: [call(0, 1)]})
    assert trace.processes["process_id"].tolist() == [10]
    assert trace.kernels["process"].tolist() == [0]


def test_work_of_no_process_among_two_is_of_an_unknown_one(read: Any) -> None:
    owners = [None, pid(10), pid(20)]
    trace = read({KERNEL: [kernel(at, at, globalPid=owner) for at, owner in enumerate(owners, 1)]})
    assert cells(trace, "processes", "process_id", "name") == [(0, None), (10, None), (20, None)]
    assert trace.kernels["process"].tolist() == [0, 1, 2]


def test_a_process_sees_its_gpu_as_0(read: Any) -> None:
    seen = [{"gpuId": 3, "cudaId": 0, "pid": 10}, {"gpuId": 1, "cudaId": 0, "pid": 20}]
    gpus = [{"vmId": 1 << 48, "id": 3, "name": "H200", "smCount": 132}]
    gpus[0].update(computeMajor=9, computeMinor=0)
    kernels = [kernel(1, 2), kernel(3, 4, globalPid=pid(20))]
    tables = {KERNEL: kernels, "TARGET_INFO_CUDA_DEVICE": seen, "TARGET_INFO_GPU": gpus}
    trace = read(tables)
    columns = ("host_id", "device_id", "name", "compute_capability", "sm_count")
    assert cells(trace, "devices", *columns) == [
        (1, 1, None, None, None),
        (1, 3, "H200", "9.0", 132),
    ]
    assert trace.kernels["device"].tolist() == [1, 0]


@pytest.mark.parametrize("odd", [2**31, 2**63 - 1, 0, -1, None])
def test_figures_of_a_gpu_that_cannot_be_are_unknown(read: Any, odd: int | None) -> None:
    gpu = {"vmId": 1 << 48, "id": 0, "smCount": odd, "maxWarpsPerSm": odd, "clockRate": 2**31}
    trace = read({KERNEL: [kernel(1, 2)], "TARGET_INFO_GPU": [gpu]})
    columns = ("sm_count", "max_warps_per_sm", "clock_hz")
    assert cells(trace, "devices", *columns) == [(None, None, 2**31)]


@pytest.mark.parametrize(
    ("name", "capability", "sms"),
    [
        ("GeForce RTX 2080 Ti", "7.5", 68),
        ("NVIDIA A100-PCIE-40GB", "8.0", 108),
        ("Xavier", "7.2", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, None),
        ("GeForce RTX 2080 Ti Super", None, None),
    ],
)
def test_a_gpu_that_nsys_only_named_has_the_figures_of_its_product(
    read: Any, name: str, capability: str | None, sms: int | None
) -> None:
    gpu = {"vmId": 1 << 48, "id": 0, "name": name}
    trace = read({KERNEL: [kernel(1, 2)], "TARGET_INFO_GPU": [gpu]})
    assert cells(trace, "devices", "compute_capability", "sm_count") == [(capability, sms)]


def test_adapters_that_cuda_cannot_use_are_no_gpus(read: Any) -> None:
    cuda = {"vmId": 1 << 48, "id": 0, "name": "RTX", "computeMajor": 8, "computeMinor": 9}
    other = {"vmId": 1 << 48, "id": 1, "name": "Basic", "computeMajor": 0, "computeMinor": 0}
    trace = read({KERNEL: [kernel(1, 2)], "TARGET_INFO_GPU": [cuda, other]})
    assert cells(trace, "devices", "name") == [("RTX",)]
