"""Layouts of TTGIR: the elements that each thread of a block holds, and which are adjacent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Array

_LIST = re.compile(r"(\w+) = \[([\d, ]*)\]")
SLICE = re.compile(r"slice<\{dim = (\d+), parent = (.*)\}>$")
_REGISTERS = re.compile(r"register = \[((?:\[[\d, ]*\](?:, )?)*)\]")
_BASIS = re.compile(r"\[([\d, ]*)\]")
_WIDTH = re.compile(r"kWidth = (\d+)")
_IN_TENSOR = re.compile(r"(#[\w.]+(?:<\{.*\}>)?)>$")


@record
class ThreadShare:
    """Axes from the fastest to the slowest, and a thread's adjacent elements along the fastest."""

    order: tuple[int, ...]
    adjacent: int
    kind: str

    @property
    def axis(self) -> int:
        """The axis along which elements of a thread are adjacent."""
        return self.order[0]


def layout_of(type_: str, layouts: Mapping[str, str]) -> str:
    """The layout of a tensor type, with its names resolved; empty where it has none."""
    match = _IN_TENSOR.search(type_)
    return _resolved(match[1], layouts) if match else ""


def kind_of(layout: str) -> str:
    """The kind of a layout: blocked, linear, nvidia_mma, dot_op …"""
    return layout.partition("<")[0].rpartition(".")[2].lstrip("#")


def lists_of(layout: str) -> dict[str, list[int]]:
    """The lists of numbers in a layout, such as sizePerThread, by name."""
    return {
        name: [int(n) for n in numbers.split(",") if n.strip()]
        for name, numbers in _LIST.findall(layout)
    }


def thread_share(layout: str, shape: Sequence[int]) -> ThreadShare | None:
    """A thread's share of a tensor; None for a layout that is not understood."""
    share = _share(layout, len(shape))
    if share is None or not shape or share.axis >= len(shape):
        return None
    return ThreadShare(share.order, min(share.adjacent, shape[share.axis]), share.kind)


def _resolved(text: str, layouts: Mapping[str, str]) -> str:
    for _ in range(8):
        changed = re.sub(r"#(\w+)(?![\w.])", lambda m: layouts.get(m[1], m[0]), text)
        if changed == text:
            break
        text = changed
    return text


def _share(layout: str, rank: int) -> ThreadShare | None:
    sliced = SLICE.search(layout)
    if sliced:
        parent = _share(sliced[2], rank + 1)
        if parent is None:
            return None
        axis = int(sliced[1])
        order = tuple(a - (a > axis) for a in parent.order if a != axis)
        adjacent = parent.adjacent if parent.axis != axis else 1
        return ThreadShare(order, adjacent, f"{parent.kind} slice")
    lists, kind = lists_of(layout), kind_of(layout)
    if kind == "blocked":
        order = tuple(lists["order"])
        return ThreadShare(order, lists["sizePerThread"][order[0]], kind)
    if kind == "linear":
        # A linear layout: registers that advance by 1, 2, 4 … along one axis are adjacent.
        registers = _REGISTERS.search(layout)
        bases = [
            [int(n) for n in basis.split(",") if n.strip()]
            for basis in (_BASIS.findall(registers[1]) if registers else ())
        ]
        axis = next((at for basis in bases for at, n in enumerate(basis) if n), rank - 1)
        adjacent = 1
        while any(basis[axis] == adjacent and sum(basis) == adjacent for basis in bases):
            adjacent *= 2
        rest = tuple(a for a in reversed(range(rank)) if a != axis)
        return ThreadShare((axis, *rest), adjacent, "linear")
    last_first = tuple(reversed(range(rank)))
    if kind == "dot_op":
        width = _WIDTH.search(layout)
        return ThreadShare(last_first, int(width[1]) if width else 1, kind)
    return ThreadShare(last_first, 2, kind) if kind.endswith("mma") else None


