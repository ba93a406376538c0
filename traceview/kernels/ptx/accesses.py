"""The memory accesses and tensor-core operations of a PTX function, and copies in flight.

Widths are bits per thread per instruction. The space of a copy is the one whose width matters:
global for cp.async, shared between the blocks of a cluster. Textures and surfaces are spaces of
their own, as they go through another hardware path than global memory.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from traceview.base.records import record
from traceview.kernels.ptx import disassembly
from traceview.kernels.ptx.instruction_mix import CLASSES, InstructionMix, class_of
from traceview.kernels.ptx.lexer import Words, family, words
from traceview.kernels.ptx.model import Access, Argument, Function, Instruction, Kind, SourceLine

FAMILIES = (
    *("load", "store", "async-copy", "atomic", "tensor-core", "shuffle", "barrier"),
    *("special-function", "integer", "float", "conversion", "control", "other"),
)
# Constants and parameters have their own cache, where width does not matter.
LEFT_OUT = frozenset({"const", "param"})
MATRIX_COUNT = {"x1": 1, "x2": 2, "x4": 4}
REGISTER_BITS = 32
IMMEDIATE = re.compile(r",\s*(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<decimal>\d{1,9}))[uU]?\s*(?:,|$)")
SHAPE = re.compile(r"m\d+n\d+(?:k\d+)?$")
NUMBER_TYPE = re.compile(r"(?:[busf]\d+|bf16|tf32|e\dm\d(?:x\d)?|ue\dm\d|kind::\w+)$")


class Generation(NamedTuple):
    """Tensor cores: their name, their instructions in PTX, and the majors of architectures."""

    name: str
    roots: tuple[str, ...] = ()
    majors: tuple[str, ...] = ()


GENERATIONS = (
    Generation("no tensor core"),
    Generation("mma.sync", ("mma", "wmma"), ("7", "8", "12")),
    Generation("wgmma", ("wgmma",), ("9",)),
    Generation("tcgen05", ("tcgen05",), ("10", "11")),
)
"""The tensor cores by age."""
MULTIPLICATIONS = {"mma": "", "wmma": "mma", "wgmma": "mma_async", "tcgen05": "mma"}


class _Move(NamedTuple):
    """Kind, space and width of what an opcode moves; `space` is None for a generic address."""

    kind: Kind
    space: str | None
    width_bits: int | None


@record
class TensorOp:
    """A group of identical tensor-core instructions of a function, with their count.

    `operation` is mma, wmma.mma, wgmma.mma_async or tcgen05.mma, with .sp if sparse. `shape` is
    e.g. m16n8k16, None where a descriptor holds it. `types` are the element types of D, A, B and C
    as written, or the `kind::` modifier alone.
    """

    operation: str
    shape: str | None
    types: tuple[str, ...]
    loop_depth: int
    count: int


def accesses(function: Function) -> tuple[Access, ...]:
    """The function's memory accesses in order; identical ones on a source line are merged."""
    find = access_finder(function)
    counts = Counter(access for each in function.instructions if (access := find(each)))
    return tuple(replace(access, count=count) for access, count in counts.items())


def access_finder(function: Function) -> Callable[[Instruction], Access | None]:
    """The function that returns the access of an instruction of this listing."""
    return access_of if function.level == "ptx" else disassembly.access_of


def instruction_mix(function: Function) -> dict[str, int]:
    """The number of instructions per family, in the order of FAMILIES, zeros included."""
    counts = Counter(family(instruction.opcode) for instruction in function.instructions)
    return {name: counts[name] for name in FAMILIES}


def tensor_ops(function: Function) -> tuple[TensorOp, ...]:
    """The function's matrix multiplications on tensor cores, in order."""
    counts = Counter(op for instruction in function.instructions if (op := _tensor_op(instruction)))
    return tuple(replace(op, count=count) for op, count in counts.items())


def generation(ops: Iterable[TensorOp]) -> int:
    """The newest generation of these operations, an index in GENERATIONS."""
    roots = {op.operation.partition(".")[0] for op in ops}
    return max(at for at, each in enumerate(GENERATIONS) if not at or roots & {*each.roots})


def _tensor_op(instruction: Instruction) -> TensorOp | None:
    root, modifiers = words(instruction.opcode)
    second = MULTIPLICATIONS.get(root)
    if second is None or (second and second not in modifiers[:1]):
        return None
    sparse = any(word == "sp" or word.startswith("sp::") for word in modifiers[:2])
    operation = ".".join(filter(None, (root, second, "sp" if sparse else "")))
    shape = next((word for word in modifiers if SHAPE.match(word)), None)
    types = tuple(word for word in modifiers if NUMBER_TYPE.match(word))
    return TensorOp(operation, shape, types, instruction.loop_depth, 1)


