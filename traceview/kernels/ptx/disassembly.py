"""SASS: the text output of nvdisasm parsed, and the memory accesses of its instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from traceview.base.errors import TraceFormatError
from traceview.kernels.ptx.loops import Jump, loop_depths
from traceview.kernels.ptx.model import (
    Access,
    Function,
    Instruction,
    Kind,
    Listing,
    SourceLine,
    source_path,
)

# Parse the text output of nvdisasm, as its JSON output has no source lines.
#
# A comment gives the source line of the instructions behind it, until the next such comment:
#
#     //## File "gelu.py", line 3 inlined at "gelu.py", line 9
#     //## File "gelu.py", line 9
#     //## File ".nv_debug_ptx_txt", line 55
#             /*00e0*/              @!P1 LDG.E.128 R8, desc[UR4][R14.64] ;

PTX_FILE = ".nv_debug_ptx_txt"
# `traceview scrub` overwrites home folders in place, which keeps their length; in PTX it is `~/`.
_OVERWRITTEN = re.compile(r"^~/+")
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<offset>[0-9a-f]+)\*/\s+(?:@(?P<guard>!?U?P[T\d]+)\s+)?"
    r"(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>.*?)\s*;\s*$"
)
_FROM = re.compile(
    r'\s*//## File "(?P<file>.*?)", line (?P<line>\d+)(?P<inlined> inlined at ".*", line \d+)?\s*$'
)
_LABEL = re.compile(r"(?P<label>\S.*):$")
_FUNCTION = re.compile(r"\s+\.type\s+(?P<name>.+),@function$")
_KERNEL = re.compile(r'\s+\.other\s+(?P<name>.+),@"STO_CUDA_ENTRY\b.*"$')
_TARGET = re.compile(r"^\s+\.target\s+(sm_\w+)", re.MULTILINE)
# The target of a cubin from a ptxas before 13.0.
_FLAGS = re.compile(
    r'^\s+\.headerflags\s+@"(?P<flags>.*?\bEF_CUDA_SM(?P<number>\d+)\b.*)"', re.MULTILINE
)
_JUMP_TARGET = re.compile(r"`\((?P<label>[^)]*)\)")
_JUMPS = ("BRA", "JMP")
# Ends the loop that ptxas puts around an instruction with a uniform operand, to run it once per
# value in the warp: not a loop of the program.
_UNIFORM_RETRY = "BRA.U.ANY"
_ENDS = ("EXIT", "RET", "BRX", "JMX", "KILL")


def parse(text: str) -> Listing:
    """Parse the output of nvdisasm. Raises TraceFormatError if it contains no code."""
    functions = tuple(_Reader().read(text))
    if not functions:
        raise TraceFormatError("the cubin contains no SASS", "recompile it")
    return Listing("sass", _target(text), None, functions)


def _target(text: str) -> str:
    plain, flags = _TARGET.search(text), _FLAGS.search(text)
    if plain:
        return plain[1]
    if not flags:
        return ""
    return f"sm_{flags['number']}{'a' if 'EF_CUDA_ACCELERATORS' in flags['flags'] else ''}"


@dataclass
class _Open:
    """The function that is being parsed; `labels` maps labels to instruction indices."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


class _Reader:
    """Parses all lines in one pass; a comment with a source line holds until the next."""

    def __init__(self) -> None:
        self._declared: set[str] = set()
        self._kernels: set[str] = set()
        self._open: _Open | None = None
        self._chain: tuple[SourceLine, ...] = ()
        self._ptx_line: int | None = None
        self._in_chain = False

    def read(self, text: str) -> Iterator[Function]:
        for number, line in enumerate(text.splitlines(), 1):
            if match := _INSTRUCTION.match(line):
                self._instruction(match, number)
            elif match := _FROM.match(line):
                self._made_from(match)
            elif match := _LABEL.match(line):
                label = match["label"]
                if label in self._declared:
                    yield from self._close()
                    self._open = _Open(label)
                    self._chain, self._ptx_line = (), None
                elif self._open:
                    self._open.labels[label] = len(self._open.instructions)
            elif match := _FUNCTION.match(line):
                self._declared.add(match["name"])
            elif match := _KERNEL.match(line):
                self._kernels.add(match["name"])
        yield from self._close()

    def _instruction(self, match: re.Match[str], number: int) -> None:
        self._in_chain = False
        if self._open is None:
            return
        *helpers, source = self._chain or (None,)
        self._open.instructions.append(
            Instruction(
                opcode=match["opcode"],
                operands=match["operands"],
                predicate=match["guard"],
                line=number,
                source=source,
                inlined=tuple(line for line in helpers if line),
                ptx_line=self._ptx_line,
            )
        )

    def _made_from(self, match: re.Match[str]) -> None:
        file = source_path(_OVERWRITTEN.sub("~/", match["file"]))
        place = SourceLine(file, int(match["line"]))
        # In code for a linker, the name ends in a hash.
        if place.file.startswith(PTX_FILE):
            self._ptx_line = place.line
            return
        self._chain = (*self._chain, place) if self._in_chain else (place,)
        self._in_chain = bool(match["inlined"])

    def _close(self) -> Iterator[Function]:
        if self._open:
            # The code without the NOPs and the branch to itself that pad the end of a function.
            code = self._open.instructions
            end = len(code)
            while end and code[end - 1].opcode == "NOP":
                end -= 1
            if end and code[end - 1].opcode == "BRA":
                target = _target_of(code[end - 1], self._open.labels)
                end -= target == end - 1
            code = code[:end]
            jumps = tuple(_jumps(code, self._open.labels))
            is_kernel = self._open.name in self._kernels
            pairs = zip(code, loop_depths(len(code), jumps), strict=True)
            looped = tuple(replace(i, loop_depth=depth) if depth else i for i, depth in pairs)
            yield Function(self._open.name, "sass", is_kernel, looped, jumps=jumps)
        self._open = None


