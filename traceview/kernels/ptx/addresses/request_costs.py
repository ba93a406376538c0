"""Sectors and wavefronts per request of each access, and global traffic per thread."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.ptx import instruction_mix, lexer
from traceview.kernels.ptx.accesses import MATRIX_COUNT, access_finder
from traceview.kernels.ptx.addresses.evaluation import Registers, as_launched
from traceview.kernels.ptx.addresses.integers import Values
from traceview.kernels.ptx.addresses.slicing import Provenance, Slices, registers_in
from traceview.kernels.ptx.lexer import words
from traceview.kernels.ptx.model import Access, Compiled, Function, Instruction, RequestCost

# The cost of a warp's memory request: sectors of global memory, wavefronts of shared memory.
#
# Both follow from the addresses of the 32 threads. Global memory is moved in sectors of 32 bytes.
# Shared memory has 32 banks of 4 bytes; a request takes a wavefront per distinct word of its
# busiest bank. Requests of 8 bytes per thread run in two halves and of 16 bytes in four quarters
# (CUDA C++ Programming Guide, shared memory), each with conflicts of its own; where threads 2i
# and 2i + 1 read the same bytes throughout the warp, two of these parts run as one (measured on
# an H200 with Nsight Compute: 183 index patterns, tests/data/shared_wavefronts.json).

Addresses = npt.NDArray[np.int64]
"""Byte addresses, shape (warps, 32)."""
Active = npt.NDArray[np.bool_]
"""Which threads take part, shape (warps, 32)."""
Counts = npt.NDArray[np.int64]
"""One number per request, shape (warps,)."""

SECTOR_BYTES = 32
_BANKS = 32
_BANK_BYTES = 4
_ROW_BYTES = 16
_ROWS = 8


def distinct(values: Addresses, active: Active) -> Counts:
    """The number of distinct values per row among the active ones, shape (rows,)."""
    counts: Counts = _first_of_each(values, active)[1].sum(axis=1, dtype=np.int64)
    return counts


def sectors(address: Addresses, active: Active, width: int) -> Counts:
    """The sectors that each request touches; accesses of `width` bytes, at most 32, are aligned."""
    last = (address + width - 1) // SECTOR_BYTES
    both = np.concatenate([address // SECTOR_BYTES, last], axis=1)
    return distinct(both, np.concatenate([active, active], axis=1))


def needed_bytes(address: Addresses, active: Active, width: int) -> Counts:
    """The distinct bytes that each request reads or writes."""
    return distinct(address // width, active) * width


def wavefronts(address: Addresses, active: Active, width: int) -> Counts:
    """The wavefronts of each shared-memory request of `width` bytes per thread."""
    words = max(1, width // _BANK_BYTES)
    return _in_parts(address, active, words, partial(_in_phases, address, active, words))


def fewest_wavefronts(address: Addresses, active: Active, width: int) -> Counts:
    """The wavefronts of each request without bank conflicts."""

    def phases(threads: int) -> Counts:
        # Those in which any thread takes part.
        by_phase = active.reshape(len(active), -1, threads)
        return np.asarray(by_phase.any(axis=2).sum(axis=1), np.int64)

    return _in_parts(address, active, max(1, width // _BANK_BYTES), phases)


def _in_parts(
    address: Addresses, active: Active, words: int, count: Callable[[int], Counts]
) -> Counts:
    """The `count` of phases of so many threads that together move a row of all banks.

    Of twice as many threads where 2i and 2i + 1 read the same.
    """
    counts = count(WARP_THREADS // words)
    if words == 1:
        return counts
    # Threads 2i and 2i + 1 read the same in the whole warp, or neither takes part.
    same = (address[:, ::2] == address[:, 1::2]) & active[:, ::2] & active[:, 1::2]
    idle = ~active[:, ::2] & ~active[:, 1::2]
    alike: npt.NDArray[np.bool_] = (same | idle).all(axis=1)
    return np.where(alike, count(2 * WARP_THREADS // words), counts)


def matrix_wavefronts(address: Addresses, matrices: int) -> Counts:
    """The wavefronts of ldmatrix or stmatrix: 8 threads give the 16-byte rows of a matrix."""
    rows = address[:, : matrices * _ROWS]
    active = np.ones(rows.shape, bool)
    return _in_phases(rows, active, _ROW_BYTES // _BANK_BYTES, _ROWS)


def _in_phases(address: Addresses, active: Active, words: int, threads: int) -> Counts:
    """The wavefronts summed over phases of `threads` threads that move `words` words each."""
    rows = len(address)
    word = address.reshape(rows, -1, threads, 1) // _BANK_BYTES + np.arange(words)
    taking = np.broadcast_to(active.reshape(rows, -1, threads, 1), word.shape)
    phases = word.shape[1]
    shape = (rows * phases, -1)
    busiest = _busiest_bank(word.reshape(shape), taking.reshape(shape))
    counts: Counts = busiest.reshape(rows, phases).sum(axis=1, dtype=np.int64)
    return counts


def _busiest_bank(word: Addresses, active: Active) -> Counts:
    ordered, is_first = _first_of_each(word, active)
    row = np.broadcast_to(np.arange(len(word))[:, None], word.shape)
    cells = (row * _BANKS + ordered % _BANKS)[is_first]
    counts = np.bincount(cells, minlength=len(word) * _BANKS).reshape(-1, _BANKS)
    return np.asarray(counts.max(axis=1), np.int64)


def _first_of_each(values: Addresses, active: Active) -> tuple[Addresses, Active]:
    """The values of each row, sorted, and a mask of the first in each run of equal active ones."""
    end = np.iinfo(np.int64).max
    ordered = np.sort(np.where(active, values, end), axis=1)
    is_new = np.diff(ordered, axis=1, prepend=ordered[:, :1] - 1) != 0
    return ordered, is_new & (ordered != end)


# More instructions of one line and opcode, those of a large tile, add nothing.
_MOST_INSTRUCTIONS = 64
_MOST_THREADS = 1024
_MATRICES = ("ldmatrix", "stmatrix")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_Cost = Callable[[Addresses, Active, int, Instruction], tuple[Counts, Counts]]


@record
class RequestCosts:
    """The request costs of one kernel's accesses, averaged over the warps of sample blocks.

    They hold for the first iteration of each loop. Masks count where the code determines them;
    otherwise all threads take part. `each` are the first and the middle block; `spread` those that
    sectors are counted for, whose rows begin anywhere in a sector.
    """

    provenance: Provenance
    each: Sequence[Registers]
    spread: Sequence[Registers]

    @classmethod
    def of(cls, provenance: Provenance, compiled: Compiled) -> RequestCosts:
        """Prepare launches with the arguments, block size and grid of `compiled`, as far as known.

        A kernel that declares no block size has 128 threads.
        """
        function = provenance.slices.function
        shape = compiled.block or _shape(function, compiled.num_warps)
        launches = as_launched(
            function.parameters, provenance.arguments_by_parameter, shape, compiled
        )
        by_block = {
            launch.block: Registers(provenance.slices, launch) for launch in reversed(launches)
        }
        first, spread = (
            [by_block[block] for block in dict.fromkeys(launch.block for launch in some)]
            for some in (launches[:2], launches[2:])
        )
        return cls(provenance, first, spread)

    def cost(self, access: Access) -> RequestCost | None:
        """The cost of the instructions counted as this access; None where it is not known."""
        instructions = self.provenance.instructions(access)
        return self.cost_of(access, instructions) if access.width_bits else None

    def cost_of(self, access: Access, instructions: Sequence[Instruction]) -> RequestCost | None:
        """The mean cost of some of an access's instructions; None where it is not known."""
        spread = instructions[:: max(1, len(instructions) // _MOST_INSTRUCTIONS)]
        width = (access.width_bits or 0) // 8
        is_copy = access.kind == "async-copy"
        moved = access.kind in ("load", "store") or is_copy
        if not moved or not width or (is_copy and access.opcode.startswith("cp.async.bulk")):
            return None
        moved_sectors = passes = None
        if access.space == "global":
            moved_sectors = self._mean(_sectors, -1, spread, width, self.spread)
        if access.space == "shared" or is_copy:
            passes = self._mean(_wavefronts, 0, spread, width)
        if moved_sectors is None and passes is None:
            return None
        return RequestCost(
            sectors=moved_sectors[0] if moved_sectors else None,
            ideal_sectors=moved_sectors[1] if moved_sectors else None,
            wavefronts=passes[0] if passes else None,
            ideal_wavefronts=passes[1] if passes else None,
        )

    def stride(self, instruction: Instruction) -> int | None:
        """The bytes between neighbouring threads of each warp; None if uneven or not known."""
        strides = set[int]()
        for registers in self.each:
            warps = self._warps(registers, instruction, _brackets(instruction)[0])
            if warps is None:
                return None
            strides |= set(map(int, np.unique(np.diff(warps[0], axis=1))))
        return strides.pop() if len(strides) == 1 else None

    def used_fraction(self, instructions: Sequence[Instruction], width: int) -> float | None:
        """The fraction of the bytes in the sectors a block touches that it needs, if known."""
        fractions = []
        for registers in self.each:
            warps = [self._warps(registers, i, _brackets(i)[-1]) for i in instructions]
            pairs = [pair for pair in warps if pair is not None]
            if len(pairs) < len(warps):
                return None
            address = np.concatenate([address.ravel() for address, _ in pairs])[None]
            active = np.concatenate([active.ravel() for _, active in pairs])[None]
            if not active.any():
                continue
            touched = distinct(address // SECTOR_BYTES, active)[0] * SECTOR_BYTES
            needed = needed_bytes(address, active, width)[0]
            fractions.append(min(1.0, needed / max(touched, 1)))
        return sum(fractions) / len(fractions) if fractions else None

    def block_bytes(self, instruction: Instruction, width: int) -> float:
        """The bytes that one block moves by an instruction of `width` bytes per thread.

        The mean over sample blocks; threads that are masked off move nothing.
        """
        total = 0
        for registers in self.each:
            warps = self._warps(registers, instruction, _brackets(instruction)[-1])
            threads = registers.launch.threads if warps is None else int(warps[1].sum())
            total += threads * width
        return total / len(self.each)

    def distinct_bytes(self, access: Access, instructions: Sequence[Instruction]) -> float:
        """The mean bytes that the first block needs by one of an access's instructions, unmasked.

        What many threads load counts once, and what is made up for each thread.
        """
        registers, width = self.each[0], (access.width_bits or 0) // 8
        spread = instructions[:: max(1, len(instructions) // _MOST_INSTRUCTIONS)]
        total = 0
        for text in (_brackets(instruction)[-1] for instruction in spread):
            made_up = any(map(registers.is_made_up, registers_in(text)))
            address = np.atleast_1d(registers.address_in(text))[None]
            whole = registers.launch.threads * width
            active = np.ones(address.shape, bool)
            total += whole if made_up or not width else int(needed_bytes(address, active, width)[0])
        return total / len(spread)

    def _mean(
        self,
        cost_of: _Cost,
        address_at: int,
        instructions: Sequence[Instruction],
        width: int,
        blocks: Sequence[Registers] = (),
    ) -> tuple[float, float] | None:
        """The mean cost per request and the mean of the least possible cost; None if not known.

        `address_at` is the index of the address among the operands in brackets.
        """
        cost, least, requests = 0, 0, 0
        for registers in blocks or self.each:
            for instruction in instructions:
                warps = self._warps(registers, instruction, _brackets(instruction)[address_at])
                if warps is None:
                    return None
                costs, fewest = cost_of(*warps, width, instruction)
                cost, least = cost + int(costs.sum()), least + int(fewest.sum())
                requests += len(costs)
        if not requests:
            return None
        means = [n // requests if n % requests == 0 else n / requests for n in (cost, least)]
        return means[0], means[1]

    def _warps(
        self, registers: Registers, instruction: Instruction, text: str
    ) -> tuple[Addresses, Active] | None:
        """Addresses and masks by warp, without idle warps; None for made-up addresses."""
        if any(registers.is_made_up(name) for name in registers_in(text)):
            return None
        address = _by_warp(registers.address_in(text))
        active = np.ones(address.shape, bool)
        guard = instruction.predicate
        if guard and not registers.is_made_up(guard.lstrip("!")):
            active = _by_warp(registers.guard(instruction)).astype(bool)
        taking = active.any(axis=1)
        return address[taking], active[taking]


def _sectors(
    address: Addresses, active: Active, width: int, _: Instruction
) -> tuple[Counts, Counts]:
    least = -(-needed_bytes(address, active, width) // SECTOR_BYTES)
    return sectors(address, active, width), least


def _wavefronts(
    address: Addresses, active: Active, width: int, instruction: Instruction
) -> tuple[Counts, Counts]:
    root, modifiers = words(instruction.opcode)
    if root not in _MATRICES:
        return wavefronts(address, active, width), fewest_wavefronts(address, active, width)
    count = next((MATRIX_COUNT[m] for m in modifiers if m in MATRIX_COUNT), 1)
    passes = matrix_wavefronts(address, count)
    return passes, np.full_like(passes, count)


def _shape(function: Function, num_warps: int | None) -> tuple[int, int, int]:
    """The block size (x, y, z) as declared; if only its product is known, all threads along x.

    A kernel that reads %tid.y gets 32 threads along x, as nearly all such blocks have a multiple of
    32.
    """
    exact = function.directives.get("reqntid", ())
    if exact and exact[0] > 0 and math.prod(exact) <= _MOST_THREADS:
        x, y, z = (*exact, 1, 1)[:3]
        return x, y, z
    limit = function.directives.get("maxntid", ())
    most = math.prod(limit) if limit else (num_warps or 4) * WARP_THREADS
    threads = min(max(most // WARP_THREADS, 1) * WARP_THREADS, _MOST_THREADS)
    if any("%tid.y" in instruction.operands for instruction in function.instructions):
        return WARP_THREADS, threads // WARP_THREADS, 1
    return threads, 1, 1


def _by_warp(values: Values) -> Values:
    """Values by warp, shape (warps, 32); a partial warp is padded with the first value."""
    missing = -len(values) % WARP_THREADS
    whole = np.concatenate([values, np.repeat(values[:1], missing)]) if missing else values
    return whole.reshape(-1, WARP_THREADS)


def _brackets(instruction: Instruction) -> Sequence[str]:
    return _BRACKETS.findall(instruction.operands) or ("",)


LOOPS = "its loop trip counts are not known"
_ARITHMETIC = frozenset({"integer", "float", "conversion"})
# An SM has 16 special-function lanes and 128 fp32 lanes (CUDA C++ Programming Guide, throughput of
# arithmetic instructions, the same for all compute capabilities from 7.x on).
_SPECIAL_SLOTS = 8
_MOVES = ("load", "store", "async-copy")
# These callees move none of the program's data.
_HARMLESS_CALLS = re.compile(r"\b(?:vprintf|__assertfail|__assert_fail)\b")


@record
class Traffic:
    """Bytes and arithmetic of a thread on its longest path; None where unknown.

    `bytes_moved` counts its global loads and stores; an address that all threads of a block share
    counts as 0 bytes. `issue_slots` counts arithmetic instructions, weighted by the issue slots of
    an fp32 instruction. `unknown` is the reason for None.
    """

    bytes_moved: int | None
    issue_slots: int | None
    unknown: str = ""


def traffic_of(ptx: Function | None, sass: Function | None) -> Traffic:
    """A thread's traffic from its PTX; from SASS without PTX, or if ptxas unrolled its loops."""
    by_ptx = _traffic(ptx) if ptx else None
    if sass and (by_ptx is None or by_ptx.unknown == LOOPS):
        by_sass = _traffic(sass)
        return by_sass if by_ptx is None or by_sass.bytes_moved is not None else by_ptx
    return by_ptx or Traffic(None, None, "its code is not known")


def _traffic(function: Function) -> Traffic:
    is_ptx = function.level == "ptx"
    find = access_finder(function)
    pairs = [(i, find(i)) for i in function.instructions]
    unknown = next((why for i, access in pairs if (why := _unknown(i, access))), "")
    if unknown:
        return Traffic(None, None, unknown)
    weights, slots = [_bytes(access) for _, access in pairs], [1 for _ in pairs]
    if is_ptx:
        # An address that all threads of a block share costs nothing.
        origin = Slices.of(function).address
        weights = [
            n if n and (o := origin(i)) and (o.per_thread or o.loaded or o.through_shared) else 0
            for n, (i, _) in zip(weights, pairs, strict=True)
        ]
        slots = [_slots(i.opcode) for i, _ in pairs]
    moved = instruction_mix.heaviest(weights, function.jumps)
    if moved is None:
        return Traffic(None, None, LOOPS)
    return Traffic(moved, instruction_mix.heaviest(slots, function.jumps))


def _bytes(access: Access | None) -> int:
    if access is None or access.space != "global" or access.kind not in _MOVES:
        return 0
    return (access.width_bits or 0) // 8


def _unknown(instruction: Instruction, access: Access | None) -> str:
    """Why an instruction makes the traffic of its function unknown; empty if it does not."""
    root = instruction.opcode.partition(".")[0].lower()
    if root == "call" and not _HARMLESS_CALLS.search(instruction.operands):
        return "it calls functions"
    if access is None or access.kind == "prefetch":
        return ""
    if access.space == "generic":
        return f"{instruction.opcode} has a generic address, whose memory space is not known"
    if access.space in ("texture", "surface"):
        return "it accesses textures, whose formats are not in the code"
    if access.space == "global" and access.kind in ("atomic", "reduction"):
        return "its atomics may contend"
    if access.space == "global" and access.width_bits is None:
        return "its bulk copies have sizes that are not in the code"
    return ""


def _slots(opcode: str) -> int:
    kind = lexer.family(opcode)
    if kind == "special-function":
        return _SPECIAL_SLOTS
    return 1 if kind in _ARITHMETIC else 0
