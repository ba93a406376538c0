"""The buffers in shared memory that Triton's software pipeline gives to the loads of a loop."""

from __future__ import annotations

import re
from math import prod

from traceview.ptx.model import SourceLine
from traceview.ptx.ttgir.parser import IrModule
from traceview.records import record

_MEMDESC = re.compile(r"!ttg\.memdesc<((?:\d{1,9}x)+)(?P<type>bf|f|i)(?P<bits>\d{1,3})")
_BARRIER_BITS = "64"


@record
class PipelineBuffer:
    """A tile with several buffers, used in turn: `count` of them, of `size_bytes` in all."""

    source: SourceLine | None
    variable: str | None
    count: int
    size_bytes: int


def pipeline_buffers(module: IrModule) -> tuple[PipelineBuffer, ...]:
    """The tiles in shared memory that are indexed by stage; barriers are left out."""
    indexed = {op.inputs[0] for op in module.operations if op.opcode == "ttg.memdesc_index"}
    buffers = []
    for op in module.operations:
        type_ = _MEMDESC.search(op.type)
        is_buffer = op.opcode == "ttg.local_alloc" and not op.inputs and indexed & {*op.results}
        if not is_buffer or not type_ or (type_["type"], type_["bits"]) == ("i", _BARRIER_BITS):
            continue
        count, *tile = (int(size) for size in type_[1].rstrip("x").split("x"))
        size = count * prod(tile) * int(type_["bits"]) // 8
        buffers.append(PipelineBuffer(op.line, op.name, count, size))
    return tuple(buffers)