def access_of(instruction: Instruction) -> Access | None:
    """The memory access of one instruction of PTX, with a count of 1; None if it makes none.

    Excluded are constants, parameters, operands that tensor cores read through descriptors, tensor
    memory, and barriers.
    """
    opcode = words(instruction.opcode)
    kind, find = MOVES.get(opcode.root, (None, None))
    move = find(kind, opcode, instruction.operands) if kind and find else None
    if move is None or move.space in LEFT_OUT:
        return None
    # Without a scope an atomic has scope gpu; for surfaces the manual does not say.
    is_atomic = move.kind in {"atomic", "reduction"} and move.space != "surface"
    return Access(
        level="ptx",
        kind=move.kind,
        space=move.space or "generic",
        opcode=instruction.opcode,
        width_bits=move.width_bits,
        count=1,
        predicated=instruction.predicate is not None,
        loop_depth=instruction.loop_depth,
        source=instruction.source,
        scope=opcode.scope or ("gpu" if is_atomic else None),
        hints=opcode.hints,
    )


def _plain(kind: Kind, opcode: Words, _: str) -> _Move:
    sized = opcode.modifiers[:1] != ("bulk",)
    return _Move(kind, opcode.space, opcode.vector_bits if sized else None)


def _matrix(kind: Kind, opcode: Words, _: str) -> _Move:
    # One register per thread per 8 × 8 matrix of 16-bit elements, two for an m16n16 of bytes.
    count = next((MATRIX_COUNT[word] for word in opcode.modifiers if word in MATRIX_COUNT), 1)
    registers = count * (2 if "m16n16" in opcode.modifiers else 1)
    return _Move(kind, "shared", registers * REGISTER_BITS)


def _copy(kind: Kind, opcode: Words, operands: str) -> _Move | None:
    modifiers, space = opcode.modifiers, _space_of_copy(opcode)
    if modifiers[:2] == ("reduce", "async"):
        return _Move("reduction", space, None)
    if modifiers[:1] != ("async",) or not space:
        return None
    if "prefetch" in modifiers:
        return _Move("prefetch", "global", None)
    # The size of a cp.async is its first immediate; it may be in a register.
    size = IMMEDIATE.search(operands) if "bulk" not in modifiers else None
    number = (int(size["hex"], 16) if size["hex"] else int(size["decimal"])) if size else 0
    return _Move(kind, space, 8 * number if size else None)


def _space_of_copy(opcode: Words) -> str | None:
    """The space of a copy; None for commit_group, wait_group and mbarrier, which move nothing."""
    if opcode.modifiers[1:2] == ("mbarrier",):
        return None
    return "global" if "global" in opcode.modifiers else opcode.space


def _prefetch(kind: Kind, opcode: Words, _: str) -> _Move:
    return _Move(kind, "param" if "tensormap" in opcode.modifiers else opcode.space, None)


def _fragment(_: Kind, opcode: Words, operands: str) -> _Move | None:
    """wmma.load and wmma.store: the registers of the fragment are in braces."""
    direction = opcode.modifiers[:1]
    if direction not in {("load",), ("store",)}:
        return None
    registers = operands.partition("{")[2].partition("}")[0].count(",") + 1
    bits = 64 if "f64" in opcode.modifiers else REGISTER_BITS
    return _Move("load" if direction == ("load",) else "store", opcode.space, registers * bits)


def _multicast(_: Kind, opcode: Words, __: str) -> _Move | None:
    kinds: dict[str, Kind] = {"ld_reduce": "load", "st": "store", "red": "reduction"}
    kind = kinds.get(opcode.modifiers[0]) if opcode.modifiers else None
    return _Move(kind, opcode.space, opcode.vector_bits) if kind else None


def _texture(kind: Kind, _: Words, __: str) -> _Move:
    # The size of a texel is in the descriptor.
    return _Move(kind, "texture", None)


def _surface(kind: Kind, opcode: Words, _: str) -> _Move:
    # sust.p has no width, as it converts to the format in the descriptor.
    converted = opcode.root == "sust" and opcode.modifiers[:1] == ("p",)
    return _Move(kind, "surface", None if converted else opcode.vector_bits)


