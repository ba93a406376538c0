"""Traces of several ranks in one file, whose calls and kernels have equal correlation ids."""

import numpy as np
import pytest

import traceview
from tests.trace.kineto import traces as kineto


def of_rank(rank, device, later):
    """The events of one rank: its process, its GPU, and its clock some time later."""
    events = []
    for event in kineto.training():
        moved = dict(event)
        on_gpu = event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        if event["ph"] == "X":
            moved["ts"] = event["ts"] + later
        if on_gpu:
            moved["pid"] = device
            moved["args"] = {**event["args"], "device": device}
        else:
            moved["pid"] = kineto.PID + rank
            if event.get("tid") == kineto.PID:
                moved["tid"] = kineto.PID + rank
        events.append(moved)
    return events


def launches(trace):
    """(process id, launch call's start, kernel's start) of each kernel, by launch order."""
    kernels, calls = trace.kernels, trace.api_calls
    found = []
    for row in range(len(kernels)):
        same = (calls["correlation_id"] == kernels["correlation_id"][row]) & (
            calls["process"] == kernels["process"][row]
        )
        (call,) = np.flatnonzero(same)
        process = int(trace.processes["process_id"][kernels["process"][row]])
        found.append((process, int(calls["start_ns"][call]), int(kernels["start_ns"][row])))
    return sorted(found)


@pytest.mark.parametrize("devices", [(0, 1), (0, 0)], ids=["a GPU each", "one GPU"])
@pytest.mark.parametrize("later", [0.5, 20, 50_000])
def test_each_kernel_belongs_to_the_process_that_launched_it(tmp_path, devices, later):
    alone = [
        traceview.load(kineto.write(tmp_path / f"{rank}.json", of_rank(rank, device, rank * later)))
        for rank, device in enumerate(devices)
    ]
    events = [
        event
        for rank, device in enumerate(devices)
        for event in of_rank(rank, device, rank * later)
    ]
    merged = traceview.load(kineto.write(tmp_path / "merged.json", events))
    origins = [int(trace.run["clock_origin_ns"]) for trace in alone]
    expected = [
        (process, call + origin - origins[0], kernel + origin - origins[0])
        for trace, origin in zip(alone, origins, strict=True)
        for process, call, kernel in launches(trace)
    ]
    assert len(merged.processes) == 2
    assert launches(merged) == sorted(expected)
