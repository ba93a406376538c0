"""Sentences about a trace of torch.profiler name what that profiler has, not options of nsys."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trace.kineto.traces import MI300, Event, call, kernel, span, training, write
from traceview.traces.analyses.base import Skipped
from traceview.traces.reporting import Report, analyze
from traceview.traces.trace.load import load

NSYS_ALONE = re.compile(
    r"nsys profile|--trace=|--include-blobs|nvtx|NVTX|--python-samples|--shapes"
)
AMD: dict[str, Any] = {"header": {"deviceProperties": [MI300], "hip_runtime_version": 70051831}}
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def gaps(name: str = "k", **args: Any) -> list[Event]:
    """Two kernels with much idle time between them."""
    return [
        call("cudaLaunchKernel", 0, 5, 1),
        kernel(name, 10, 100, 1, **args),
        call("cudaStreamSynchronize", 20, 900, 3),
        call("cudaLaunchKernel", 40_000, 5, 2),
        kernel(name, 40_010, 100, 2, **args),
    ]


TRACES: dict[str, tuple[list[Event], dict[str, Any]]] = {
    "whole": (training(), {}),
    "of the CPU": ([span("cpu_op", "aten::mm", 0, 5)], {}),
    "of the GPU": ([each for each in training() if each.get("cat") == "kernel"], {}),
    "without ranges": (gaps(), {}),
    "one range": ([*gaps(), span("user_annotation", "load", 0, 50)], {}),
    "of NCCL": (gaps(NCCL), {}),
    "of ROCm": (gaps("Cijk_Alik_Bljk_BBS_BH_MT256x192x64"), AMD),
    "launched before": (gaps()[1:], {}),
}


@pytest.fixture(params=TRACES)
def report(request: pytest.FixtureRequest, tmp_path: Path) -> Report:
    events, around = TRACES[request.param]
    return analyze(load(write(tmp_path / "t.json", events, **around)))


def sentences(report: Report) -> Iterator[str]:
    for outcome in report.outcomes.values():
        if isinstance(outcome, Skipped):
            yield f"{outcome.reason}; {outcome.remedy}"
            continue
        yield from outcome.notes
        yield from (finding.message + finding.action for finding in outcome.findings)
        for table in outcome.tables.values():
            yield from (str(cell) for row in table.rows() for cell in row.values())


def test_no_option_of_nsys(report: Report):
    # A table that only another recorder has is named with that recorder; names of checks stay.
    others = ("kernel_code table", "NVTX ranges")
    found = [text for text in sentences(report) if NSYS_ALONE.search(text)]
    assert [text for text in found if not any(other in text for other in others)] == []


def said(tmp_path: Path, kind: str) -> str:
    events, around = TRACES[kind]
    return "\n".join(sentences(analyze(load(write(tmp_path / "t.json", events, **around)))))


def test_what_is_lacking_is_asked_of_the_profiler(tmp_path: Path):
    assert "prof.step() after each step" in said(tmp_path, "without ranges")
    assert "Call prof.step() after each step" in said(tmp_path, "one range")
    assert "with_stack=True) adds the function of each" in said(tmp_path, "without ranges")
    assert "torch.profiler.profile(record_shapes=True)" in said(tmp_path, "without ranges")
    assert "ProfilerActivity.CPU, ProfilerActivity.CUDA" in said(tmp_path, "of the GPU")
    assert "tensors in PyTorch's caching allocator" in said(tmp_path, "whole")
    assert "torch 2.1 and newer write them" in said(tmp_path, "of NCCL")


def test_shapes_that_were_recorded_are_not_asked_for(tmp_path: Path):
    trace = load(write(tmp_path / "t.json", gaps(), header={"record_shapes": 1}))
    assert "record_shapes=True" not in "\n".join(sentences(analyze(trace)))


def test_amd_gpus_are_not_sent_to_tools_of_nvidia(tmp_path: Path):
    text = said(tmp_path, "of ROCm")
    assert "capability=9.0" not in text
    assert "ncu" not in text
    assert "an NVIDIA GPU: the code that is read is PTX and SASS" in text


@pytest.mark.parametrize("kind", ["without ranges", "one range", "of the CPU", "of the GPU"])
def test_own_recordings_name_the_options_of_record(kind: str, tmp_path: Path):
    events, around = TRACES[kind]
    trace = load(write(tmp_path / "t.json", events, **around))
    own = replace(trace, run={**trace.run, "backend": "torch"})
    text = "\n".join(sentences(analyze(own)))
    assert "prof.step()" not in text
    assert "with_stack" not in text
    assert "record_shapes" not in text
    assert "traceview record" in text