def _jumps(code: list[Instruction], labels: dict[str, int]) -> Iterator[Jump]:
    for at, instruction in enumerate(code):
        opcode = instruction.opcode.partition(".")[0]
        if opcode in _ENDS:
            yield Jump(at, (), instruction.predicate is not None)
        elif opcode in _JUMPS and not instruction.opcode.startswith(_UNIFORM_RETRY):
            target = _target_of(instruction, labels)
            # A branch may also have its condition among the operands: BRA.U UP0, `(.L_x_3).
            certain = instruction.predicate is None and instruction.operands.startswith("`")
            known = target is not None and target <= len(code)
            yield Jump(at, (target,) if known and target is not None else (), not certain)


def _target_of(jump: Instruction, labels: dict[str, int]) -> int | None:
    match = _JUMP_TARGET.search(jump.operands)
    return labels.get(match["label"]) if match else None


def with_sources_of(sass: Listing, ptx: Listing) -> Listing:
    """The SASS with the source lines of the PTX that it was made from.

    For Triton these are better than those in the cubin, which lack inlined helpers. Instructions
    without a PTX line keep their own.
    """
    by_line: dict[int, Instruction] = {}
    for function in ptx.functions:
        for instruction in function.instructions:
            by_line.setdefault(instruction.line, instruction)

    def with_source(instruction: Instruction) -> Instruction:
        made_from = by_line.get(instruction.ptx_line or 0)
        if made_from is None or made_from.source is None:
            return instruction
        return replace(instruction, source=made_from.source, inlined=made_from.inlined)

    functions = (
        replace(f, instructions=tuple(map(with_source, f.instructions))) for f in sass.functions
    )
    return replace(sass, functions=tuple(functions))


# First words of opcodes by kind and space. Loads of constants and kernel parameters (LDC, ULDC),
# barriers in shared memory (SYNCS) and tensor memory do not count.
_ROOTS: dict[tuple[Kind, str], str] = {
    ("load", "global"): "LDG",
    ("store", "global"): "STG",
    ("load", "shared"): "LDS LDSM",
    ("store", "shared"): "STS STAS STSM",
    ("load", "local"): "LDL",
    ("store", "local"): "STL",
    ("load", "generic"): "LD",
    ("store", "generic"): "ST",
    ("async-copy", "global"): "LDGSTS UTMALDG UTMASTG UBLKCP",
    ("prefetch", "global"): "UTMAPF UBLKPF",
    ("atomic", "global"): "ATOMG",
    ("atomic", "shared"): "ATOMS",
    ("atomic", "generic"): "ATOM",
    ("reduction", "global"): "REDG RED UTMAREDG UBLKRED",
    ("reduction", "shared"): "REDAS",
    ("load", "texture"): "TEX TXD TLD TLD4",
    ("load", "surface"): "SULD",
    ("store", "surface"): "SUST",
    ("reduction", "surface"): "SURED",
}
_MEANING = {root: meaning for meaning, roots in _ROOTS.items() for root in roots.split()}
# The size of a texel is in its descriptor.
_TEXTURES = frozenset(name for name, (_, space) in _MEANING.items() if space == "texture")
_PREFETCH = re.compile(r"CCTL\..*\bPF[12]?\b")
# Bits per thread of an 8 × 8 matrix of 16-bit elements, over 32 threads.
_MATRIX_BITS = 32
_WIDTH = re.compile(r"(?:U|S|F|BF)?(?P<bits>8|16|32|64|128|256)(?:(?:x|_V)(?P<count>\d+))?")
_HINT = re.compile(r"E[FLNU](?:L2)?|NA|LU|LTC\d+B|CONSTANT|BYPASS")
_SCOPES = {"CTA": "cta", "SM": "cta", "CLUSTER": "cluster", "GPU": "gpu", "SYS": "sys"}
_NEVER = ("!PT", "!UPT")
_CONDITION_LAST = re.compile(r".*, *!?U?P\d+")


def access_of(instruction: Instruction) -> Access | None:
    """The access of one instruction, with a count of 1; None if it makes none.

    A copy between global and shared memory has space global. Instructions that never execute (@!PT,
    which ptxas inserts where the hardware needs a pause) make none.
    """
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
    """Bits per thread: 32 if the opcode has no width, None if the width is not in the code."""
    if name.startswith("U") or name == "CCTL":
        # The size of a bulk copy is in a descriptor or a register.
        return None
    if name in _TEXTURES or (name == "SUST" and modifiers[:1] == ["P"]):
        return None
    if name in ("LDSM", "STSM"):
        return _MATRIX_BITS * int(modifiers[-1] if modifiers[-1] in ("2", "4") else 1)
    matches = (_WIDTH.fullmatch(modifier) for modifier in modifiers)
    widths = [int(m["bits"]) * int(m["count"] or 1) for m in matches if m]
    return widths[-1] if widths else 32


def _scope(kind: Kind, space: str, modifiers: list[str]) -> str | None:
    if kind not in ("atomic", "reduction"):
        return None
    scopes = (_SCOPES[modifier] for modifier in modifiers if modifier in _SCOPES)
    return next(scopes, "cta" if space == "shared" else None)
