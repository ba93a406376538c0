"""What a kernel's name tells: one record per family of kernels of a library or compiler.

Class, owner, label, tile and number types of a kernel are read from the first record of `LIBRARIES`
that its name fits; CONTRIBUTING.md shows how to add one. Names that fit none, and what a record
leaves open, are judged by `kernel_words`. Only what a name says is repeated: a type or a layout
that it leaves out stays out. The forms were read off recordings: tests/data/kernel_names.tsv.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property, lru_cache

from traceview.base.records import record
from traceview.base.vocabulary import kernel_words
from traceview.base.vocabulary.kernel_words import KernelClass, KernelOwner

K, LIBRARY, COMPILER = KernelClass, KernelOwner.LIBRARY, KernelOwner.COMPILER
Parts = Mapping[str, str | None]
Words = Callable[["KernelName"], str]


@record
class Library:
    """A family of kernels: how its names begin, and what their parts say.

    Attributes:
        name: the library, as labels begin.
        form: pattern of the beginning of a base name.
        words: the label after `name`, a template over the parts, of which empty ones leave no
            trace; or a function of the kernel's name that returns the whole label.
        parts: pattern that must be in the base name, or in the whole name if `inside`. Its groups
            are the parts: `rows`, `columns`, `depth` and `stages` of a tile, `inputs` the type that
            is multiplied and `stored` that of memory, `product` as in sgemm, `unit` that
            multiplies, `layout`, `conv` the pass of a convolution, `way` forward or backward.
        class_: what the kernels compute, or a function of the parts; None if the words decide.
        owner: who wrote them; None if the words decide.
        types: the number types behind the letters in `inputs`.
        stored_alike: values of `inputs` that show that memory holds the type that is multiplied.
    """

    name: str
    form: str
    words: str | Words = ""
    parts: str = ""
    inside: bool = False
    class_: KernelClass | Callable[[Parts], KernelClass] | None = None
    owner: KernelOwner | None = LIBRARY
    types: Mapping[str, str] = field(default_factory=dict)
    stored_alike: tuple[str, ...] = ()

    # Compiling all patterns would take a fifth of the time of `traceview --help`.
    @cached_property
    def begins(self) -> re.Pattern[str]:
        return re.compile(self.form)

    @cached_property
    def divided(self) -> re.Pattern[str]:
        return re.compile(self.parts)


@record
class KernelName:
    """A kernel's name, the record that it fits, and its parts."""

    text: str
    base: str
    library: Library | None = None
    parts: Parts = field(default_factory=dict)

    @property
    def inputs(self) -> str:
        """The type that is multiplied, such as f16; empty where the name does not tell."""
        word, product = self.parts.get("inputs"), self.parts.get("product") or ""
        if word and self.library and self.library.types:
            return self.library.types.get(word) or self.library.types.get(word[0], "")
        # An s1688gemm that does not name its inputs multiplies fp16 or tf32: ambiguous.
        plain = "f16" if product.startswith("h") else _PRODUCTS.get(product, "")
        return _short(word or plain or self.parts.get("stored") or "")

    @property
    def stored(self) -> str:
        """The type of the matrices in memory; empty where the name does not tell."""
        stored, word = self.parts.get("stored"), self.parts.get("inputs")
        product = self.parts.get("product") or ""
        if stored:
            return _short(stored)
        letters = self.library.stored_alike if self.library else ()
        plain = (product == "s" or product.startswith("h")) and word in (
            None,
            _PRODUCTS.get(product),
        )
        return self.inputs if word in letters or plain else ""


def _short(kind: str) -> str:
    return kind.replace("fp", "f")


