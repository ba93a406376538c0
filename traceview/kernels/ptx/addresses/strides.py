"""Strides between neighbouring elements of an access, and whether their masks differ.

Both follow from the addresses and predicates in the PTX, evaluated for sample launches.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceview.base.records import record
from traceview.kernels.ptx.addresses.evaluation import Launch, Registers, launches
from traceview.kernels.ptx.addresses.request_costs import SECTOR_BYTES
from traceview.kernels.ptx.addresses.slicing import (
    Provenance,
    Slices,
    address_text,
    reads,
    registers_in,
)
from traceview.kernels.ptx.branches import Branches
from traceview.kernels.ptx.loops import block_starts
from traceview.kernels.ptx.model import Access, Argument, Compiled, Instruction

# The bytes by which an address advances in each iteration of the loop around its access.

_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|\d{1,20})$")
_COPIES = ("mov", "cvt", "cvta")
_MOST_DEPTH = 40
_INTEGERS = ("u32", "s32", "b32", "u64", "s64", "b64")


@record
class LoopSteps:
    """How far the registers of a function advance from one loop iteration to the next."""

    slices: Slices

    def of(self, access: Instruction) -> int | None:
        """The bytes by which an access's address advances; None outside loops or if it varies."""
        if not access.loop_depth:
            return None
        base = registers_in(address_text(access.operands))
        return self._step(base[0], access.loop_depth, 0) if base else 0

    def advances(self, access: Instruction) -> dict[int, bool]:
        """The depths of the loops that advance an address, and if by a value known at run time."""
        slices, found = self.slices, dict[int, bool]()
        behind_all = slices.behind(registers_in(address_text(access.operands)))
        inside = [(r, w) for r in behind_all for w in slices.writers(r) if w.loop_depth]
        carried = [(r, w) for r, w in inside if len(slices.writers(r)) > 1]
        for register, writer in carried:
            depth, behind = writer.loop_depth, slices.behind(reads(writer))
            if register in behind:
                around = (i for r in behind for i in slices.writers(r) if i.loop_depth >= depth)
                steps = (r for each in (writer, *around) for r in reads(each))
                found[depth] = found.get(depth, False) or self._is_given(steps, depth)
        for _, writer in inside if access.loop_depth in found else ():
            # The loop counts, and the size of a row is multiplied within it.
            if writer.opcode.startswith(("mul", "mad")):
                factors = registers_in(",".join(_operands(writer)[:2]))
                found[access.loop_depth] |= self._is_given(factors, writer.loop_depth)
        return found

    def _is_given(self, registers: Iterable[str], depth: int) -> bool:
        """Whether parameters fix values that a loop does not change."""
        fixed = [each for each in registers if not self._inside(each, depth)]
        return bool(self.slices.origin(fixed).parameters)

    def _step(self, text: str, depth: int, level: int) -> int | None:
        """The step of an operand; for a loop-carried register, what the loop adds to it."""
        inside = self._inside(text, depth)
        if not inside:
            return 0
        if len(inside) > 1 or level > _MOST_DEPTH:
            return None
        writer = inside[0]
        if len(self.slices.writers(registers_in(text)[0])) > 1:
            return self._added(writer, registers_in(text)[0], depth)
        steps = [self._step(operand, depth, level + 1) for operand in _operands(writer)]
        known = [step for step in steps if step is not None]
        if writer.opcode.startswith(("ld.", "atom.")) or len(known) < len(steps):
            return None
        return _combined(writer, known) if any(known) else 0

    def _added(self, writer: Instruction, carried: str, depth: int) -> int | None:
        """The constant that the loop adds to a register before it comes back to `writer`."""
        total = 0
        for _ in range(_MOST_DEPTH):
            root, operands = writer.opcode.partition(".")[0], _operands(writer)
            if root == "add" and len(operands) == 2:
                number = _number(operands[1])
                if number is None:
                    return None
                total += number
            elif root not in _COPIES:
                return None
            if operands[0] == carried:
                return total
            inside = self._inside(operands[0], depth)
            if len(inside) != 1:
                return None
            writer = inside[0]
        return None

    def _inside(self, text: str, depth: int) -> list[Instruction]:
        registers = registers_in(text)
        writers = self.slices.writers(registers[0]) if registers else ()
        return [writer for writer in writers if writer.loop_depth >= depth]


