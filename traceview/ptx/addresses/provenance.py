"""Kernel arguments that an access depends on: the provenance of its address and its mask."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from traceview.ptx.accesses import access_of
from traceview.ptx.addresses.slicing import Origin, Slices, results, together
from traceview.ptx.elements_per_thread import pointee_bits
from traceview.ptx.longest_path import Passes
from traceview.ptx.model import Access, Argument, Function, Instruction, SourceLine
from traceview.records import record

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

    @classmethod
    def of(cls, function: Function, arguments: Sequence[Argument] = ()) -> Provenance:
        """Index a function; `arguments` are those of the kernel as compiled, with constexprs."""
        by_access: dict[_Key, list[Instruction]] = defaultdict(list)
        for each in function.instructions:
            by_access[each.opcode, each.source, each.loop_depth].append(each)
        return cls(
            Slices.of(function),
            Passes(function),
            tuple(arguments),
            _by_access=dict(by_access),
            arguments_by_parameter=_arguments_by_parameter(function, arguments),
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
        arguments = self.named(self.slices.address(instruction).parameters)
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

    def unused_lanes(self, access: Access) -> int:
        """The number of values of a vector load that no instruction reads."""
        loads = self.instructions(access) if access.kind == "load" else ()
        return sum(name not in self.slices.read_registers for i in loads for name in results(i))


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
