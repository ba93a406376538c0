"""Accesses of one value per program in TTGIR, whatever its address is computed from."""

from __future__ import annotations

from collections import defaultdict

from traceview.ptx.model import SourceLine
from traceview.ptx.ttgir.parser import IrModule, shape_of
from traceview.ptx.ttgir.vector_limit import ACCESSES, pointer_type


def scalar_accesses(module: IrModule) -> frozenset[tuple[SourceLine, str]]:
    """The lines and kinds of access of global memory that only move scalars."""
    scalar: dict[tuple[SourceLine, str], bool] = defaultdict(lambda: True)
    for op in module.operations:
        if op.opcode in ACCESSES and op.inputs and op.line:
            place = op.line, ACCESSES[op.opcode]
            scalar[place] &= not shape_of(pointer_type(op.inputs[0], op, module))
    return frozenset(place for place, is_scalar in scalar.items() if is_scalar)
