"""Readable names of library kernels, such as `cuBLAS fp32 GEMM 128×128×8 TN`.

Only what a kernel's name says is repeated: a type or a layout that it leaves out stays out. The
forms were read off recordings; tests/facts/kernel_names/test_library_names.py lists real names.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from traceview.facts.kernel_names.torch_names import of_torch
from traceview.facts.kernel_names.type_names import TYPES, first_type, joined
from traceview.facts.operations.gemm_names import Tile, tile
from traceview.facts.operations.kernel_classes import base_name

_LONGEST, _MOST = 4000, 120
_SIZES = r"(\d{1,4}x\d{1,4}(?:x\d{1,4})?)"
_CONVOLUTIONS = ("fprop", "dgrad", "wgrad")
_BY_INDUCTOR = {
    "poi": "pointwise", "per": "reduction", "red": "loop reduction", "for": "foreach",
    "tem": "template", "mix": "mixed-order reduction", "spl": "split scan",
}  # fmt: skip
_OLD_CUDNN = re.compile(
    r"[dw]grad_alg\w+_engine|implicit_convolve_\w+|tensorTransformGeneric|elemWiseRNNcell"
    r"|(?:LSTM|GRU|GENERIC)_elementWise_\w+"
)
"""Kernels of cuDNN outside its namespace."""
_REDUCTIONS = {"Sum", "Prod", "Min", "Max", "MinMax", "PreMulSum", "SumPostDiv"}
_ALGORITHMS = {"RING", "TREE", "NVLS", "COLLNET"}


def readable(name: str) -> str:
    """What a library's kernel computes, in words; empty for kernels of no known library."""
    name = name[:_LONGEST]
    base = base_name(name)
    for says in _LIBRARIES:
        if text := says(base, name):
            return text if len(text) <= _MOST else f"{text[: _MOST // 2 - 1]}…{text[-_MOST // 2 :]}"
    return ""


def _sizes(of: Tile) -> str:
    return "×".join(str(side) for side in (of.rows, of.columns, of.depth) if side)


def _times(sizes: str) -> str:
    return sizes.replace("x", "×")


def _nvjet(base: str, _: str) -> str:
    """nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NTN; layouts of A and B, then of the output."""
    form = re.fullmatch(r"nvjet_(?:sm\d+_)?(?P<types>[a-z]+)_\w*?_(?P<layout>[NT]{2})[NT]", base)
    shape = tile(base)
    if form is None or shape is None:
        return ""
    kind = "fp8" if form["types"].startswith("q") else TYPES.get(shape.inputs or "", "")
    split = "split-K" if "splitK" in base else ""
    bias = "bias" if "_bias_" in base else ""
    return joined("cuBLAS", kind, "GEMM", _sizes(shape), form["layout"], split, bias)


def _xmma(base: str, _: str) -> str:
    """sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_…__5x_cublas."""
    form = re.match(r"sm\d+_xmma_(?P<words>\w*?gemm(?:_indexed)?(?:_wo_smem)?)_(?P<rest>\w+)", base)
    size = re.search(rf"tilesize{_SIZES}", base)
    if form is None or size is None:
        return ""
    types = re.match(r"[a-z0-9]+_((?:tf|bf|f|s|u|e)\d+(?:m\d)?)", form["rest"])
    kind = TYPES.get(_halved(types[1]) if types else "", "")
    way = next((word for word in _CONVOLUTIONS if word in form["words"]), "")
    layout = re.search(r"_(nn|nt|tn|tt)_[nt]_", base)
    letters = layout[1].upper() if layout else "NHWC" if "_nhwc_tilesize" in base else ""
    split = "split-K" if "_split_k_" in base else ""
    library = "cuDNN" if base.endswith("cudnn") else "cuBLAS"
    what = f"conv {way}" if way else "GEMM"
    return joined(library, kind, what, _times(size[1]), letters, split)


def _halved(types: str) -> str:
    """The first type of `tf32f32`, which names two."""
    match = re.match(r"tf32|bf16|e4m3|e5m2|[fsu]\d+?(?=[a-z]|$)", types)
    return match[0] if match else ""


