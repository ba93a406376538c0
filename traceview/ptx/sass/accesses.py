"""The memory accesses of SASS instructions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from traceview.ptx.model import Access, Function, Instruction, Kind

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


def accesses(function: Function) -> tuple[Access, ...]:
    """The memory accesses of a function in order; identical ones on a source line are merged.

    A copy between global and shared memory has space global. Instructions that never execute (@!PT,
    which ptxas inserts where the hardware needs a pause) are excluded, as are callees.
    """
    counts = Counter(
        access for instruction in function.instructions if (access := access_of(instruction))
    )
    return tuple(replace(access, count=count) for access, count in counts.items())


def access_of(instruction: Instruction) -> Access | None:
    """The access of one instruction, with a count of 1; None if it makes none."""
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
