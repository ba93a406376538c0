"""Remedies in the terms of the recorded program's framework; a C++ program has none."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from traceview import groups
from traceview.facts.idle.gaps import every_gap
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.frameworks import framework, terms
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.samples import stacks_through
from traceview.facts.steps.steps import steps, warm_up_end_ns
from traceview.tables import Mask
from traceview.trace import Trace
from traceview.vocabulary.causes import LAUNCH_LATE

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
    if framework(trace) == "jax" and _one_program_per_step(trace):
        return _MODULES if _mostly(trace, _flattens_modules(trace)) else _ONE_PROGRAM
    if framework(trace) != "torch":
        return terms(trace).fewer_launches
    graphs = cuda_graphs(trace)
    if 2 * np.count_nonzero(graphs.whole | graphs.node) > len(operations(trace)):
        return _GRAPHS
    if _reads_between(trace):
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
        else terms(trace).fewer_launches
    )


def _reads_between(trace: Trace) -> bool:
    """Whether steady steps read values on the CPU again and again between their launches."""
    ops, start_ns = operations(trace), warm_up_end_ns(trace)
    steady = ops.start_ns >= start_ns
    copies = steady & (ops.kind == Kind.COPY)
    down = trace.recorded("copies").texts("direction").isin(["D2H"])[ops.row[copies]]
    reads = int(np.count_nonzero(down))
    fraction = reads / max(int(np.count_nonzero(steady)), 1)
    several = reads >= _SEVERAL_READS * max(_steady_steps(trace), 1)
    return fraction > _MANY_READS or (several and fraction > _SOME_READS)


def _steady_steps(trace: Trace) -> int:
    return int(np.count_nonzero(steps(trace).gpu_start_ns >= warm_up_end_ns(trace)))


def _one_program_per_step(trace: Trace) -> bool:
    """Whether XLA runs few programs per steady step and GPU.

    Where its ranges were not recorded: whether a GPU waits for few launches in a step.
    """
    ranges, late = trace.recorded("ranges"), every_gap(trace)
    names = ranges.texts("name")
    own = names.isin([name for name in map(str, names.values) if _EXECUTED.search(name)])
    if own.any():
        number = np.count_nonzero(own & (ranges["start_ns"] >= warm_up_end_ns(trace)))
    else:
        number = np.count_nonzero((late.cause == LAUNCH_LATE) & ~late.one_time)
    return bool(0 < number <= _FEW_PER_STEP * _steady_steps_by_gpu(trace))


def _steady_steps_by_gpu(trace: Trace) -> int:
    """The steady steps, each as many times as its process uses GPUs."""
    all_steps, ops = steps(trace), operations(trace)
    process = ops.process[groups.group(ops.process, ops.device).first]
    gpus = np.bincount(process, minlength=len(trace.processes))
    steady = all_steps.gpu_start_ns >= warm_up_end_ns(trace)
    return int(gpus[all_steps.process[steady]].sum())


def _flattens_modules(trace: Trace) -> Mask:
    """True for the stacks in which a transform of flax.nnx flattens modules, or puts them together.

    What is below jax.jit is traced, once; after nnx.cached_partial a call flattens little.
    """
    flattens = stacks_through(trace, _TRANSFORM) & stacks_through(trace, _FLATTEN)
    return flattens & ~stacks_through(trace, _CACHED) & ~stacks_through(trace, _DISPATCH)


def _mostly(trace: Trace, stacks: Mask) -> bool:
    """Whether more than half of the samples after warm-up are of such stacks."""
    samples = trace.recorded("python_samples")
    stack = samples["stack"][samples["time_ns"] >= warm_up_end_ns(trace)]
    return len(stack) > 0 and bool(stacks[stack].mean() > 0.5)


def is_compiled(trace: Trace) -> bool:
    """Whether more than a tenth of the kernels are TorchInductor's."""
    return _part(trace, lambda name: name.startswith(_INDUCTOR)) > 0.1


def has_recurrent_layers(trace: Trace) -> bool:
    """Whether cuDNN's kernels of recurrent layers are among the frequent ones."""
    return _part(trace, _RECURRENT.search) > _MANY_CELLS


def _part(trace: Trace, of: Callable[[str], object]) -> float:
    """The part of all kernels with such names."""
    names = trace.recorded("kernels").texts("name")
    own = [name for name in map(str, names.values) if of(name)]
    return int(names.isin(own).sum()) / max(len(names), 1)


_INDUCTOR = ("triton_poi_", "triton_per_", "triton_red_", "triton_tem_")