def _cutlass(base: str, name: str) -> str:
    """cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>."""
    library = "cuDNN" if "_cudnn" in base else "CUTLASS"
    if not re.search(r"(^|::)cutlass(__5x_cudnn)?::\w*Kernel", base) and "cutlass" not in base[:8]:
        return ""
    form = re.search(r"\bcutlass(?:3x_sm\d+|_\d+)?_\w*?(?:gemm|fprop|dgrad|wgrad)\w*", name)
    if form is None:
        return _cutlass_template(library, name)
    words = form[0]
    way = next((word for word in _CONVOLUTIONS if word in words), "")
    shape = tile(words)
    size = re.search(r"_(\d{2,4}x\d{2,4})(?:_(\d{1,4})x\d{1,2})?_", words)
    sizes = (
        _sizes(shape) if shape else _times("x".join(filter(None, size.groups()))) if size else ""
    )
    types = re.search(r"_(tf32|bf16|f16|fp16|f32|f64|s8|u8)_", words)
    inputs = (shape.inputs or "" if shape else "") or (types[1] if types else "")
    layout = re.search(r"_(nn|nt|tn|tt|nhwc|nchw)(?:_|$)", words)
    align = re.search(r"_align([124])$", words) if "tensorop" in words else None
    return joined(
        library, TYPES.get(inputs, ""), f"conv {way}" if way else "GEMM", sizes,
        layout[1].upper() if layout else "", f"align{align[1]}" if align else "",
    )  # fmt: skip


def _cutlass_template(library: str, name: str) -> str:
    if "ReduceSplitK" in name:
        return f"{library} split-K reduce"
    way = re.search(r"Conv2d(Fprop|Dgrad|Wgrad)", name)
    sizes = re.search(r"GemmShape<\(int\)(\d+), \(int\)(\d+), \(int\)(\d+)>", name)
    if way is None:
        return ""
    what = f"conv {way[1].lower()}"
    return joined(library, what, "×".join(sizes.groups()) if sizes else "")


def _cublas(base: str, name: str) -> str:
    """The other kernels of cuBLAS: older GEMMs, matrix-vector products, reductions."""
    own = base.rpartition("::")[2]
    kind = first_type(name.replace("<int, ", "<"))
    classic = re.match(
        r"(?:maxwell|pascal|volta|turing|ampere|hopper)_\w*gemm\w*?_(nn|nt|tn|tt)\b", own
    )
    shape = tile(own)
    if classic and shape:
        inputs = TYPES.get(shape.inputs or "", "")
        return joined("cuBLAS", inputs, "GEMM", _sizes(shape), classic[1].upper())
    small = re.fullmatch(r"gemm(SN|Sk1|k1|2)?_(NN|NT|TN|TT)_kernel|gemmk1_kernel", own)
    if small and "cublas" in name:
        return joined("cuBLAS", kind, "small GEMM", small[2] or "")
    if large := re.fullmatch(r"([sdhcz])gemm_largek_\w+", own):
        return joined(
            "cuBLAS", {"s": "fp32", "d": "fp64", "h": "fp16"}.get(large[1], ""), "GEMM large K"
        )
    if vector := re.match(r"gemv(?:Nsp|NSP|2)?([NT])?_?(?:kernel|NSP|Nsp)\w*", own):
        return joined("cuBLAS", kind, "GEMV", vector[1] or "")
    if own == "splitKreduce_kernel":
        return "cuBLAS split-K reduce"
    if base.startswith("cublasLt::epilogue"):
        return joined("cuBLAS epilogue", kind)
    return joined("cuBLAS", own) if re.match(r"cublas(Lt)?::", base) else ""


def _tensile(base: str, _: str) -> str:
    """Cijk_Alik_Bljk_BBS_BH_…_MT256x192x64_…: where the summed index l comes first, A or B is T."""
    form = re.match(r"Cij\w?_A(?P<a>[i-l]+)_B(?P<b>[i-l]+)_", base)
    shape = tile(base)
    if form is None or shape is None:
        return ""
    layout = ("T" if form["a"][0] == "l" else "N") + ("N" if form["b"][0] == "l" else "T")
    return joined("Tensile", TYPES.get(shape.inputs or "", ""), "GEMM", _sizes(shape), layout)