_PRODUCTS = {"s": "f32", "d": "f64", "h": "f16"}
_TYPE = r"(?:tf32|bf16|[fs]p?\d{1,2}|[su]8|e4m3|e5m2)"
_TILE = r"(?P<rows>\d{1,4})x(?P<columns>\d{1,4})"
_SIZES = r"(?P<sizes>\d{1,4}x\d{1,4}(?:x\d{1,4})?)"
_LAYOUT = r"nn|nt|tn|tt|nhwc|nchw"
# In any scope, such as at::native::.
_ANY_SCOPE = r"(?:[^<]*::)?"
INDUCTOR = r"triton_(?:poi|per|red|for|tem|mix|spl)_fused_"
CUPY = r"cupy_"
XLA = r"(?:(?:loop|input|wrapped|copy|transpose)_?\w*)?fusion(?:_\d+)?$|wrapped_\w+$"
# sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize256x128x8_stage3_…: what is stored, multiplied.
_XMMA = (
    r"xmma_(?:(?P<conv>fprop|dgrad|wgrad)_)?\w*?gemm(?:_indexed)?(?:_wo_smem)?_"
    rf"(?:(?:(?P<stored>{_TYPE}){_TYPE}|[a-z0-9]+)_(?P<inputs>{_TYPE}))?"
    rf"(?:\w*?(?:(?<=_)(?P<layout>nn|nt|tn|tt|nhwc)_(?:[nt]_)?)?tilesize{_TILE}"
    r"(?:x(?P<depth>\d{1,4}))?(?:_stage(?P<stages>\d{1,2}))?)?"
    r"(?=(?:\w*_(?P<split>split_k)_)?)(?=(?:\w*_(?P<unit>ffma)_)?)"
)
_XMMA_WORDS = "{inputs} {op} {tile} {layout} {split}"
# cutlass_80_tensorop_f16_s16816gemm_f16_128x128_64x3_nn_align8, cutlass_80_simt_sgemm_…,
# cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8
_CUTLASS = (
    r"(?<![A-Za-z_])cutlass(?:3x_sm\d+|_\d+)?_(?:(?P<unit>simt|(?:wmma_)?tensorop)_)?"
    rf"(?:(?P<stored>{_TYPE})_)?(?P<product>[a-z]+\d*)\w*?(?:gemm|(?P<conv>fprop|dgrad|wgrad))"
    rf"(?:_[a-z]+(?=_))*(?:_(?P<inputs>{_TYPE})(?:_{_TYPE})*)?"
    rf"(?:_{_TILE}(?:[_x](?P<depth>\d{{1,4}})(?:x(?P<stages>\d{{1,2}}))?)?)?"
    rf"(?=(?:\w*?_(?P<layout>{_LAYOUT})(?![a-z0-9]))?)(?=(?:\w*_(?P<align>align[124])(?!\w))?)"
)


def _cutlass_words(library: str) -> Words:
    def words(kernel: KernelName) -> str:
        # Kernels for CUDA cores are always align1, which is no fault.
        align = "{align}" if (kernel.parts["unit"] or "").endswith("tensorop") else ""
        return _filled(f"{library} {{inputs}} {{op}} {{tile}} {{layout}} {align}", kernel)

    return words


def _tensile_words(kernel: KernelName) -> str:
    """Where the summed index l comes first, A or B is transposed."""
    parts = kernel.parts
    layout = ("T" if parts["a"] == "l" else "N") + ("N" if parts["b"] == "l" else "T")
    return _filled(f"Tensile {{inputs}} GEMM {{tile}} {layout}", kernel)


def _flash_words(kernel: KernelName) -> str:
    name, parts = kernel.text, kernel.parts
    kind = "bf16" if "bfloat16_t" in name else "fp16" if "half_t" in name else ""
    head = re.search(r"kernel_traits<\(int\)(\d+)", name)
    part = (parts["part"] or "").replace("kernel", "").strip("_").replace("_", " ")
    of_head = f"head {head[1]}" if head else ""
    return kernel_words.joined("FlashAttention", _way(parts["way"] or ""), part, kind, of_head)


_REDUCTIONS = {"Sum", "Prod", "Min", "Max", "MinMax", "PreMulSum", "SumPostDiv"}
_ALGORITHMS = {"RING", "TREE", "NVLS", "COLLNET"}


def _nccl_words(kernel: KernelName) -> str:
    """ncclDevKernel_AllReduce_Sum_bf16_RING_LL; the order of the parts changed with 2.18."""
    words = (kernel.parts["rest"] or "").split("_")
    op = next((word.lower() for word in words if word in _REDUCTIONS), "")
    kind = next((kernel_words.TYPES[word] for word in words if word in kernel_words.TYPES), "")
    way = next((word.lower() for word in words if word in _ALGORITHMS), "")
    return kernel_words.joined("NCCL", kernel.parts["collective"] or "", op, kind, way)


def _cub_words(kernel: KernelName) -> str:
    """DeviceRadixSortOnesweepKernel of CUB; Thrust runs its algorithms through it."""
    own = _own(kernel.base)
    form = re.fullmatch(r"Device(\w+?)Kernel", own)
    words = re.findall(r"[A-Z][a-z0-9]*", form[1]) if form else []
    return kernel_words.joined("CUB", " ".join(words).lower() or own)


