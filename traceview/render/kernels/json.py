"""The kernels of a target as JSON: the schema that scripts rely on, version 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from traceview.findings import Finding
from traceview.hardware import Occupancy
from traceview.inspect.compare.comparison import Comparison, Diff
from traceview.inspect.compare.matching import PlaceAccesses
from traceview.inspect.kernel_report import Difference, KernelReport, WhatIf, source_of
from traceview.inspect.target_report import PtxReport
from traceview.ptx.instruction_mix import InstructionMix
from traceview.ptx.model import Access, Level, RequestCost, SourceLine
from traceview.ptx.stages import STAGES, stage_lines
from traceview.render.base.json_shape import JsonShape
from traceview.render.base.json_text import SCHEMA_VERSION, clean, finding_fields
from traceview.render.kernels.diff_rows import names_of
from traceview.render.kernels.source_names import SourceNames

OCCUPANCY = JsonShape(
    Occupancy,
    "blocks_per_sm limiter limiters theoretical_occupancy_pct active_warps blocks_by_limit",
)


def render_ptx_json(report: PtxReport, version: str) -> str:
    """The report as one JSON document in ASCII."""
    return json.dumps(as_document(report, version), indent=1, allow_nan=False) + "\n"


def as_document(report: PtxReport, version: str) -> dict[str, Any]:
    """The report as an object for `json.dumps`. `version` is traceview's own."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "target": report.target,
        "arch": report.arch,
        "kernels": [_kernel(kernel) for kernel in report.kernels],
        "expectations": [asdict(verdict) for verdict in report.verdicts],
    }
    cleaned: dict[str, Any] = clean(document)
    return cleaned


def render_diff_json(diff: Diff, version: str) -> str:
    """The comparison as one JSON document in ASCII."""
    return json.dumps(diff_document(diff, version), indent=1, allow_nan=False) + "\n"


def diff_document(diff: Diff, version: str) -> dict[str, Any]:
    """All kernels, each with its version, and their comparison."""
    reports = [each.report for each in diff.versions]
    targets, archs = ({getattr(r, name) for r in reports} for name in ("target", "arch"))
    names = names_of(diff)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "target": targets.pop() if len(targets) == 1 else ", ".join(r.target for r in reports),
        "arch": archs.pop() if len(archs) == 1 else None,
        "kernels": [
            {**_kernel(kernel), "version": label, "target": report.target}
            for label, report in zip(diff.labels, reports, strict=True)
            for kernel in report.kernels
        ],
        "option": diff.option,
        "versions": list(diff.labels),
        "diff": [_comparison(comparison, diff, names) for comparison in diff.comparisons],
        "left_out": [
            {"name": kernel.name, "version": diff.labels[version], "index": _index(diff, kernel)}
            for version, kernel in diff.left_out
        ],
    }
    cleaned: dict[str, Any] = clean(document)
    return cleaned


def _index(diff: Diff, kernel: KernelReport) -> int:
    """The index of a kernel in the document's list of kernels."""
    listed = (each for version in diff.versions for each in version.report.kernels)
    return next(index for index, each in enumerate(listed) if each is kernel)


def _comparison(comparison: Comparison, diff: Diff, names: SourceNames) -> dict[str, Any]:
    """The comparison of a kernel: lists with one value or null per version."""
    return {
        "name": comparison.name,
        "kernels": [_index(diff, kernel) for kernel in comparison.kernels],
        "quantities": [
            {"topic": q.topic, "name": q.name, "differs": q.differs, "values": list(q.values)}
            for q in comparison.quantities
        ],
        "accesses": [
            _moves(moves, level, names) for moves in comparison.moves for level in moves.levels
        ],
        "findings": [
            [_finding(finding, names) if finding else None for finding in same]
            for same in comparison.findings
        ],
    }


def _moves(moves: PlaceAccesses, level: Level, names: SourceNames) -> dict[str, Any]:
    return {
        "level": level,
        "kind": moves.kind,
        "space": moves.space,
        "differs": moves.differs(level),
        "values": [
            {
                "source": names.of_line(source) if source else None,
                "widths": [
                    {"width_bits": bits, "count": count} for bits, count in moved.widths.items()
                ],
                "unsized": moved.unsized,
            }
            if moved
            else None
            for source, moved in zip(moves.sources, moves.levels[level], strict=True)
        ],
    }


