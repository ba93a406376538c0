"""Traces of torch.profiler that other projects published, against what their authors report.

Set TRACEVIEW_PUBLIC_TRACES to a folder with the traces, at their path in the authors' repository.
"""

import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.places import DATA
from traceview.base import intervals
from traceview.traces.analyses.base import Result
from traceview.traces.reporting import analyze
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load

PUBLIC = Path(os.environ.get("TRACEVIEW_PUBLIC_TRACES", "/nowhere"))
KEYS = tomllib.loads((DATA / "public_traces.toml").read_text())["trace"]
ROUNDING_NS = 1_000
"""The authors add up floats of microseconds."""


def measured(trace: Trace) -> dict[str, int]:
    """Span, busy and idle time of the GPU, from the report."""
    outcome = analyze(trace, ("gpu-idle",))["gpu-idle"]
    assert isinstance(outcome, Result)
    (row,) = outcome.tables["devices"].rows()
    return {name: int(row[f"{name}_ns"] or 0) for name in ("span", "busy", "idle")}


def without(trace: Trace, what: str) -> dict[str, int]:
    """The same of what the authors count."""
    launched = trace.api_calls["correlation_id"]
    starts, ends = [], []
    for name in ("kernels", "copies", "sets"):
        table = trace.table(name)
        kept = np.ones(len(table), bool)
        if what == "memsets" and name == "sets":
            kept[:] = False
        if what == "launched before":
            kept = np.isin(table["correlation_id"], launched)
        starts.append(table["start_ns"][kept])
        ends.append(table["end_ns"][kept])
    start, end = np.concatenate(starts), np.concatenate(ends)
    busy, span = intervals.union(start, end).total(), int(end.max() - start.min())
    return {"span": span, "busy": busy, "idle": span - busy}


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="no TRACEVIEW_PUBLIC_TRACES")
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key["path"].removeprefix("tests/traces/"))
def test_times_of_the_gpu(key: dict[str, Any]):
    path = PUBLIC / key["path"]
    if not path.exists():
        pytest.skip("this trace is not there")
    trace = load(path)
    found = without(trace, key["leaves_out"]) if "leaves_out" in key else measured(trace)
    for name, part in (("total_ms", "span"), ("busy_ms", "busy"), ("idle_ms", "idle")):
        assert abs(found[part] - key[name] * 1e6) <= ROUNDING_NS, name


def test_keys_are_whole():
    assert len({key["path"] for key in KEYS}) == len(KEYS) == 19
    for key in KEYS:
        assert key["total_ms"] == pytest.approx(key["busy_ms"] + key["idle_ms"], abs=1e-3)