def _inductor_words(kernel: KernelName) -> str:
    return kernel_words.joined(
        "Inductor", _BY_INDUCTOR[kernel.parts["form"] or ""], kernel.parts["whole"] or ""
    )


_BY_INDUCTOR = {
    "poi": "pointwise", "per": "reduction", "red": "loop reduction", "for": "foreach",
    "tem": "template", "mix": "mixed-order reduction", "spl": "split scan",
}  # fmt: skip
LIBRARIES: tuple[Library, ...] = (
    Library(
        # nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NTN: types, tile, depth x stages, cluster, and
        # the layouts of A and B, then of the output. nvjet_sm120_tst_mma_64x64x128_3_…_TNNN
        "cuBLAS",
        r"nvjet_",
        "{inputs} GEMM {tile} {layout} {split} {bias}",
        rf"^nvjet_(?:sm\d+_)?(?P<inputs>[a-z]{{3,6}})_(?:mma_)?{_TILE}"
        r"(?:[_x](?P<depth>\d{1,4})[_x](?P<stages>\d{1,2})_)?(?=(?:\w*(?P<split>splitK))?)(?=(?:\w*_(?P<bias>bias)_)?)"
        r"(?:\w*_(?P<layout>[NT]{2})[NT]{1,2}$)?",
        class_=K.GEMM,
        # The first letter is the type of the first factor; q is one of both kinds of fp8.
        types={"h": "f16", "t": "bf16", "s": "f32", "d": "f64", "q": "fp8"},
        stored_alike=("tst", "hsh"),
    ),
    Library("cuDNN", r"sm\d+_xmma_\w+cudnn$", _XMMA_WORDS, _XMMA, class_=K.GEMM),
    Library("cuBLAS", r"sm\d+_xmma_\w+$", _XMMA_WORDS, _XMMA, class_=K.GEMM),
    Library(
        # Cijk_Alik_Bljk_BBS_BH_…_MT256x192x64_…, of rocBLAS and hipBLASLt: types of what is read,
        # written and computed.
        "Tensile",
        r"Cij\w?_A[i-l]+_B[i-l]+_",
        _tensile_words,
        r"_A(?P<a>[i-l])[i-l]*_B(?P<b>[i-l])[i-l]*_(?P<inputs>[A-Z]\d?)\w*?_MT"
        rf"{_TILE}x(?P<depth>\d{{1,4}})_",
        class_=K.GEMM,
        types={"B": "bf16", "H": "f16", "S": "f32", "D": "f64", "F8": "e4m3"},
    ),
    Library(
        "cuDNN flash attention",
        r"cudnn_generated_\w*?sdpa_\w*?flash_[fb]prop_",
        "{way} {sizes}",
        rf"flash_(?P<way>[fb])prop_(?:(?:\w*?_)?{_SIZES}_)?",
        class_=K.ATTENTION,
    ),
    Library(
        "memory-efficient attention",
        r"fmha_cutlass[FB]_",
        "{way} {inputs} {sizes}",
        rf"fmha_cutlass(?P<way>[FB])_(?P<inputs>\w+?)_aligned_{_SIZES}",
        class_=K.ATTENTION,
    ),
    Library(
        "FlashAttention",
        rf"{_ANY_SCOPE}flash_(?:fwd|bwd)_\w+$",
        _flash_words,
        r"flash_(?P<way>fwd|bwd)_(?P<part>\w+)$",
        class_=K.ATTENTION,
    ),
    Library(
        "FlashAttention 3",
        rf"{_ANY_SCOPE}device_kernel$",
        "{way}",
        r"flash::FlashAttn(?P<way>Fwd|Bwd)Sm\d",
        inside=True,
        class_=K.ATTENTION,
    ),
    *(
        Library(name, form, words, parts, inside=True)
        for name, form in (
            ("cuDNN", r"[^<]*cutlass__5x_cudnn"),
            ("CUTLASS", r"[^<]*cutlass|Kernel2?$"),
        )
        for parts, words in (
            (_CUTLASS, _cutlass_words(name)),
            (r"ReduceSplitK", "split-K reduce"),
            (
                r"^(?=.*?Conv2d(?P<conv>Fprop|Dgrad|Wgrad))(?:.*?GemmShape"
                r"<\(int\)(?P<rows>\d+), \(int\)(?P<columns>\d+), \(int\)(?P<depth>\d+)>)?",
                "{op} {tile}",
            ),
        )
    ),
    Library(
        # Convolutions by FFT: transforms of images and filters, and products of these.
        "cuDNN",
        r"fft[12]d_[rc]2[rc]_\d+(?:x\d+)?$|flip_filter$|[a-z]+_gcgemm_\w*$",
        "FFT convolution",
        class_=K.CONVOLUTION,
    ),
    Library(
        # ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn, volta_sgemm_128x64_nn
        "cuBLAS",
        r"(?:maxwell|pascal|volta|turing|ampere|hopper)_\w*gemm\w*$",
        "{inputs} GEMM {tile} {layout}",
        rf"^[a-z]+_(?:(?P<stored>{_TYPE})_)?(?P<product>[a-z]+\d*)gemm(?:_(?P<inputs>{_TYPE}))?(?:_{_TILE})?"
        r"(?:\w*?_stages_(?P<depth>\d{1,4})x(?P<stages>\d{1,2}))?"
        r"(?=(?:\w*?_(?P<layout>nn|nt|tn|tt)\b)?)",
        class_=K.GEMM,
    ),
    Library(
        # magma_sgemmEx_kernel<float, float, float, true, false, 6, …>: without tensor cores
        "cuBLAS",
        r"magma_[sdhcz]gemm\w*_kernel$",
        "{inputs} GEMM on CUDA cores",
        r"^magma_(?P<product>[sdhcz])gemm",
        class_=K.GEMM,
    ),
    Library(
        "cuBLAS",
        rf"{_ANY_SCOPE}(?:gemm(?:SN|Sk1|k1|2)?_(?:NN|NT|TN|TT)_kernel|gemmk1_kernel)$",
        "{type} small GEMM {layout}",
        r"gemm\w*?(?:_(?P<layout>[NT]{2}))?_kernel\b.*cublas",
        inside=True,
        class_=K.GEMM,
    ),
    Library(
        "cuBLAS",
        rf"{_ANY_SCOPE}[sdhcz]gemm_largek_\w+$",
        "{inputs} GEMM large K",
        r"(?P<inputs>[sdhcz])gemm_largek_",
        class_=K.GEMM,
        types={"s": "f32", "d": "f64", "h": "f16"},
    ),
    Library(
        "cuBLAS",
        rf"{_ANY_SCOPE}gemv(?:Nsp|NSP|2|x::)?[NT]?_?(?:kernel|NSP|Nsp)\w*$",
        "{type} GEMV {layout}",
        r"gemv(?:Nsp|NSP|2|x::)?(?P<layout>[NT])?_?(?:kernel|NSP|Nsp)",
        class_=K.GEMM,
    ),
    Library("cuBLAS", rf"{_ANY_SCOPE}splitKreduce_kernel$", "split-K reduce", class_=K.GEMM),
    Library("cuBLAS", r"cublasLt::epilogue", "epilogue {type}", class_=K.GEMM),
    Library("cuBLAS", r"cublas(?:Lt)?::", "{own}"),
    Library(
        "PyTorch",
        kernel_words.TORCH_KERNELS,
        lambda kernel: kernel_words.of_torch(kernel.base, kernel.text),
        owner=None,
    ),
    Library(
        "cuDNN",
        rf"(?i:{_ANY_SCOPE}\w*?(?:nchw|nhwc)To\w*?(?:nchw|nhwc)Kernel$)",
        "{before} to {after} {type}",
        r"(?i)(?P<before>nchw|nhwc)To\w*?(?P<after>nchw|nhwc)Kernel$",
        class_=K.CAST_COPY,
    ),
    Library(
        "cuDNN batch norm",
        rf"{_ANY_SCOPE}bn_(?:fw|bw)_",
        "{way} {type} {layout}",
        r"bn_(?P<way>fw_tr|fw_inf|fw|bw)_(?=(?:\w*?(?P<layout>NCHW|(?i:nhwc)))?)",
        class_=K.NORMALIZATION,
    ),
    Library(
        # Outside its namespace.
        "cuDNN",
        r"(?:[dw]grad_alg\w+_engine|implicit_convolve_\w+|tensorTransformGeneric|elemWiseRNNcell"
        r"|(?:LSTM|GRU|GENERIC)_elementWise_\w+)$",
        "{own} {type}",
    ),
    Library("cuDNN", rf"{_ANY_SCOPE}(?:cudnn|cask_plugin__5x_cudnn)::", "{own}"),
    Library(
        "NCCL",
        r"nccl(?:Dev)?Kernel_",
        _nccl_words,
        r"^nccl(?:Dev)?Kernel_(?P<collective>[A-Za-z]+)(?:_(?P<rest>\w+))?",
        class_=K.COMMUNICATION,
    ),
    Library("CUB", rf"{_ANY_SCOPE}cub::", _cub_words),
    Library(
        "Inductor",
        INDUCTOR,
        _inductor_words,
        r"^triton_(?P<form>[a-z]+)_fused_+(?P<whole>(?P<ops>\w+?)(?:_\d+)?)$",
        class_=lambda parts: kernel_words.class_of_inductor(
            parts["form"] or "", parts["ops"] or ""
        ),
        owner=COMPILER,
    ),
    Library(
        "CuPy",
        CUPY,
        "{function} {types}",
        r"^cupy_(?P<function>\w+?)(?:__(?P<types>\w+))?$",
        class_=lambda parts: kernel_words.class_of_cupy(parts["function"] or ""),
    ),
    Library(
        "XLA",
        XLA,
        "{base}",
        r"(?P<base>.+)",
        class_=lambda parts: kernel_words.first_of(kernel_words.XLA_RULES, parts["base"] or ""),
        owner=COMPILER,
    ),
    Library(
        "XLA", rf"xla_|{_ANY_SCOPE}xla::|\w*gemm_fusion_dot|\w+_fusion(?:_\d+)?$", owner=COMPILER
    ),
)
"""The first record whose form begins a base name, and whose parts are found, tells of it."""