# The elements that each thread of a block holds, by the layout of a tensor in TTGIR.
#
# A distributed layout is linear over bits: each bit of the register, lane and warp number adds
# (by exclusive or) a fixed offset to the element's place. Blocked, slice, MMA, dot-operand and
# linear layouts are understood, as Triton's dialect TritonGPU defines them; the fragments of MMA
# are those of `mma.m16n8` and `wgmma` in the PTX ISA manual.

_NUMBER = re.compile(r"(\w+) = (\d+)")
_NESTED = re.compile(r"(\w+) = \[((?:\[[\d, ]*\](?:, )?)*)\]")

Basis = tuple[int, ...]
_MOST_BITS = 22


@record
class Bases:
    """The offset that each bit of the register, lane and warp number adds to the coordinates."""

    register: tuple[Basis, ...]
    lane: tuple[Basis, ...]
    warp: tuple[Basis, ...]

    def without(self, axis: int) -> Bases:
        """The layout of the tensor without an axis."""
        return Bases(*(tuple(b[:axis] + b[axis + 1 :] for b in each) for each in self.parts))

    @property
    def parts(self) -> tuple[tuple[Basis, ...], ...]:
        return self.register, self.lane, self.warp


def bases_of(layout: str, shape: Sequence[int]) -> Bases | None:
    """The bases of a layout over a shape; None for a layout that is not understood."""
    try:
        bases = _bases(layout, shape)
    except (KeyError, IndexError, ValueError):
        # Not as Triton writes it: a file of a cache may hold anything.
        return None
    bits = sum(map(len, bases.parts)) if bases else 0
    return bases if bits <= _MOST_BITS else None


def _bases(layout: str, shape: Sequence[int]) -> Bases | None:
    if any(size & (size - 1) for size in shape) or not shape:
        return None
    sliced = SLICE.search(layout)
    if sliced:
        axis = int(sliced[1])
        parent = bases_of(sliced[2], (*shape[:axis], 1, *shape[axis:]))
        return parent.without(axis) if parent else None
    kind = kind_of(layout)
    if kind == "blocked":
        lists, tile = lists_of(layout), _Tile(shape)
        order = lists["order"]
        register = tile.spread(lists["sizePerThread"], order)
        lane = tile.spread(lists["threadsPerWarp"], order)
        warp = tile.spread(lists["warpsPerCTA"], order)
        return Bases((*register, *tile.rest(order)), lane, warp)
    if kind == "linear":
        tile = _Tile(shape)
        parts = {
            name: tuple(_masked(basis, tile) for basis in _BASIS.findall(bases))
            for name, bases in _NESTED.findall(layout)
        }
        return Bases(*(parts.get(name, ()) for name in ("register", "lane", "warp")))
    if kind == "nvidia_mma" and len(shape) == 2:
        return _mma(layout, shape)
    if kind == "dot_op" and "nvidia_mma" in layout and len(shape) == 2:
        return _dot_operand(layout, shape)
    return None


def elements(bases: Bases, shape: Sequence[int]) -> Array:
    """The element that each warp, lane and register holds, as its index in row-major order."""
    register, lane, warp = (_places(each, shape) for each in bases.parts)
    places: Array = warp[:, None, None] ^ lane[None, :, None] ^ register[None, None, :]
    return places


def _places(bases: Iterable[Basis], shape: Sequence[int]) -> Array:
    """The row-major offset that each of the numbers 0, 1, 2 … of the given bits adds."""
    weights = np.cumprod([1, *reversed(shape[1:])])[::-1]
    # Sizes are powers of two, so that the axes are fields of bits of the place.
    flat = [int(np.dot(basis, weights)) for basis in bases]
    places = np.zeros(1, np.int64)
    for place in flat:
        places = np.concatenate([places, places ^ place])
    return places


