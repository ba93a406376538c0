"""Tile sizes and multiplying units of GEMMs, from the names of cuBLAS, CUTLASS and cuDNN kernels.

A GEMM is cut into tiles, of which a block computes one at a time; names give their size. Nothing is
guessed: what a name does not give is absent.
"""

from __future__ import annotations

import re

from traceview.records import record


@record
class Tile:
    """The output tile of a block, from the kernel's name; None for what the name leaves out.

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


_SIDE = r"(\d{1,4})"
_TILE = rf"(?P<rows>{_SIDE})x(?P<columns>{_SIDE})"
_TYPE = r"(?:tf32|bf16|[fs]p?\d{1,2}|[su]8|e4m3|e5m2)"
_FORMS = (
    # nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN: tile, depth x stages, cluster.
    re.compile(
        rf"nvjet_(?:sm\d+_)?(?P<nvjet>[a-z]{{3,6}})_{_TILE}_(?P<depth>\d{{1,4}})x(?P<stages>\d{{1,2}})_"
    ),
    # nvjet_sm120_tst_mma_64x64x128_3_32x32x128_…: tile with its depth, stages, a warp's part.
    re.compile(
        rf"nvjet_(?:sm\d+_)?(?P<nvjet>[a-z]{{3,6}})_mma_{_TILE}x(?P<depth>\d{{1,4}})_(?P<stages>\d{{1,2}})_"
    ),
    # sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize256x128x8_stage3_…: what is stored, multiplied.
    re.compile(
        rf"xmma_\w*?gemm_{_TYPE}{_TYPE}_(?P<inputs>{_TYPE}){_TYPE}_\w*?tilesize{_TILE}"
        r"x(?P<depth>\d{1,4})(?:_stage(?P<stages>\d{1,2}))?"
    ),
    # cutlass_80_tensorop_f16_s16816gemm_f16_128x128_64x3_nn_align8, cutlass_80_simt_sgemm_…
    re.compile(
        rf"cutlass(?:_\d+)?_(?P<unit>simt|(?:wmma_)?tensorop)_(?:{_TYPE}_)?"
        rf"(?P<product>[a-z]+\d*)gemm(?:_(?:relu|gelu|bias))*(?:_(?P<inputs>{_TYPE}))?"
        # cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_nt_align1 names neither.
        rf"_{_TILE}(?:_(?P<depth>\d{{1,4}})x(?P<stages>\d{{1,2}}))?"
    ),
    # ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn, volta_sgemm_128x64_nn
    re.compile(
        rf"(?:maxwell|pascal|volta|turing|ampere|hopper)_(?:{_TYPE}_)?(?P<product>[a-z]+\d*)gemm"
        rf"(?:_(?P<inputs>{_TYPE}))?_{_TILE}"
        r"(?:\w*?_stages_(?P<depth>\d{1,4})x(?P<stages>\d{1,2}))?"
    ),
    # Cijk_Alik_Bljk_BBS_BH_…_MT256x192x64_MI16x16x1_…: types of what is read, written and computed.
    re.compile(
        r"Cij\w?_A[i-l]+_B[i-l]+_(?P<tensile>[A-Z]\d?)\w*?_MT"
        r"(?P<rows>\d{1,4})x(?P<columns>\d{1,4})x(?P<depth>\d{1,4})_"
    ),
)
# Of nvjet's letters the first is the type of the first factor.
_NVJET = {"h": "f16", "t": "bf16", "s": "f32", "d": "f64"}
_TENSILE = {"B": "bf16", "H": "f16", "S": "f32", "D": "f64", "F8": "e4m3"}
_PLAIN = {"s": "f32", "d": "f64", "h": "f16"}
_LONGEST = 4000
# Only names that give both: fp32 inputs, and no tensor cores. An s1688gemm uses tensor cores, as
# does nvjet's s; convolutions (fprop, dgrad, wgrad) are not what the switch for TF32 GEMMs is for.
_FP32_CUDA_CORES = re.compile(
    r"sm\d+_xmma_gemm_f32f32_f32f32_f32_\w*?_ffma_"
    rf"|\bcutlass(?:3x_sm\d+|_\d+)?_simt_sgemm_(?:(?:f32|relu|gelu|bias)_)*{_SIDE}x{_SIDE}"
    rf"|^(?:maxwell|pascal|volta|turing|ampere|hopper)_sgemm_{_SIDE}x{_SIDE}_\w+$"
)


def is_fp32_gemm_on_cuda_cores(kernel: str) -> bool:
    """True for names of fp32 GEMMs that run on CUDA cores, not on tensor cores."""
    return _FP32_CUDA_CORES.search(kernel[:_LONGEST]) is not None


def tile(kernel: str) -> Tile | None:
    """The tile in the name of a kernel; None if it names none."""
    for form in _FORMS:
        match = form.search(kernel[:_LONGEST])
        if match:
            parts = match.groupdict()
            rows, columns, depth, stages = (
                int(parts[key]) if parts.get(key) else None
                for key in ("rows", "columns", "depth", "stages")
            )
            return Tile(rows or 0, columns or 0, depth, stages, _inputs(parts))
    return None


def _inputs(parts: dict[str, str | None]) -> str | None:
    if parts.get("nvjet"):
        return _NVJET.get((parts["nvjet"] or "")[0])
    if parts.get("tensile"):
        return _TENSILE.get(parts["tensile"] or "")
    if parts.get("inputs"):
        return (parts["inputs"] or "").replace("fp", "f")
    # An s1688gemm that does not name its inputs multiplies fp16 or tf32: ambiguous.
    product = parts.get("product") or ""
    return "f16" if product[0] == "h" else _PLAIN.get(product)
