"""The report on one compiled kernel, before it is rendered, and how findings name its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from traceview import display
from traceview.findings import Finding, Subject
from traceview.hardware import Occupancy
from traceview.inspect.occupancy import SmCount
from traceview.ptx.accesses import TensorOp
from traceview.ptx.async_groups import AsyncWait
from traceview.ptx.demangle import short_name
from traceview.ptx.instruction_mix import InstructionMix
from traceview.ptx.model import Access, Compiled, Function, Kind, SourceLine
from traceview.ptx.producers import Producer, own_name
from traceview.ptx.sass.live_registers import LiveRegisters, SpilledValue
from traceview.ptx.ttgir.layout_conversions import LayoutConversion
from traceview.ptx.ttgir.pipeline_buffers import PipelineBuffer
from traceview.records import record

# One configuration of a kernel, compiled, with its occupancy.


@record
class WhatIf:
    """One configuration, compiled; `failure` is the reason if it does not compile.

    `tile` has the constexprs that are tiles. Registers and spills are per thread, shared memory per
    block. `waves` is the grid ÷ the blocks that the GPU holds at once.
    """

    num_warps: int | None
    num_stages: int | None
    tile: tuple[tuple[str, int], ...]
    current: bool = False
    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None
    occupancy: Occupancy | None = None
    waves: float | None = None
    failure: str | None = None


def limited_by(row: WhatIf) -> str:
    """The limit of the occupancy, or the reason for having none."""
    if row.failure:
        return f"does not compile: {row.failure}"
    if row.occupancy is None:
        return ""
    limiters = " and ".join(row.occupancy.limiters)
    return limiters if row.occupancy.blocks_per_sm else f"does not fit: {limiters}"


_MOST_LETTERS = 40


def line_name(source: SourceLine | None) -> str:
    """A source line as messages name it: `gelu.py:31`; the middle of a long name is left out."""
    if source is None:
        return "an unknown line"
    name, part = PurePath(source.file).name, _MOST_LETTERS // 2
    short = name if len(name) <= _MOST_LETTERS else f"{name[:part]}…{name[-part:]}"
    return f"{short}:{source.line}"


def subject_of(source: SourceLine | None, compiled: Compiled) -> Subject:
    """The subject of a finding on a source line; the kernel itself where the line is unknown."""
    if source is None:
        return Subject("kernel", compiled.name)
    return Subject("line", line_name(source), source.file, source.line)


def source_of(finding: Finding) -> SourceLine | None:
    """The source line that a finding is about; None if it is about the whole kernel."""
    file, line = finding.subject.file, finding.subject.line
    return SourceLine(file, line) if file is not None and line is not None else None


@record
class Difference:
    """A source line whose widest access has another width in SASS than in PTX.

    `change` is `narrowed` if SASS moves fewer bits (ptxas drops lanes that are never read), `split`
    if it moves as many in narrower accesses, `widened` if in wider ones. `ptx` and `sass` list the
    widths: `2 × 128 bits`.
    """

    source: SourceLine | None
    kind: Kind
    space: str
    change: Literal["narrowed", "split", "widened"]
    ptx: str
    sass: str


@dataclass(frozen=True, repr=False)
class KernelReport(display.Described):
    """Everything known about one kernel. A part that is not available is None; `notes` say why.

    Shared memory is in bytes per block, registers and spills are per thread. `ptx` and `sass` are
    the two listings. `waves` is the grid ÷ the blocks that the GPU holds at once, on `sms`.
    `elements_per_thread` is defined in traceview.ptx.elements_per_thread. `live_registers` are
    those of the SASS, `mix` that of the SASS where there is one, else of the PTX. `demangled_name`
    is the whole C++ name, None if the name is not mangled. `what_if` is filled on request.
    `producer` is what made the PTX or cubin of a file.
    """

    compiled: Compiled
    ptx: Function | None
    sass: Function | None
    accesses: tuple[Access, ...]
    differences: tuple[Difference, ...]
    elements_per_thread: int | None
    instruction_mix: Mapping[str, int]
    tensor_ops: tuple[TensorOp, ...]
    barriers: int | None
    shuffles: int | None
    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    static_shared_bytes: int | None
    dynamic_shared_bytes: int | None
    occupancy: Occupancy | None
    waves: float | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    sms: SmCount | None = None
    live_registers: LiveRegisters | None = None
    mix: InstructionMix | None = None
    layout_conversions: tuple[LayoutConversion, ...] = ()
    demangled_name: str | None = None
    variables: Mapping[SourceLine, str] = field(default_factory=dict)
    spilled_values: tuple[SpilledValue, ...] = ()
    async_waits: tuple[AsyncWait, ...] = ()
    pipeline_buffers: tuple[PipelineBuffer, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    producer: Producer = field(default_factory=Producer)

    @property
    def name(self) -> str:
        """The kernel's name as compiled."""
        return self.compiled.name

    @property
    def short_name(self) -> str:
        """The kernel's name in the program, in C++ without return type and parameters.

        A name that is not mangled is returned as it is.
        """
        if own := own_name(self.name):
            return own
        return short_name(self.demangled_name) if self.demangled_name else self.name

    @property
    def shared_memory_bytes(self) -> int | None:
        """Static and dynamic shared memory of a block; None if neither is known."""
        parts = [b for b in (self.static_shared_bytes, self.dynamic_shared_bytes) if b is not None]
        return sum(parts) if parts else None
