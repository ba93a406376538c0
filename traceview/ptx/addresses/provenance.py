"""Which arguments of the kernel an access depends on, by their names in the user's program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from traceview.ptx.addresses.slicing import Origin, Slices, reads, results, together
from traceview.ptx.elements_per_thread import pointee_bits
from traceview.ptx.model import Access, Argument, Function, Instruction

# Triton appends pointers to scratch memory of its own.
_SCRATCH = 2

Array = frozenset[str]
"""What an address starts from: the pointer arguments, one unless it is computed from several."""


@dataclass(frozen=True)
class Provenance:
    """The accesses of one PTX function, with what their addresses and guards are computed from.

    With `only` it knows those of one array alone.
    """

    slices: Slices
    arguments: tuple[Argument, ...]
    only: Array | None = None

    @classmethod
    def of(cls, function: Function, arguments: Sequence[Argument] = ()) -> Provenance:
        """`arguments` are those of the kernel as compiled, constexprs among them."""
        return cls(Slices.of(function), tuple(arguments))

    def instructions(self, access: Access) -> list[Instruction]:
        """The instructions that were counted as this access."""
        return [
            instruction
            for instruction in self.slices.function.instructions
            if instruction.opcode == access.opcode
            and instruction.source == access.source
            and instruction.loop_depth == access.loop_depth
            and self.only in (None, self._array(instruction))
        ]

    def of_array(self, array: Array) -> Provenance:
        """The same for the accesses of one array."""
        return replace(self, only=array)

    def by_array(self, accesses: Iterable[Access]) -> Mapping[Array, list[Access]]:
        """The accesses parted by the arrays that they touch; one line may read several.

        Where the arguments cannot be told from each other, all are under the empty set.
        """
        parted: dict[Array, list[Access]] = defaultdict(list)
        for access in accesses:
            counts = Counter(self._array(instruction) for instruction in self.instructions(access))
            for array, count in counts.items():
                parted[array].append(replace(access, count=count))
        return parted

    def _array(self, instruction: Instruction) -> Array:
        from_ = self.named(self.slices.address(instruction).parameters)
        return frozenset(argument.name for argument in from_ if argument.type.startswith("*"))

    def address(self, access: Access) -> Origin:
        """What the addresses of an access are computed from, all its instructions together."""
        return together(self.slices.address(i) for i in self.instructions(access))

    def guard(self, access: Access) -> Origin:
        """What the mask of an access is computed from."""
        return together(self.slices.guard(i) for i in self.instructions(access))

    def named(self, parameters: Iterable[str]) -> list[Argument]:
        """The arguments that parameters of the PTX stand for; none where they cannot be told."""
        order = self.slices.function.parameters
        passed = [a for a in self.arguments if a.type != "constexpr"]
        if not len(passed) <= len(order) <= len(passed) + _SCRATCH:
            return []
        by_name = dict(zip(order, passed, strict=False))
        wanted = set(parameters)
        return [argument for name, argument in by_name.items() if name in wanted]

    def element_bits(self, access: Access) -> int | None:
        """The bits of what the pointer of an access points to; None where it cannot be told."""
        pointers = self.named(self.address(access).parameters)
        sizes = {bits for pointer in pointers if (bits := pointee_bits(pointer))}
        return sizes.pop() if len(sizes) == 1 else None

    def streams(self, accesses: Iterable[Access]) -> int:
        """How many different arrays these accesses touch, told by the pointers they start from."""
        each = (i for access in accesses for i in self.instructions(access))
        return len({self.slices.address(instruction).pointers for instruction in each})

    def unused_lanes(self, access: Access) -> int:
        """How many values a vector load brings that no instruction reads."""
        wanted = {name for i in self.slices.function.instructions for name in reads(i)}
        loads = (i for i in self.instructions(access) if access.kind == "load")
        return sum(name not in wanted for load in loads for name in results(load))
