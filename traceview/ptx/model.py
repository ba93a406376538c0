"""A compiled kernel: instructions, accesses, resources, arguments, code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from traceview.ptx.loops import Jump

Level = Literal["ptx", "sass"]
Kind = Literal["load", "store", "async-copy", "atomic", "reduction", "prefetch"]
How = Literal["launched", "declared", "called", "guessed", "given"]


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program; `file` is the path that the compiler was given."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction of PTX or SASS.

    `opcode` includes the modifiers: ld.global.v4.b32, LDG.E.128. `predicate` is as written (%p1,
    !P0) or None. `line` is the line in the listing, from 1. `source` is the line in the user's
    kernel, `inlined` the lines of helpers inlined there, innermost first. `loop_depth` is the
    number of loops around it. `ptx_line` is the PTX line that a SASS instruction was made from.
    """

    opcode: str
    operands: str
    predicate: str | None
    line: int
    source: SourceLine | None = None
    inlined: tuple[SourceLine, ...] = ()
    loop_depth: int = 0
    ptx_line: int | None = None


@dataclass(frozen=True)
class RequestCost:
    """What one warp's request costs on average; None where it does not apply or is not known.

    `sectors` are those of 32 bytes in global memory, `wavefronts` the passes through shared
    memory; the ideal ones hold the same data without gaps, and without bank conflicts.
    """

    sectors: float | None = None
    ideal_sectors: float | None = None
    wavefronts: float | None = None
    ideal_wavefronts: float | None = None

    @property
    def is_uncoalesced(self) -> bool:
        """Whether it touches at least twice the sectors that hold its data."""
        return bool(self.sectors and self.ideal_sectors and self.sectors >= 2 * self.ideal_sectors)


@dataclass(frozen=True)
class Access:
    """Equal memory accesses of one source line, counted.

    `width_bits` is bits per thread per instruction, None for a bulk copy, whose size is in a
    descriptor or a register. `scope` is that of an atomic (cta, cluster, gpu, sys). `hints` are
    cache operators and eviction hints as written. `cost` is what a warp's request costs.
    """

    level: Level
    kind: Kind
    space: str
    opcode: str
    width_bits: int | None
    count: int
    predicated: bool
    loop_depth: int
    source: SourceLine | None
    scope: str | None = None
    hints: tuple[str, ...] = ()
    cost: RequestCost | None = None


@dataclass(frozen=True)
class Function:
    """A function of a listing. `directives` maps reqntid, maxnreg, … to their numbers.

    `jumps` are its branches and exits, in order.
    """

    name: str
    level: Level
    is_entry: bool
    instructions: tuple[Instruction, ...]
    parameters: tuple[str, ...] = ()
    directives: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    static_shared_bytes: int | None = None
    jumps: tuple[Jump, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A parsed PTX or SASS text. `target` is such as sm_90a, `version` that of PTX."""

    level: Level
    target: str
    version: str | None
    functions: tuple[Function, ...]

    def kernels(self) -> tuple[Function, ...]:
        """The functions that can be launched."""
        return tuple(function for function in self.functions if function.is_entry)


@dataclass(frozen=True)
class Resources:
    """A kernel's resources on an SM, read from its cubin.

    Registers, stack and spills are per thread, shared memory and barriers per block.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int | None
    static_shared_bytes: int
    barriers: int
    max_threads: int | None = None


@dataclass(frozen=True)
class Argument:
    """One parameter of a compiled Triton kernel, or one element of a tuple (`pair[0]`).

    `type` is Triton's (`*fp32`, `i32`, `constexpr`). `divisible_by_16` is the compiler's
    assumption. `value` is that of a constexpr, or of an integer as launched.
    """

    name: str
    type: str
    divisible_by_16: bool = False
    value: int | float | bool | str | None = None


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one architecture.

    `how` is the origin of its argument types: a launch by the user's program, a declared
    signature, inference from the source, or none (an existing file). `grid` is that of the
    launch, `launches` the number of launches of this variant. `notes` are compiler remarks, such
    as that of ptxas on serialized wgmma. `variant` identifies the kernel in the worker process.
    `source_text` is the text of `source_file` if that file is temporary. `stages` holds Triton's
    intermediate code by stage: ttir, ttgir, llir.
    """

    name: str
    arch: str
    how: How
    ptx: str | None
    cubin: bytes | None = None
    arguments: tuple[Argument, ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None
    dynamic_shared_bytes: int | None = None
    grid: tuple[int, int, int] | None = None
    launches: int = 0
    source_file: str | None = None
    source_line: int | None = None
    notes: tuple[str, ...] = ()
    variant: str | None = None
    source_text: str | None = None
    stages: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts of temporary source files, by path."""
        if self.source_file is None or self.source_text is None:
            return {}
        return {self.source_file: self.source_text}