@lru_cache(1)
def _forms() -> re.Pattern[str]:
    """All forms in one pattern: most names of a program's own kernels fit none."""
    return re.compile("|".join(f"(?:{library.form})" for library in LIBRARIES))


# A trace has some hundred distinct names, which several facts read.
@lru_cache(4096)
def read(name: str) -> KernelName:
    """The record that a name fits, demangled or not, and its parts."""
    text = name[: kernel_words.LONGEST]
    base = kernel_words.base_name(text)
    if _forms().match(base):
        for library in LIBRARIES:
            if library.begins.match(base):
                parts = library.divided.search(text if library.inside else base)
                if parts:
                    return KernelName(text, base, library, parts.groupdict())
    return KernelName(text, base)


def classify(name: str) -> KernelClass:
    """The class of the kernel of that name, demangled or not; `OTHER` if no rule matches."""
    kernel = read(name)
    class_ = kernel.library.class_ if kernel.library else None
    if class_ is None:
        return kernel_words.class_by_words(kernel.base, kernel.text)
    if kernel.parts.get("conv"):
        return K.CONVOLUTION
    return class_ if isinstance(class_, KernelClass) else class_(kernel.parts)


def owner_of(name: str) -> KernelOwner:
    """The owner of the kernel of that name, demangled or not."""
    kernel = read(name)
    if kernel.library and kernel.library.owner is not None:
        return kernel.library.owner
    return LIBRARY if kernel_words.is_of_library(kernel.text) else KernelOwner.PROGRAM