def _operands(writer: Instruction) -> list[str]:
    return [part.strip() for part in writer.operands.split(",")][1:]


def _combined(writer: Instruction, steps: Sequence[int]) -> int | None:
    """The step of a result, given the steps of its operands; None if it is not constant."""
    root, operands = writer.opcode.partition(".")[0], _operands(writer)
    if root in _COPIES:
        return steps[0]
    if root == "add":
        return steps[0] + steps[1]
    if root == "sub":
        return steps[0] - steps[1]
    if root == "or" and 0 in steps:
        # How LLVM adds to a multiple of a power of two.
        return sum(steps)
    factor = _number(operands[1]) if root in ("mul", "mad", "shl") and not steps[1] else None
    if factor is None:
        return None
    scaled = steps[0] << factor if root == "shl" else steps[0] * factor
    return scaled + (steps[2] if root == "mad" else 0)


def _number(text: str) -> int | None:
    return int(text, 0) if _NUMBER.match(text) else None


_VECTOR_BYTES = 16
# More instructions, those of a large tile, add nothing.
_MOST_INSTRUCTIONS = 64
_SECTOR_BYTES = 32
_WARP, _MOST_THREADS = 32, 1024
# Rows of four threads and more, or all but the rim of a warp.
_NEARLY_ALL = 0.75


@record
class Stride:
    """A stride: `of` bytes, or `of` bytes times the value of a parameter, and `more` bytes."""

    of: int
    parameter: Argument | None = None
    more: int = 0


# Such as positions and velocities; more is rather a row.
MOST_STRUCTURE_BYTES = 64


@record
class Layout:
    """The stride of an access, and what could keep its elements from forming one vector.

    `masks_differ`: elements of one 16-byte vector may be masked differently. `starts_wide`: the
    first address is a multiple of 16. Both assume sizes and pointers that are multiples of 16.
    `moves_with_block`: blocks are a constant number of bytes apart. `loop_step` is the number of
    bytes that the address advances in each iteration, None where that is not constant.
    `threads_apart` is the distance of neighbouring threads, None unless they leave gaps; `lane` is
    that distance in any case. `along`: what runs along adjacent elements in threadIdx.x's place.
    """

    step: Stride | None
    element_bytes: int
    width_bytes: int
    masks_differ: bool
    starts_wide: bool
    moves_with_block: bool
    loop_step: int | None = None
    threads_apart: Stride | None = None
    lane: Stride | None = None
    along: str = ""

    @property
    def consecutive(self) -> bool:
        """Whether neighbouring elements are adjacent in memory."""
        return self.step == Stride(self.width_bytes)

    @property
    def scattered(self) -> bool:
        """Whether neighbouring elements are known not to be adjacent."""
        return self.step is not None and not self.consecutive

    @property
    def walked(self) -> bool:
        """Whether a thread's elements are apart and the loop steps through those between them."""
        step, apart = self.loop_step or 0, self.step
        between = apart is not None and (apart.parameter is not None or abs(step) < abs(apart.of))
        return self.scattered and between and 0 < abs(step) < SECTOR_BYTES

    @property
    def apart(self) -> int:
        """The stride in elements, or in multiples of the parameter's value."""
        return self.step.of // self.element_bytes if self.step else 0


