"""What several analyses share: their words, remedies by framework, the time of a finding."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceview.base import groups, intervals, units
from traceview.base.findings import Finding, LostTime
from traceview.base.tables import Array, Integers, Mask, Table
from traceview.base.units import Value
from traceview.base.vocabulary.causes import LAUNCH_LATE
from traceview.traces.facts import kernel_classes, launches
from traceview.traces.facts.idle import first_calls
from traceview.traces.facts.idle.gaps import Gaps, every_gap
from traceview.traces.facts.operations import Operations, kernel_operations, operations
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.round_trips import round_trips
from traceview.traces.facts.samples import stacks_through
from traceview.traces.facts.steps import steps
from traceview.traces.trace import Trace, model, schema


def of_torch(trace: Trace) -> bool:
    """Whether torch.profiler made the trace, so that options of nsys do not apply."""
    return trace.recorder == schema.TORCH_PROFILER


def by_recorder(trace: Trace, nsys: str, torch: str, ours: str = "") -> str:
    """The words for a trace of torch.profiler, or those for any other.

    `ours` are the words for `traceview record --backend torch`, if its options have to change.
    """
    if not of_torch(trace):
        return nsys
    return ours if ours and trace.run.get("backend") == "torch" else torch


def peak_by_shapes(trace: Trace) -> str:
    """A clause on how near to the GPU's peak GEMMs run: recorded shapes tell it."""
    if model.recording_options(trace).shapes:
        return ": roofline says how near to the GPU's peak they run"
    how = to_record_shapes(trace)
    return f"; recorded shapes ({how}) tell how near to the GPU's peak they run"


def to_record_shapes(trace: Trace) -> str:
    own = "traceview record --shapes"
    return by_recorder(trace, own, "torch.profiler.profile(record_shapes=True)", own)


def on_amd(trace: Trace) -> bool:
    """Whether the GPUs are AMD's, which run neither PTX nor NVIDIA's tools."""
    return trace.run.get("gpu_vendor") == "AMD"


def early_uploads(trace: Trace) -> str:
    """A remedy for uploads that hold up the GPU; it pins nothing that is pinned already."""
    copies, remedy = trace.recorded("copies"), kernel_classes.terms(trace).early_uploads
    source = copies.texts("source_memory").take(copies.texts("direction").isin(["H2D"]))
    pinned = len(source) and source.isin(["pinned"]).all()
    return "Copy early what is uploaded" if pinned and "pin" in remedy.lower() else remedy


SIZE = "{size_bytes}[ {sized}]"
"""How large copies are: `4 B each`, or where they differ `40.0 kB in all`."""


def sizes(each: Integers) -> dict[str, Value]:
    """The figures of SIZE, of copies of these bytes."""
    alike = len(groups.different(each)) == 1
    sized = "each" if alike else "in all"
    size = int(each[0]) if alike else int(each.sum())
    return {"size_bytes": size, "sized": sized if len(each) > 1 else None}


_MADE = re.compile(r"\b(torch\.(?:zeros|ones|empty|full|eye|arange|linspace|rand\w*|normal))\(")


def made_on_cpu(line: str) -> str:
    """The call of torch in a line of the program that makes a tensor on the CPU; empty if none."""
    made = _MADE.search(line)
    return made[1] if made and "device=" not in line.split(".to(")[0] else ""


def make_on_gpu(call: str) -> str:
    """The remedy for tensors that a call of torch makes on the CPU, before they are copied."""
    return (
        f"Make the data on the GPU: pass device='cuda' to {call}, which now fills it on the CPU "
        "before each copy. Pinning what is new each time gains nothing."
    )


_ROWS = (
    "Allocate the array in one block of memory, which one {copy} moves: the rows of an array of "
    "pointers are copied one by one{unless}."
)


def rows_at_once(trace: Trace) -> str:
    """The remedy for rows of an array that are copied one by one."""
    if kernel_classes.terms(trace).data_region:
        return _ROWS.format(copy="copy", unless="")
    return _ROWS.format(copy="cudaMemcpy", unless=" (cudaMemcpy2D copies parts of rows at once)")


_LOADER = re.compile(r"torch/utils/data/\w+\.py::")
_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter")


def elsewhere(trace: Trace) -> str:
    """Where CPU work can move: to workers of a DataLoader, if it shows one that has none yet."""
    names = trace.recorded("ranges").texts("name")
    loads = names.matching(first_calls.LOADS.match).any() or stacks_through(trace, _LOADER).any()
    loads &= not names.matching(_WORKERS.search).any()
    return f"on another thread or process{' (DataLoader workers)' if loads else ''}"


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
KEEP_GRAPH_WHOLE = (
    "Move the line out of the compiled function, or write it in operations of torch (torch.where, "
    "torch.cond). For .item(), set torch._dynamo.config.capture_scalar_outputs = True, or keep the "
    "value on the GPU."
)
"""Remedy for graph breaks of torch.compile."""
AS_WHOLE = (
    "Record with traceview record --graph-trace graph SCRIPT, or nsys profile "
    "--cuda-graph-trace=graph, to time graphs undisturbed."
)
"""Remedy that times graphs without the cost of recording each node."""


