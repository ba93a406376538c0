"""The report on one compiled kernel before it is rendered, with its occupancy and source lines."""

from __future__ import annotations

import math
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Literal

from traceview.base import display, units
from traceview.base.errors import InputError
from traceview.base.findings import Finding, Subject
from traceview.base.hardware import Occupancy, limits_of, occupancy, part_of
from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.accesses import AsyncWait, TensorOp
from traceview.kernels.ptx.instruction_mix import InstructionMix
from traceview.kernels.ptx.issue_cycles import LoopCycles
from traceview.kernels.ptx.live_registers import LiveRegisters, SpilledValue
from traceview.kernels.ptx.model import Access, Compiled, Function, Instruction, Kind, SourceLine
from traceview.kernels.ptx.producers import (
    EXTERN_SHARED,
    Producer,
    own_name,
    short_name,
    template_of,
)
from traceview.kernels.ptx.ttgir.loop_loads import PipelineBuffer
from traceview.kernels.ptx.ttgir.operations import LayoutConversion
from traceview.kernels.toolchain.listings import Code


@record
class SmCount:
    """The number of SMs to count waves on. `assumed` names the GPU that it is taken from."""

    count: int
    assumed: str | None = None

    @property
    def described(self) -> str:
        """The count as `132 SMs (assuming H100 SXM and H200; --sms N for another GPU)`."""
        why = f" (assuming {self.assumed}; --sms N for another GPU)" if self.assumed else ""
        return f"{units.counted(self.count, 'SM')}{why}"


def sm_count_of(compiled: Compiled, sm_count: int | None) -> SmCount | None:
    """The SM count as given, else of the GPU that stands for the architecture, if known."""
    if sm_count:
        return SmCount(sm_count)
    try:
        part = part_of(compiled.arch)
    except InputError:
        return None
    return SmCount(part.sm_count, part.name)


def occupancy_of(compiled: Compiled, code: Code) -> tuple[Occupancy | None, tuple[str, ...]]:
    """The occupancy at the block size of the launch, with notes on it or on why there is none."""
    if code.resources is None:
        return None, ()
    threads, notes = _block_threads(compiled, code)
    if threads is None:
        return None, ("no occupancy: the block size is not known; pass --num-warps",)
    try:
        limits = limits_of(compiled.arch)
    except InputError as error:
        return None, (f"no occupancy: {error}",)
    dynamic = compiled.dynamic_shared_bytes
    if dynamic is None and _uses_dynamic_shared(compiled, code):
        notes = (*notes, "dynamic shared memory is not known; the occupancy assumes none")
    result = occupancy(
        limits,
        threads,
        code.resources.registers,
        code.resources.static_shared_bytes,
        dynamic or 0,
        code.resources.barriers,
    )
    return result, notes


