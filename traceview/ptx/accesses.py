"""The memory accesses of a PTX function, its tensor-core operations and its instruction mix.

Widths are bits per thread per instruction. The space of a copy is the one whose width matters:
global for cp.async, shared between the blocks of a cluster. Textures and surfaces are spaces of
their own, as they go through another hardware path than global memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from traceview.ptx.model import Access, Function, Instruction, Kind
from traceview.ptx.opcodes import Words, family, words
from traceview.records import record

FAMILIES = (
    *("load", "store", "async-copy", "atomic", "tensor-core", "shuffle", "barrier"),
    *("special-function", "integer", "float", "conversion", "control", "other"),
)
# Constants and parameters have their own cache, where width does not matter.
LEFT_OUT = frozenset({"const", "param"})
MATRIX_COUNT = {"x1": 1, "x2": 2, "x4": 4}
REGISTER_BITS = 32
IMMEDIATE = re.compile(r",\s*(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<decimal>\d{1,9}))[uU]?\s*(?:,|$)")
SHAPE = re.compile(r"m\d+n\d+(?:k\d+)?$")
NUMBER_TYPE = re.compile(r"(?:[busf]\d+|bf16|tf32|e\dm\d(?:x\d)?|ue\dm\d|kind::\w+)$")
MULTIPLICATIONS = {"mma": "", "wmma": "mma", "wgmma": "mma_async", "tcgen05": "mma"}


class _Move(NamedTuple):
    """Kind, space and width of what an opcode moves; `space` is None for a generic address."""

    kind: Kind
    space: str | None
    width_bits: int | None


@record
class TensorOp:
    """A group of identical tensor-core instructions of a function, with their count.

    `operation` is mma, wmma.mma, wgmma.mma_async or tcgen05.mma, with .sp if sparse. `shape` is
    e.g. m16n8k16, None where a descriptor holds it. `types` are the element types of D, A, B and C
    as written, or the `kind::` modifier alone.
    """

    operation: str
    shape: str | None
    types: tuple[str, ...]
    loop_depth: int
    count: int


def accesses(function: Function) -> tuple[Access, ...]:
    """The function's memory accesses in order; identical ones on a source line are merged.

    Excluded are constants, parameters, operands that tensor cores read through descriptors, tensor
    memory, and barriers.
    """
    counts = Counter(
        access for instruction in function.instructions if (access := access_of(instruction))
    )
    return tuple(replace(access, count=count) for access, count in counts.items())


def instruction_mix(function: Function) -> dict[str, int]:
    """The number of instructions per family, in the order of FAMILIES, zeros included."""
    counts = Counter(family(instruction.opcode) for instruction in function.instructions)
    return {name: counts[name] for name in FAMILIES}


def tensor_ops(function: Function) -> tuple[TensorOp, ...]:
    """The function's matrix multiplications on tensor cores, in order."""
    counts = Counter(op for instruction in function.instructions if (op := _tensor_op(instruction)))
    return tuple(replace(op, count=count) for op, count in counts.items())


def _tensor_op(instruction: Instruction) -> TensorOp | None:
    root, modifiers = words(instruction.opcode)
    second = MULTIPLICATIONS.get(root)
    if second is None or (second and second not in modifiers[:1]):
        return None
    sparse = any(word == "sp" or word.startswith("sp::") for word in modifiers[:2])
    operation = ".".join(filter(None, (root, second, "sp" if sparse else "")))
    shape = next((word for word in modifiers if SHAPE.match(word)), None)
    types = tuple(word for word in modifiers if NUMBER_TYPE.match(word))
    return TensorOp(operation, shape, types, instruction.loop_depth, 1)


def access_of(instruction: Instruction) -> Access | None:
    """The memory access of one instruction, with a count of 1; None if it makes none.

    `accesses` lists what is excluded.
    """
    opcode = words(instruction.opcode)
    kind, find = MOVES.get(opcode.root, (None, None))
    move = find(kind, opcode, instruction.operands) if kind and find else None
    if move is None or move.space in LEFT_OUT:
        return None
    # Without a scope an atomic has scope gpu; for surfaces the manual does not say.
    is_atomic = move.kind in {"atomic", "reduction"} and move.space != "surface"
    return Access(
        level="ptx",
        kind=move.kind,
        space=move.space or "generic",
        opcode=instruction.opcode,
        width_bits=move.width_bits,
        count=1,
        predicated=instruction.predicate is not None,
        loop_depth=instruction.loop_depth,
        source=instruction.source,
        scope=opcode.scope or ("gpu" if is_atomic else None),
        hints=opcode.hints,
    )