def inside(trace: Trace, path: str | None, name: str) -> str:
    """` in {name}`, to put behind a phrase; `name` is the evidence value that holds the path.

    Inferred steps are not named, as the program does not know their names. Without a path the text
    says that it is outside any range, if the trace has ranges. What repeats in first calls is no
    step.
    """
    inferred = steps.steps_source(trace) == "repetition"
    if inferred and not first_calls.series(trace):
        return ""
    if path is None:
        where = " outside the steps" if inferred else " outside any range"
        return where if len(trace.recorded("ranges")) else ""
    if inferred and path in steps.loop_names(trace).values:
        return " in the steps"
    return f" in {{{name}}}"


OF_WARM_UP = "of warm-up (before the first steady step, or in ranges named warm_up)"


def warm_up_notes(trace: Trace) -> tuple[str, ...]:
    """A note on the operations that count as warm-up by their range's name; none without any."""
    warm = steps.operations_in_warm_up_ranges(trace)
    many = int((warm & selected_operations(trace)).sum()) if warm is not None else 0
    if not many:
        return ()
    launched = units.counted(many, "operation")
    return (f"{launched} launched in ranges named warm_up count as warm-up.",)


_ONE_PROGRAM = "run several steps per call by jax.lax.scan"
_MODULES = (
    "hand the modules to nnx.cached_partial, which flattens them once instead of in every call, or "
    + _ONE_PROGRAM
)
_CACHED = re.compile(r"/flax/nnx/graph(?:lib)?\.py::cache_args_wrapper$")
_TRANSFORM = re.compile(r"/flax/nnx/transforms/\w+\.py::")
_FLATTEN = re.compile(
    r"/flax/nnx/(?:extract|graph(?:lib)?)\.py::"
    # These call the transformed function.
    r"(?!(?:cache_args_wrapper|update_context_manager_wrapper)$)"
)
_DISPATCH = re.compile(r"/jax/_src/pjit\.py::")
_EXECUTED = re.compile(r"^XlaModule:#hlo_module=jit_")
_FEW_PER_STEP = 4
_COMPILED_REGION = re.compile("Torch-Compiled Region")
_COMPILED = "compile with mode='reduce-overhead' (CUDA graphs), or batch"
_READS_BETWEEN = (
    "batch, or read no values on the CPU in between, such as by .item() or x[mask], so that "
    "torch.compile or a CUDA graph can hold the work"
)
_MANY_READS, _SOME_READS, _SEVERAL_READS = 0.05, 0.02, 4
"""Per operation; or fewer per operation, and so many per step."""
_GRAPHS = "put more of the step into its CUDA graphs, or batch"
_SEQUENCES = "one nn.LSTM or nn.GRU for all time steps, not a cell for each"
_STATIC_CACHE = (
    "pass cache_implementation='static' to generate, which compiles the step into a CUDA graph, or "
    "generate for more sequences at once"
)
_GENERATE = re.compile(r"/transformers/generation/utils\.py::_sample$")
_UNROLLED = "replay a CUDA graph, or batch: cuDNN launches several kernels per time step"
_CELLS = re.compile(r"\b(?:lstm|gru)_cell_(?:forward|backward)\b")
_RECURRENT = re.compile(r"elemWiseRNNcell|\b(?:LSTM|GRU|GENERIC)_elementWise_")
_MANY_CELLS, _MOSTLY_CELLS = 0.02, 0.2
UNROLL_LOOPS = (
    "Let XLA fuse several iterations of the loop: lax.scan(…, unroll=8), or nn.RNN(…, unroll=8) in "
    "flax."
)


def fewer_launches(trace: Trace) -> str:
    """A remedy for many launches, of features that the program does not use yet."""
    if kernel_classes.framework(trace) == "jax" and _one_program_per_step(trace):
        return _MODULES if _mostly(trace, _flattens_modules(trace)) else _ONE_PROGRAM
    if kernel_classes.framework(trace) != "torch":
        return kernel_classes.terms(trace).fewer_launches
    graphs = launches.cuda_graphs(trace)
    if 2 * np.count_nonzero(graphs.whole | graphs.node) > len(operations(trace)):
        return _GRAPHS
    if reads_between(trace):
        return _READS_BETWEEN
    if is_compiled(trace):
        return _COMPILED
    if _mostly(trace, stacks_through(trace, _GENERATE)):
        return _STATIC_CACHE
    if _part(trace, _CELLS.search) > _MANY_CELLS:
        return _SEQUENCES
    return (
        _UNROLLED
        if _part(trace, _RECURRENT.search) > _MOSTLY_CELLS
        else kernel_classes.terms(trace).fewer_launches
    )