MOVES: dict[str, tuple[Kind, Callable[[Kind, Words, str], _Move | None]]] = {
    "ld": ("load", _plain),
    "ldu": ("load", _plain),
    "st": ("store", _plain),
    "atom": ("atomic", _plain),
    "red": ("reduction", _plain),
    "ldmatrix": ("load", _matrix),
    "stmatrix": ("store", _matrix),
    "cp": ("async-copy", _copy),
    "prefetch": ("prefetch", _prefetch),
    "prefetchu": ("prefetch", _prefetch),
    "wmma": ("load", _fragment),
    "multimem": ("load", _multicast),
    "tex": ("load", _texture),
    "tld4": ("load", _texture),
    "suld": ("load", _surface),
    "sust": ("store", _surface),
    "sured": ("reduction", _surface),
}


# Elements per thread, from the widths of a kernel's accesses.
#
# **Elements per thread**: take the source line whose global loads move the most bits per
# iteration (its global stores, if nothing is loaded). Sum the widths of the instructions of that
# line that a thread executes in one pass of its innermost loop, and divide by the element size
# and by the number of arrays that the line reads. Asynchronous copies count as loads. The element
# size is that of the pointer's type; where that is not known, of the type in the opcode, which
# counts two fp16 in a b32 as one.

_OPCODE_BITS = re.compile(r"\.[a-z]+(\d+)$")
_LOADS: tuple[Kind, ...] = ("load", "async-copy")
_STORES: tuple[Kind, ...] = ("store",)


def pointee_bits(argument: Argument) -> int | None:
    """The element size of a pointer argument (`*fp32`: 32) in bits; None if it is not a pointer."""
    if not argument.type.startswith("*"):
        return None
    name = argument.type.lstrip("*").removeprefix("k").partition(":")[0]
    if name.startswith("fp8") or name == "i1":
        return 8
    bits = re.search(r"(\d+)$", name)
    return int(bits[1]) if bits else None


def bits_at_deepest(accesses: Iterable[Access]) -> int:
    """The bits that the accesses at the greatest loop depth move, over all their instructions."""
    accesses = list(accesses)
    deepest = max((access.loop_depth for access in accesses), default=0)
    return sum(
        (access.width_bits or 0) * access.count
        for access in accesses
        if access.loop_depth == deepest
    )


def elements_per_thread(
    accesses: Iterable[Access],
    element_bits: Callable[[Access], int | None] = lambda _: None,
    arrays: Callable[[Sequence[Access]], int] = lambda _: 1,
    bits: Callable[[Sequence[Access]], int] = bits_at_deepest,
) -> int | None:
    """Elements of global memory per thread, as defined above; None without global accesses.

    `element_bits` gives the element size of an access, None where it is not known; `arrays` the
    number of arrays that accesses touch, and `bits` what a thread moves by them in one pass.
    """
    listed = [a for a in accesses if a.space == "global" and a.width_bits]
    for kinds in (_LOADS, _STORES):
        lines = _by_line(access for access in listed if access.kind in kinds)
        if lines:
            most = max(lines, key=bits)
            size = (element_bits(most[0]) or _opcode_bits(most)) * arrays(most)
            return bits(most) // size or None
    return None


def _by_line(accesses: Iterable[Access]) -> list[list[Access]]:
    lines: dict[SourceLine | None, list[Access]] = defaultdict(list)
    for access in accesses:
        lines[access.source].append(access)
    return list(lines.values())


def _opcode_bits(accesses: Sequence[Access]) -> int:
    """The size of the smallest type in the opcodes; 32 for a copy, whose opcode has none."""
    types = [_OPCODE_BITS.search(access.opcode) for access in accesses]
    return min((int(each[1]) for each in types if each), default=32)


# Asynchronous copies and matrix products in flight at each wait of the hottest loop, from PTX.
#
# Simulates the code before the loop and some iterations of the loop, in the order of the listing,
# with a queue per kind. A wait for cp.async, bulk stores or wgmma leaves the latest N groups in
# flight; an mbarrier wait completes the oldest group of TMA loads or tcgen05 products.

COPIES = ("cp.async", "TMA")
"""The kinds that bring data into shared memory."""

_ITERATIONS = 12
_NUMBER = re.compile(r"(?<![\w%])(0[xX][0-9a-fA-F]{1,8}|\d{1,9})\b")
_WORK = frozenset({"MMA", "fp32", "fp16", "fp64", "special function"})
_COMMITS = (
    ("wgmma.commit_group", "wgmma"),
    ("cp.async.commit_group", "cp.async"),
    ("cp.async.bulk.commit_group", "bulk store"),
    ("mbarrier.arrive.expect_tx", "TMA"),
    ("tcgen05.commit", "tcgen05"),
)
_WAITS = (
    ("wgmma.wait_group", "wgmma"),
    ("cp.async.wait_", "cp.async"),
    ("cp.async.bulk.wait_group", "bulk store"),
)
_MBARRIER_KINDS = frozenset({"TMA", "tcgen05"})

