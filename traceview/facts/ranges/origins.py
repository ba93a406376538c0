"""Who opened a range: the program, a library, the framework's operators, or a profiler.

Only ranges of the program, of profilers that mark steps, and those that traceview adds can be
steps. Ranges of libraries and operators repeat as well, but nobody counts time in them: they label
work.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from traceview.facts.ranges.name_forms import TextForms, forms_of
from traceview.tables import NULL, Array, Mask, picked
from traceview.tables.packed_texts import packed
from traceview.trace import Trace, fact
from traceview.trace.schema.ranges import OPERATORS

StepsSource = Literal["user-ranges", "added-ranges", "profiler-steps", "repetition", "none"]

ADDED_DOMAIN = "traceview"
"""Domain of the ranges that `traceview record` adds to the program."""
INFERRED_DOMAIN = "traceview: repetition"
"""Domain of steps that were not recorded: passes of the launch sequence."""

# Domains that NVIDIA's and Google's libraries register, such as CCCL, NCCL, cuBLAS and TSL.
_LIBRARY_DOMAIN = re.compile(
    r"(?i)(cccl|cub|thrust|nccl|nvshmem|tsl|xla|tensorrt|libcudf|rmm|warp|"
    r"cu(blas|dnn|sparse|solver|fft|rand|tensor|tlass)(lt|xt|mp|mg)?)\b.*"
)
_LIBRARY_NAME = re.compile(
    r"(cub|thrust|cuda)::|Xla(Module|Pass|Launch)|TSL:|nccl[A-Z:]|cublas[A-Z]"
)
# Operators of torch: emit_nvtx, record_function and nsys's --pytorch options write these.
_OPERATOR_NAME = re.compile(
    r"(aten|prim|prims|c10d|c10|torchvision|torch_\w+|autograd|torch::autograd|FSDP|DDP|inductor)::"
    r"|torch\.(?!compile\b)\w+\.|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)"
    r"|record_param_comms|\w+Backward\d*$|AccumulateGrad|DistributedDataParallel\.|TorchDynamo"
)
_ARGUMENTS = re.compile(r", (op_id|seq) = \d+")
_NEAR_FOREIGN = re.compile(
    rf"\n(?={_LIBRARY_NAME.pattern}|{_OPERATOR_NAME.pattern}|.*{_ARGUMENTS.pattern})", re.MULTILINE
)
_ADDED_STEP = re.compile(r"step_\d+$")
_JAX_STEP = re.compile(r".*#step_num=[\d#]")
_PROFILER_STEP = re.compile(
    r"ProfilerStep[#*]|\[pl\]\[profile\]run_training_batch|execute_(?:[\d#]+_)?context_[\d#]"
    rf"|{_JAX_STEP.pattern}"
)
"""Markers of torch.profiler, of Lightning's profilers, of vLLM's engine and of
jax.profiler.StepTraceAnnotation, in names or patterns of names."""


@fact
def range_name_forms(trace: Trace) -> TextForms:
    """The forms of the distinct names of ranges."""
    return forms_of(packed(trace.recorded("ranges").texts("name")))


@fact
def program_ranges(trace: Trace) -> Mask:
    """True for the rows of `ranges` that are neither a library's nor an operator's."""
    ranges = trace.recorded("ranges")
    domains, names = ranges.texts("domain"), ranges.texts("name")
    library = domains.matching(lambda name: name == OPERATORS or _LIBRARY_DOMAIN.fullmatch(name))
    foreign = range_name_forms(trace).meeting(_is_foreign, _NEAR_FOREIGN)[names.codes]
    # The steps that a JAX program marks are in the domain of XLA.
    return ~(library | foreign) | _matching(trace, _JAX_STEP)


def added_ranges(trace: Trace) -> Mask:
    """True for the rows of `ranges` that `traceview record` added to the program."""
    return trace.recorded("ranges").texts("domain").isin([ADDED_DOMAIN])


@fact
def candidates_for_steps(trace: Trace) -> Mask:
    """True for the rows of `ranges` that may be steps.

    Of added ranges only those named as steps; where there are any, steps that a profiler marks do
    not count.
    """
    added = added_ranges(trace)
    steps = added & _matching(trace, _ADDED_STEP)
    result = program_ranges(trace) & (~added | steps)
    return result & ~profiler_steps(trace) if steps.any() else result


def is_profiler_step(name: str) -> bool:
    """Whether a name, or a pattern of names, is that of the steps that a profiler marks."""
    return bool(_PROFILER_STEP.match(name))


def profiler_steps(trace: Trace) -> Mask:
    """True for the rows of `ranges` that are steps which a profiler marks."""
    return _matching(trace, _PROFILER_STEP)


def only_profiler_step(trace: Trace) -> int | None:
    """The row of `ranges` of the only whole step that a profiler marked; None without one."""
    rows = np.flatnonzero(profiler_steps(trace) & (trace.recorded("ranges")["end_ns"] != NULL))
    return int(rows[0]) if len(rows) == 1 else None


def _matching(trace: Trace, rule: re.Pattern[str]) -> Mask:
    """True for the rows of `ranges` whose name matches."""
    codes = trace.recorded("ranges").texts("name").codes
    mask: Mask = picked(range_name_forms(trace).matching(rule), codes)
    return mask


def _is_foreign(name: str) -> bool:
    return bool(_LIBRARY_NAME.match(name) or _OPERATOR_NAME.match(name) or _ARGUMENTS.search(name))


def is_library_name(name: str) -> bool:
    """Whether a range of this name was opened by a library such as NCCL or cuBLAS."""
    return bool(_LIBRARY_NAME.match(name))


def source_of(domain: str | None, name: str) -> StepsSource:
    """The source of steps whose ranges have this domain and name."""
    if domain == INFERRED_DOMAIN:
        return "repetition"
    if domain == ADDED_DOMAIN:
        return "added-ranges"
    return "profiler-steps" if is_profiler_step(name) else "user-ranges"


def library_domains(domains: Array) -> list[str]:
    """The domains in `domains` that belong to libraries."""
    return [str(name) for name in domains if name and _LIBRARY_DOMAIN.fullmatch(str(name))]