@record
class Samples:
    """The registers of a function, evaluated in several sample launches."""

    slices: Slices
    integers: Mapping[str, Argument]
    each: Sequence[Registers]
    _next: dict[tuple[int, int], Registers] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, provenance: Provenance, compiled: Compiled) -> Samples:
        """Prepare sample launches with the block size of `compiled`."""
        slices, known = provenance.slices, provenance.arguments_by_parameter
        threads = 32 * compiled.num_warps if compiled.num_warps else None
        integers = {n: a for n, a in known.items() if not a.type.startswith("*")}
        integers = integers or _integers(slices, compiled.parameter_names)
        sampled = launches(slices.function.parameters, {**integers, **known}, threads)
        return cls(slices, integers, [Registers(slices, launch) for launch in sampled])

    def layout(
        self, access: Access, counted: Sequence[Instruction], element_bits: int | None
    ) -> Layout:
        """The layout of the instructions that were counted as one access."""
        instructions = counted[:_MOST_INSTRUCTIONS]
        first, width = instructions[0], max(1, (access.width_bits or 8) // 8)
        size = (element_bits or access.width_bits or 8) // 8
        step = self.step(instructions)
        return Layout(
            step,
            max(1, min(size, width)),
            width,
            self.masks_differ(instructions),
            self.starts_wide(first),
            self.moves_with_block(first),
            LoopSteps(self.slices).of(first),
            self.threads_apart(
                first, width * len(instructions) if step == Stride(width) else width
            ),
            self._lane(first),
            self._along(first, width),
        )

    def _along(self, instruction: Instruction, width: int) -> str:
        """What runs along adjacent elements: blocks of one, or rows of threads, which are near."""
        x, y, _ = self._blocks(instruction)
        if x == Stride(width):
            return "blockIdx.x"
        near = [
            bool(step and step.of and not step.parameter and abs(step.of) <= _MOST_THREADS * width)
            for step in (x, y)
        ]
        return "threadIdx.y" if near[1] and not near[0] else ""

    def share_of_threads(self, instruction: Instruction) -> float:
        """The greatest share of a block's threads that run an instruction, in all samples.

        By branches around it that compare nothing but the thread's index: `if (threadIdx.x < 16)`.
        """
        own = [instruction] if self._is_by_index(instruction) else []
        around = list(self.branches.around(instruction, self._is_by_index))
        most = 0.0
        for each in self.each if around or own else ():
            runs = [each.guard(i) for i in own]
            runs += [np.equal(each.guard(branch), jumps) for branch, jumps in around]
            most = max(most, float(np.mean(np.all(runs, axis=0))))
        return most or 1.0

    @cached_property
    def branches(self) -> Branches:
        """The branches of the function."""
        return Branches(self.slices.function)

    def _is_by_index(self, instruction: Instruction) -> bool:
        """Whether a predicate compares the thread's index with constants and nothing else."""
        of = self.slices.guard(instruction)
        varies = of.per_block or of.loaded or of.through_shared or of.parameters
        return of.per_thread and not varies and not self._counts(instruction)

    def _counts(self, instruction: Instruction) -> bool:
        """Whether a predicate depends on what a loop changes, such as its counter."""
        slices = self.slices
        return any(
            len(slices.writers(register)) > 1 and register in slices.behind(reads(writer))
            for register in slices.behind([(instruction.predicate or "").lstrip("!")])
            for writer in slices.writers(register)
            if writer.loop_depth
        )

    def overlap(self, instructions: Sequence[Instruction], width: int) -> bool:
        """Whether neighbouring threads access the same elements, shifted, as in a stencil.

        They are `width` bytes apart, and two of the instructions less than a warp, in all samples.
        """
        if any(self._lane(each) != Stride(width) for each in instructions):
            return False
        found = set()
        for each in self.each:
            addresses = [each.address(i) for i in instructions[:_MOST_INSTRUCTIONS]]
            # Where a rim is clamped, neighbours access the same element.
            if all(_typical(np.diff(address)) == width for address in addresses):
                at = sorted({int(address[each.launch.threads // 2]) for address in addresses})
                found.add(min((b - a for a, b in pairwise(at)), default=0))
        least = found.pop() if found else 0
        return not found and 0 < least < _WARP * width

    def step(self, instructions: Sequence[Instruction]) -> Stride | None:
        """The smaller of two strides: within a thread, and from thread to thread.

        Zero where most elements of a thread are the same element; None without a regular stride.
        """
        # Loops that unrolling makes of one begin alike: their elements are not the same.
        block = self._block_of
        found = [
            (self._rule(_first(each, b) - _first(each, a) for each in self.each), a, b)
            for a, b in pairwise(instructions)
        ]
        counts = Counter(
            step
            for step, a, b in found
            if not (step and step.of == 0) or block[a.line] == block[b.line]
        )
        within = counts.most_common(1)[0][0] if counts else None
        if within and within.of == 0:
            return within
        steps = [step for step in (within, *self._lanes(instructions[0])) if step and step.of]
        constant = [step for step in steps if step.parameter is None]
        return min(constant or steps, key=lambda step: abs(step.of), default=None)

    @cached_property
    def _block_of(self) -> dict[int, int]:
        """The basic block of each instruction, by its line."""
        function = self.slices.function
        code = function.instructions
        starts = block_starts(len(code), function.jumps)
        return {each.line: bisect_right(starts, at) for at, each in enumerate(code)}

    def in_one_block(self, instructions: Sequence[Instruction]) -> bool:
        """Whether whatever runs one of the instructions runs all of them."""
        return len({self._block_of[each.line] for each in instructions}) == 1

    def in_order(self, instructions: Sequence[Instruction]) -> Sequence[Instruction]:
        """These accesses by address, where that order is known; else as the code has them."""
        places = range(len(instructions))
        firsts = [[_first(each, i) for i in instructions] for each in self.each]
        orders = {tuple(sorted(places, key=first.__getitem__)) for first in firsts}
        return [instructions[at] for at in orders.pop()] if len(orders) == 1 else instructions

    def are_structures(self, instructions: Sequence[Instruction]) -> bool:
        """Whether neighbouring threads are as far apart in each as structures of a few members."""
        lanes = (self._lane(each) for each in instructions)
        return all(
            lane is not None and not lane.parameter and 0 < abs(lane.of) <= MOST_STRUCTURE_BYTES
            for lane in lanes
        )

    def are_members(self, instructions: Sequence[Instruction]) -> bool:
        """Whether a thread accesses several elements within a sector, once each."""
        if any(each.loop_depth for each in instructions):
            return False
        several = [sorted({_first(each, i) for i in instructions}) for each in self.each]
        return all(0 < at[-1] - at[0] < SECTOR_BYTES for at in several)

    def in_block_apart(self, store: Instruction, load: Instruction) -> int | None:
        """The bytes between what a thread stores and loads, if other threads of its block store it.

        Those of a first iteration; 0 where it is the same; None where neither is known.
        """
        distances = {_first(each, load) - _first(each, store) for each in self.each}
        if distances == {0} and LoopSteps(self.slices).of(load) == 0:
            return 0
        lane, least = self._lane(store), min(distances, key=abs)
        if lane is None or lane.parameter or not lane.of or least == 0 or least % lane.of:
            return None
        most = min(each.launch.threads for each in self.each) * abs(lane.of)
        return least if all(abs(each) < most for each in distances) else None

    def threads_apart(self, instruction: Instruction, covered: int) -> Stride | None:
        """The distance of neighbouring threads, if it is twice the bytes that each covers.

        Or if they are rows of a sector or more that no 16-byte vectors can make up.
        """
        apart = next(self._lanes(instruction), None) or self._of_padded_rows(instruction)
        if apart is None or not apart.of:
            return None
        are_rows = abs(apart.of) >= _SECTOR_BYTES and apart.of % _VECTOR_BYTES
        near = apart.parameter is None and abs(apart.of) < 2 * covered
        return None if near and not are_rows else apart

    def _of_padded_rows(self, instruction: Instruction) -> Stride | None:
        """The distance of neighbouring threads that is not a parameter's multiple, but near one."""
        addresses = [each.address(instruction) for each in self.each]
        apart = [int(address[1]) - int(address[0]) for address in addresses]
        for name, argument in self.integers.items():
            values = [each.launch.parameters[name] for each in self.each]
            times = (apart[1] - apart[0]) // ((values[1] - values[0]) or 1)
            more = {far - times * value for far, value in zip(apart, values, strict=True)}
            if times and len(more) == 1 and abs(least := more.pop()) < SECTOR_BYTES:
                return Stride(times, argument, least)
        return None

    def masks_differ(self, instructions: Sequence[Instruction]) -> bool:
        """Whether two elements of one 16-byte vector may be masked differently."""
        return any(
            bool(np.any(self._in_one_vector(each, a, b) & (each.guard(a) != each.guard(b))))
            for a, b in pairwise(instructions)
            for each in self.each
        )

    def starts_wide(self, instruction: Instruction) -> bool:
        """Whether the first thread's address is a multiple of 16 in all sample launches."""
        return all(_first(each, instruction) % _VECTOR_BYTES == 0 for each in self.each)

    def moves_with_block(self, instruction: Instruction) -> bool:
        """Whether blocks are a constant, non-zero number of bytes apart."""
        return any(step and step.of and not step.parameter for step in self._blocks(instruction))

    def _blocks(self, instruction: Instruction) -> Iterator[Stride | None]:
        for axis in range(3):
            further = [self._further(number, axis) for number in range(len(self.each))]
            yield self._rule(
                _first(next_block, instruction) - _first(block, instruction)
                for block, next_block in zip(self.each, further, strict=True)
            )

    def _further(self, number: int, axis: int) -> Registers:
        if (number, axis) not in self._next:
            moved = self.each[number].launch.next_block(axis)
            self._next[number, axis] = Registers(self.slices, moved)
        return self._next[number, axis]

    def _lane(self, instruction: Instruction) -> Stride | None:
        """The distance of neighbouring threads that nearly all have, but for those at a rim."""
        found = [_typical(np.diff(each.address(instruction))) for each in self.each]
        distances = [each for each in found if each is not None]
        if len(distances) < len(found):
            return None
        # A whole block may be beyond the rim.
        inside = {*distances} - {0}
        return self._rule(iter(distances)) or (Stride(inside.pop()) if len(inside) == 1 else None)

    def _lanes(self, instruction: Instruction) -> Iterator[Stride | None]:
        threads, lane = self.each[0].launch.threads, 1
        while lane < threads:
            at = [each.address(instruction) for each in self.each]
            yield self._rule(int(address[lane]) - int(address[0]) for address in at)
            lane *= 2

    def _rule(self, differences: Iterator[int]) -> Stride | None:
        """The stride that explains the address differences, one per launch; None if none does."""
        listed = list(differences)
        if len(set(listed)) == 1:
            return Stride(listed[0])
        for name, argument in self.integers.items():
            both = zip(listed, self.each, strict=True)
            factors = {_factor(difference, each.launch, name) for difference, each in both}
            factor = factors.pop()
            if not factors and factor:
                return Stride(factor, argument)
        return None

    @staticmethod
    def _in_one_vector(each: Registers, a: Instruction, b: Instruction) -> npt.NDArray[np.bool_]:
        first, second = each.address(a), each.address(b)
        same = np.equal(first // _VECTOR_BYTES, second // _VECTOR_BYTES)
        return same & np.not_equal(first, second)


def _integers(slices: Slices, names: Sequence[str]) -> dict[str, Argument]:
    """The integers among the parameters of a kernel in CUDA C++, if their names are known."""
    function = slices.function
    if len(names) != len(function.parameters):
        return {}
    read = {
        address_text(i.operands): i.opcode[-2:]
        for i in function.instructions
        if i.opcode.startswith("ld.param") and i.opcode[-3:] in _INTEGERS
    }
    pairs = zip(function.parameters, names, strict=True)
    own = ((each, name) for each, name in pairs if each in read and each not in slices.pointers)
    return {each: Argument(name, f"i{read[each]}") for each, name in own}


def _typical(distances: npt.NDArray[np.generic]) -> int | None:
    """The distance that nearly all have, if any."""
    values, counts = np.unique(distances, return_counts=True)
    most = int(counts.argmax())
    return int(values[most]) if counts[most] >= _NEARLY_ALL * len(distances) else None


def _first(registers: Registers, instruction: Instruction) -> int:
    return int(registers.address(instruction)[0])


def _factor(difference: int, launch: Launch, name: str) -> int | None:
    value = launch.parameters[name]
    return difference // value if difference % value == 0 else None
