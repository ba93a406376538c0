"""Tiles of Triton's products that leave Hopper's tensor cores waiting, by what ran faster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from traceview.base.units import Value, counted
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.recompilations import Outcome
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.inspect.rules.remedies import (
    Remedy,
    Tested,
    named_as_tile,
    results_clause,
    tested_remedies,
)
from traceview.kernels.ptx.ttgir.loop_loads import BufferedProduct, buffered_products
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

# Products of 4096 × 4096 fp16 matrices on an H200 with Triton 3.6, in TFLOP/s. With more blocks on
# an SM, as 64 × 128 tiles have, a third buffer gains 2 %.
_MOST_BLOCKS, _FEW_BUFFERS = 2, 2
_TWO_BUFFERS = Diagnosis(
    "The operands at {places} have only two buffers, so that a single copy is in flight while "
    "tensor cores multiply. On an H200 with three, products of 128 × 128 and 128 × 256 tiles were "
    "1.2 to 1.7 times as fast",
    "Use num_stages=3, as far as shared memory suffices",
    then=", and measure it",
)
_TERMS, _BITS = 32, 16
_FEW_TERMS = Diagnosis(
    "Each iteration multiplies only {terms} columns by as many rows at {places}: little between "
    "two waits. On an H200 with twice as many, products were up to 1.2 times as fast",
    "Let each iteration multiply {wanted} columns by as many rows (BLOCK_K)",
    then=", and measure it",
)
_ROWS, _WARPS = 64, 8
_SHARED_ROWS = Diagnosis(
    "{num_warps} warps share a tile of only {rows} rows at {places}, so that each group of 4 warps "
    "multiplies all rows by a part of the columns. On an H200, products of 128 × 128 tiles were "
    "1.4 times as fast as of 64 × 128",
    "Use a tile of 128 rows where the problem has so many, or num_warps=4, and measure it",
)


def idle_tensor_cores(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Products of a loop with few buffers, few terms per iteration, or few rows per warp."""
    products = list(buffered_products(kernel.ttgir)) if kernel.ttgir else []
    blocks = math.prod(kernel.compiled.grid or (0,))
    # Fewer blocks than SMs wait for other reasons.
    if not kernel.occupancy or not products or (kernel.sms and 0 < blocks < kernel.sms.count):
        return
    assumed = {*kernel.compiled.assumed_sides}
    sides = {a.value for a in kernel.compiled.arguments if a.name in assumed}
    for product in products:
        if sides & {product.rows, product.columns, product.terms}:
            continue
        few = product.buffers == kernel.compiled.num_stages == _FEW_BUFFERS
        if few and kernel.resident_blocks <= _MOST_BLOCKS:
            more = [Remedy("use num_stages=3", Change(num_stages=3))]
            yield from _recompiled(kernel, product, _TWO_BUFFERS, more)
        if (product.terms, product.bits) == (_TERMS, _BITS):
            named = [
                a.name
                for a in kernel.compiled.arguments
                if a.type == "constexpr" and a.value == _TERMS and named_as_tile(a.name)
            ]
            twice = 2 * _TERMS
            more = [
                Remedy(f"use {n}={twice}", Change(constexprs=((n, twice),), resizes=True))
                for n in named
            ]
            yield from _recompiled(kernel, product, _FEW_TERMS, more)
        if product.rows == _ROWS and kernel.compiled.num_warps == _WARPS:
            yield _claim(kernel, product, _SHARED_ROWS)


def _recompiled(
    kernel: KernelContext, product: BufferedProduct, says: Diagnosis, remedies: list[Remedy]
) -> Iterator[CodeClaim]:
    """A claim, unless recompiling shows that its remedies do not mend it or spill."""

    def mended(outcome: Outcome) -> bool | None:
        after = buffered_products(parse_ttgir(outcome.compiled.stages.get("ttgir", "")))
        of_line = [each for each in after if each.source == product.source]
        spills = (outcome.spill_bytes or 0) > (kernel.spill_bytes or 0)
        fits = bool(outcome.occupancy and outcome.occupancy.blocks_per_sm) and not spills
        return fits and any(
            (each.rows, each.columns) == (product.rows, product.columns)
            and (each.buffers, each.terms) > (product.buffers, product.terms)
            for each in of_line
        )

    tries = tested_remedies(remedies, kernel.trials, mended)
    helped = [each for each in tries if each.after][:1]
    left_out = kernel.trials.left_out if kernel.trials else ()
    if helped or not kernel.trials or all(each.change in left_out for each in remedies):
        clause = results_clause(helped, tries, lambda _: "it fits an SM and spills no more")
        yield _claim(kernel, product, says, clause, helped)


def _claim(
    kernel: KernelContext,
    product: BufferedProduct,
    says: Diagnosis,
    clause: str = "",
    helped: Sequence[Tested[bool]] = (),
) -> CodeClaim:
    values: dict[str, Value] = {
        "rows": product.rows,
        "columns": product.columns,
        "terms": product.terms,
        "wanted": 2 * product.terms,
        "buffers": product.buffers,
        "num_warps": kernel.compiled.num_warps,
        "blocks_per_sm": kernel.resident_blocks,
    }
    basis = (
        f"TTGIR: {product.rows} × {product.columns} results of {product.terms} terms, operands of "
        f"{product.buffers} buffers, {counted(kernel.resident_blocks, 'block')} per SM"
    )
    return CodeClaim(says, values, basis + clause, product.source, [product.source], helped=helped)