def registers_for_more_blocks(compiled: Compiled, code: Code) -> int | None:
    """The most registers per thread at which one more block fits on an SM.

    None if registers do not limit the occupancy, or if no number of them suffices.
    """
    now, _ = occupancy_of(compiled, code)
    threads, _ = _block_threads(compiled, code)
    if now is None or threads is None or code.resources is None:
        return None
    limits, wanted = limits_of(compiled.arch), now.blocks_per_sm + 1
    # maxnreg is rounded down to a multiple of 8, and 24 is the least that ptxas accepts.
    for registers in range(code.resources.registers // 8 * 8, 23, -8):
        if occupancy(limits, threads, registers).blocks_by_limit["registers"] >= wanted:
            return registers
    return None


def static_shared(code: Code) -> int | None:
    """Static shared memory per block in bytes; None where unknown."""
    if code.resources:
        return code.resources.static_shared_bytes
    return code.ptx.static_shared_bytes if code.ptx else None


def _block_threads(compiled: Compiled, code: Code) -> tuple[int | None, tuple[str, ...]]:
    """Threads per block: as required, as launched, or the most that the kernel allows."""
    directives = code.ptx.directives if code.ptx else {}
    if directives.get("reqntid"):
        # With warp specialization, this is more than num_warps × 32.
        return math.prod(directives["reqntid"]), ()
    if compiled.block:
        return math.prod(compiled.block), ()
    if compiled.num_warps:
        return compiled.num_warps * WARP_THREADS, ()
    most = math.prod(directives.get("maxntid", ())) if directives.get("maxntid") else None
    most = most or (code.resources.max_threads if code.resources else None)
    if most is None:
        return None, ()
    return most, (
        f"occupancy assumes {units.count(most)} threads per block, the most the kernel allows",
    )


def _uses_dynamic_shared(compiled: Compiled, code: Code) -> bool:
    if not code.ptx:
        return False
    names = EXTERN_SHARED.findall(compiled.ptx or "")
    operands = [instruction.operands for instruction in code.ptx.instructions]
    if any(name in text for name in names for text in operands):
        return True
    return not static_shared(code) and any(".shared" in i.opcode for i in code.ptx.instructions)


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


@record
class CodePlace:
    """A source line; an instruction of the SASS, by its offset in bytes, where lines are unknown.

    Both are None for code outside of the kernel.
    """

    source: SourceLine | None
    offset: int | None = None


@record
class AwaitedPlace:
    """A place whose results warps wait for, its instructions, and the samples of these warps.

    `reason` is the kind of wait: long_scoreboard or short_scoreboard.
    """

    place: CodePlace
    reason: str
    opcodes: tuple[str, ...]
    samples: int


@record
class StalledPlace:
    """The samples of warps whose next instruction is at this place.

    `stalls` counts them by the reason why it did not issue; `selected` are those that it did.
    `waits_for` are the places whose results it waits for. Where it waits for several at once, each
    has all of these samples.
    """

    place: CodePlace
    opcodes: tuple[str, ...]
    stalls: Mapping[str, int]
    waits_for: tuple[AwaitedPlace, ...] = ()

    @property
    def samples(self) -> int:
        """All samples of the place."""
        return sum(self.stalls.values())


@record
class WarpStalls:
    """The warp samples of a kernel by place, most samples first."""

    places: tuple[StalledPlace, ...]

    @property
    def samples(self) -> int:
        """All samples of the kernel."""
        return sum(each.samples for each in self.places)

    def pct_at(self, source: SourceLine) -> float:
        """The percentage of samples that are of a line."""
        there = (each.samples for each in self.places if each.place.source == source)
        return 100 * sum(there) / self.samples

    def waiting_for(self, source: SourceLine) -> tuple[str, float]:
        """The kind of wait that most samples wait for a line with, and their percentage."""
        waiting = Counter[str]()
        for awaited in (each for stalled in self.places for each in stalled.waits_for):
            if awaited.place.source == source:
                waiting[awaited.reason] += awaited.samples
        (reason, most), *_ = waiting.most_common(1) or [("", 0)]
        return reason, 100 * most / self.samples


@dataclass(frozen=True, repr=False)
class KernelReport(display.Described):
    """Everything known about one kernel. A part that is not available is None; `notes` say why.

    Shared memory is in bytes per block, registers and spills are per thread. `ptx` and `sass` are
    the two listings. `waves` is the grid ÷ the blocks that the GPU holds at once, on `sms`.
    `elements_per_thread` is defined in traceview.kernels.ptx.accesses. `live_registers` are
    those of the SASS, `mix` that of the SASS where there is one, else of the PTX. `demangled_name`
    is the whole C++ name, None if the name is not mangled. `what_if` is filled on request.
    `producer` is what made the PTX or cubin of a file. `warp_stalls` is None without samples.
    `loop_cycles` are estimates.
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
    warp_stalls: WarpStalls | None = None
    loop_cycles: tuple[LoopCycles, ...] = ()

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
    def family(self) -> str:
        """The short name that the instances of a template share: without its last arguments."""
        return template_of(self.short_name)

    @property
    def counted_tensor_ops(self) -> Mapping[str, int]:
        """The number of tensor-core instructions by operation, shape and types."""
        counts = Counter[str]()
        for op in self.tensor_ops:
            counts[" ".join(filter(None, (op.operation, op.shape, *op.types)))] += op.count
        return counts

    @property
    def shared_memory_bytes(self) -> int | None:
        """Static and dynamic shared memory of a block; None if neither is known."""
        known = [b for b in (self.static_shared_bytes, self.dynamic_shared_bytes) if b is not None]
        return sum(known) if known else None


# The user's source around the lines that accesses come from, and lines in inlined helpers.
#
# Functions of a library (tl.zeros, cuda_fp16.h) are not a place to change: their lines are left
# out.

_AROUND = 3
_MOST_BYTES = 4_000_000
_FAR_APART = 400


@record
class Excerpt:
    """Lines of one file, numbered; `missing` says why there are none."""

    file: str
    lines: tuple[tuple[int, str], ...]
    missing: str | None = None


def excerpts(
    sources: Iterable[SourceLine], texts: Mapping[str, str] | None = None
) -> list[Excerpt]:
    """One excerpt per file, with all these lines and a few around them.

    `texts` has the text of files that no longer exist. A file that cannot be read, is shorter than
    when it was compiled, or is too large has no lines, but a reason.
    """
    by_file: dict[str, set[int]] = {}
    for source in sources:
        by_file.setdefault(source.file, set()).add(source.line)
    known = texts or {}
    return [_excerpt(file, numbers, known.get(file)) for file, numbers in sorted(by_file.items())]


def _excerpt(file: str, numbers: set[int], known: str | None) -> Excerpt:
    try:
        text = (_read(Path(file)) if known is None else known).splitlines()
    except (OSError, ValueError) as error:
        return Excerpt(file, (), f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if max(numbers) > len(text):
        return Excerpt(
            file,
            (),
            f"has only {units.counted(len(text), 'line')}: it changed since it was compiled",
        )
    wanted = sorted({n for number in numbers for n in _neighbours(number, numbers, len(text))})
    return Excerpt(file, tuple((n, text[n - 1]) for n in wanted))


def _read(path: Path) -> str:
    """The text of a source file. Raises OSError, or ValueError if it cannot be shown."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        # Code names any file it likes: a device may have no end, a pipe no writer.
        raise ValueError("it is not a regular file")
    if status.st_size > _MOST_BYTES:
        raise ValueError("it is too large to show")
    return path.read_text("utf-8", "replace")


def _neighbours(number: int, numbers: set[int], most: int) -> range:
    """The lines to show around `number`: a few, and all up to the next unless that is far."""
    following = min((n for n in numbers if n > number), default=number)
    end = following if following - number <= _FAR_APART else number
    return range(max(1, number - _AROUND), min(most, end + _AROUND) + 1)


_PACKAGE = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")
_LIBRARY = re.compile(r"[/\\]triton[/\\](?:language|experimental)[/\\]|[/\\]include[/\\]")
_MOST_LINES = 3

_Key = tuple[str, str, SourceLine | None, int]


def helper_lines(instructions: Iterable[Instruction]) -> tuple[SourceLine, ...]:
    """The innermost lines of inlined helpers of the user's project, each once, in order."""
    lines = (_in_helper(instruction) for instruction in instructions)
    return tuple(dict.fromkeys(line for line in lines if line))


def with_helper_lines(
    accesses: Sequence[Access], functions: Iterable[Function | None]
) -> Iterator[Access]:
    """The accesses of the PTX and SASS of a kernel, each with its `helper_lines`."""
    same: dict[_Key, list[Instruction]] = defaultdict(list)
    for function in functions:
        for each in function.instructions if function else ():
            if each.inlined and function:
                same[function.level, each.opcode, each.source, each.loop_depth].append(each)
    for access in accesses:
        key = (access.level, access.opcode, access.source, access.loop_depth)
        yield replace(access, helper_lines=helper_lines(same.get(key, ())))


def inlined_text(lines: Sequence[SourceLine]) -> str:
    """Evidence on helpers, such as `inlined from gelu.py:18`; empty for none."""
    names = units.first([line_name(line) for line in lines], _MOST_LINES)
    return f"inlined from {names}" if lines else ""


def _in_helper(instruction: Instruction) -> SourceLine | None:
    source = instruction.source
    if source is None:
        return None
    own = (line for line in instruction.inlined if _is_of_project(line.file, source.file))
    line = next(own, None)
    return line if line != source else None


def _is_of_project(file: str, kernel_file: str) -> bool:
    """Whether a file is in the kernel's own package or project, and not in a library."""
    if file == kernel_file:
        return True
    return _package(file) == _package(kernel_file) and not _LIBRARY.search(file)


def _package(file: str) -> str:
    match = _PACKAGE.match(file)
    return match[0] if match else ""