def _attention(base: str, name: str) -> str:
    if form := re.match(r"cudnn_generated_\w*?sdpa_\w*?flash_(f|b)prop_\w*", base):
        sizes = re.search(rf"_{_SIZES}_", base)
        return joined("cuDNN flash attention", _way(form[1]), _times(sizes[1]) if sizes else "")
    if form := re.match(r"fmha_cutlass(F|B)_(\w+?)_aligned_(\d+x\d+)", base):
        kind = TYPES.get(form[2], form[2])
        return joined("memory-efficient attention", _way(form[1]), kind, _times(form[3]))
    if form := re.search(r"(?:^|::)flash_(fwd|bwd)_(\w+)$", base):
        kind = "bf16" if "bfloat16_t" in name else "fp16" if "half_t" in name else ""
        head = re.search(r"kernel_traits<\(int\)(\d+)", name)
        part = form[2].replace("kernel", "").strip("_").replace("_", " ")
        return joined(
            "FlashAttention", _way(form[1]), part, kind, f"head {head[1]}" if head else ""
        )
    if form := re.search(r"flash::FlashAttn(Fwd|Bwd)Sm(\d+)", name):
        return joined("FlashAttention 3", _way(form[1]))
    return ""


def _way(letter: str) -> str:
    return "forward" if letter[0].lower() == "f" else "backward"


def _cudnn(base: str, name: str) -> str:
    own, kind = base.rpartition("::")[2], first_type(name)
    if form := re.fullmatch(r"(\w*?)(nchw|nhwc)To(\w*?)(nchw|nhwc)Kernel", own, re.IGNORECASE):
        return joined("cuDNN", f"{form[2].upper()} to {form[4].upper()}", kind)
    if form := re.match(r"bn_(fw_tr|fw_inf|fw|bw)_", own):
        ways = {"bw": "backward", "fw_inf": "inference"}
        layout = "NCHW" if "NCHW" in own else "NHWC" if "nhwc" in own.lower() else ""
        return joined("cuDNN batch norm", ways.get(form[1], "forward"), kind, layout)
    if _OLD_CUDNN.fullmatch(own) and "::" not in base:
        return joined("cuDNN", own, kind)
    if re.search(r"(^|::)(cudnn|cask_plugin__5x_cudnn)::", f"::{base}"):
        return joined("cuDNN", own)
    return ""


def _nccl(base: str, _: str) -> str:
    """ncclDevKernel_AllReduce_Sum_bf16_RING_LL; the order of the parts changed with 2.18."""
    form = re.match(r"nccl(?:Dev)?Kernel_([A-Za-z]+)(?:_(\w+))?", base)
    if form is None:
        return ""
    parts = (form[2] or "").split("_")
    op = next((part.lower() for part in parts if part in _REDUCTIONS), "")
    kind = next((TYPES[part] for part in parts if part in TYPES), "")
    way = next((part.lower() for part in parts if part in _ALGORITHMS), "")
    return joined("NCCL", form[1], op, kind, way)


def _cub(base: str, _: str) -> str:
    """DeviceRadixSortOnesweepKernel of CUB; Thrust runs its algorithms through it."""
    scopes, _, own = base.rpartition("::")
    if "cub" not in scopes.split("::"):
        return ""
    form = re.fullmatch(r"Device(\w+?)Kernel", own)
    words = re.findall(r"[A-Z][a-z0-9]*", form[1]) if form else []
    return joined("CUB", " ".join(words).lower() or own)


def _compiled(base: str, _: str) -> str:
    """Kernels that torch.compile, CuPy or XLA generated; the end of the name stays whole."""
    if form := re.fullmatch(r"triton_(poi|per|red|for|tem|mix|spl)_fused_+(\w+)", base):
        return joined("Inductor", _BY_INDUCTOR[form[1]], form[2])
    if form := re.fullmatch(r"cupy_(\w+?)(?:__(\w+))?", base):
        return joined("CuPy", form[1], form[2] or "")
    if re.fullmatch(r"(?:loop|input|wrapped)_\w*fusion(_\d+)?|wrapped_\w+|fusion(_\d+)?", base):
        return joined("XLA", base)
    return ""


_Says = Callable[[str, str], str]
_LIBRARIES: tuple[_Says, ...] = (
    _nvjet, _xmma, _tensile, _attention, _cutlass, _cublas, of_torch, _cudnn, _nccl, _cub,
    _compiled,
)  # fmt: skip