class _Tile:
    """A layout built up from the fastest bits: `covered` is the size of the tile so far."""

    def __init__(self, shape: Sequence[int], covered: Sequence[int] = ()) -> None:
        self.shape = shape
        self.covered = list(covered) or [1] * len(shape)

    def spread(self, sizes: Sequence[int], order: Sequence[int]) -> tuple[Basis, ...]:
        """Bits that repeat the tile along the axes, the fastest axis first."""
        bits: list[Basis] = []
        for axis in order:
            for _ in range(sizes[axis].bit_length() - 1):
                bits.append(self.unit(axis, self.covered[axis]))
                self.covered[axis] *= 2
        return tuple(bits)

    def rest(self, order: Sequence[int]) -> tuple[Basis, ...]:
        """Registers that repeat the tile until it covers the shape."""
        left = [
            max(1, size // covered) for size, covered in zip(self.shape, self.covered, strict=True)
        ]
        return self.spread(left, order)

    def unit(self, axis: int, offset: int) -> Basis:
        """An offset along an axis; 0 beyond the tensor, where threads hold copies."""
        inside = offset if offset < self.shape[axis] else 0
        return tuple(inside if at == axis else 0 for at in range(len(self.shape)))

    def units(self, pairs: Iterable[tuple[int, int]]) -> tuple[Basis, ...]:
        return tuple(self.unit(axis, offset) for axis, offset in pairs)


def _masked(text: str, tile: _Tile) -> Basis:
    numbers = [int(n) for n in text.split(",") if n.strip()]
    return tuple(n if n < size else 0 for n, size in zip(numbers, tile.shape, strict=True))


def _powers(begin: int, end: int) -> Iterator[int]:
    while begin < end:
        yield begin
        begin *= 2


def _mma(layout: str, shape: Sequence[int]) -> Bases | None:
    """Bases of accumulators: two neighbours along a row, and two more eight rows below."""
    lists, numbers = lists_of(layout), dict(_NUMBER.findall(layout))
    is_wgmma = numbers.get("versionMajor") == "3"
    if not is_wgmma and numbers.get("versionMajor") != "2":
        return None
    columns = lists["instrShape"][1] if is_wgmma else 8
    tile = _Tile(shape, (16, columns))
    register = tile.units([(1, 1), (0, 8), *((1, c) for c in _powers(8, columns))])
    lane = tile.units([(1, 2), (1, 4), (0, 1), (0, 2), (0, 4)])
    # Warps of a warp group are below each other, those of mma beside each other first.
    warp = tile.spread(lists["warpsPerCTA"], (0, 1) if is_wgmma else (1, 0))
    return Bases((*register, *tile.rest((1, 0))), lane, warp)


def _dot_operand(layout: str, shape: Sequence[int]) -> Bases | None:
    """Operands A (rows × depth) and B (depth × columns) of a matrix product in registers."""
    lists, numbers = lists_of(layout), dict(_NUMBER.findall(layout))
    if numbers.get("versionMajor") not in ("2", "3") or "kWidth" not in numbers:
        return None
    width, is_a = int(numbers["kWidth"]), numbers.get("opIdx") == "0"
    depth, across = (1, 0) if is_a else (0, 1)
    covered = [0, 0]
    covered[depth], covered[across] = 8 * width, 16 if is_a else 8
    tile = _Tile(shape, covered)
    rows = ((across, 8),) if is_a else ()
    register = tile.units([*((depth, k) for k in _powers(1, width)), *rows, (depth, 4 * width)])
    lane = tile.units([(depth, width), (depth, 2 * width), *((across, n) for n in (1, 2, 4))])
    warps = lists["warpsPerCTA"]
    # The warp bases of an operand; warps apart along the product's other axis hold copies.
    bases: list[Basis] = []
    for axis in (0, 1) if numbers["versionMajor"] == "3" else (1, 0):
        if axis == across:
            bases += tile.spread([n if at == axis else 1 for at, n in enumerate(warps)], (axis,))
        else:
            bases += [(0, 0)] * (warps[axis].bit_length() - 1)
    warp = tuple(bases)
    return Bases((*register, *tile.rest((depth, across))), lane, warp)
