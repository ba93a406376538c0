"""Matrix products: fp32 operands that leave tensor cores idle, and wgmma that ptxas serializes."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.recompilations import serialization_remarks
from traceview.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.inspect.rules.remedies import one_of_each, relieving_remedies, results_clause
from traceview.ptx.ttgir.matrix_products import cuda_core_products

_TF32_SINCE = 80
_FP32_PRODUCTS = Diagnosis(
    "{products:matrix product} at {places} {products?runs|run} on CUDA cores, not on tensor cores: "
    "fp32 operands at full precision (ieee)",
    'Where a 10-bit mantissa is accurate enough, pass input_precision="tf32" to tl.dot, or cast '
    'both operands to bf16; "tf32x3" is nearly as accurate as fp32',
)
_SERIALIZED_WGMMA = Diagnosis(
    "ptxas serializes the wgmma instructions ({remarks:remark}): each waits for the previous one",
    "Try a smaller tile or 8 warps instead of 4, which likely leave enough registers",
    "high",
)
# ptxas's reasons other than a lack of registers, and what removes each.
_OTHER_REASONS = {
    "non wgmma instructions": "Leave the accumulator and the operands alone between the wgmma "
    "instructions of a loop: likely something reads or changes them before the wait",
    "xtern call": "Remove the call to another function from the loop, which likely causes it",
    "function boundary": "Inline the function that the loop calls, which likely causes it",
}


def fp32_products(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Uses of tl.dot that run on CUDA cores because full fp32 precision is asked for."""
    arch = "".join(filter(str.isdigit, kernel.compiled.arch))
    if kernel.ttgir is None or not arch or int(arch) < _TF32_SINCE:
        return
    full = [
        product
        for product in cuda_core_products(kernel.ttgir)
        if product.operands == ("f32", "f32") and product.precision == "ieee"
    ]
    if full:
        lines = list(dict.fromkeys(product.source for product in full))
        yield CodeClaim(
            _FP32_PRODUCTS,
            {"products": len(full), "proven": True},
            "TTGIR: tt.dot of f32 without a layout of tensor cores",
            lines[0],
            lines,
            severity="high" if any(product.in_deepest_loop for product in full) else "low",
        )


def serialized_wgmma(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Remarks of ptxas that it serializes wgmma."""
    remarks = serialization_remarks(kernel.compiled.notes)
    if not remarks:
        return
    tries = relieving_remedies(kernel.compiled, kernel.trials, lambda outcome: outcome.serialized)
    helped = one_of_each([each for each in tries if each.after == 0])
    yield CodeClaim(
        _SERIALIZED_WGMMA,
        {"remarks": len(remarks), "proven": bool(helped)},
        f"{remarks[0]}{results_clause(helped, tries, lambda _: 'no such remark')}",
        remedy=next((text for why, text in _OTHER_REASONS.items() if why in remarks[0]), ""),
        helped=helped,
    )
