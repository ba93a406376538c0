"""Matrix products in TTGIR that Triton computes with multiply-adds instead of tensor cores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceview.ptx.model import SourceLine
from traceview.ptx.ttgir.layout_conversions import loop_depths_of
from traceview.ptx.ttgir.layouts import layout_of
from traceview.ptx.ttgir.parser import IrModule
from traceview.records import record

_OPERANDS = re.compile(r" : tensor<[\dx]+x(\w+), .*> \* tensor<[\dx]+x(\w+), ")
_PRECISION = re.compile(r"inputPrecision = (\w+)")


@record
class CudaCoreProduct:
    """A `tl.dot` without tensor cores: its line, the types of its operands, its precision."""

    source: SourceLine | None
    operands: tuple[str, str]
    precision: str
    in_deepest_loop: bool


def cuda_core_products(module: IrModule) -> Iterator[CudaCoreProduct]:
    """The products whose result has no layout of tensor cores."""
    depths = loop_depths_of(module)
    deepest = max(depths, default=0)
    for op, depth in zip(module.operations, depths, strict=True):
        types = _OPERANDS.search(op.rest)
        if op.opcode == "tt.dot" and types and "mma" not in layout_of(op.type, module.layouts):
            precision = _PRECISION.search(op.rest)
            yield CudaCoreProduct(
                op.line,
                (types[1], types[2]),
                precision[1] if precision else "ieee",
                0 < depth == deepest,
            )
