"""Which arguments of the kernel an access depends on, by their names in the user's program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from traceview.ptx.address import Origin, Slices, reads, results, together
from traceview.ptx.model import Access, Argument, Function, Instruction
from traceview.ptx.width import pointee_bits

# Triton appends pointers to scratch memory of its own.
_SCRATCH = 2


@dataclass(frozen=True)
class Provenance:
    """The accesses of one PTX function, with what their addresses and guards are computed from."""

    slices: Slices
    arguments: tuple[Argument, ...]

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
        ]

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
