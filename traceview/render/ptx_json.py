"""The kernels of a target as JSON: the schema that scripts rely on, version 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from traceview.hardware import Occupancy
from traceview.ptx.kernel_report import Difference, Finding, KernelReport
from traceview.ptx.model import Access, SourceLine
from traceview.ptx.report import PtxReport
from traceview.render.json_report import SCHEMA_VERSION, clean
from traceview.render.ptx_names import SourceNames


def render_ptx_json(report: PtxReport, version: str) -> str:
    """The report as one JSON document in ASCII."""
    return json.dumps(as_document(report, version), indent=1, allow_nan=False) + "\n"


def as_document(report: PtxReport, version: str) -> dict[str, Any]:
    """The report as what `json.dumps` takes. `version` is traceview's own."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "target": report.target,
        "arch": report.arch,
        "kernels": [_kernel(kernel) for kernel in report.kernels],
    }
    cleaned: dict[str, Any] = clean(document)
    return cleaned


def _kernel(kernel: KernelReport) -> dict[str, Any]:
    compiled, names = kernel.compiled, SourceNames.of([kernel])
    return {
        "name": kernel.name,
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
        "differences": [_difference(found, names) for found in kernel.differences],
        "elements_per_thread": kernel.elements_per_thread,
        "tensor_ops": [asdict(operation) for operation in kernel.tensor_ops],
        "barriers": kernel.barriers,
        "shuffles": kernel.shuffles,
        "instruction_mix": dict(kernel.instruction_mix),
        "occupancy": _occupancy(kernel.occupancy) if kernel.occupancy else None,
        "waves": kernel.waves,
        "findings": [_finding(finding, names) for finding in kernel.findings],
        "remarks": list(compiled.notes),
        "notes": list(kernel.notes),
    }


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
        **_source(access.source, names),
    }


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
    return {
        "severity": finding.severity,
        "message": finding.message,
        "action": finding.action,
        "evidence": finding.evidence,
        **_source(finding.source, names),
    }


def _source(source: SourceLine | None, names: SourceNames) -> Mapping[str, str | None]:
    """The line as it is called, and the whole path, by which to find it."""
    return {
        "source": names.of_line(source) if source else None,
        "source_file": source.file if source else None,
    }


def _occupancy(occupancy: Occupancy) -> dict[str, Any]:
    return {
        "blocks_per_sm": occupancy.blocks_per_sm,
        "limiter": occupancy.limiter,
        "limiters": list(occupancy.limiters),
        "theoretical_occupancy_pct": occupancy.theoretical_occupancy_pct,
        "active_warps": occupancy.active_warps,
        "blocks_by_limit": dict(occupancy.blocks_by_limit),
    }
