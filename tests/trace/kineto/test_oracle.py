"""The tables against plain arithmetic over json.load: counts, and time by name, to the nanosecond.

TRACEVIEW_PUBLIC_TRACES names a folder of traces of other projects (*.json, *.json.gz).
"""

import gzip
import json
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.trace.kineto.traces import training, write
from traceview.base.tables import Table
from traceview.traces.trace.load import load

PUBLIC = Path(os.environ.get("TRACEVIEW_PUBLIC_TRACES", "/nonexistent"))
TABLES = {
    "kernels": ("kernel", "Kernel"),
    "copies": ("gpu_memcpy", "Memcpy"),
    "sets": ("gpu_memset", "Memset"),
    "api_calls": ("cuda_runtime", "cuda_driver", "Runtime"),
    "ranges": ("cpu_op", "user_annotation", "Operator"),
}


def plain(path: Path) -> list[dict[str, Any]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    whole = json.loads(raw, parse_float=Decimal)
    events: list[dict[str, Any]] = whole["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def ns(event: dict[str, Any]) -> int:
    return int((Decimal(event["dur"]) * 1000).to_integral_value("ROUND_HALF_UP"))


def agrees(path: Path) -> None:
    events, trace = plain(path), load(path)
    for name, categories in TABLES.items():
        chosen = [event for event in events if event.get("cat") in categories]
        table = trace.recorded(name)
        assert len(table) == len(chosen)
        assert int(table.duration_ns.sum()) == sum(map(ns, chosen))
    by_name: Counter[str] = Counter()
    for event in events:
        if event.get("cat") in TABLES["kernels"]:
            by_name[event["name"]] += ns(event)
    assert times_by_name(trace.recorded("kernels")) == by_name


def times_by_name(table: Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, time in zip(table.cells("name"), table.duration_ns.tolist(), strict=True):
        found[str(name)] += time
    return found


def test_made_trace(tmp_path: Path):
    agrees(write(tmp_path / "t.json", training()))


def test_trace_of_this_torch(tmp_path: Path):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    layer = torch.nn.Linear(8, 8)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True) as prof:
        for number in range(3):
            with record_function(f"part {number}"):
                layer(torch.randn(4, 8)).sum().backward()
    path = tmp_path / "t.json.gz"
    prof.export_chrome_trace(str(path))
    agrees(path)
    trace = load(path)
    assert {f"part {number}" for number in range(3)} <= set(trace.ranges.cells("name"))
    assert "forward" in trace.table("python_frames").cells("function")
    assert "kernels" not in trace.tables


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="no TRACEVIEW_PUBLIC_TRACES")
def test_public_traces():
    found = [path for path in sorted(PUBLIC.rglob("*.json*")) if _is_trace(path)]
    assert found
    for path in found:
        agrees(path)


def _is_trace(path: Path) -> bool:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return b'"traceEvents"' in raw
