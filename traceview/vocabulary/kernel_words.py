"""Class and owner of a kernel by the words of its name, where no record of `libraries` has them.

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
_BASE = re.compile(r"(?:[\w:*& ]+ )?([^<(\s]+)")


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
    r"\bat(_cuda_detail)?::|\bc10::|cub::|thrust::|cutlass|cudnn|cublas|xmma_|^nvjet|^cupy_|flash"
    r"|fmha|[sdhc]gemm|gemv|gemmSN|gemmk1|splitKreduce|^nccl|cufft|cusparse|vision::|torch::"
    # A pointer to a generator's state is an argument of the program's own kernels.
    r"|curand(?!State\w* ?\*)"
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
