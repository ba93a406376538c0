"""Class of each kernel (GEMM, attention, elementwise …), decided by its name.

A library launches most of its work through a few templates, such as `vectorized_elementwise_kernel`
or `cutlass::Kernel2`: what they compute is in a template argument. Of all other kernels the base
name decides, as arguments and parameter types name much that a kernel does not do. The rules were
read off recordings and the libraries' sources; tests/facts/operations/kernel_names.txt lists real
names, each with its class.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.operations.operations import Kind, kernel_operations, operations
from traceview.tables import Mask, Texts
from traceview.trace import Trace, fact_without_ranges


class KernelClass(IntEnum):
    """What a kernel computes; `label` is the published name."""

    GEMM = 0
    ATTENTION = 1
    CONVOLUTION = 2
    NORMALIZATION = 3
    ELEMENTWISE = 4
    CAST_COPY = 5
    REDUCTION = 6
    SOFTMAX = 7
    GATHER_SCATTER = 8
    SORT_SCAN = 9
    OPTIMIZER = 10
    RANDOM = 11
    COMMUNICATION = 12
    AUTOTUNER = 13
    OTHER = 14

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


K = KernelClass
_LONGEST = 4000
_UNNAMED = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}")
# `void at::native::reduce_kernel<…>(…)`: what stands between the type it returns and its arguments.
_BASE = re.compile(r"(?:[\w:*& ]+ )?([^<(\s]+)")


def base_name(name: str) -> str:
    """The qualified name of a kernel, without return type, template arguments and parameters."""
    match = _BASE.match(_UNNAMED.sub("unnamed", name[:_LONGEST]))
    return match[1] if match else name[:_LONGEST]


def _rules(*rules: tuple[KernelClass, str]) -> tuple[tuple[KernelClass, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in rules)


# What hand-written kernels and those of all libraries are called; the first rule that fits decides.
_BASE_RULES = _rules(
    (
        K.COMMUNICATION,
        r"\bnccl|nvshmem|cross_device_reduce|(one|two)_?shot_?all_?reduce|multimem_(one|two|all)"
        r"|all_?reduce_?(kernel|fusion)|all_?gather_?kernel|reduce_?scatter_?kernel"
        r"|all_?to_?all_?(kernel|v\b)|deep_ep::|userbuffers|\bmscclpp",
    ),
    (
        K.AUTOTUNER,
        r"redzone|repeat_?buffer_?kernel|xla_\w*comparison|buffer_comparator|delay_?kernel",
    ),
    (
        K.ATTENTION,
        r"flash_?(fwd|bwd|attn|attention|fprop|bprop|infer|mla|decode)|\bflash::|fmha|sdpa"
        r"|attention|_attn_|\battn_|_attn\b|\bsage_fwd|\b(fwd|bwd)_mha|paged_?kv|compute_dot_do_o"
        r"|convert_dq_to_|flashinfer::\w*(prefill|decode)|\bmha_",
    ),
    (K.CAST_COPY, r"(nchw|nhwc|folded\w*)to(nchw|nhwc|folded)|tensorTransform\w*"),
    (
        K.CONVOLUTION,
        r"[fd]prop|dgrad|wgrad|conv(?!ert)\w*|winograd|im2col|col2im|vol2col|depthwise"
        r"|cask_plugin|cutlass__5x_cudnn|cudnn::cnn|[shi]cudnn_\d|\d+cudnn_\d"
        # MIOpen's.
        r"|\bigemm_(fwd|bwd|wrw)_gtc",
    ),
    (
        K.RANDOM,
        r"philox|curand|threefry|distribution_\w*kernel|dropout_(generate|gen|kernel)|fused_dropout"
        r"|randperm|random|generate_seed|gen_sequenced|execute_dist|init_?states|feistel|\brng",
    ),
    (
        K.GEMM,
        r"gemm|gemv|gevm|nvjet|mat_?mul|splitk_?reduce|reduce_?splitk|\bcublas|\bdot_kernel"
        r"|\bmm_kernel|_mm_kernel|\bbmm|grouped_mm|marlin|fused_moe"
        # Those of rocBLAS and hipBLASLt, which Tensile generates.
        r"|\bCij\w?_A[i-l]+_B[i-l]+_",
    ),
    (
        K.NORMALIZATION,
        r"\bbn_[fb]w|(batch|layer|rms|group|instance|weight|sync)_?norm|moments|gammabeta"
        r"|\bln_(fwd|bwd|bw)|welford|computefusedparams|computeinternalgradients"
        r"|cuapply\w*norm|cucompute(gradinput|partgradgammabeta)",
    ),
    (K.SOFTMAX, r"soft_?max|(?<!binary_)cross_?entropy|logsumexp"),
    (
        K.OPTIMIZER,
        r"adamw?(_|\b|cuda)|fused_?adam|fused_?(sgd|lamb|lion|adagrad)|\b(sgd|lamb|lion|adagrad)_"
        r"|multi_?tensor_|lpnorm_cleanup|amp_update_scale|unscale|optimizer|8bit_(blockwise|state)",
    ),
    (
        K.SORT_SCAN,
        r"sort|top_?k|scan|cum(sum|prod|max|min)|unique|deviceselect|devicecompact|run_?length"
        r"|devicepartition|merge_kernel|histogram|(?<!count_)nonzero|write_indices|reverse_indices"
        r"|nms_kernel|gather_keep_from_mask|prefix_?sum",
    ),
    (
        K.GATHER_SCATTER,
        r"gather|scatter|index(?!ed)(?!es)(?!\w*_?with)|indexes|(?<!rotary_)embedding|\btake|_take\b|roi_align"
        r"|roi_pool|sum_and_scatter|compute_grad_weight|krn_partial|num_of_partial_segments"
        r"|grid_?sampl|spmm|csr|coo_",
    ),
    (
        K.REDUCTION,
        r"reduc(e|tion)|\w*arg_?(max|min)|(^|_)(sum|mean|norm|amax|amin|std|var|prod|count_nonzero"
        r"|all|any|max|min)(_|$)|nll_?loss|_pool|pool\w*_(forward|backward)|pooling|ctc_loss",
    ),
    (
        K.CAST_COPY,
        r"copy|convert|\bcast|_cast|transpose|permut|memcpy|catarray|concat|contiguous|(^|_)slice"
        r"|quantiz|reshape|\bpad_|_pad\b|layout",
    ),
    (
        K.ELEMENTWISE,
        r"elem(ent)?_?wise|pointwise|(^|_|::)(gelu|relu|silu|swiglu|geglu|swish|mish|sigmoid|tanh|act|add"
        r"|mul|sub|div|axpy|saxpy|vector_?add|exp|log|sqrt|rsqrt|pow|clamp|fill|zero|bias|dropout"
        r"|rope|rotary|scale|where|abs|sin|cos|neg|mask|arange)(_|\d|$)|gelu|relu|rotary|vectoradd"
        r"|triu_?tril|upsample|interpolat|fill|dropout_apply|scal_kernel|scalepackedtensor|foreach"
        r"|activation|act_and_mul|smooth_l1|bce_|mse_loss|for_each|transform_kernel|devicefor",
    ),
)
# Kernels of these base names are templates: their arguments name the function.
_IS_TEMPLATE = re.compile(
    r"(?:.*::)?(?:Kernel2?|device_kernel|_kernel_agent|Kernel_?\w?|\w*elementwise_kernel\w*"
    r"|\w*elementwise\w*kernel\w*|reduce_kernel|multi_tensor_apply_kernel|static_kernel)",
)
_ELEMENTWISE_ARGUMENTS = _rules(
    (K.RANDOM, r"templates::cuda::\w*(random|normal|uniform|bernoulli|exponential|geometric)"),
    (K.NORMALIZATION, r"batch_norm|layer_norm|group_norm"),
    (K.GATHER_SCATTER, r"index_(put_)?kernel|gpu_index|scatter_gather|index_copy|index_fill|take_"),
    (K.CAST_COPY, r"\w*copy_kernel(_cuda|_impl)?|\bCopyFunctor|conj_kernel"),
    (K.ELEMENTWISE, r""),
)
_FUNCTIONS = _rules(
    (K.ATTENTION, r"fmha|attention|flash|Softmax\w*Mainloop"),
    (K.CONVOLUTION, r"[fd]prop|dgrad|wgrad|ImplicitGemm|Convolution|\bconv::|cutlass__5x_cudnn"),
    (K.GEMM, r"gemm|ReduceSplitK|splitk"),
    (K.ELEMENTWISE, r"parallel_for"),
    (K.SORT_SCAN, r"scan|sort|partition|unique"),
    (K.REDUCTION, r"reduce"),
)
# An xmma kernel of these words is a convolution computed as a GEMM.
_IMPLICIT_GEMM = re.compile(r"(?i)implicit_gemm|[fd]prop|dgrad|wgrad")

_INDUCTOR = re.compile(
    r"triton_(?P<form>poi|per|red|for|tem|mix|spl)_fused_+(?P<ops>\w+?)(?:_\d+)?$"
)
_MOVES_ONLY = re.compile(
    r"(?:_*(?:to_copy|unsafe_view|view|reshape|t|transpose|permute|clone|copy|copy_|cat|stack|expand"
    r"|squeeze|unsqueeze|slice|select|split|split_with_sizes|contiguous|as_strided|constant_pad_nd"
    r"|convert_element_type))+_*"
)
_INDUCTOR_REDUCES = _rules(
    (K.SOFTMAX, r"softmax|logsumexp"),
    (K.NORMALIZATION, r"(batch|layer|rms|group)_norm|var_mean|mean\w*pow\w*rsqrt|welford"),
    (K.REDUCTION, r""),
)
_INDUCTOR_POINTS = _rules(
    (K.OPTIMIZER, r"addcdiv|addcmul\w*lerp|_fused_adam"),
    (K.RANDOM, r"^_*(inductor_)?(seeds|random|rand|bernoulli)\w*$"),
    (K.GATHER_SCATTER, r"^_*(embedding(_dense_backward)?|index\w*|gather|scatter\w*)_*$"),
    (K.ELEMENTWISE, r""),
)
# XLA names a fusion by its kind and its last operation.
_XLA = re.compile(r"(?:loop|input|wrapped|copy|transpose)_?\w*fusion|wrapped_\w+|^fusion(_\d+)?$")
_XLA_RULES = _rules(
    (K.GEMM, r"gemm|dot"),
    (K.RANDOM, r"threefry|rng"),
    (K.SOFTMAX, r"softmax"),
    (K.REDUCTION, r"reduce"),
    (K.GATHER_SCATTER, r"scatter|gather|dynamic_(update_)?slice"),
    (K.CAST_COPY, r"transpose|convert|copy|concatenate|slice|pad|broadcast"),
    (K.ELEMENTWISE, r""),
)
_CUPY = re.compile(r"cupy_(?P<function>\w+?)(?:__\w+)?$")


def classify(name: str) -> KernelClass:
    """The class of the kernel of that name, demangled or not; `OTHER` if no rule matches."""
    base = base_name(name)
    for form, judge in _FAMILIES:
        match = form.fullmatch(base)
        if match and (kind := judge(match, name[:_LONGEST])) is not None:
            return kind
    return _first(_BASE_RULES, base)


def _first(rules: tuple[tuple[KernelClass, re.Pattern[str]], ...], text: str) -> KernelClass:
    return next((kind for kind, rule in rules if rule.search(text)), K.OTHER)


def _of_template(base: re.Match[str], name: str) -> KernelClass | None:
    lowered = base[0].lower()
    if "multi_tensor_apply" in lowered:
        return K.OPTIMIZER
    if "elementwise" in lowered:
        if "distribution" in lowered:
            return K.RANDOM
        moves = "scatter_gather" in lowered or "index_elementwise" in lowered
        return K.GATHER_SCATTER if moves else _first(_ELEMENTWISE_ARGUMENTS, name)
    if lowered.endswith("reduce_kernel"):
        return K.REDUCTION
    kind = _first(_FUNCTIONS, name)
    return None if kind is K.OTHER else kind


def _of_inductor(base: re.Match[str], _: str) -> KernelClass:
    form, ops = base["form"], base["ops"]
    if form == "tem":
        return K.ATTENTION if "attention" in ops else K.CONVOLUTION if "conv" in ops else K.GEMM
    if form in ("per", "red", "mix"):
        return _first(_INDUCTOR_REDUCES, ops)
    if form == "spl":
        return K.SORT_SCAN
    return K.CAST_COPY if _MOVES_ONLY.fullmatch(ops) else _first(_INDUCTOR_POINTS, ops)


def _of_xla(base: re.Match[str], _: str) -> KernelClass:
    return _first(_XLA_RULES, base[0])


def _of_cupy(base: re.Match[str], _: str) -> KernelClass:
    """The class of a CuPy kernel, named after its function and types; elementwise by default."""
    kind = _first(_BASE_RULES, base["function"].removeprefix("cub_"))
    return K.ELEMENTWISE if kind is K.OTHER or base["function"] in ("maximum", "minimum") else kind


def _of_xmma(base: re.Match[str], _: str) -> KernelClass:
    return K.CONVOLUTION if _IMPLICIT_GEMM.search(base[0]) else K.GEMM


_Judge = Callable[[re.Match[str], str], KernelClass | None]
_FAMILIES: tuple[tuple[re.Pattern[str], _Judge], ...] = (
    (_INDUCTOR, _of_inductor),
    (re.compile(r"sm\d+_xmma_\w+"), _of_xmma),
    (_CUPY, _of_cupy),
    (_XLA, _of_xla),
    (_IS_TEMPLATE, _of_template),
)


@fact_without_ranges
def kernel_classes(trace: Trace) -> npt.NDArray[np.uint8]:
    """The class of each row of kernels, a `KernelClass`; each distinct name is classified once."""
    return classes_of(trace.recorded("kernels").texts("name"))


def classes_of(names: Texts) -> npt.NDArray[np.uint8]:
    """The class of each of these kernel names, as a `KernelClass`."""
    # The values may be all texts of a trace: only those of kernels are classified.
    by_code = np.full(len(names.values) + 1, K.OTHER, np.uint8)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        by_code[code] = classify(str(names.values[code]))
    result: npt.NDArray[np.uint8] = by_code[names.codes]
    return result


@fact_without_ranges
def communication_kernels(trace: Trace) -> Mask:
    """True for the rows of kernels that exchange data between GPUs (NCCL, NVSHMEM …)."""
    result: Mask = kernel_classes(trace) == K.COMMUNICATION
    return result


@fact_without_ranges
def communication_operations(trace: Trace) -> Mask:
    """True for the operations that are communication kernels or copies between GPUs."""
    ops = operations(trace)
    result = np.zeros(len(ops), bool)
    result[kernel_operations(trace)[communication_kernels(trace)]] = True
    copies = np.flatnonzero(ops.kind == Kind.COPY)
    directions = trace.recorded("copies").texts("direction")
    result[copies] = directions.isin(["P2P"])[ops.row[copies]]
    return result