_LONGEST_LABEL = 120


def readable(name: str) -> str:
    """What a library's kernel computes, in words; empty for kernels of no known library."""
    kernel = read(name)
    words = kernel.library.words if kernel.library else ""
    if not kernel.library or not words:
        return ""
    if isinstance(words, str):
        text = _filled(f"{kernel.library.name} {words}", kernel)
    else:
        text = words(kernel)
    half = _LONGEST_LABEL // 2
    return text if len(text) <= _LONGEST_LABEL else f"{text[: half - 1]}…{text[-half:]}"


def _filled(template: str, kernel: KernelName) -> str:
    """The template with what is known of the name, without the gaps of what is not."""
    parts = {key: part or "" for key, part in kernel.parts.items()}
    sides = (parts.get("rows"), parts.get("columns"), parts.get("depth"))
    conv = parts.get("conv", "").lower()
    raw = kernel.inputs
    values = {
        **parts,
        "own": _own(kernel.base),
        "tile": "×".join(side for side in sides if side),
        "sizes": parts.get("sizes", "").replace("x", "×"),
        "inputs": kernel_words.TYPES.get(raw, raw if "sizes" in parts else ""),
        "op": f"conv {conv}" if conv else "GEMM",
        "split": "split-K" if parts.get("split") else "",
        "way": _way(parts.get("way", "")),
        **{key: parts.get(key, "").upper() for key in ("layout", "before", "after")},
    }
    if "{type}" in template:
        values["type"] = kernel_words.first_type(re.sub(r"<(int, )+", "<", kernel.text))
    return " ".join(template.format_map(values).split())


def _own(base: str) -> str:
    return base.rpartition("::")[2]


