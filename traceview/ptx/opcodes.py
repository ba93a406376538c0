"""The words of PTX opcodes: types, vector sizes, state spaces, scopes, families.

Modifiers come in any order, so a word is recognized by itself, not by its position. Names and
sizes are those of the PTX ISA manual.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

TYPE_BITS: Mapping[str, int] = {
    **{f"{letter}{bits}": bits for letter in "bus" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("e4m3", "e5m2"), 8),
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2"), 16),
    **dict.fromkeys(("f32", "tf32", "f16x2", "bf16x2", "u16x2", "s16x2"), 32),
    **dict.fromkeys(("e4m3x4", "e5m2x4"), 32),
    **dict.fromkeys(("f64", "f32x2"), 64),
    "b128": 128,
}
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
SPACES = frozenset({"global", "shared", "local", "const", "param"})
SCOPES = frozenset({"cta", "cluster", "gpu", "sys"})
CACHE_OPERATORS = frozenset({"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "volatile"})
HINT_PREFIXES = ("L1::", "L2::", "evict_")

SPECIAL_FUNCTIONS = frozenset({"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"})
_ROOTS: Mapping[str, str] = {
    "load": "ld ldu ldmatrix tex tld4 suld",
    "store": "st stmatrix sust",
    "async-copy": "cp",
    "atomic": "atom red sured",
    "tensor-core": "mma wmma wgmma tcgen05",
    "shuffle": "shfl vote match redux elect activemask",
    "barrier": "bar barrier mbarrier membar fence griddepcontrol",
    "conversion": "cvt cvta",
    "control": "bra brx call ret exit trap brkpt nanosleep setmaxnreg pmevent",
}
FAMILY_OF_ROOT = {root: family for family, roots in _ROOTS.items() for root in roots.split()}
# Arithmetic and comparisons: their type decides between integer and float.
_ARITHMETIC = """
    abs add addc and bfe bfi bfind bmsk brev clz cnot copysign div dp2a dp4a fma fns lop3 mad mad24
    madc max min mul mul24 neg not or popc prmt rem sad selp set setp shf shl shr slct sub subc
    szext testp xor vadd vadd2 vadd4 vsub vmin vmax vset vmad vshl vshr
"""
ARITHMETIC = frozenset(_ARITHMETIC.split())


class Words(NamedTuple):
    """An opcode split at its dots: `root` is ld, cp, mma …, `modifiers` the words after it."""

    root: str
    modifiers: tuple[str, ...]

    @property
    def space(self) -> str | None:
        """The first state space; `shared::cluster` is shared."""
        bases = (word.partition("::")[0] for word in self.modifiers)
        return next((base for base in bases if base in SPACES), None)

    @property
    def types(self) -> tuple[str, ...]:
        """The types, in order."""
        return tuple(word for word in self.modifiers if word in TYPE_BITS)

    @property
    def vector_bits(self) -> int | None:
        """Vector size times the size of the last type; None without a type."""
        vector = next((VECTORS[word] for word in self.modifiers if word in VECTORS), 1)
        return vector * TYPE_BITS[self.types[-1]] if self.types else None

    @property
    def scope(self) -> str | None:
        """The scope: cta, cluster, gpu, sys, or None."""
        return next((word for word in self.modifiers if word in SCOPES), None)

    @property
    def hints(self) -> tuple[str, ...]:
        """Cache operators and eviction hints, as written."""
        return tuple(
            word
            for word in self.modifiers
            if word in CACHE_OPERATORS or word.startswith(HINT_PREFIXES)
        )


@lru_cache(maxsize=4096)
def words(opcode: str) -> Words:
    """Split an opcode at its dots."""
    root, *modifiers = opcode.split(".")
    return Words(root, tuple(modifiers))


@lru_cache(maxsize=4096)
def family(opcode: str) -> str:
    """The family of an opcode in the instruction mix.

    Loads and stores of parameters do not count as memory accesses: they are "other", like mov.
    """
    root, modifiers = words(opcode)
    if root == "multimem":
        return {"ld_reduce": "load", "st": "store"}.get(modifiers[0] if modifiers else "", "atomic")
    if root in {"ld", "st"} and words(opcode).space == "param":
        return "other"
    if root in FAMILY_OF_ROOT:
        return FAMILY_OF_ROOT[root]
    if root in SPECIAL_FUNCTIONS:
        return "special-function"
    return _kind_of_number(words(opcode)) if root in ARITHMETIC else "other"


def _kind_of_number(opcode: Words) -> str:
    """`float` or `integer`, by the last type: set.lt.u32.f32 compares floats."""
    last = opcode.types[-1] if opcode.types else ""
    return "float" if last[:1] in {"f", "t", "e"} or last.startswith("bf") else "integer"
