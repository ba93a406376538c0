"""Words that several analyses share: for recorders, CUDA graphs, ranges and warm-up."""

from __future__ import annotations

from traceview import units
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.names import loop_names, steps_source
from traceview.facts.steps.warm_up import operations_in_warm_up_ranges
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


AS_NODES = (
    "Record again with traceview record --graph-trace node SCRIPT, or nsys profile "
    "--trace=cuda,nvtx --cuda-graph-trace=node"
)
"""Remedy that shows the kernels inside graphs."""
AS_WHOLE = (
    "Record with traceview record --graph-trace graph SCRIPT, or nsys profile "
    "--cuda-graph-trace=graph, to time graphs undisturbed."
)
"""Remedy that times graphs without the cost of recording each node."""


def inside(trace: Trace, path: str | None, name: str) -> str:
    """` in {name}`, to put behind a phrase; `name` is the evidence value that holds the path.

    Inferred steps are not named, as the program does not know their names. Without a path the text
    says that it is outside any range, if the trace has ranges.
    """
    inferred = steps_source(trace) == "repetition"
    if path is None:
        where = " outside the steps" if inferred else " outside any range"
        return where if len(trace.recorded("ranges")) else ""
    if inferred and path in loop_names(trace).values:
        return " in each step"
    return f" in {{{name}}}"


OF_WARM_UP = "of warm-up (before the first steady step, or in ranges named warm_up)"


def warm_up_notes(trace: Trace) -> tuple[str, ...]:
    """A note on the operations that count as warm-up by their range's name; none without any."""
    warm = operations_in_warm_up_ranges(trace)
    many = int((warm & selected_operations(trace)).sum()) if warm is not None else 0
    if not many:
        return ()
    launched = units.counted(many, "operation")
    return (f"{launched} launched in ranges named warm_up count as warm-up.",)
