"""Matrix products of fp32 operands that tensor cores would take as TF32."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.findings import Evidence, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.source_lines import lines_in_message
from traceview.ptx.ttgir.matrix_products import cuda_core_products

_TF32_SINCE = 80


def fp32_products(kernel: KernelContext) -> Iterator[Finding]:
    """Uses of tl.dot that run on CUDA cores because full fp32 precision is asked for."""
    arch = "".join(filter(str.isdigit, kernel.compiled.arch))
    if kernel.ttgir is None or not arch or int(arch) < _TF32_SINCE:
        return
    full = [
        product
        for product in cuda_core_products(kernel.ttgir)
        if product.operands == ("f32", "f32") and product.precision == "ieee"
    ]
    if not full:
        return
    lines = list(dict.fromkeys(product.source for product in full))
    places, values = lines_in_message(lines)
    verb = "runs" if len(full) == 1 else "run"
    yield Finding(
        "high" if any(product.in_deepest_loop for product in full) else "low",
        f"{{products:matrix product}} at {places} {verb} on CUDA cores, not on tensor cores: fp32 "
        "operands at full precision (ieee)",
        'Where a 10-bit mantissa is accurate enough, pass input_precision="tf32" to tl.dot, or '
        'cast both operands to bf16; "tf32x3" is nearly as accurate as fp32',
        subject=subject_of(lines[0], kernel.compiled),
        evidence=Evidence(
            values | {"products": len(full), "proven": True},
            basis="TTGIR: tt.dot of f32 without a layout of tensor cores",
        ),
    )
