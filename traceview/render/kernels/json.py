"""The kernels of a target as JSON: the schema that scripts rely on, version 1."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from traceview.base.findings import Finding
from traceview.base.hardware import Occupancy
from traceview.base.records import record
from traceview.kernels.inspect.comparison import Comparison, Diff, Quantity
from traceview.kernels.inspect.kernel_report import (
    AwaitedPlace,
    CodePlace,
    Difference,
    KernelReport,
    StalledPlace,
    WarpStalls,
    WhatIf,
    source_of,
)
from traceview.kernels.inspect.matching import LevelAccesses
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.accesses import AsyncWait
from traceview.kernels.ptx.instruction_mix import InstructionMix, LineMix, LoopMix
from traceview.kernels.ptx.issue_cycles import LoopCycles
from traceview.kernels.ptx.live_registers import LiveRegisters, SpilledValue
from traceview.kernels.ptx.model import Access, Level, RequestCost, SourceLine
from traceview.kernels.ptx.stages import STAGES, stage_lines
from traceview.kernels.ptx.ttgir.loop_loads import PipelineBuffer
from traceview.kernels.ptx.ttgir.operations import LayoutConversion
from traceview.render.base import json_text
from traceview.render.base.json_text import JsonKey, JsonShape, Keys, Maybe
from traceview.render.kernels.diff import names_of
from traceview.render.kernels.names import SourceNames


@record
class _Lines:
    """How a kernel, or versions of kernels, name source lines and the variables they compute."""

    names: SourceNames
    kernel: KernelReport | None = None
    diff: Diff | None = None

    @classmethod
    def of(cls, kernel: KernelReport) -> _Lines:
        return cls(SourceNames.of([kernel]), kernel)

    def name(self, source: SourceLine | None) -> str | None:
        return self.names.of_line(source) if source else None

    def variable(self, source: SourceLine | None) -> str | None:
        return self.kernel.variables.get(source) if source and self.kernel else None

    def index(self, kernel: KernelReport) -> int:
        """The index of a kernel in the document's list of kernels."""
        versions = self.diff.versions if self.diff else ()
        listed = (each for version in versions for each in version.report.kernels)
        return next(index for index, each in enumerate(listed) if each is kernel)


def _part(value: Any, _: _Lines, *, at: int) -> Any:
    """A part of a pair."""
    return value[at]


def _source_line(value: Any, _: _Lines) -> SourceLine | None:
    return value.source


_FIRST, _SECOND = partial(_part, at=0), partial(_part, at=1)
_LINE = JsonShape(
    SourceLine,
    JsonKey("source", str | None, lambda source, lines: lines.name(source)),
    JsonKey("source_file", str | None, lambda source, _: source.file if source else None),
)
_VARIABLE = JsonShape(
    SourceLine, JsonKey("variable", str | None, lambda source, lines: lines.variable(source))
)
_SOURCE, _OF_FIRST = Keys(_LINE, _source_line), Keys(_LINE, _FIRST)