def _kernel(kernel: KernelReport) -> dict[str, Any]:
    compiled, names = kernel.compiled, SourceNames.of([kernel])
    return {
        "name": kernel.name,
        "demangled_name": kernel.demangled_name,
        "short_name": kernel.short_name,
        "producer": kernel.producer.described or None,
        "arch": compiled.arch,
        "how": compiled.how,
        "arguments": [asdict(argument) for argument in compiled.arguments],
        "grid": list(compiled.grid) if compiled.grid else None,
        "launches": compiled.launches,
        "num_warps": compiled.num_warps,
        "num_stages": compiled.num_stages,
        "registers": kernel.registers,
        "spill_bytes": kernel.spill_bytes,
        "stack_bytes": kernel.stack_bytes,
        "shared_memory_bytes": kernel.shared_memory_bytes,
        "static_shared_memory_bytes": kernel.static_shared_bytes,
        "dynamic_shared_memory_bytes": kernel.dynamic_shared_bytes,
        "accesses": [_access(access, names) for access in kernel.accesses],
        "differences": [_difference(difference, names) for difference in kernel.differences],
        "elements_per_thread": kernel.elements_per_thread,
        "tensor_ops": [asdict(operation) for operation in kernel.tensor_ops],
        "barriers": kernel.barriers,
        "shuffles": kernel.shuffles,
        "instruction_mix": dict(kernel.instruction_mix),
        "instruction_classes": _instruction_classes(kernel.mix, names) if kernel.mix else None,
        "code_lines": _code_lines(kernel, names),
        "spilled_values": [
            {
                **asdict(each),
                **_source(each.source, names),
                **_variable(each.source, kernel),
            }
            for each in kernel.spilled_values
        ],
        "pipeline": {
            "buffers": [
                {**asdict(each), **_source(each.source, names)} for each in kernel.pipeline_buffers
            ],
            "waits": [
                {**asdict(each), "is_serial": each.is_serial, **_source(each.source, names)}
                for each in kernel.async_waits
            ],
        },
        "layout_conversions": [
            {**asdict(each), **_source(each.source, names)} for each in kernel.layout_conversions
        ],
        "occupancy": OCCUPANCY.written(kernel.occupancy) if kernel.occupancy else None,
        "waves": kernel.waves,
        "live_registers": _live_registers(kernel, names),
        "what_if": [_configuration(row) for row in kernel.what_if],
        "sm_count": kernel.sms.count if kernel.sms else None,
        "sm_count_assumed_of": kernel.sms.assumed if kernel.sms else None,
        "findings": [_finding(finding, names) for finding in kernel.findings],
        "remarks": list(compiled.notes),
        "notes": list(kernel.notes),
    }


def _configuration(row: WhatIf) -> dict[str, Any]:
    occupancy = OCCUPANCY.written(row.occupancy) if row.occupancy else None
    return {**vars(row), "tile": dict(row.tile), "occupancy": occupancy}


def _access(access: Access, names: SourceNames) -> dict[str, Any]:
    return {
        "level": access.level,
        "kind": access.kind,
        "space": access.space,
        "opcode": access.opcode,
        "width_bits": access.width_bits,
        "predicated": access.predicated,
        "count": access.count,
        "loop_depth": access.loop_depth,
        "scope": access.scope,
        "hints": list(access.hints),
        **_cost(access),
        **_source(access.source, names),
        "inlined_from": [_source(line, names) for line in access.helper_lines],
    }


def _cost(access: Access) -> Mapping[str, float | None]:
    """The cost of a warp's request, null if unknown."""
    cost = access.cost or RequestCost()
    return {f"{name}_per_request": value for name, value in asdict(cost).items()}


def _difference(difference: Difference, names: SourceNames) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "space": difference.space,
        "change": difference.change,
        "ptx": difference.ptx,
        "sass": difference.sass,
        **_source(difference.source, names),
    }


def _finding(finding: Finding, names: SourceNames) -> dict[str, Any]:
    return {**finding_fields(finding), **_source(source_of(finding), names)}


def _source(source: SourceLine | None, names: SourceNames) -> Mapping[str, str | None]:
    """The short name of a line, and the whole path of its file."""
    return {
        "source": names.of_line(source) if source else None,
        "source_file": source.file if source else None,
    }


def _code_lines(kernel: KernelReport, names: SourceNames) -> list[dict[str, Any]]:
    """For each source line, the line numbers in each level's text that come from it."""
    levels: dict[str, list[tuple[SourceLine | None, int]]] = {
        stage: [(line.source, line.number) for line in stage_lines(stage, text)]
        for stage in STAGES
        if (text := kernel.compiled.stages.get(stage))
    }
    for function in filter(None, (kernel.ptx, kernel.sass)):
        levels[function.level] = [(each.source, each.line) for each in function.instructions]
    numbers: dict[SourceLine, dict[str, list[int]]] = {}
    for level, lines in levels.items():
        for source, number in lines:
            if source:
                numbers.setdefault(source, {}).setdefault(level, []).append(number)
    listed = sorted(numbers, key=lambda source: (source.file, source.line))
    return [{**_source(source, names), "levels": numbers[source]} for source in listed]


def _variable(source: SourceLine | None, kernel: KernelReport) -> Mapping[str, str | None]:
    """The name of the variable that a line computes."""
    return {"variable": kernel.variables.get(source) if source else None}


def _live_registers(kernel: KernelReport, names: SourceNames) -> dict[str, Any] | None:
    """The peak of live registers, its place, and the lines that wrote them."""
    live, sass = kernel.live_registers, kernel.sass
    if live is None or sass is None or not live.counts:
        return None
    at = sass.instructions[live.peak]
    return {
        "most": live.most,
        "opcode": at.opcode,
        **_source(at.source, names),
        "holders": [
            {"registers": count, **_source(source, names), **_variable(source, kernel)}
            for source, count in live.holders
        ],
        "by_instruction": list(live.counts),
    }


def _instruction_classes(mix: InstructionMix, names: SourceNames) -> dict[str, Any]:
    """Instructions by class: in total, per loop, per source line."""
    hottest = mix.hottest_loop
    return {
        "level": mix.level,
        "classes": dict(mix.counts.by_class),
        "loops": [
            {
                **_source(loop.source, names),
                "depth": loop.depth,
                "is_hottest": loop is hottest,
                "instructions": loop.counts.total,
                "classes": dict(loop.counts.by_class),
            }
            for loop in mix.loops
        ],
        "lines": [
            {
                **_source(line.source, names),
                "loop_depth": line.loop_depth,
                "instructions": line.counts.total,
                "in_hottest_loop": line.in_hottest_loop,
                "classes": dict(line.counts.by_class),
            }
            for line in mix.lines
        ],
    }
