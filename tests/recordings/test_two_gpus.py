"""Two processes on two GPUs, recorded for real: ids collide, and nothing is joined across them."""

from collections import defaultdict

import pytest

from traceview.traces.analyses import memory_copies, run_ahead
from traceview.traces.analyses import sync_stalls as sync_stalls
from traceview.traces.analyses.gpu_idle import analysis as gpu_idle
from traceview.traces.analyses.kernel_share import analysis as kernel_share
from traceview.traces.trace.load import load


@pytest.fixture(scope="module")
def trace(unpack):
    return load(unpack("two_gpus"))


def test_the_ids_of_the_two_processes_collide(trace):
    """Every launch of the second process has a twin in the first."""
    kernels = trace.kernels
    seen = defaultdict(set)
    for process, correlation in zip(kernels["process"], kernels["correlation_id"], strict=True):
        seen[int(process)].add(int(correlation))
    first, second = sorted(seen.values(), key=len, reverse=True)
    assert len(second) > 50
    assert second <= first


def test_each_kernel_is_under_the_range_of_its_own_process(trace):
    """Per step 13 kernels on each GPU: four products, four quotients, four tanh and one mean."""
    calls = defaultdict(int)
    for row in kernel_share.compute(trace).tables["ranges"].rows():
        calls[row["range_path"]] += row["calls"]
    assert {calls[f"step_{step}"] for step in range(4)} == {26}
    assert {calls[f"exchange_{step}"] for step in range(4)} == {24}


def test_each_gpu_has_its_own_idle_time_and_verdict(trace):
    found = gpu_idle.compute(trace).tables
    idle = {row["device_id"]: row["idle_ns"] for row in found["devices"].rows()}
    causes = defaultdict(int)
    for row in found["causes"].rows():
        causes[row["device_id"]] += row["idle_ns"]
    assert causes == idle
    # The first process waits 3 s for the second to end: its thread is off the CPU meanwhile.
    longest = next(iter(found["gaps"].rows()))
    assert (longest["device_id"], longest["cause"]) == (0, "launch-late")
    assert "off the CPU" in longest["evidence"] or "outside CUDA" in longest["evidence"]
    verdicts = {row["device_id"]: row["operations"] for row in run_ahead_devices(trace)}
    assert sum(verdicts.values()) == len(trace.kernels) + len(trace.copies) + len(trace.sets)


def run_ahead_devices(trace):
    return list(run_ahead.ANALYSIS.compute(trace).tables["devices"].rows())


def test_copies_between_the_gpus_are_told_apart(trace):
    rows = {
        row["direction"]: row for row in memory_copies.ANALYSIS.run(trace).tables["copies"].rows()
    }
    assert rows["P2P"]["calls"] == 8
    assert rows["P2P"]["bytes"] == 8 * 2048 * 2048 * 4


def test_each_print_is_one_line_over_both_processes(trace):
    sites = sync_stalls.compute(trace).tables["sites"].rows()
    items = [row for row in sites if row["hint"] == "Tensor.item" and "Synchronize" in row["api"]]
    assert sum(row["calls"] for row in items) == 8
    assert {row["call_site"].rpartition("/")[2] for row in items} == {"two_gpus.py:24 in alone"}


def test_a_gpu_that_the_program_saw_as_its_first_is_named_as_the_machine_does(unpack):
    """Recorded with CUDA_VISIBLE_DEVICES=1: to CUDA the device was 0, on the machine it is 1."""
    devices = gpu_idle.compute(load(unpack("shapes"))).tables["devices"].rows()
    assert [row["device_id"] for row in devices] == [1]
