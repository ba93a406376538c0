"""Kernels by the words of their names, where `libraries` has none: class, owner, short name.

A library launches most of its work through a few templates, such as `vectorized_elementwise_kernel`
or `cutlass::Kernel2`: what they compute is in a template argument. Of all other kernels the base
name decides, as arguments and parameter types name much that a kernel does not do. The rules were
read off recordings and the libraries' sources; tests/vocabulary lists real names.
"""

from __future__ import annotations

import re
from enum import IntEnum


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


class KernelOwner(IntEnum):
    """Who wrote a kernel. Triton and CUDA kernels written by the user belong to the program."""

    PROGRAM = 0
    COMPILER = 1
    LIBRARY = 2


K = KernelClass
LONGEST = 4000
_UNNAMED = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}")
# `void at::native::reduce_kernel<…>(…)`: what stands between the type it returns and its arguments.
_BASE = re.compile(r"(?:std::enable_if<.*?>::type |[\w:*& ]+ )?([^<(\s]+)")


def base_name(name: str) -> str:
    """The qualified name of a kernel, without return type, template arguments and parameters."""
    match = _BASE.match(_UNNAMED.sub("unnamed", name[:LONGEST]))
    return match[1] if match else name[:LONGEST]


Rules = tuple[tuple[KernelClass, re.Pattern[str]], ...]


def rules(*rules: tuple[KernelClass, str]) -> Rules:
    """A table of classes, each with the words of names that show it."""
    return tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in rules)


