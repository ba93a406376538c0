"""What is known of a compiled kernel: its code, where each instruction comes from, its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from traceview.ptx.loops import Jump

Level = Literal["ptx", "sass"]
Kind = Literal["load", "store", "async-copy", "atomic", "reduction", "prefetch"]
How = Literal["launched", "declared", "guessed", "given"]


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's program; `file` is the path that the compiler was given."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction of PTX or SASS.

    `opcode` is whole, with its modifiers: ld.global.v4.b32, LDG.E.128. `predicate` is the guard
    as written (%p1, !P0) or None. `line` is the line in the listing, from 1. `source` is the
    user's line that the instruction comes from; `inlined` the lines from the innermost helper
    out to it. `loop_depth` counts the loops around it. `ptx_line` is the line of PTX that an
    instruction of SASS was made from.
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
class Access:
    """Equal memory accesses of one source line, counted.

    `width_bits` is what one thread moves in one instruction; None where the instruction does not
    tell (a bulk copy, whose size is in a descriptor or a register). `scope` is that of an atomic
    (cta, cluster, gpu, sys). `hints` are cache operators and eviction hints as written.
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


@dataclass(frozen=True)
class Function:
    """A function of a listing. `directives` holds reqntid, maxnreg, … with their numbers.

    `jumps` are the instructions that may leave the straight line, in order.
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
    """What a kernel takes of an SM, read from its cubin. Bytes are a thread's or a block's."""

    registers: int
    stack_bytes: int
    spill_bytes: int | None
    static_shared_bytes: int
    barriers: int
    max_threads: int | None = None


@dataclass(frozen=True)
class Argument:
    """One parameter of a Triton kernel as it was compiled; of a tuple one element, `pair[0]`.

    `type` is Triton's (`*fp32`, `i32`, `constexpr`); `divisible_by_16` whether the compiler was
    told so; `value` that of a constexpr or, as launched, of an integer.
    """

    name: str
    type: str
    divisible_by_16: bool = False
    value: int | float | bool | str | None = None


@dataclass(frozen=True)
class Compiled:
    """One kernel as compiled for one GPU, before anything is said of it.

    `how` tells what the compilation stands on: a launch of the user's program, a declared
    signature, a guess from the source, or a file that was given. `grid` is that of the launch,
    `launches` how often this variant was launched. `notes` are remarks of the compiler, such as
    ptxas's on serialised wgmma. `variant` names the kernel to the process that compiled it.
    `source_text` is the text of `source_file` where that file does not last.
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

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts of sources that do not last, by their files."""
        if self.source_file is None or self.source_text is None:
            return {}
        return {self.source_file: self.source_text}
