"""Evaluate the registers of a PTX function for sample launches, all threads at once.

Integers are computed as the GPU does. Loaded values and floats are stand-ins that depend on the
operands alone. A register that a loop changes keeps its value from before the first iteration. A
parameter of unknown type or a loaded value may be a stride: an address that scales with it is not
determined.

Only the differences between addresses are meaningful, not the addresses themselves. Shared
variables start at multiples of 1,024.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx.accesses import pointee_bits
from traceview.kernels.ptx.addresses.integers import Values, input_hash, integer_result
from traceview.kernels.ptx.addresses.slicing import Slices, address_text, registers_in, results
from traceview.kernels.ptx.model import Argument, Compiled, Instruction

_BLOCKS = (0, 1, 37, 5, 301, 101, 515, 2)
_THREADS, _MOST_THREADS = 128, 1024
_LARGEST_LOADED = 4096
_ALIGNMENT_BITS = 10
# Members of a structure are far apart, too, in case they are pointers.
_MEMBER_BITS = 32
_ARRAY_ALIGNMENT = 128
_MOST_SHIFT = 15
_SCALING = frozenset({"mul", "mad", "div", "rem", "shl", "shr"})
_NUMBER = re.compile(r"([+-]?)\s*(0[xX][0-9a-fA-F]{1,16}|\d{1,20})[uU]?$")
_OFFSET = re.compile(r"\+\s*(-?\d{1,18})\s*$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]]+")


@record
class Launch:
    """A sample launch: its arguments, one block of the grid, and its number of threads.

    `shape` is the block's (x, y, z) size; without it all threads run along x. `unknown` names the
    parameters of unknown type: all of them for PTX that is given as a file.
    """

    parameters: Mapping[str, int]
    block: tuple[int, int, int]
    threads: int
    seed: int
    shape: tuple[int, int, int] | None = None
    unknown: frozenset[str] = frozenset()

    def next_block(self, axis: int) -> Launch:
        """The next block of this launch along an axis of the grid."""
        block = [place + (axis == at) for at, place in enumerate(self.block)]
        return replace(self, block=(block[0], block[1], block[2]))


def launches(
    order: Sequence[str], known: Mapping[str, Argument], threads: int | None
) -> list[Launch]:
    """Sample launches that differ in every value; sizes and addresses are multiples of 16.

    `order` names the kernel's parameters, `known` maps some of them to arguments.
    """
    sampled, count = [], min(threads or _THREADS, _MOST_THREADS)
    for seed, block in enumerate(_BLOCKS):
        values = {name: _sample(seed, at, known.get(name)) for at, name in enumerate(order)}
        sampled.append(Launch(values, (block, seed % 3, seed % 2), count, seed))
    return sampled


def as_launched(
    order: Sequence[str],
    known: Mapping[str, Argument],
    shape: tuple[int, int, int],
    compiled: Compiled,
) -> list[Launch]:
    """Launches of some blocks, the first and the middle one first, with the kernel's arguments.

    Integers are as passed, arrays aligned as far as declared; unknown integers are multiples of 16.
    Without a grid there is only the first block.
    """
    values = {
        name: _as_passed(at, known.get(name), compiled.how == "launched")
        for at, name in enumerate(order)
    }
    blocks = _sample_blocks(compiled.grid or (1, 1, 1))
    threads = shape[0] * shape[1] * shape[2]
    unknown = frozenset(name for name in order if name not in known)
    return [
        Launch(values, block, threads, seed, shape, unknown) for seed, block in enumerate(blocks)
    ]


# Rows of 4-byte elements start at up to 8 places of a sector of 32 bytes.
_SPREAD = 8
_ORDERS = (1, 3, 5)


def _sample_blocks(sizes: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The first block, the middle one, and 8 that begin at each place modulo 8 along each axis.

    Half of these are the first ones of an axis, half are in its middle; an axis has its own order.
    """
    middle = (sizes[0] // 2, sizes[1] // 2, sizes[2] // 2)
    blocks = [(0, 0, 0), middle]
    for number in range(_SPREAD):
        x, y, z = (
            (number * order % _SPREAD + (size // 2 // _SPREAD * _SPREAD) * (number % 2)) % size
            for size, order in zip(sizes, _ORDERS, strict=True)
        )
        blocks.append((x, y, z))
    return blocks


def _as_passed(at: int, argument: Argument | None, launched: bool) -> int:
    if argument is None:
        # Aligned to sectors, as arrays are.
        return _sample(0, at, None) & -_ARRAY_ALIGNMENT
    if argument.type.startswith("*"):
        is_shifted = launched and not argument.divisible_by_16
        element = (pointee_bits(argument) or 8) // 8
        return ((at + 1) << 40) + (element if is_shifted else 0)
    if isinstance(argument.value, int):
        return int(argument.value)
    return _sample(0, at, argument)


def _sample(seed: int, at: int, argument: Argument | None) -> int:
    small = 16 * (65 + (67 * seed + 131 * at) % 437)
    if argument is None or argument.type.startswith("*"):
        # Far from all other pointers; the lower half is a multiple of 16.
        return ((at + 1) << 40) + small
    return small


@record
class Registers:
    """The registers of a function in one launch, each with one integer per thread."""

    slices: Slices
    launch: Launch
    _known: dict[str, Values] = field(default_factory=dict, repr=False, compare=False)
    _made_up: set[str] = field(default_factory=set, repr=False, compare=False)
    _unknown: set[str] = field(default_factory=set, repr=False, compare=False)
    _scaled: set[str] = field(default_factory=set, repr=False, compare=False)

    def address(self, access: Instruction) -> Values:
        """The byte address of an access, per thread."""
        return self.address_in(address_text(access.operands))

    def address_in(self, text: str) -> Values:
        """The byte address that the text in brackets stands for, per thread."""
        offset = _OFFSET.search(text)
        base = registers_in(text)
        start = self._of(base[0]) if base else self._symbol(text.partition("+")[0])
        return start + (int(offset[1]) if offset else 0)

    def is_made_up(self, register: str) -> bool:
        """Whether a register holds stand-ins: values per thread that the code does not fix."""
        self._of(register)
        return register in self._made_up

    def guard(self, access: Instruction) -> Values:
        """1 for each thread that executes an access, 0 for each that is masked off."""
        if access.predicate is None:
            return self._all(1)
        held = self._of(access.predicate.lstrip("!")) & 1
        return 1 - held if access.predicate.startswith("!") else held

    def may_execute(self, access: Instruction) -> bool:
        """Whether any thread may execute an access; so it may where data or a loop decide that."""
        behind = self.slices.behind(registers_in(access.predicate or ""))
        settled = access.loop_depth == 0 and all(len(self.slices.writers(r)) < 2 for r in behind)
        taking = self.guard(access).any()
        return bool(taking or not settled or behind & (self._made_up | self._unknown))

    def _of(self, register: str) -> Values:
        waiting, entered = [register], set[str]()
        while waiting:
            top = waiting[-1]
            writer = self.slices.writer(top)
            inputs = _inputs(writer) if writer else []
            missing = [r for r in inputs if r not in self._known and r not in entered]
            if top in self._known or top in entered or not missing:
                self._known.setdefault(top, self._computed(top, writer))
                waiting.pop()
            else:
                waiting += missing
            entered.add(top)
        return self._known[register]

    def _computed(self, register: str, writer: Instruction | None) -> Values:
        if register in self._known:
            return self._known[register]
        if writer is None:
            return self._special(register)
        if writer.opcode.startswith("ld.param"):
            return self._parameter(register, writer)
        inputs = [self._value(text) for text in _operands(writer)]
        value = self._exact(writer, inputs)
        result = self._some([*inputs, results(writer).index(register)]) if value is None else value
        self._judge(register, writer, result, exact=value is not None)
        return result

    def _judge(self, register: str, writer: Instruction, result: Values, *, exact: bool) -> None:
        """Record whether a result is made up (it differs in a warp), unknown (uniform) or exact."""
        inputs = set(_inputs(writer))
        if inputs & self._scaled or self._scales(writer):
            # Whatever the stand-in for the stride, 0 included.
            self._scaled.add(register)
            self._made_up.add(register)
        elif _differs_in_warp(result):
            if not exact or inputs & self._made_up:
                self._made_up.add(register)
        elif not exact or inputs & self._unknown:
            self._unknown.add(register)

    def _scales(self, writer: Instruction) -> bool:
        """Whether an instruction scales a value that differs between threads by an unknown one."""
        root = writer.opcode.partition(".")[0]
        factors = _operands(writer)[: 2 if root == "mad" else None]
        if root not in _SCALING or not any(factor in self._unknown for factor in factors):
            return False
        return any(_differs_in_warp(self._value(factor)) for factor in factors)

    def _parameter(self, register: str, writer: Instruction) -> Values:
        """The value of a parameter or of a structure's member: different at each offset."""
        text = address_text(writer.operands)
        name = next(iter(re.findall(r"[\w$]+", text)), "")
        offset = _OFFSET.search(text)
        member = results(writer).index(register) + (int(offset[1]) if offset else 0)
        if name in self.launch.unknown:
            self._unknown.add(register)
        value = self.launch.parameters.get(name, hash_of(name))
        return self._all(value + (member << _MEMBER_BITS) + _ARRAY_ALIGNMENT * member)

    @staticmethod
    def _exact(writer: Instruction, inputs: Sequence[Values]) -> Values | None:
        if writer.opcode.startswith(("ld.", "ldu.", "atom.", "ldmatrix")):
            return None
        if writer.opcode.startswith("shfl.sync.idx") and _NUMBER.match(_operands(writer)[1]):
            values, lane = inputs[0], int(inputs[1][0]) % WARP_THREADS
            # A partial last warp without that lane gives its last lane's value.
            first = np.arange(len(values)) // WARP_THREADS * WARP_THREADS
            return values[np.minimum(first + lane, len(values) - 1)]
        if writer.opcode.startswith("shl") and (inputs[1] > _MOST_SHIFT).all():
            # A parameter that is sampled as a size; no program shifts all of its bits out.
            inputs = [inputs[0], inputs[1] % _MOST_SHIFT + 1]
        return None if len(results(writer)) > 1 else integer_result(writer.opcode, inputs)

    def _some(self, inputs: Sequence[Values | int]) -> Values:
        """A stand-in of varying magnitude, as lengths, indices and flags have."""
        bits = self._opaque([*inputs, self.launch.seed])
        return (bits % _LARGEST_LOADED) >> ((bits >> 20) % 12)

    def _value(self, text: str) -> Values:
        number = _NUMBER.fullmatch(text)
        if number:
            return self._all(int(number[1] + number[2], 16 if "x" in text.lower() else 10))
        inside = [
            self._special(register) if (values := self._known.get(register)) is None else values
            for register in registers_in(text)
        ]
        if not inside:
            return self._symbol(text)
        if len(inside) != 1:
            return self._opaque([*inside, hash_of(text)])
        offset = _OFFSET.search(text.strip("[] "))
        return inside[0] + (int(offset[1]) if offset and text.startswith("[") else 0)

    def _special(self, register: str) -> Values:
        tid = np.arange(self.launch.threads, dtype=np.int64)
        x, y, z = self.launch.block
        wide, high, deep = self.launch.shape or (self.launch.threads, 1, 1)
        values = {
            "%tid.x": tid % wide,
            "%laneid": tid % 32,
            "%warpid": tid // 32,
            "%tid.y": tid // wide % high,
            "%tid.z": tid // wide // high,
            "%ntid.x": 0 * tid + wide,
            "%ntid.y": 0 * tid + high,
            "%ntid.z": 0 * tid + deep,
            "%ctaid.x": 0 * tid + x,
            "%ctaid.y": 0 * tid + y,
            "%ctaid.z": 0 * tid + z,
        }
        value = values.get(register)
        return self._opaque([hash_of(register)]) if value is None else value

    def _symbol(self, name: str) -> Values:
        """The address of a variable, distinct from that of every other variable."""
        return self._all(hash_of(name.strip("[] ")) << _ALIGNMENT_BITS)

    def _all(self, value: int) -> Values:
        return np.full(self.launch.threads, (value + (1 << 63)) % (1 << 64) - (1 << 63), np.int64)

    def _opaque(self, inputs: Iterable[Values | int]) -> Values:
        return input_hash(self._all(0) + 1, inputs)


def hash_of(text: str) -> int:
    """A number for a name that, unlike Python's `hash`, is the same in every process."""
    return int.from_bytes(text.encode()[-6:].rjust(6, b"\0"), "big")


def _differs_in_warp(values: Values) -> bool:
    whole = len(values) // WARP_THREADS * WARP_THREADS
    warps = values[:whole].reshape(-1, WARP_THREADS) if whole else values[None]
    return bool(np.any(warps != warps[:, :1]))


def _inputs(writer: Instruction) -> list[str]:
    return [name for text in _operands(writer) for name in registers_in(text)]


def _operands(writer: Instruction) -> list[str]:
    return [text.strip() for text in _OPERAND.findall(writer.operands) if text.strip()][1:]