def _plain(kind: Kind, opcode: Words, _: str) -> _Move:
    sized = opcode.modifiers[:1] != ("bulk",)
    return _Move(kind, opcode.space, opcode.vector_bits if sized else None)


def _matrix(kind: Kind, opcode: Words, _: str) -> _Move:
    # One register per thread per 8 × 8 matrix of 16-bit elements, two for an m16n16 of bytes.
    count = next((MATRIX_COUNT[word] for word in opcode.modifiers if word in MATRIX_COUNT), 1)
    registers = count * (2 if "m16n16" in opcode.modifiers else 1)
    return _Move(kind, "shared", registers * REGISTER_BITS)


def _copy(kind: Kind, opcode: Words, operands: str) -> _Move | None:
    modifiers, space = opcode.modifiers, _space_of_copy(opcode)
    if modifiers[:2] == ("reduce", "async"):
        return _Move("reduction", space, None)
    if modifiers[:1] != ("async",) or not space:
        return None
    if "prefetch" in modifiers:
        return _Move("prefetch", "global", None)
    # The size of a cp.async is its first immediate; it may be in a register.
    size = IMMEDIATE.search(operands) if "bulk" not in modifiers else None
    number = (int(size["hex"], 16) if size["hex"] else int(size["decimal"])) if size else 0
    return _Move(kind, space, 8 * number if size else None)


def _space_of_copy(opcode: Words) -> str | None:
    """The space of a copy; None for commit_group, wait_group and mbarrier, which move nothing."""
    if opcode.modifiers[1:2] == ("mbarrier",):
        return None
    return "global" if "global" in opcode.modifiers else opcode.space


def _prefetch(kind: Kind, opcode: Words, _: str) -> _Move:
    return _Move(kind, "param" if "tensormap" in opcode.modifiers else opcode.space, None)


def _fragment(_: Kind, opcode: Words, operands: str) -> _Move | None:
    """wmma.load and wmma.store: the registers of the fragment are in braces."""
    direction = opcode.modifiers[:1]
    if direction not in {("load",), ("store",)}:
        return None
    registers = operands.partition("{")[2].partition("}")[0].count(",") + 1
    bits = 64 if "f64" in opcode.modifiers else REGISTER_BITS
    return _Move("load" if direction == ("load",) else "store", opcode.space, registers * bits)


def _multicast(_: Kind, opcode: Words, __: str) -> _Move | None:
    kinds: dict[str, Kind] = {"ld_reduce": "load", "st": "store", "red": "reduction"}
    kind = kinds.get(opcode.modifiers[0]) if opcode.modifiers else None
    return _Move(kind, opcode.space, opcode.vector_bits) if kind else None


def _texture(kind: Kind, _: Words, __: str) -> _Move:
    # The size of a texel is in the descriptor.
    return _Move(kind, "texture", None)


def _surface(kind: Kind, opcode: Words, _: str) -> _Move:
    # sust.p has no width, as it converts to the format in the descriptor.
    converted = opcode.root == "sust" and opcode.modifiers[:1] == ("p",)
    return _Move(kind, "surface", None if converted else opcode.vector_bits)


MOVES: dict[str, tuple[Kind, Callable[[Kind, Words, str], _Move | None]]] = {
    "ld": ("load", _plain),
    "ldu": ("load", _plain),
    "st": ("store", _plain),
    "atom": ("atomic", _plain),
    "red": ("reduction", _plain),
    "ldmatrix": ("load", _matrix),
    "stmatrix": ("store", _matrix),
    "cp": ("async-copy", _copy),
    "prefetch": ("prefetch", _prefetch),
    "prefetchu": ("prefetch", _prefetch),
    "wmma": ("load", _fragment),
    "multimem": ("load", _multicast),
    "tex": ("load", _texture),
    "tld4": ("load", _texture),
    "suld": ("load", _surface),
    "sust": ("store", _surface),
    "sured": ("reduction", _surface),
}
