"""Remedies for what an answer lacks, in the terms of the recorder that made the trace."""

from __future__ import annotations

from traceview.trace import Trace
from traceview.trace.schema.torch_profiler import TORCH_PROFILER


def of_torch(trace: Trace) -> bool:
    """Whether torch.profiler made the trace, so that options of nsys do not apply."""
    return trace.recorder == TORCH_PROFILER


def by_recorder(trace: Trace, nsys: str, torch: str, ours: str = "") -> str:
    """The words for a trace of torch.profiler, or those for any other.

    `ours` are the words for `traceview record --backend torch`, if its options have to change.
    """
    if not of_torch(trace):
        return nsys
    return ours if ours and trace.run.get("backend") == "torch" else torch


def on_amd(trace: Trace) -> bool:
    """Whether the GPUs are AMD's, which run neither PTX nor NVIDIA's tools."""
    return trace.run.get("gpu_vendor") == "AMD"


def flush(trace: Trace) -> str:
    """A remedy that makes a recording hold launches together with their work."""
    return by_recorder(
        trace,
        "Record from the start of the program to its end, let it exit by itself, and synchronize "
        "before it does.",
        "Call torch.cuda.synchronize() before the profiler starts and before it stops, and record "
        "both activities (ProfilerActivity.CPU and CUDA).",
        "Call torch.cuda.synchronize() before the program ends and at the edges of what --steps or "
        "--range keeps.",
    )