_OCCUPANCY = JsonShape(
    Occupancy,
    "blocks_per_sm limiter limiters theoretical_occupancy_pct active_warps blocks_by_limit",
)
_CONFIGURATION = JsonShape(
    WhatIf,
    "*",
    JsonKey("tile", dict[str, int], lambda row, _: dict(row.tile)),
    json_text.object_of("occupancy", _OCCUPANCY),
)
_ACCESS = JsonShape(
    Access,
    "level kind space opcode width_bits predicated count loop_depth scope hints",
    " ".join(f"{field.name}_per_request=cost.{field.name}" for field in fields(RequestCost)),
    _SOURCE,
    json_text.items_of("inlined_from=helper_lines", JsonShape(SourceLine, _LINE)),
)
_KERNEL_FINDING = JsonShape(
    Finding, json_text.FINDING, Keys(_LINE, lambda finding, _: source_of(finding))
)
_LOOP = JsonShape(
    LoopMix,
    _SOURCE,
    "depth",
    JsonKey("is_hottest", bool, lambda loop, lines: loop is lines.kernel.mix.hottest_loop),
    "instructions=counts.total classes=counts.by_class",
)
_LINE_MIX = JsonShape(
    LineMix, _SOURCE, "loop_depth instructions=counts.total in_hottest_loop classes=counts.by_class"
)
_CLASSES = JsonShape(
    InstructionMix,
    "level classes=counts.by_class",
    json_text.items_of("loops", _LOOP),
    json_text.items_of("lines", _LINE_MIX),
)
_PIPELINE = JsonShape(
    KernelReport,
    json_text.items_of("buffers=pipeline_buffers", JsonShape(PipelineBuffer, "*", _SOURCE)),
    json_text.items_of("waits=async_waits", JsonShape(AsyncWait, "* is_serial", _SOURCE)),
)
_PLACE = Keys(JsonShape(CodePlace, _SOURCE, "offset"), lambda each, _: each.place)
_STALLED = JsonShape(
    StalledPlace,
    _PLACE,
    "opcodes samples stalls",
    json_text.items_of("waits_for", JsonShape(AwaitedPlace, _PLACE, "reason opcodes samples")),
)


def _peak(live: LiveRegisters, lines: _Lines) -> Any:
    """The instruction at which most registers are live."""
    assert lines.kernel
    assert lines.kernel.sass
    return lines.kernel.sass.instructions[live.peak]


_HOLDER = JsonShape(tuple, JsonKey("registers", int, _SECOND), _OF_FIRST, Keys(_VARIABLE, _FIRST))
_LIVE_REGISTERS = JsonShape(
    LiveRegisters,
    "most",
    JsonKey("opcode", str, lambda live, lines: _peak(live, lines).opcode),
    Keys(_LINE, lambda live, lines: _peak(live, lines).source),
    json_text.items_of("holders", _HOLDER),
    "by_instruction=counts",
)


def _live_registers(kernel: KernelReport, _: _Lines) -> LiveRegisters | None:
    live = kernel.live_registers
    return live if live and live.counts and kernel.sass else None


def _code_lines(kernel: KernelReport, _: _Lines) -> list[tuple[SourceLine, dict[str, list[int]]]]:
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
    return sorted(numbers.items(), key=lambda item: (item[0].file, item[0].line))


_CODE_LINE = JsonShape(tuple, _OF_FIRST, JsonKey("levels", dict[str, list[int]], _SECOND))
_KERNEL = JsonShape(
    KernelReport,
    "name demangled_name short_name",
    JsonKey("producer", str | None, lambda kernel, _: kernel.producer.described or None),
    "arch=compiled.arch how=compiled.how arguments=compiled.arguments grid=compiled.grid",
    "launches=compiled.launches num_warps=compiled.num_warps num_stages=compiled.num_stages",
    "registers spill_bytes stack_bytes shared_memory_bytes",
    "static_shared_memory_bytes=static_shared_bytes",
    "dynamic_shared_memory_bytes=dynamic_shared_bytes",
    json_text.items_of("accesses", _ACCESS),
    json_text.items_of("differences", JsonShape(Difference, "kind space change ptx sass", _SOURCE)),
    "elements_per_thread tensor_ops barriers shuffles instruction_mix",
    json_text.object_of("instruction_classes=mix", _CLASSES),
    JsonKey("code_lines", [_CODE_LINE], _code_lines),
    json_text.items_of(
        "spilled_values", JsonShape(SpilledValue, "*", _SOURCE, Keys(_VARIABLE, _source_line))
    ),
    JsonKey("pipeline", _PIPELINE, lambda kernel, _: kernel),
    json_text.items_of("layout_conversions", JsonShape(LayoutConversion, "*", _SOURCE)),
    json_text.object_of("occupancy", _OCCUPANCY),
    "waves",
    JsonKey("live_registers", Maybe(_LIVE_REGISTERS), _live_registers),
    json_text.items_of("what_if", _CONFIGURATION),
    json_text.items_of("loop_cycles", JsonShape(LoopCycles, "*", _SOURCE)),
    json_text.object_of(
        "warp_stalls", JsonShape(WarpStalls, "samples", json_text.items_of("places", _STALLED))
    ),
    "sm_count=sms.count sm_count_assumed_of=sms.assumed",
    json_text.items_of("findings", _KERNEL_FINDING),
    "remarks=compiled.notes notes",
    context=lambda kernel, _: _Lines.of(kernel),
)
KERNELS = JsonShape(
    PtxReport, "target arch", json_text.items_of("kernels", _KERNEL), "expectations=verdicts"
)