def _way(word: str) -> str:
    if word == "fw_inf":
        return "inference"
    return "forward" if word[:1] in ("f", "F") else "backward"


@record
class Tile:
    """The output tile of a block of a GEMM, from the kernel's name; None for what it leaves out.

    `rows` × `columns` of the output, `depth` along K per step of the main loop, `stages` of the
    pipeline, `inputs` the type that is multiplied. cuBLAS is column-major: rows here are columns
    of a row-major tensor.
    """

    rows: int
    columns: int
    depth: int | None = None
    stages: int | None = None
    inputs: str | None = None

    def __str__(self) -> str:
        """Text such as `192x192 64x3 bf16`: the tile, its depth and stages, the type."""
        inner = "x".join(str(part) for part in (self.depth, self.stages) if part)
        return " ".join(filter(None, (f"{self.rows}x{self.columns}", inner, self.inputs)))


def tile(name: str) -> Tile | None:
    """The tile in the name of a kernel; None if it names none."""
    kernel = read(name)
    parts = kernel.parts
    rows, columns, depth, stages = (
        int(parts.get(key) or 0) or None for key in ("rows", "columns", "depth", "stages")
    )
    return Tile(rows, columns, depth, stages, kernel.inputs or None) if rows and columns else None


def is_fp32_gemm_on_cuda_cores(name: str) -> bool:
    """True for names of fp32 GEMMs that run on CUDA cores, not on tensor cores.

    Only names that give both: an s1688gemm uses tensor cores, as does nvjet's s. Convolutions are
    not what the switch for TF32 GEMMs is for.
    """
    kernel = read(name)
    parts = kernel.parts
    if kernel.inputs != "f32" or parts.get("conv"):
        return False
    return parts.get("product") == "s" or (parts.get("unit"), kernel.stored) == ("ffma", "f32")


def multiplies_16_bits(name: str) -> bool:
    """True for names of GEMMs that multiply aligned matrices of 16 bits on tensor cores."""
    kernel = read(name)
    product = kernel.parts.get("product") or ""
    if classify(name) is not K.GEMM or aligned_elements(name) is not None:
        return False
    on_cuda_cores = kernel.parts.get("unit") in ("simt", "ffma")
    on_cuda_cores |= bool(product) and not product.lstrip("abcdefghijklmnopqrstuvwxyz")
    return not on_cuda_cores and (kernel.inputs in ("f16", "bf16") or "16816" in product)


def aligned_elements(name: str) -> int | None:
    """Elements that a row must be a multiple of, for a GEMM kernel that is unaligned; else None.

    16 bytes hold so many. Kernels for CUDA cores, in fp64 (d, z) and for complex numbers (c) are
    always align1 (CUTLASS' generator.py), which is no fault.
    """
    kernel = read(name)
    parts, align = kernel.parts, kernel.parts.get("align")
    always = not (parts.get("unit") or "").endswith("tensorop")
    always |= (parts.get("product") or "").startswith(("d", "z", "c"))
    if not align or parts.get("conv") or always:
        return None
    multiplied = parts.get("stored") or parts.get("inputs")
    needed = 8 if multiplied in ("bf16", "f16") else 4
    return needed if int(align.removeprefix("align")) < needed else None


_BUILT_FOR = re.compile(
    r"(?:\b|nvjet_)(?:(?P<made>volta|turing|ampere)_|(?:cutlass_|sm)(?P<sm>\d{2,3})_)"
)
_FIRST_SM = {"volta": 70, "turing": 75, "ampere": 80}


def architecture(name: str) -> int | None:
    """The first architecture, such as 90, that a library's kernel was built for; None if unknown.

    nvjet's names may leave it out: it is not built for older ones than 90.
    """
    match = _BUILT_FOR.search(name[: kernel_words.LONGEST])
    if match is None:
        return 90 if "nvjet" in name else None
    return _FIRST_SM.get(match["made"] or "") or int(match["sm"])


_TYPES = {
    "f64": (8, "fp64-tensor"),
    "f32": (4, "fp32"),
    "tf32": (4, "tf32"),
    "f16": (2, "fp16"),
    "bf16": (2, "bf16"),
}


def number_type(name: str) -> tuple[int, str] | None:
    """Bytes per stored element and kind of FLOP of a GEMM; None where the name is ambiguous."""
    kernel = read(name)
    stored, inputs = _TYPES.get(kernel.stored), _TYPES.get(kernel.inputs)
    if not stored or not inputs or kernel.parts.get("conv"):
        return None
    return stored[0], inputs[1]
