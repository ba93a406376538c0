"""How far apart the elements of neighbouring places lie, and whether their masks differ.

Both are told from the addresses and guards in the PTX, reckoned for sample launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceview.ptx.addresses.evaluation import Launch, Registers, launches
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.addresses.slicing import Slices
from traceview.ptx.model import Access, Argument, Compiled, Instruction

_VECTOR_BYTES = 16
# More of them, of a tile that is large, tell nothing new.
_MOST = 64


@dataclass(frozen=True)
class Step:
    """From one place of memory to the next: `of` bytes, or as many times a parameter's value."""

    of: int
    parameter: Argument | None = None


@dataclass(frozen=True)
class Layout:
    """How the elements of neighbouring places lie, and what one vector of them would meet.

    `masks_differ` and `starts_wide` hold for sizes and pointers that are multiples of 16.
    `moves_with_block` says that each block takes a stretch of its own, of compiled-in length.
    """

    step: Step | None
    element_bytes: int
    width_bytes: int
    masks_differ: bool
    starts_wide: bool
    moves_with_block: bool

    @property
    def consecutive(self) -> bool:
        """Whether what is moved next lies right behind."""
        return self.step == Step(self.width_bytes)

    @property
    def scattered(self) -> bool:
        """Whether it is known to lie elsewhere."""
        return self.step is not None and not self.consecutive

    @property
    def apart(self) -> int:
        """From one element to the next, in elements; of a parameter, in multiples of it."""
        return self.step.of // self.element_bytes if self.step else 0


@dataclass(frozen=True)
class Samples:
    """A function's registers in several made-up launches."""

    slices: Slices
    integers: Mapping[str, Argument]
    each: Sequence[Registers]
    _next: dict[tuple[int, int], Registers] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, provenance: Provenance, compiled: Compiled) -> Samples:
        """`compiled` tells how many threads a block has."""
        slices, known = provenance.slices, _named(provenance)
        threads = 32 * compiled.num_warps if compiled.num_warps else None
        integers = {n: a for n, a in known.items() if not a.type.startswith("*")}
        made = launches(slices.function.parameters, known, threads)
        return cls(slices, integers, [Registers(slices, launch) for launch in made])

    def layout(self, access: Access, provenance: Provenance) -> Layout:
        """That of the instructions that were counted as one access."""
        instructions = provenance.instructions(access)[:_MOST]
        first, width = instructions[0], max(1, (access.width_bits or 8) // 8)
        size = (provenance.element_bits(access) or access.width_bits or 8) // 8
        return Layout(
            self.step(instructions),
            max(1, min(size, width)),
            width,
            self.masks_differ(instructions),
            self.starts_wide(first),
            self.moves_with_block(first),
        )

    def step(self, instructions: Sequence[Instruction]) -> Step | None:
        """From one neighbour to the next: of the thread, or of the threads, whichever is nearer.

        Zero where most elements of a thread are one and the same; None where no rule is seen.
        """
        own = self._mode([self._between(a, b) for a, b in pairwise(instructions)])
        if own and own.of == 0:
            return own
        found = [step for step in (own, *self._lanes(instructions[0])) if step and step.of]
        known = [step for step in found if step.parameter is None] or found
        return min(known, key=lambda step: abs(step.of), default=None)

    def masks_differ(self, instructions: Sequence[Instruction]) -> bool:
        """Whether two elements that fit into one vector may be masked differently."""
        return any(
            bool(np.any(self._in_one_vector(each, a, b) & (each.guard(a) != each.guard(b))))
            for a, b in pairwise(instructions)
            for each in self.each
        )

    def starts_wide(self, instruction: Instruction) -> bool:
        """Whether the first thread's address is a multiple of 16 wherever the arguments are."""
        return all(_first(each, instruction) % _VECTOR_BYTES == 0 for each in self.each)

    def moves_with_block(self, instruction: Instruction) -> bool:
        """Whether each block takes a stretch of its own, of a length that is compiled in."""
        return any(step and step.of and not step.parameter for step in self._blocks(instruction))

    def _blocks(self, instruction: Instruction) -> Iterator[Step | None]:
        for axis in range(3):
            further = [self._further(number, axis) for number in range(len(self.each))]
            yield self._rule(
                _first(there, instruction) - _first(here, instruction)
                for here, there in zip(self.each, further, strict=True)
            )

    def _further(self, number: int, axis: int) -> Registers:
        if (number, axis) not in self._next:
            moved = self.each[number].launch.next_block(axis)
            self._next[number, axis] = Registers(self.slices, moved)
        return self._next[number, axis]

    def _between(self, a: Instruction, b: Instruction) -> Step | None:
        return self._rule(_first(each, b) - _first(each, a) for each in self.each)

    def _lanes(self, instruction: Instruction) -> Iterator[Step | None]:
        threads, lane = self.each[0].launch.threads, 1
        while lane < threads:
            at = [each.address(instruction) for each in self.each]
            yield self._rule(int(address[lane]) - int(address[0]) for address in at)
            lane *= 2

    def _rule(self, differences: Iterator[int]) -> Step | None:
        """What the differences, one for each launch, have in common."""
        listed = list(differences)
        if len(set(listed)) == 1:
            return Step(listed[0])
        for name, argument in self.integers.items():
            both = zip(listed, self.each, strict=True)
            factors = {_factor(difference, each.launch, name) for difference, each in both}
            factor = factors.pop()
            if not factors and factor:
                return Step(factor, argument)
        return None

    @staticmethod
    def _mode(steps: Sequence[Step | None]) -> Step | None:
        counts = Counter(steps)
        return counts.most_common(1)[0][0] if counts else None

    @staticmethod
    def _in_one_vector(each: Registers, a: Instruction, b: Instruction) -> npt.NDArray[np.bool_]:
        first, second = each.address(a), each.address(b)
        same = np.equal(first // _VECTOR_BYTES, second // _VECTOR_BYTES)
        return same & np.not_equal(first, second)


def _first(registers: Registers, instruction: Instruction) -> int:
    """The first thread's address."""
    return int(registers.address(instruction)[0])


def _factor(difference: int, launch: Launch, name: str) -> int | None:
    value = launch.parameters[name]
    return difference // value if difference % value == 0 else None


def _named(provenance: Provenance) -> dict[str, Argument]:
    """The arguments by the parameters of the PTX that they are."""
    order = provenance.slices.function.parameters
    found = ((name, provenance.named([name])) for name in order)
    return {name: arguments[0] for name, arguments in found if arguments}