_WIDTH = JsonShape(tuple, JsonKey("width_bits", int, _FIRST), JsonKey("count", int, _SECOND))
_MOVED = JsonShape(
    tuple,
    JsonKey("source", str | None, lambda pair, lines: lines.name(pair[0])),
    JsonKey("widths", [_WIDTH], lambda pair, _: list(pair[1].widths.items())),
    JsonKey("unsized", int, lambda pair, _: pair[1].unsized),
)
_MOVES = JsonShape(
    tuple,
    JsonKey("level", Level, _SECOND),
    JsonKey("kind", str, lambda pair, _: pair[0].kind),
    JsonKey("space", str, lambda pair, _: pair[0].space),
    JsonKey("differs", bool, lambda pair, _: pair[0].differs(pair[1])),
    JsonKey("values", [Maybe(_MOVED)], lambda pair, _: _moved(*pair)),
)
_COMPARISON = JsonShape(
    Comparison,
    "name",
    JsonKey("kernels", list[int], lambda each, lines: [*map(lines.index, each.kernels)]),
    json_text.items_of("quantities", JsonShape(Quantity, "topic name differs values")),
    JsonKey(
        "accesses",
        [_MOVES],
        lambda each, _: [(moves, level) for moves in each.moves for level in moves.levels],
    ),
    JsonKey("findings", [[Maybe(_KERNEL_FINDING)]], lambda each, _: each.findings),
)


def _moved(moves: Any, level: Level) -> list[tuple[SourceLine | None, LevelAccesses] | None]:
    """For each version, the source line of the accesses at a place, and the accesses."""
    pairs = zip(moves.sources, moves.levels[level], strict=True)
    return [(source, accesses) if accesses else None for source, accesses in pairs]


_LISTED = JsonShape(
    tuple,
    Keys(_KERNEL, _FIRST),
    JsonKey("version", str, _SECOND),
    JsonKey("target", str, partial(_part, at=2)),
    context=lambda listed, _: _Lines.of(listed[0]),
)
_LEFT_OUT = JsonShape(
    tuple,
    JsonKey("name", str, lambda pair, _: pair[1].name),
    JsonKey("version", str, lambda pair, lines: lines.diff.labels[pair[0]]),
    JsonKey("index", int, lambda pair, lines: lines.index(pair[1])),
)


def _target(diff: Diff, _: _Lines) -> str:
    targets = [version.report.target for version in diff.versions]
    return targets[0] if len(set(targets)) == 1 else ", ".join(targets)


def _arch(diff: Diff, _: _Lines) -> str | None:
    archs = {version.report.arch for version in diff.versions}
    return archs.pop() if len(archs) == 1 else None


def _listed(diff: Diff, _: _Lines) -> list[tuple[KernelReport, str, str]]:
    """The kernels of all versions, each with its version and target."""
    return [
        (kernel, label, version.report.target)
        for label, version in zip(diff.labels, diff.versions, strict=True)
        for kernel in version.report.kernels
    ]


DIFF = JsonShape(
    Diff,
    JsonKey("target", str, _target),
    JsonKey("arch", str | None, _arch),
    JsonKey("kernels", [_LISTED], _listed),
    "option versions=labels",
    json_text.items_of("diff=comparisons", _COMPARISON),
    json_text.items_of("left_out", _LEFT_OUT),
    context=lambda diff, _: _Lines(names_of(diff), diff=diff),
)
