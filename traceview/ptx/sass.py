"""SASS, what the GPU really executes: a cubin's instructions and their memory accesses."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from traceview.errors import TraceFormatError
from traceview.ptx import programs
from traceview.ptx.model import Access, Function, Instruction, Kind, Listing
from traceview.ptx.sass_text import parse

# By the first word of the opcode: what it does, and to which memory. Loads of constants and of
# kernel parameters (LDC, ULDC), barriers in shared memory (SYNCS) and tensor memory are none.
_MEANING: dict[str, tuple[Kind, str]] = {
    "LDG": ("load", "global"),
    "STG": ("store", "global"),
    "LDS": ("load", "shared"),
    "STS": ("store", "shared"),
    "STAS": ("store", "shared"),
    "LDSM": ("load", "shared"),
    "STSM": ("store", "shared"),
    "LDL": ("load", "local"),
    "STL": ("store", "local"),
    "LD": ("load", "generic"),
    "ST": ("store", "generic"),
    "LDGSTS": ("async-copy", "global"),
    "UTMALDG": ("async-copy", "global"),
    "UTMASTG": ("async-copy", "global"),
    "UBLKCP": ("async-copy", "global"),
    "UTMAREDG": ("reduction", "global"),
    "UBLKRED": ("reduction", "global"),
    "UTMAPF": ("prefetch", "global"),
    "UBLKPF": ("prefetch", "global"),
    "ATOMG": ("atomic", "global"),
    "ATOMS": ("atomic", "shared"),
    "ATOM": ("atomic", "generic"),
    "REDG": ("reduction", "global"),
    "REDAS": ("reduction", "shared"),
    "RED": ("reduction", "global"),
    "TEX": ("load", "texture"),
    "TXD": ("load", "texture"),
    "TLD": ("load", "texture"),
    "TLD4": ("load", "texture"),
    "SULD": ("load", "surface"),
    "SUST": ("store", "surface"),
    "SURED": ("reduction", "surface"),
}
# The bits of a texel are in its descriptor.
_TEXTURES = frozenset(name for name, (_, space) in _MEANING.items() if space == "texture")
_PREFETCH = re.compile(r"CCTL\..*\bPF[12]?\b")
# A matrix of 8 x 8 elements of 16 bits gives each of the 32 threads this much.
_MATRIX_BITS = 32
_WIDTH = re.compile(r"(?:U|S|F|BF)?(?P<bits>8|16|32|64|128|256)(?:(?:x|_V)(?P<count>\d+))?")
_HINT = re.compile(r"E[FLNU](?:L2)?|NA|LU|LTC\d+B|CONSTANT|BYPASS")
_SCOPES = {"CTA": "cta", "SM": "cta", "CLUSTER": "cluster", "GPU": "gpu", "SYS": "sys"}
_NEVER = ("!PT", "!UPT")
MOST_KEPT = 16
_CONDITION_LAST = re.compile(r".*, *!?U?P\d+")


def disassemble(cubin: bytes) -> Listing:
    """The SASS of a cubin, with the lines that it was made from where ptxas kept them.

    Raises ToolNotFoundError without nvdisasm, TraceFormatError if it cannot read the cubin.
    """
    return parse(text_of(cubin))


@lru_cache(maxsize=MOST_KEPT)
def text_of(cubin: bytes) -> str:
    """What nvdisasm prints of a cubin's code: the text that the line numbers refer to.

    The latest MOST_KEPT are kept, so that several can be asked for at once, ahead of their use.
    Raises as `disassemble` does.
    """

    def attempt(path: Path) -> programs.Ran:
        return programs.run(path, lambda source, _: ("-c", "-gi", "-gp", source), cubin, ".cubin")

    ran = programs.first_success(programs.newest("nvdisasm"), attempt, "")
    if ran.status != 0:
        raise TraceFormatError(f"nvdisasm cannot read the cubin: {ran.evidence}")
    return ran.out


def with_sources_of(sass: Listing, ptx: Listing) -> Listing:
    """The SASS with the source lines that its PTX tells.

    For Triton they are better than those of the cubin, which knows nothing of inlined helpers.
    What has no PTX line keeps what it has.
    """
    by_line: dict[int, Instruction] = {}
    for function in ptx.functions:
        for instruction in function.instructions:
            by_line.setdefault(instruction.line, instruction)
    functions = (
        replace(f, instructions=tuple(_told_by(i, by_line) for i in f.instructions))
        for f in sass.functions
    )
    return replace(sass, functions=tuple(functions))


def _told_by(instruction: Instruction, by_line: dict[int, Instruction]) -> Instruction:
    made_from = by_line.get(instruction.ptx_line or 0)
    if made_from is None or made_from.source is None:
        return instruction
    return replace(instruction, source=made_from.source, inlined=made_from.inlined)


def accesses(function: Function) -> tuple[Access, ...]:
    """The memory accesses of a function, equal ones of a line counted, in the code's order.

    A copy from or to shared memory has the space global. What never executes (@!PT, which ptxas
    puts where the hardware needs a pause) is left out. Functions that the kernel calls are
    functions of their own.
    """
    found = map(access_of, function.instructions)
    counts = Counter(access for access in found if access is not None)
    return tuple(replace(access, count=count) for access, count in counts.items())


def access_of(instruction: Instruction) -> Access | None:
    """The access that one instruction makes, counted once; None if it makes none."""
    name, *modifiers = instruction.opcode.split(".")
    meaning = _MEANING.get(name)
    if _PREFETCH.match(instruction.opcode):
        meaning = ("prefetch", "global")
    if meaning is None or instruction.predicate in _NEVER:
        return None
    kind, space = meaning
    conditional = instruction.predicate or _CONDITION_LAST.fullmatch(instruction.operands)
    return Access(
        level="sass",
        kind=kind,
        space=space,
        opcode=instruction.opcode,
        width_bits=_width_bits(name, modifiers),
        count=1,
        predicated=bool(conditional),
        loop_depth=instruction.loop_depth,
        source=instruction.source,
        scope=_scope(kind, space, modifiers),
        hints=tuple(modifier for modifier in modifiers if _HINT.fullmatch(modifier)),
    )


def _width_bits(name: str, modifiers: list[str]) -> int | None:
    """What one thread moves: 32 bits where the opcode names no width."""
    if name.startswith("U") or name == "CCTL":
        # The size of a bulk copy is in a descriptor or a register.
        return None
    if name in _TEXTURES or (name == "SUST" and modifiers[:1] == ["P"]):
        return None
    if name in ("LDSM", "STSM"):
        return _MATRIX_BITS * int(modifiers[-1] if modifiers[-1] in ("2", "4") else 1)
    found = (_WIDTH.fullmatch(modifier) for modifier in modifiers)
    widths = [int(m["bits"]) * int(m["count"] or 1) for m in found if m]
    return widths[-1] if widths else 32


def _scope(kind: Kind, space: str, modifiers: list[str]) -> str | None:
    if kind not in ("atomic", "reduction"):
        return None
    told = (_SCOPES[modifier] for modifier in modifiers if modifier in _SCOPES)
    return next(told, "cta" if space == "shared" else None)