# What hand-written kernels and those of all libraries are called; the first rule that fits decides.
_BASE_RULES = rules(
    (
        K.COMMUNICATION,
        r"\bnccl|nvshmem|cross_device_reduce|(one|two)_?shot_?all_?reduce|multimem_(one|two|all)"
        r"|all_?reduce_?(kernel|fusion)|all_?gather_?kernel|reduce_?scatter_?kernel"
        r"|all_?to_?all_?(kernel|v\b)|deep_ep::|userbuffers|\bmscclpp",
    ),
    (
        K.AUTOTUNER,
        r"redzone|repeat_?buffer_?kernel|xla_\w*comparison|buffer_comparator"
        # Programs give that name to kernels of their own, which only wait.
        r"|(stream_executor|xla)::.{0,40}delay_?kernel",
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
        # A random walk, or a game played at random, uses such numbers, and does other things.
        r"|random(?=_?(?:$|from_to|num|fill|init|uniform|normal|bits|val|seed|gen|state|float"
        r"|int(_|$)|array|matrix|vector|data|kernel|x_mod))|(?:gen(?:erate)?|fill|init(?:ialize)?)_?random"
        r"|randperm|generate_seed|gen_sequenced|execute_dist|init_?states|feistel|\brng",
    ),
    (
        K.GEMM,
        r"gemm|gemv|gevm|nvjet|mat(rix)?_?((mat|vec)\w*?)?(mul|prod)|splitk_?reduce|reduce_?splitk|\bcublas|\bdot_kernel"
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
        r"|quantiz|reshape|\bpad_|_pad\b|(?<!p)layout",
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
_ELEMENTWISE_ARGUMENTS = rules(
    (K.RANDOM, r"templates::cuda::\w*(random|normal|uniform|bernoulli|exponential|geometric)"),
    (K.NORMALIZATION, r"batch_norm|layer_norm|group_norm"),
    (K.GATHER_SCATTER, r"index_(put_)?kernel|gpu_index|scatter_gather|index_copy|index_fill|take_"),
    (K.CAST_COPY, r"\w*copy_kernel(_cuda|_impl)?|\bCopyFunctor|conj_kernel"),
    (K.ELEMENTWISE, r""),
)
_FUNCTIONS = rules(
    (K.ATTENTION, r"fmha|attention|flash|Softmax\w*Mainloop"),
    (K.CONVOLUTION, r"[fd]prop|dgrad|wgrad|ImplicitGemm|Convolution|\bconv::|cutlass__5x_cudnn"),
    (K.GEMM, r"gemm|ReduceSplitK|splitk"),
    (K.ELEMENTWISE, r"parallel_for"),
    (K.SORT_SCAN, r"scan|sort|partition|unique"),
    (K.REDUCTION, r"reduce"),
)


def first_of(rules: Rules, text: str) -> KernelClass:
    """The class of the first rule whose pattern is in the text; `OTHER` if none is."""
    return next((kind for kind, rule in rules if rule.search(text)), K.OTHER)


def class_by_words(base: str, name: str) -> KernelClass:
    """The class by the template's arguments, else by the words of the base name."""
    match = _IS_TEMPLATE.fullmatch(base)
    kind = _of_template(match, name) if match else None
    return class_of_base(base) if kind is None else kind


def class_of_base(base: str) -> KernelClass:
    """The class by the words of a base name."""
    return first_of(_BASE_RULES, base)


def _of_template(base: re.Match[str], name: str) -> KernelClass | None:
    lowered = base[0].lower()
    if "multi_tensor_apply" in lowered:
        return K.OPTIMIZER
    if "elementwise" in lowered:
        if "distribution" in lowered:
            return K.RANDOM
        moves = "scatter_gather" in lowered or "index_elementwise" in lowered
        return K.GATHER_SCATTER if moves else first_of(_ELEMENTWISE_ARGUMENTS, name)
    if lowered.endswith("reduce_kernel"):
        return K.REDUCTION
    kind = first_of(_FUNCTIONS, name)
    return None if kind is K.OTHER else kind


CUFFT = r"\b(?:regular|vector|composite|multi)_(?:\w+_)?fft(?:_\w+)?<"
_LIBRARY = re.compile(
    # Views of tensors and a pointer to a generator's state are arguments of the program's kernels.
    r"\b(?:at(?:_cuda_detail)?|torch)::(?!\w*(?:TensorAccessor|PtrTraits))|curand(?!State\w* ?\*)"
    r"|\bc10::|cub::|thrust::|cutlass|cudnn|cublas|xmma_|^nvjet|^cupy_|flash"
    r"|fmha|[sdhc]gemm|gemv|gemmSN|gemmk1|splitKreduce|^nccl|cufft|cusparse|vision::"
    # Of AMD's libraries.
    r"|\b(?:miopen|MIOpen|Cijk_|naive_conv_|rocblas|rocprim::|ck(?:_tile)?::)|\bigemm_\w+_gtc"
    # Of TensorRT-LLM, by types and tile.
    r"|^bmm_\w+_t\d+x\d+x\d+"
    r"|<unnamed>::|\(anonymous namespace\)|elementwise_kernel|CUDAKernel|[dw]grad_|^_norm_ord"
    # Of cuSOLVER and cuSPARSE, most of them in no namespace: named after LAPACK's routines.
    r"|\b(?:[sdcz]|glu_|kernel::|batch(?:ed)?_)?(?:geqr[f\d]|getr[fsi]|getf\d|gesvd|geb(?:rd|d2|al|ak)"
    r"|gehd\d|gelange|po(?:tr[fsi]|tf\d)|sy(?:tr[df]|t[df]\d|ev)|lacgv|lacpy|laed\d|lansy|lar(?:f_|f[bgt]|tg)"
    r"|labrd|latrd|lascl|laswp|or[gm](?:q[rl]|tr|lq|br)|ste(?:dc|qr)|bdsqr)\w*"
    r"|cusolver|lapack_|\bglu_(?:csr|tile_|ilu0_|lu_)|csr(?:[iI]lu0|qr|chol|sv)\w*_|\bcuds_|\bx+trf\d_"
    r"|(?:svd|batch)_parallel_jacobi|\bbatched_svd_|(?:row|column)_rotate_batch|\bpegasus_?[A-Zadlgns]"
    r"|\b(?:batch_)?(?:FnrmA|OneNormA|offA)_|\bbatch_(?:tr[sm][mv]_|eye_)|\b(?:batch_)?colperm_kernel"
    r"|\bcopy_info_kernel\b|\bconvert_(?:CsrToCoo|CooToCsr)_kernel"
    r"|^feistel_|\bgetrf_\w*params_|\bkernel_trsm_|\btrsv_\w+_exec|" + CUFFT
)


def is_of_library(name: str) -> bool:
    """Whether a name shows a scope or a routine of a library."""
    return _LIBRARY.search(name) is not None


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
XLA_RULES = rules(
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


def class_of_cupy(function: str) -> KernelClass:
    """The class of a CuPy kernel, named after its function and types; elementwise by default."""
    kind = class_of_base(function.removeprefix("cub_"))
    return K.ELEMENTWISE if kind is K.OTHER or function in ("maximum", "minimum") else kind


TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16",
    "__half": "fp16", "__nv_bfloat16": "bf16", "long": "int64", "int": "int32", "bool": "bool",
    "unsigned char": "uint8", "signed char": "int8", "short": "int16",
    "f64": "fp64", "f32": "fp32", "tf32": "tf32", "bf16": "bf16", "f16": "fp16", "fp16": "fp16",
    "fp32": "fp32", "s8": "int8", "u8": "uint8", "e4m3": "fp8", "fp8": "fp8", "e5m2": "fp8",
    "half": "fp16", "bfloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::complex<float>": "complex64",
}  # fmt: skip
"""Names of types in kernel names, with the short name of each."""

_CPP = re.compile(
    r"(?<![\w:])(float|double|c10::Half|c10::BFloat16|c10::Float8_e4m3fn|c10::Float8_e5m2"
    r"|c10::complex<float>|__half|__nv_bfloat16|long|bool|unsigned char|signed char|short|int)"
    r"(?=[,>])"
)


def first_type(text: str, *, start: int = 0) -> str:
    """The first number type among the template arguments of a C++ name; empty if there is none."""
    match = _CPP.search(text, text.find("<", start) + 1)
    return TYPES[match[1]] if match else ""


def joined(*words: str) -> str:
    """The words that are not empty, joined by spaces."""
    return " ".join(word for word in words if word)


# Readable names of PyTorch's own kernels, such as `elementwise mul fp32, strided`.
#
# Most of them are a few templates: what they compute is in a template argument, a functor or the
# function that holds a lambda. The forms were read off recordings: tests/data/kernel_names.tsv.

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
