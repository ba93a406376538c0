"""Readable names of PyTorch's own kernels, such as `elementwise mul fp32, strided`.

Most of them are a few templates: what they compute is in a template argument, a functor or the
function that holds a lambda. The forms were read off recordings: tests/data/kernel_names.tsv.
"""

from __future__ import annotations

import re

from traceview.vocabulary.number_types import TYPES, first_type, joined

_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*::)")
_SAYS_NOTHING = re.compile(
    r"void|bool|char|short|int|long|unsigned|signed|float|double|const|T\d+|lambda|instance"
    r"|operator|unnamed|array|BFloat16|Half|Float8_\w+|complex|gpu_kernel_impl\w*|gpu_index_kernel"
    r"|[AB]?UnaryFunctor|BinaryFunctor|ReduceOp|func_wrapper_t|\w*ListMetadata|OpaqueType|enable_\w+"
    r"|(?:Unary|Binary|Ternary|Pointwise)Op\w*Functor|type|at|native|std"
)
_AFFIXES = re.compile(
    r"^(?:CUDAFunctorOnSelf_|CUDAFunctor_|launch_|direct_)|(?:CUDA)?Kernel(?:Impl)?$|_?[Ff]unctor\w?$"
    r"|Ops$|_kernel(?:_(?:cuda|impl|nocast|out|vec))*$|_out_cuda$|_cuda(?:_out|_kernel)?$|_impl$|_out_kernel$"
)
_SAME = {
    "multiplies": "mul", "plus": "add", "divides": "div", "minus": "sub", "max_nan": "max",
    "min_nan": "min", "norm_two": "norm", "normal_and_transform": "normal",
    "uniform_and_transform": "uniform", "fused_adam_math": "fused Adam",
    "fused_sgd_math": "fused SGD", "lp_norm": "norm",
}  # fmt: skip
_CASTS = {"bfloat16_copy": "bf16", "float16_copy": "fp16"}
_POINTWISE = {"mul": "addcmul", "div": "addcdiv"}
_LAMBDA = re.compile(r"\[lambda\(([^()\[\]]+)\)")
_OPERANDS = re.compile(r"(?:[AB]?Unary|Binary)Functor<([\w:]+)")
_IN_WORDS = {
    "vectorized_layer_norm_kernel": "layer norm forward",
    "LayerNormForwardCUDAKernel": "layer norm forward",
    "layer_norm_grad_input_kernel_vectorized": "layer norm backward input",
    "layer_norm_grad_input_kernel": "layer norm backward input",
    "GammaBetaBackwardCUDAKernelTemplate": "layer norm backward weights",
    "GammaBetaBackwardSimpleCUDAKernel": "layer norm backward weights",
    "RowwiseMomentsCUDAKernel": "norm moments",
    "batch_norm_collect_statistics_kernel": "batch norm statistics",
    "batch_norm_transform_input_kernel": "batch norm forward",
    "batch_norm_backward_kernel": "batch norm backward",
    "fused_dropout_kernel_vec": "dropout",
    "fused_dropout_kernel": "dropout",
}


TORCH_KERNELS = (
    r"(?:[^<]*::)?(?:cunn_SoftMax(?:Forward|Backward)|softmax_warp_(?:forward|backward)"
    r"|CatArrayBatchedCopy|\w*elementwise_kernel|distribution_elementwise_grid_stride_kernel$"
    rf"|(?:reduce_kernel|multi_tensor_apply_kernel|{'|'.join(_IN_WORDS)})$)"
)
"""How base names begin of kernels that `of_torch` puts into words."""


def of_torch(base: str, name: str) -> str:
    """Readable name of a PyTorch kernel; empty for other kernels and names clear as they are."""
    own = base.rpartition("::")[2]
    arguments = name[name.find(own) + len(own) :]
    if form := re.fullmatch(r"(?:cunn_SoftMax|softmax_warp_)(Forward|Backward)\w*", own, re.I):
        log = "LogSoftMax" in name or _third_flag(arguments)
        return joined("log_softmax" if log else "softmax", form[1].lower(), first_type(arguments))
    if own in _IN_WORDS:
        # The last flag of these templates is True for an RMS norm.
        is_rms = own != "RowwiseMomentsCUDAKernel" and re.match(r"<[^>]*\(bool\)1>", arguments)
        words = _IN_WORDS[own].replace("layer norm", "RMS norm") if is_rms else _IN_WORDS[own]
        return joined(words, first_type(arguments))
    if own.startswith("CatArrayBatchedCopy"):
        return joined("cat", own.removeprefix("CatArrayBatchedCopy").strip("_").replace("_", " "))
    if "elementwise_kernel" in own or own == "distribution_elementwise_grid_stride_kernel":
        return _elementwise(own, arguments)
    if own == "reduce_kernel":
        what = _what(arguments)
        return what and joined("reduce", what, first_type(arguments, start=arguments.find("Op<")))
    if own == "multi_tensor_apply_kernel":
        return _foreach(arguments)
    return ""


def _third_flag(arguments: str) -> bool:
    """The first bool in softmax_warp_forward<float, float, float, (int)7, (bool)1, (bool)0>."""
    match = re.match(r"<[^()]*\(int\)\d+, \(bool\)([01])", arguments)
    return match is not None and match[1] == "1"


def _elementwise(own: str, arguments: str) -> str:
    what = _what(arguments)
    if not what:
        return ""
    lead = "random" if own.startswith("distribution") else "elementwise"
    if "scatter_gather" in own:
        lead = "scatter/gather"
    strided = own == "elementwise_kernel" or "index_elementwise" in own
    casts = "WithCast<" in arguments or "gpu_kernel_impl<" in arguments
    how = ", ".join(word for word, holds in (("strided", strided), ("casting", casts)) if holds)
    kind = _operand_type(arguments)
    if what in _CASTS:
        return joined("elementwise copy", kind, "to", _CASTS[what])
    label = joined("" if what.startswith(lead) else lead, what, kind)
    return f"{label}, {how}" if how else label


def _foreach(arguments: str) -> str:
    what = _what(arguments)
    if "PointwiseOp" in arguments:
        what = _POINTWISE.get(what, what)
    if not what:
        return ""
    fused = what.startswith("fused")
    scalars = re.search(r"Op(ScalarTensor|ScalarList|Scalar|List)", arguments)
    kind = scalars[1] if scalars else ""
    by = {"ScalarTensor": "by tensor", "ScalarList": "by scalars", "List": "by list"}.get(kind, "")
    start = arguments.find("Functor<")
    return joined("" if fused else "foreach", what, first_type(arguments, start=start), by)


def _what(arguments: str) -> str:
    """The operation: the first meaningful word of the template arguments."""
    for word in _WORD.finditer(arguments):
        if not _SAYS_NOTHING.fullmatch(word[0]):
            return _cleaned(word[0])
    return ""


def _cleaned(word: str) -> str:
    last = ""
    while word != last:
        last, word = word, _AFFIXES.sub("", word)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower().strip("_")
    return _SAME.get(words, words)


def _operand_type(arguments: str) -> str:
    """The type of the operands: of a lambda's parameters, else of the functor."""
    for parameters in _LAMBDA.findall(arguments):
        kinds = [TYPES.get(each.strip(), "") for each in parameters.split(",")]
        telling = [kind for kind in kinds if kind not in ("", "bool")]
        if telling and parameters != "int":
            return telling[0]
    if match := _OPERANDS.search(arguments):
        return TYPES.get(match[1], "")
    return first_type(re.sub(r"^<\(int\)\d+, ", "<", arguments).split("std::array")[0])
