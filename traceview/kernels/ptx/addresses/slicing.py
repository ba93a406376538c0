"""Backward slices of addresses and masks, and the kernel arguments that an access depends on.

A slice follows registers of a PTX function backwards to where their values come from. A register
may be assigned more than once; every assignment counts, as an address may depend on each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from traceview.base.records import record
from traceview.kernels.ptx.accesses import access_of, pointee_bits
from traceview.kernels.ptx.instruction_mix import Passes
from traceview.kernels.ptx.loops import reached
from traceview.kernels.ptx.model import Access, Argument, Function, Instruction, SourceLine

_REGISTER = re.compile(r"%[A-Za-z_$][\w$]*(?:\.[a-z]+)?")
_VECTOR = re.compile(r"^\s*\{([^}]*)\}")
_WITHOUT_RESULT = ("st.", "bra", "ret", "bar", "red.", "cp.", "membar", "fence", "mbarrier.inval")
_THREAD = {"%tid.x", "%tid.y", "%tid.z", "%laneid", "%warpid"}
_BLOCK = {"%ctaid.x", "%ctaid.y", "%ctaid.z", "%clusterid.x", "%clusterid.y", "%clusterid.z"}
_DIVISION = re.compile(r"(?:div|rem)\.[su](?:16|32|64)$")
_QUOTIENT = re.compile(r"(?:div|shr)\.")
_DIVISOR = re.compile(r",\s*(%[^,\s]+)$")
# A slice ends at these: what the address of the load depends on does not matter.
_LOADS = ("ld.global", "ld.relaxed", "ld.acquire", "ld.volatile", "ld.weak", "atom.", "ldu.")


@record
class Origin:
    """The data that a value is computed from.

    `parameters` are names of kernel parameters, `pointers` the 64-bit ones among them. `loaded`: it
    depends on data loaded from global memory, and `loaded_from` are the parameters that the
    addresses of those loads start from. `gathered`: the addresses of those loads differ
    between the threads of a block. `through_shared`: it depends on values from shared memory.
    `per_thread`: it differs between the threads of a block. `per_block`: between blocks. `axes`:
    those of threads and blocks along which it differs (x, y, z). `counted`: it is computed from
    the number of bits of a mask. `picked`: from values of shared memory that differ between the
    threads. `divided`: from a quotient or remainder of threads by a value known only at run time.
    """

    parameters: frozenset[str]
    pointers: frozenset[str]
    loaded: bool
    through_shared: bool
    per_thread: bool
    per_block: bool = False
    gathered: bool = False
    loaded_from: frozenset[str] = frozenset()
    axes: frozenset[str] = frozenset()
    counted: bool = False
    picked: bool = False
    divided: bool = False


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
        return self.origin(registers_in(address_text(access.operands)))

    def symbols(self, access: Instruction) -> set[str]:
        """The names, such as those of shared arrays, that the address of an access adds up."""
        text = address_text(access.operands)
        names, waiting, seen = set(re.findall(r"[\w$]+", text)), registers_in(text), set[str]()
        while waiting:
            register = waiting.pop()
            new = [] if register in seen else self.writers(register)
            seen.add(register)
            for writer in (each for each in new if not each.opcode.startswith(_LOADS)):
                names |= set(re.findall(r"[\w$]+", writer.operands))
                waiting += reads(writer)
        return names

    def guard(self, access: Instruction) -> Origin:
        """The origin of the predicate (the mask) of an access."""
        return self.origin([access.predicate.lstrip("!")] if access.predicate else [])

    def compared(self, comparison: Instruction) -> Origin:
        """The origin of what an instruction that sets a predicate compares."""
        return self.origin(reads(comparison))

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
    def pointers(self) -> frozenset[str]:
        """The parameters of 64 bits; in code of NVVM, those that it converts to addresses."""
        code = self.function.instructions
        converted = {each for i in code if i.opcode.startswith("cvta.to") for each in reads(i)}
        return frozenset(
            name
            for i in code
            if i.opcode.startswith("ld.param") and i.opcode.endswith("64")
            if not converted or converted & {*results(i)}
            for name in self._parameters(i)
        )

    @cached_property
    def read_registers(self) -> frozenset[str]:
        """All registers that some instruction of the function reads."""
        return frozenset(name for each in self.function.instructions for name in reads(each))

    def origin(self, registers: Iterable[str]) -> Origin:
        """The origin of the values of registers, together."""
        key = tuple(registers)
        if key not in self._origins:
            self._origins[key] = self._slice(key)
        return self._origins[key]

    def _slice(self, registers: Iterable[str]) -> Origin:
        seen: set[str] = set()
        waiting = list(registers)
        parameters: set[str] = set()
        pointers: set[str] = set()
        loaded = shared = gathered = counted = picked = divided = False
        loaded_from: set[str] = set()
        while waiting:
            register = waiting.pop()
            if register in seen:
                continue
            seen.add(register)
            for writer in self._writers.get(register, ()):
                if writer.opcode.startswith(_LOADS):
                    behind = self.behind(reads(writer))
                    loaded, gathered = True, gathered or bool(behind & _THREAD)
                    writers = (writer for each in behind for writer in self._writers.get(each, ()))
                    loaded_from |= {name for writer in writers for name in self._parameters(writer)}
                if writer.opcode.startswith(("ld.shared", "ldmatrix")):
                    shared, picked = True, picked or self._differs(writer)
                divided = divided or (self.divides(writer) and self._differs(writer))
                counted |= writer.opcode.startswith("popc")
                parameters |= self._parameters(writer)
                pointers |= self._parameters(writer) & self.pointers
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
            axes=frozenset(each[-1] for each in seen & (_THREAD | _BLOCK) if each[-2] == "."),
            counted=counted,
            picked=picked,
            divided=divided,
        )

    def divides(self, instruction: Instruction) -> bool:
        """Whether it divides integers by a value that is known only at run time."""
        divisor = _DIVISOR.search(instruction.operands)
        if not divisor or not _DIVISION.match(instruction.opcode):
            return False
        # A register may serve again for something else.
        writers = self.writers(divisor[1])
        before = [w for w in writers if w.line < instruction.line or instruction.loop_depth]
        return not before or any(reads(w) or not w.opcode.startswith("mov") for w in before)

    def shares_quotient(self, registers: Iterable[str]) -> bool:
        """Whether values depend on the thread's index, but on nothing of it but a quotient.

        Then threads of one quotient, such as those of a warp, have the same values.
        """

        def following(register: str) -> Iterator[str]:
            for writer in self._writers.get(register, ()):
                if not _QUOTIENT.match(writer.opcode):
                    yield from reads(writer)

        listed = list(registers)
        return bool(self.behind(listed) & _THREAD) and not _THREAD & {*reached(listed, following)}

    def _differs(self, writer: Instruction) -> bool:
        return bool(self.behind(reads(writer)) & _THREAD)

    def behind(self, registers: Iterable[str]) -> set[str]:
        """All registers that the given ones depend on, including through the addresses of loads."""

        def following(register: str) -> Iterator[str]:
            for writer in self._writers.get(register, ()):
                yield from reads(writer)

        return set(reached(registers, following))

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
        frozenset().union(*(origin.axes for origin in listed)),
        any(origin.counted for origin in listed),
        any(origin.picked for origin in listed),
        any(origin.divided for origin in listed),
    )


# Triton appends pointers to scratch memory of its own.
_SCRATCH = 2

Array = frozenset[str]
"""The pointer arguments that an address starts from: one, unless it is computed from several."""

_Key = tuple[str, SourceLine | None, int]


@record
class Provenance:
    """The accesses of one PTX function, with what their addresses and masks are computed from.

    Instructions are grouped by access and sliced once per function; all lookups share that.
    """

    slices: Slices
    passes: Passes
    arguments: tuple[Argument, ...]
    _by_access: Mapping[_Key, Sequence[Instruction]] = field(default_factory=dict, repr=False)
    arguments_by_parameter: Mapping[str, Argument] = field(default_factory=dict, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, function: Function, arguments: Sequence[Argument] = (), names: Sequence[str] = ()
    ) -> Provenance:
        """Index a function; `arguments` are those of the kernel as compiled, with constexprs.

        `names` are those of its parameters in CUDA C++, whose types are not known.
        """
        by_access: dict[_Key, list[Instruction]] = defaultdict(list)
        for each in function.instructions:
            by_access[each.opcode, each.source, each.loop_depth].append(each)
        return cls(
            Slices.of(function),
            Passes(function),
            tuple(arguments),
            _by_access=dict(by_access),
            arguments_by_parameter=_arguments_by_parameter(function, arguments),
            names=dict(zip(function.parameters, names, strict=False)),
        )

    def instructions(self, access: Access) -> Sequence[Instruction]:
        """The instructions that were counted as this access."""
        return self._by_access.get((access.opcode, access.source, access.loop_depth), ())

    def by_array(self, accesses: Iterable[Access]) -> Mapping[Array, list[Access]]:
        """The accesses grouped by the array that they touch; one source line may touch several.

        All are under the empty set if parameters cannot be matched to arguments.
        """
        grouped: dict[Array, list[Access]] = defaultdict(list)
        for access in accesses:
            counts = Counter(self.array(instruction) for instruction in self.instructions(access))
            for array, count in counts.items():
                grouped[array].append(replace(access, count=count))
        return grouped

    def array(self, instruction: Instruction) -> Array:
        """The pointer arguments that the address of an instruction starts from."""
        address = self.slices.address(instruction)
        if self.names:
            return frozenset(self.names[each] for each in address.pointers if each in self.names)
        arguments = self.named(address.parameters)
        return frozenset(each.name for each in arguments if each.type.startswith("*"))

    def address(self, access: Access) -> Origin:
        """The origins of an access's addresses, over all its instructions."""
        return together(self.slices.address(i) for i in self.instructions(access))

    def guard(self, access: Access) -> Origin:
        """The origins of an access's mask."""
        return together(self.slices.guard(i) for i in self.instructions(access))

    def named(self, parameters: Iterable[str]) -> list[Argument]:
        """The arguments behind parameters of the PTX, in order; none if they cannot be matched."""
        wanted = set(parameters)
        return [
            argument for name, argument in self.arguments_by_parameter.items() if name in wanted
        ]

    def element_bits(self, access: Access) -> int | None:
        """The element size of the array of an access in bits; None if it is not known."""
        return self.element_bits_at(self.address(access))

    def element_bits_at(self, address: Origin) -> int | None:
        """The element size in bits of the array of an address; None if it is not known."""
        pointers = self.named(address.parameters)
        sizes = {bits for pointer in pointers if (bits := pointee_bits(pointer))}
        return sizes.pop() if len(sizes) == 1 else None

    def in_one_pass(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """The instructions that a thread executes in one pass of the innermost loop around them.

        Of alternative paths, the one that moves the most bits counts.
        """
        return self.passes.heaviest((each, _bits(each)) for each in instructions)

    def bits_per_pass(self, instructions: Iterable[Instruction]) -> int:
        """The bits that a thread moves in one pass of the innermost loop around instructions."""
        return sum(map(_bits, self.in_one_pass(instructions)))

    def bits_of(self, accesses: Iterable[Access]) -> int:
        """The bits that a thread moves through accesses in one pass of their innermost loop."""
        return self.bits_per_pass(each for a in accesses for each in self.instructions(a))

    def streams(self, accesses: Iterable[Access]) -> int:
        """The number of arrays that accesses touch in one pass, by the pointers they start from."""
        instructions = self.in_one_pass(each for a in accesses for each in self.instructions(a))
        return len({self.slices.address(each).pointers for each in instructions})


def _bits(instruction: Instruction) -> int:
    access = access_of(instruction)
    return (access.width_bits or 0) if access else 0


def _arguments_by_parameter(
    function: Function, arguments: Sequence[Argument]
) -> dict[str, Argument]:
    """The arguments by PTX parameter name; empty if their numbers do not match."""
    parameters = function.parameters
    passed = [argument for argument in arguments if argument.type != "constexpr"]
    if not len(passed) <= len(parameters) <= len(passed) + _SCRATCH:
        return {}
    return dict(zip(parameters, passed, strict=False))
