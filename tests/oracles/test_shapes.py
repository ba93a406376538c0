"""Answers on every shape of benchmarks/traces/shapes.py equal sums in plain SQL."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

import pytest

from benchmarks.traces.generator import make_trace
from benchmarks.traces.shapes import SHAPES
from traceview import analyze, load

pytestmark = pytest.mark.slow

KERNELS = 20_000
OF_KERNELS = """
    SELECT value, count(*), sum(end - start), min(end - start), max(end - start)
    FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON StringIds.id = demangledName GROUP BY value
"""
OF_DEVICES = """
    SELECT gpuId, start, end FROM (
        SELECT start, end, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL
        UNION ALL SELECT start, end, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY
    ) JOIN TARGET_INFO_CUDA_DEVICE ON pid = globalPid >> 24 & 16777215 ORDER BY gpuId, start
"""
OF_WAITS = """
    SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME
    JOIN StringIds ON StringIds.id = nameId WHERE value LIKE 'cudaStreamSynchronize%'
"""
ANSWERS = ("kernel-share", "gpu-idle", "sync-stalls", "wave-quantization")


@pytest.fixture(scope="module", params=SHAPES)
def both(request, tmp_path_factory):
    """The report, and the export as SQLite reads it."""
    path = tmp_path_factory.mktemp("shape") / "made.sqlite"
    make_trace(path, KERNELS, SHAPES[request.param], seed=11)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    yield analyze(load(path), ANSWERS), connection
    connection.close()


def table(report, analysis, name):
    return list(report.outcomes[analysis].tables[name].rows())


def test_sums_by_kernel(both):
    report, connection = both
    columns = ("calls", "total_ns", "min_ns", "max_ns")
    ours = {
        row["name"]: tuple(row[name] for name in columns)
        for row in table(report, "kernel-share", "kernels")
    }
    assert ours == {name: tuple(figures) for name, *figures in connection.execute(OF_KERNELS)}


def test_busy_time_of_each_gpu(both):
    report, connection = both
    busy, reach = defaultdict(int), {}
    for device, start, end in connection.execute(OF_DEVICES):
        busy[device] += max(end - max(start, reach.get(device, start)), 0)
        reach[device] = max(end, reach.get(device, end))
    devices = table(report, "gpu-idle", "devices")
    assert {row["device_id"]: row["busy_ns"] for row in devices} == busy


def test_waits(both):
    report, connection = both
    [waits] = [
        (row["calls"], row["wait_ns"])
        for row in table(report, "sync-stalls", "calls")
        if row["api"] == "cudaStreamSynchronize"
    ]
    assert [waits] == connection.execute(OF_WAITS).fetchall()


def test_configurations(both):
    """Each kernel counts once, under its own grid."""
    report, connection = both
    query = """
        SELECT gpuId, value, gridX || 'x' || gridY || 'x' || gridZ, count(*), sum(end - start)
        FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON StringIds.id = demangledName
        JOIN TARGET_INFO_CUDA_DEVICE ON pid = globalPid >> 24 & 16777215
        GROUP BY 1, 2, gridX, gridY, gridZ
    """
    ours = [
        tuple(row[name] for name in ("device_id", "name", "grid", "calls", "total_ns"))
        for row in table(report, "wave-quantization", "kernels")
    ]
    assert sorted(ours) == sorted(connection.execute(query))