def reads_between(trace: Trace) -> bool:
    """Whether steady steps read values on the CPU again and again between their launches."""
    reads = [each for each in round_trips(trace) if not each.of_rows]
    several = any(len(each.operation) >= _SEVERAL_READS * max(each.steps, 1) for each in reads)
    number = np.count_nonzero(steps.steady_operations(trace))
    fraction = sum(len(each.operation) for each in reads) / max(int(number), 1)
    return fraction > _MANY_READS or (several and fraction > _SOME_READS)


def _one_program_per_step(trace: Trace) -> bool:
    """Whether XLA runs few programs per steady step and GPU.

    Where its ranges were not recorded: whether a GPU waits for few launches in a step.
    """
    ranges, late = trace.recorded("ranges"), every_gap(trace)
    names = ranges.texts("name")
    own = names.isin([name for name in map(str, names.values) if _EXECUTED.search(name)])
    if own.any():
        number = np.count_nonzero(own & (ranges["start_ns"] >= steps.warm_up_end_ns(trace)))
    else:
        number = np.count_nonzero((late.cause == LAUNCH_LATE) & ~late.one_time)
    # The steady steps, each as many times as its process uses GPUs.
    all_steps, ops = steps.steps(trace), operations(trace)
    process = ops.process[groups.group(ops.process, ops.device).first]
    gpus = np.bincount(process, minlength=len(trace.processes))
    steady = all_steps.gpu_start_ns >= steps.warm_up_end_ns(trace)
    return bool(0 < number <= _FEW_PER_STEP * int(gpus[all_steps.process[steady]].sum()))


def _flattens_modules(trace: Trace) -> Mask:
    """True for the stacks in which a transform of flax.nnx flattens modules, or puts them together.

    What is below jax.jit is traced, once; after nnx.cached_partial a call flattens little.
    """
    flattens = stacks_through(trace, _TRANSFORM) & stacks_through(trace, _FLATTEN)
    return flattens & ~stacks_through(trace, _CACHED) & ~stacks_through(trace, _DISPATCH)


def _mostly(trace: Trace, stacks: Mask) -> bool:
    """Whether more than half of the samples after warm-up are of such stacks."""
    samples = trace.recorded("python_samples")
    stack = samples["stack"][samples["time_ns"] >= steps.warm_up_end_ns(trace)]
    return len(stack) > 0 and bool(stacks[stack].mean() > 0.5)


def is_compiled(trace: Trace, part: float = 0.1) -> bool:
    """Whether more than this part of the kernels are TorchInductor's."""
    return _part(trace, lambda name: name.startswith(_INDUCTOR)) > part


def breaks_graphs(trace: Trace) -> bool:
    """Whether torch.compile breaks a graph: what it compiled calls code that is compiled apart."""
    tree = range_tree(trace)
    own = trace.recorded("ranges").texts("name").matching(_COMPILED_REGION.match)[tree.row]
    return bool((own & (tree.parent >= 0) & own[tree.parent]).any())


def has_recurrent_layers(trace: Trace) -> bool:
    """Whether cuDNN's kernels of recurrent layers are among the frequent ones."""
    return _part(trace, _RECURRENT.search) > _MANY_CELLS


def _part(trace: Trace, of: Callable[[str], object]) -> float:
    """The part of all kernels with such names."""
    names = trace.recorded("kernels").texts("name")
    own = [name for name in map(str, names.values) if of(name)]
    return int(names.isin(own).sum()) / max(len(names), 1)


# Without descriptive names a kernel is called `triton_`, and Triton 2 appends its arguments.
_INDUCTOR = ("triton_poi_", "triton_per_", "triton_red_", "triton_tem_", "triton__0d1d")


# The time that findings are about.
#
# With it a report detects findings about the same idle time, and computes how much is in steps.


def lost_in(every: Gaps | Operations | Table, chosen: Array | None = None) -> LostTime | None:
    """The time of the chosen rows on the device where they take longest; None without any."""
    device = every["device"] if isinstance(every, Table) else every.device
    rows = np.arange(len(device)) if chosen is None else np.arange(len(device))[chosen]
    if not len(rows):
        return None
    most = int(np.argmax(np.bincount(device[rows], every.duration_ns[rows])))
    return LostTime(most, intervals.covered(every, rows[device[rows] == most]))


def work_time(trace: Trace, rows: Array) -> LostTime | None:
    """The steady time of operations on the device where they take longest; None without any."""
    return lost_in(operations(trace), rows[steps.steady_operations(trace)[rows]])


def time_of(trace: Trace, finding: Finding) -> LostTime | None:
    """The time that a finding is about: its own, else that of the kernel that it names."""
    if finding.lost or finding.work or finding.subject.kind != "kernel":
        return finding.lost or finding.work
    kernels = trace.recorded("kernels")
    chosen = kernels.texts("name").isin([finding.subject.name])
    grid = str(finding.evidence.row.get("grid") or "").split("x")
    if len(grid) == 3 and not finding.evidence.values.get("other_grids"):
        for axis, side in zip("xyz", grid, strict=True):
            chosen &= kernels[f"grid_{axis}"] == int(side)
    return work_time(trace, kernel_operations(trace)[chosen])
