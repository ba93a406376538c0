"""Classes of the kernels that compilers generate, from the operations in their names."""

from __future__ import annotations

import re

from traceview.vocabulary.kernel_words import KernelClass, class_of_base, first_of, rules

K = KernelClass
_MOVES_ONLY = re.compile(
    r"(?:_*(?:to_copy|unsafe_view|view|reshape|t|transpose|permute|clone|copy|copy_|cat|stack|expand"
    r"|squeeze|unsqueeze|slice|select|split|split_with_sizes|contiguous|as_strided|constant_pad_nd"
    r"|convert_element_type))+_*"
)
_INDUCTOR_REDUCES = rules(
    (K.SOFTMAX, r"softmax|logsumexp"),
    (K.NORMALIZATION, r"(batch|layer|rms|group)_norm|var_mean|mean\w*pow\w*rsqrt|welford"),
    (K.REDUCTION, r""),
)
_INDUCTOR_POINTS = rules(
    (K.OPTIMIZER, r"addcdiv|addcmul\w*lerp|_fused_adam"),
    (K.RANDOM, r"^_*(inductor_)?(seeds|random|rand|bernoulli)\w*$"),
    (K.GATHER_SCATTER, r"^_*(embedding(_dense_backward)?|index\w*|gather|scatter\w*)_*$"),
    (K.ELEMENTWISE, r""),
)
# XLA names a fusion by its kind and its last operation.
_XLA_RULES = rules(
    (K.GEMM, r"gemm|dot"),
    (K.RANDOM, r"threefry|rng"),
    (K.SOFTMAX, r"softmax"),
    (K.REDUCTION, r"reduce"),
    (K.GATHER_SCATTER, r"scatter|gather|dynamic_(update_)?slice"),
    (K.CAST_COPY, r"transpose|convert|copy|concatenate|slice|pad|broadcast"),
    (K.ELEMENTWISE, r""),
)


def class_of_inductor(form: str, ops: str) -> KernelClass:
    """The class of `triton_<form>_fused_<ops>` of TorchInductor."""
    if form == "tem":
        return K.ATTENTION if "attention" in ops else K.CONVOLUTION if "conv" in ops else K.GEMM
    if form in ("per", "red", "mix"):
        return first_of(_INDUCTOR_REDUCES, ops)
    if form == "spl":
        return K.SORT_SCAN
    return K.CAST_COPY if _MOVES_ONLY.fullmatch(ops) else first_of(_INDUCTOR_POINTS, ops)


def class_of_xla(base: str) -> KernelClass:
    """The class of a fusion of XLA."""
    return first_of(_XLA_RULES, base)


def class_of_cupy(function: str) -> KernelClass:
    """The class of a CuPy kernel, named after its function and types; elementwise by default."""
    kind = class_of_base(function.removeprefix("cub_"))
    return K.ELEMENTWISE if kind is K.OTHER or function in ("maximum", "minimum") else kind