Place = tuple[SourceLine | None, ...]


@record
class AsyncWait:
    """A wait in the hottest loop, in the steady state.

    `kind` is the kind of work waited for: cp.async, TMA, bulk store, wgmma, tcgen05. `in_flight` is
    the number of groups in flight when the wait begins, `left` the number when it ends. `meanwhile`
    counts the arithmetic between the issue of the youngest group waited for and the wait, by class;
    it is empty if nothing overlaps.
    """

    source: SourceLine | None
    kind: str
    in_flight: int
    left: int
    meanwhile: Mapping[str, int]

    @property
    def is_serial(self) -> bool:
        """Whether it drains the queue with no arithmetic since the last group was issued."""
        return self.left == 0 < self.in_flight and not self.meanwhile


def async_waits(function: Function, mix: InstructionMix) -> tuple[AsyncWait, ...]:
    """The waits of the hottest loop of a PTX function; `mix` is that of the same function."""
    loop = mix.hottest_loop
    if loop is None:
        return ()
    body = [function.instructions[at] for at in sorted(loop.instructions)]
    before = function.instructions[: min(loop.instructions)]
    queues = _Queues(_mbarrier_kinds(body))
    for instruction in before:
        queues.step(instruction)
    waits: list[AsyncWait] = []
    for _ in range(_ITERATIONS):
        waits = [wait for each in body for wait in queues.step(each)]
    # Leave out waits for groups that an earlier wait completed.
    return tuple(wait for wait in waits if wait.in_flight > wait.left)


def _mbarrier_kinds(body: list[Instruction]) -> Mapping[Place, str]:
    """The kind of work that signals an mbarrier at each place, for places with one kind."""
    kinds: dict[Place, set[str]] = defaultdict(set)
    for instruction in body:
        kind = _kind(instruction.opcode, _COMMITS)
        if kind in _MBARRIER_KINDS:
            kinds[_place(instruction)].add(kind)
    return {place: min(each) for place, each in kinds.items() if len(each) == 1}


def _place(instruction: Instruction) -> Place:
    return (instruction.source, *instruction.inlined)


def _kind(opcode: str, starts: tuple[tuple[str, str], ...]) -> str:
    return next((kind for start, kind in starts if opcode.startswith(start)), "")


class _Queues:
    """The groups in flight of each kind, oldest first, each with the work done since its issue."""

    def __init__(self, mbarriers: Mapping[Place, str]) -> None:
        self._mbarriers = mbarriers
        self._groups: dict[tuple[str, Place], list[int]] = defaultdict(list)
        self._work: list[str] = []

    def step(self, instruction: Instruction) -> list[AsyncWait]:
        """Simulate one instruction; return the wait that it is, if any."""
        waits = list(self._waits(instruction))
        if kind := _kind(instruction.opcode, _COMMITS):
            self._groups[self._queue(kind, _place(instruction))].append(len(self._work))
        name = class_of(instruction, "ptx")
        if name in _WORK:
            self._work.append(name)
        return waits

    def _waits(self, instruction: Instruction) -> Iterator[AsyncWait]:
        opcode = instruction.opcode
        if kind := _kind(opcode, _WAITS):
            number = (_NUMBER.findall(instruction.operands) or ["0"])[-1]
            left = int(number, 16 if number[:2] in ("0x", "0X") else 10)
            yield self._wait(instruction, (kind, ()), left)
        elif opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait")):
            place = self._signalled_at(_place(instruction))
            if place is not None:
                queue = self._queue(self._mbarriers[place], place)
                yield self._wait(instruction, queue, max(0, len(self._groups[queue]) - 1))

    def _queue(self, kind: str, place: Place) -> tuple[str, Place]:
        """The key of a queue: one per kind, or one per place if several places signal the kind."""
        several = list(self._mbarriers.values()).count(kind) > 1
        return kind, place if several else ()

    def _signalled_at(self, place: Place) -> Place | None:
        """The place that signals the mbarriers waited for at `place`: the same, or the only one."""
        if place in self._mbarriers:
            return place
        return next(iter(self._mbarriers)) if len(self._mbarriers) == 1 else None

    def _wait(self, instruction: Instruction, queue: tuple[str, Place], allowed: int) -> AsyncWait:
        groups = self._groups[queue]
        completed = groups[: max(0, len(groups) - allowed)]
        self._groups[queue] = groups[len(completed) :]
        counts = Counter(self._work[completed[-1] :] if completed else ())
        meanwhile = {name: counts[name] for name in CLASSES if counts[name]}
        return AsyncWait(
            instruction.source, queue[0], len(groups), len(groups) - len(completed), meanwhile
        )
