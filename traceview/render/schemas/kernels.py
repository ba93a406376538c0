"""The schemas of `traceview ptx --json` and of its comparisons."""

from __future__ import annotations

from traceview.inspect.expectations import ExpectationResult
from traceview.ptx.accesses import TensorOp
from traceview.ptx.async_groups import AsyncWait
from traceview.ptx.model import Access, Argument, RequestCost
from traceview.ptx.sass.live_registers import SpilledValue
from traceview.ptx.ttgir.layout_conversions import LayoutConversion
from traceview.ptx.ttgir.pipeline_buffers import PipelineBuffer
from traceview.render.base.json_schema import (
    NUMBER,
    SCALAR,
    TEXT,
    WHOLE,
    YES_NO,
    Schema,
    document,
    fields_of,
    many,
    mapping,
    maybe,
    record,
)
from traceview.render.kernels.json import OCCUPANCY
from traceview.render.schemas.findings import finding

_SOURCE = {"source": maybe(TEXT), "source_file": maybe(TEXT)}


def kernels() -> Schema:
    """The kernels of one target."""
    return document(
        target=TEXT,
        arch=maybe(TEXT),
        kernels=many(_kernel()),
        expectations=many(fields_of(ExpectationResult)),
    )


def diff() -> Schema:
    """The kernels of several targets or versions, and their differences."""
    return document(
        target=TEXT,
        arch=maybe(TEXT),
        kernels=many(_kernel(version=TEXT, target=TEXT)),
        option=maybe(TEXT),
        versions=many(TEXT),
        diff=many(_comparison()),
        left_out=many(record(name=TEXT, version=TEXT, index=WHOLE)),
    )


def _kernel(**more: Schema) -> Schema:
    access = fields_of(Access, without=("source", *_not_written()))
    access["properties"] |= _SOURCE
    costs = {f"{name}_per_request": maybe(NUMBER) for name in RequestCost.__dataclass_fields__}
    access["properties"] |= costs
    access["properties"]["inlined_from"] = many(record(**_SOURCE))
    access["required"] += [*costs, "inlined_from"]
    difference = record(
        kind=TEXT, space=maybe(TEXT), change=TEXT, ptx=maybe(TEXT), sass=maybe(TEXT), **_SOURCE
    )
    return record(
        name=TEXT,
        demangled_name=maybe(TEXT),
        short_name=TEXT,
        producer=maybe(TEXT),
        arch=maybe(TEXT),
        how=TEXT,
        arguments=many(fields_of(Argument)),
        grid=maybe(many(WHOLE)),
        launches=maybe(WHOLE),
        num_warps=maybe(WHOLE),
        num_stages=maybe(WHOLE),
        registers=maybe(WHOLE),
        spill_bytes=maybe(WHOLE),
        stack_bytes=maybe(WHOLE),
        shared_memory_bytes=maybe(WHOLE),
        static_shared_memory_bytes=maybe(WHOLE),
        dynamic_shared_memory_bytes=maybe(WHOLE),
        accesses=many(access),
        differences=many(difference),
        elements_per_thread=maybe(NUMBER),
        tensor_ops=many(fields_of(TensorOp)),
        barriers=WHOLE,
        shuffles=WHOLE,
        instruction_mix=mapping(WHOLE),
        instruction_classes=maybe(_instruction_classes()),
        code_lines=many(record(levels=mapping(many(WHOLE)), **_SOURCE)),
        spilled_values=many(_of_line(SpilledValue, variable=maybe(TEXT))),
        pipeline=record(
            buffers=many(_of_line(PipelineBuffer)),
            waits=many(_of_line(AsyncWait, is_serial=YES_NO)),
        ),
        layout_conversions=many(_of_line(LayoutConversion)),
        occupancy=maybe(OCCUPANCY.schema()),
        waves=maybe(NUMBER),
        what_if=many(_configuration()),
        live_registers=maybe(
            record(
                most=WHOLE,
                opcode=TEXT,
                **_SOURCE,
                holders=many(record(registers=WHOLE, variable=maybe(TEXT), **_SOURCE)),
                by_instruction=many(WHOLE),
            )
        ),
        sm_count=maybe(WHOLE),
        sm_count_assumed_of=maybe(TEXT),
        findings=many(finding(**_SOURCE)),
        remarks=many(TEXT),
        notes=many(TEXT),
        **more,
    )


def _not_written() -> tuple[str, ...]:
    """Fields of an access that are not written to JSON."""
    written = {
        *("level", "kind", "space", "opcode", "width_bits", "predicated", "count", "loop_depth"),
        *("scope", "hints"),
    }
    return tuple(name for name in Access.__dataclass_fields__ if name not in written)


def _of_line(kind: type, **more: Schema) -> Schema:
    """A dataclass whose source line is written as two keys."""
    schema = fields_of(kind, without=("source",))
    schema["properties"] |= _SOURCE | more
    schema["required"] += [*_SOURCE, *more]
    return schema


def _instruction_classes() -> Schema:
    counts = {"instructions": WHOLE, "classes": mapping(WHOLE), **_SOURCE}
    return record(
        level=TEXT,
        classes=mapping(WHOLE),
        loops=many(record(**counts, depth=WHOLE, is_hottest=YES_NO)),
        lines=many(record(**counts, loop_depth=WHOLE, in_hottest_loop=WHOLE)),
    )


def _configuration() -> Schema:
    return record(
        num_warps=maybe(WHOLE),
        num_stages=maybe(WHOLE),
        tile=mapping(WHOLE),
        current=YES_NO,
        registers=maybe(WHOLE),
        spill_bytes=maybe(WHOLE),
        shared_memory_bytes=maybe(WHOLE),
        occupancy=maybe(OCCUPANCY.schema()),
        waves=maybe(NUMBER),
        failure=maybe(TEXT),
    )


def _comparison() -> Schema:
    moved = record(
        source=maybe(TEXT),
        widths=many(record(width_bits=maybe(WHOLE), count=WHOLE)),
        unsized=WHOLE,
    )
    moves = record(level=TEXT, kind=TEXT, space=TEXT, differs=YES_NO, values=many(maybe(moved)))
    return record(
        name=TEXT,
        kernels=many(WHOLE),
        quantities=many(record(topic=TEXT, name=TEXT, differs=YES_NO, values=many(SCALAR))),
        accesses=many(moves),
        findings=many(many(maybe(finding(**_SOURCE)))),
    )
