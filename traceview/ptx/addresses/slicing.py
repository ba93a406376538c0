"""Backward slices of addresses and masks: the parameters, loads and thread indices behind them.

A slice follows registers of a PTX function backwards to where their values come from. A register
may be assigned more than once; every assignment counts, as an address may depend on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from traceview.ptx.model import Function, Instruction
from traceview.records import record

_REGISTER = re.compile(r"%[A-Za-z_$][\w$]*(?:\.[a-z]+)?")
_VECTOR = re.compile(r"^\s*\{([^}]*)\}")
_WITHOUT_RESULT = ("st.", "bra", "ret", "bar", "red.", "cp.", "membar", "fence", "mbarrier.inval")
_THREAD = {"%tid.x", "%tid.y", "%tid.z", "%laneid", "%warpid"}
_BLOCK = {"%ctaid.x", "%ctaid.y", "%ctaid.z", "%clusterid.x", "%clusterid.y", "%clusterid.z"}
# A slice ends at these: what the address of the load depends on does not matter.
_LOADS = ("ld.global", "ld.relaxed", "ld.acquire", "ld.volatile", "ld.weak", "atom.", "ldu.")


@record
class Origin:
    """The data that a value is computed from.

    `parameters` are names of kernel parameters, `pointers` the 64-bit ones among them. `loaded`: it
    depends on data loaded from global memory, and `loaded_from` are the parameters that the
    addresses of those loads start from. `gathered`: the addresses of those loads differ
    between the threads of a block. `through_shared`: it depends on values from shared memory.
    `per_thread`: it differs between the threads of a block. `per_block`: between blocks.
    """

    parameters: frozenset[str]
    pointers: frozenset[str]
    loaded: bool
    through_shared: bool
    per_thread: bool
    per_block: bool = False
    gathered: bool = False
    loaded_from: frozenset[str] = frozenset()


@record
class Slices:
    """The assignments of a function by register, and the slices computed so far."""

    function: Function
    _writers: Mapping[str, list[Instruction]] = field(repr=False)
    _origins: dict[tuple[str, ...], Origin] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, function: Function) -> Slices:
        """Index the instructions of a function by the registers that they write."""
        writers: dict[str, list[Instruction]] = {}
        for instruction in function.instructions:
            for register in results(instruction):
                writers.setdefault(register, []).append(instruction)
        return cls(function, writers)

    def address(self, access: Instruction) -> Origin:
        """The origin of the address of a load, store, copy or atomic."""
        return self._origin(registers_in(address_text(access.operands)))

    def guard(self, access: Instruction) -> Origin:
        """The origin of the predicate (the mask) of an access."""
        return self._origin([access.predicate.lstrip("!")] if access.predicate else [])

    def writer(self, register: str) -> Instruction | None:
        """The first instruction that writes a register, a load if there is one; None without any.

        Triton writes a masked load's `other` value first and then loads over it.
        """
        writers = self._writers.get(register, [])
        loads = (each for each in writers if each.opcode.startswith(("ld.", *_LOADS)))
        return next(loads, writers[0] if writers else None)

    def writers(self, register: str) -> Sequence[Instruction]:
        """All instructions that write a register."""
        return self._writers.get(register, ())

    @cached_property
    def read_registers(self) -> frozenset[str]:
        """All registers that some instruction of the function reads."""
        return frozenset(name for each in self.function.instructions for name in reads(each))

    def _origin(self, registers: Iterable[str]) -> Origin:
        key = tuple(registers)
        if key not in self._origins:
            self._origins[key] = self._slice(key)
        return self._origins[key]

    def _slice(self, registers: Iterable[str]) -> Origin:
        seen: set[str] = set()
        waiting = list(registers)
        parameters: set[str] = set()
        pointers: set[str] = set()
        loaded = shared = gathered = False
        loaded_from: set[str] = set()
        while waiting:
            register = waiting.pop()
            if register in seen:
                continue
            seen.add(register)
            for writer in self._writers.get(register, ()):
                if writer.opcode.startswith(_LOADS):
                    behind = self._behind(reads(writer))
                    loaded, gathered = True, gathered or bool(behind & _THREAD)
                    writers = (writer for each in behind for writer in self._writers.get(each, ()))
                    loaded_from |= {name for writer in writers for name in self._parameters(writer)}
                shared |= writer.opcode.startswith(("ld.shared", "ldmatrix"))
                parameters |= self._parameters(writer)
                pointers |= self._parameters(writer) if writer.opcode.endswith("64") else set()
                waiting += [] if writer.opcode.startswith(_LOADS) else reads(writer)
        return Origin(
            frozenset(parameters),
            frozenset(pointers),
            loaded,
            shared,
            per_thread=bool(seen & _THREAD),
            per_block=bool(seen & _BLOCK),
            gathered=gathered,
            loaded_from=frozenset(loaded_from),
        )

    def _behind(self, registers: Iterable[str]) -> set[str]:
        """All registers that the given ones depend on, including through the addresses of loads."""
        seen, waiting = set[str](), list(registers)
        while waiting:
            register = waiting.pop()
            if register not in seen:
                seen.add(register)
                writers = self._writers.get(register, ())
                waiting += [name for writer in writers for name in reads(writer)]
        return seen

    def _parameters(self, writer: Instruction) -> set[str]:
        if not writer.opcode.startswith("ld.param"):
            return set()
        named = set(re.findall(r"[\w$]+", address_text(writer.operands)))
        return named & set(self.function.parameters)


def results(instruction: Instruction) -> list[str]:
    """The registers that an instruction writes: those of its first operand."""
    if instruction.opcode.startswith(_WITHOUT_RESULT):
        return []
    return _REGISTER.findall(_first_operand(instruction.operands))


def reads(instruction: Instruction) -> list[str]:
    """The registers that an instruction reads, its predicate included."""
    written = 0 if instruction.opcode.startswith(_WITHOUT_RESULT) else 1
    text = instruction.operands
    rest = text[len(_first_operand(text)) :] if written else text
    guard = [instruction.predicate.lstrip("!")] if instruction.predicate else []
    return _REGISTER.findall(rest) + guard


def _first_operand(operands: str) -> str:
    vector = _VECTOR.match(operands)
    return vector[0] if vector else operands.partition(",")[0]


def registers_in(text: str) -> list[str]:
    """The registers that a piece of PTX names, in order."""
    return _REGISTER.findall(text)


def address_text(operands: str) -> str:
    """The address operand without its brackets; of an asynchronous copy, the source address."""
    brackets = re.findall(r"\[([^\]]*)\]", operands)
    return brackets[-1] if brackets else ""


def together(origins: Iterable[Origin]) -> Origin:
    """The union of several origins."""
    listed = list(origins)
    return Origin(
        frozenset().union(*(origin.parameters for origin in listed)),
        frozenset().union(*(origin.pointers for origin in listed)),
        any(origin.loaded for origin in listed),
        any(origin.through_shared for origin in listed),
        any(origin.per_thread for origin in listed),
        any(origin.per_block for origin in listed),
        any(origin.gathered for origin in listed),
        frozenset().union(*(origin.loaded_from for origin in listed)),
    )
