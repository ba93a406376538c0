"""The arguments of one launch, and memory for its tensors: sparse, with every access checked."""

from __future__ import annotations

import functools
import math
import mmap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.base.records import record

Grid = tuple[int, int, int]
# Indices, offsets and lengths: with made-up values they would lead out of other tensors.
_MEANINGFUL = ("int32", "int64", "uint32", "uint64", "bool")
_MOST_VALUES = 1 << 20


@record
class TensorSample:
    """The place of a tensor: the bytes `start` to `end` hold its elements, `pointer` is passed.

    `values` are the elements of a small integer tensor from `start` on; None for any other.
    """

    pointer: int
    start: int
    end: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    values: npt.NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, for a grid function."""
        return self.sizes

    def size(self, axis: int | None = None) -> Any:
        """The sizes or one of them, like torch.Tensor.size, for a grid function."""
        return self.sizes if axis is None else self.sizes[axis]

    def stride(self, axis: int | None = None) -> Any:
        """The strides or one of them, like torch.Tensor.stride, for a grid function."""
        return self.strides if axis is None else self.strides[axis]

    def numel(self) -> int:
        """The number of elements, like torch.Tensor.numel, for a grid function."""
        return math.prod(self.sizes)


@record
class LaunchSample:
    """One launch: its arguments by parameter, and the grid as the program passed it."""

    arguments: Mapping[str, Any]
    grid: Grid
    grid_function: Callable[[dict[str, Any]], Any] | None

    @classmethod
    def of(
        cls, names: Sequence[str], arguments: Sequence[Any], grid: Grid, passed: Any
    ) -> LaunchSample:
        """Record a launch without tensor memory; `passed` is the grid as the program passes it."""
        kept = dict(zip(names, map(_kept, arguments), strict=False))
        return cls(kept, grid, passed if callable(passed) else None)

    def grid_with(self, changed: Mapping[str, Any]) -> Grid | None:
        """The grid of a launch with other constexprs; None if it is not known.

        It is not if the program passes a fixed grid or if its grid function fails.
        """
        if not changed:
            return self.grid
        if self.grid_function is None:
            return None
        try:
            x, y, z = (*self.grid_function({**self.arguments, **changed}), 1, 1)[:3]
            return int(x), int(y), int(z)
        except Exception:
            # The program's own code, asked about a launch that it does not make.
            return None


def tuple_like(original: Any, elements: Sequence[Any]) -> Any:
    """A tuple of the type of another; a named one takes its elements as arguments, not a list."""
    kind = type(original)
    return kind(*elements) if hasattr(original, "_fields") else kind(elements)


def _kept(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple_like(argument, list(map(_kept, argument)))
    if not (hasattr(argument, "data_ptr") and hasattr(argument, "stride")):
        return argument
    return _tensor(argument)


def _tensor(tensor: Any) -> TensorSample:
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    pointer, item = int(tensor.data_ptr()), int(tensor.element_size())
    # Strides of PyTorch are never negative, so the first element has the lowest address.
    last = sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
    count = last + 1 if all(sizes) else 0
    values = _values(tensor, count) if 0 < count <= _MOST_VALUES else None
    end = pointer + count * item
    return TensorSample(pointer, pointer, end, sizes, strides, tensor.dtype, values)


def _values(tensor: Any, count: int) -> npt.NDArray[Any] | None:
    if str(tensor.dtype).removeprefix("torch.") not in _MEANINGFUL:
        return None
    try:
        run = tensor.detach().as_strided((count,), (1,))
        return np.array(run.numpy(), copy=True)
    except Exception:
        # A tensor without memory, or one of a subclass that does not allow this.
        return None


# The element formats of Triton's tensors: made-up values as bits, and bits as numbers.

Numbers = npt.NDArray[np.float64]
Bits = npt.NDArray[Any]
# Neighbouring runs differ in magnitude, as data do: the maximum of a group then depends on where
# the group ends, so that a wrong group size shows.
_RUN = 32
_EXPONENTS = 4
_PLAIN = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


@record
class NumberFormat:
    """The format of one element type of Triton, by its name in signatures: fp32, i8, fp8e4nv."""

    name: str

    @property
    def bytes(self) -> int:
        """The size of an element."""
        return max(1, int("".join(c for c in self.name.partition("e")[0] if c.isdigit())) // 8)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format."""
        return self.name.startswith(("fp", "bf"))

    @property
    def tolerance(self) -> float:
        """The relative difference that another order of additions may make.

        Some units in the last place: 2^-7 of the 8 bits of bf16, 2^-2 of the 3 or 4 of fp8; of
        fp32, which sums thousands of products, 2^-13.
        """
        known = {"fp64": 2.0**-40, "fp32": 2.0**-13, "fp16": 2.0**-8, "bf16": 2.0**-6}
        return known.get(self.name, 2.0**-2)

    def random(self, count: int, generator: np.random.Generator, *, positive: bool) -> Bits:
        """Made-up elements as bits: finite floats, any bytes, 0 or 1 of booleans; else zeros."""
        if self.is_float:
            runs = generator.integers(-_EXPONENTS, _EXPONENTS // 2, -(-count // _RUN))
            numbers = generator.standard_normal(count) * np.repeat(2.0**runs, _RUN)[:count]
            numbers = np.abs(numbers) + 1e-3 if positive else numbers
            if self.name in _PLAIN:
                return numbers.astype(_PLAIN[self.name]).view(f"u{self.bytes}")
            if self.name == "bf16":
                return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            table = _table(self.name)
            order = np.argsort(np.where(np.isfinite(table), table, np.inf), kind="stable")
            finite = order[: int(np.isfinite(table).sum())]
            at = np.searchsorted(table[finite], numbers).clip(0, len(finite) - 1)
            return np.asarray(finite[at], np.uint8)
        unsigned = f"u{self.bytes}"
        if self.name in ("i8", "u8"):
            return generator.integers(0, 256, count).astype(unsigned)
        if self.name in ("i1", "u1"):
            return generator.integers(0, 2, count).astype(unsigned)
        return np.zeros(count, unsigned)

    def decoded(self, bits: Bits) -> Numbers:
        """The numbers that bits encode, as float64."""
        if self.name in _PLAIN:
            return bits.view(_PLAIN[self.name]).astype(np.float64)
        if self.name == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if self.is_float:
            numbers: Numbers = _table(self.name)[bits]
            return numbers
        signed = "i" if self.name.startswith("i") and self.bytes > 1 else ""
        kind = f"{signed or 'u'}{self.bytes}" if self.name != "i8" else "i1"
        return bits.view(kind).astype(np.float64)


@functools.cache
def _table(name: str) -> Numbers:
    """The number of each of the 256 bit patterns of an 8-bit float; specials are NaN."""
    import triton.language as tl

    dtype: Any = tl.str_to_ty(name, None)
    mantissa_bits, bias = dtype.fp_mantissa_width, dtype.exponent_bias
    bits = np.arange(256)
    mantissa = (bits & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    exponent = (bits & 0x7F) >> mantissa_bits
    normal = (1 + mantissa) * 2.0 ** (exponent - bias)
    numbers = np.where(exponent > 0, normal, mantissa * 2.0 ** (1 - bias))
    numbers = np.where(bits & 0x80, -numbers, numbers)
    specials = {"fp8e5": (bits & 0x7C) == 0x7C, "fp8e4nv": (bits & 0x7F) == 0x7F}
    table: Numbers = np.where(specials.get(name, bits == 0x80), np.nan, numbers)
    return table


PAGE = 4096
_Addresses = npt.NDArray[np.uint64]


class OutOfBoundsError(Exception):
    """An access outside of the tensors of the launch."""


class TooSlowError(Exception):
    """The deadline of a comparison has passed."""


@dataclass
class Region:
    """The memory of one tensor, or of several that overlap.

    `start` is its first address in the program, `base` in this process. `filled` are the pages that
    have values, `written` the bytes at which an element was stored.
    """

    number: int
    names: tuple[str, ...]
    start: int
    size: int
    format: NumberFormat
    values: npt.NDArray[Any] | None
    memory: mmap.mmap
    written: mmap.mmap
    filled: npt.NDArray[np.bool_] = field(init=False)
    dirty: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.marks = np.frombuffer(self.written, np.uint8)
        self.base = int(self.bytes.ctypes.data)
        pages = -(-self.size // PAGE) + 1
        self.filled, self.dirty = np.zeros(pages, bool), np.zeros(pages, bool)

    def elements(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """The byte offsets at which elements were stored, in order, and their bits now."""
        width = self.format.bytes
        pages = np.flatnonzero(self.dirty)
        offsets = [p * PAGE + np.flatnonzero(self.marks[p * PAGE : (p + 1) * PAGE]) for p in pages]
        at = np.concatenate(offsets) if offsets else np.empty(0, np.int64)
        # A store of another type than the tensor's marks bytes in between.
        at = np.unique(at // width) * width
        bits = self.bytes[at[:, None] + np.arange(width)] if len(at) else np.empty((0, width), "u1")
        return at, np.ascontiguousarray(bits, np.uint8).view(f"u{width}").ravel()


class SparseMemory:
    """The tensors of a launch, filled when they are first touched, the same way each time.

    `load`, `store`, `atomic_rmw` and `atomic_cas` are what Triton's interpreter calls. They raise
    OutOfBoundsError, and TooSlowError after `deadline` (of time.thread_time).
    """

    def __init__(
        self, tensors: Sequence[tuple[str, TensorSample, str]], deadline: float, *, positive: bool
    ) -> None:
        self.regions = [_mapped(n, group) for n, group in enumerate(_overlapping(tensors))]
        self._stored: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._deadline, self._positive = deadline, positive
        import triton.runtime.interpreter as interpreter

        # The attribute is replaced while this memory is in use.
        self._real: Any = interpreter._interpreter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def address(self, name: str, tensor: TensorSample) -> int:
        """The address of a tensor in this process."""
        region = next(region for region in self.regions if name in region.names)
        return region.base + tensor.pointer - region.start

    def take_stored(self) -> dict[int, npt.NDArray[np.int64]]:
        """The byte offsets stored to since the last call, by the number of their region."""
        stored = {number: np.concatenate(each) for number, each in self._stored.items()}
        self._stored = {}
        return stored

    def load(self, pointers: _Addresses, mask: Any, other: Any, dtype: Any) -> Any:
        """Load where the mask allows."""
        self._touch(pointers, mask, np.dtype(dtype).itemsize, "reads", store=False)
        return self._real.load(pointers, mask, other, dtype)

    def store(self, pointers: _Addresses, value: Any, mask: Any) -> Any:
        """Store where the mask allows."""
        self._touch(pointers, mask, value.dtype.itemsize, "writes", store=True)
        return self._real.store(pointers, value, mask)

    def atomic_rmw(self, kind: Any, pointers: _Addresses, value: Any, mask: Any, order: Any) -> Any:
        """Update where the mask allows."""
        self._touch(pointers, mask, value.dtype.itemsize, "writes", store=True)
        return self._real.atomic_rmw(kind, pointers, value, mask, order)

    def atomic_cas(self, pointers: _Addresses, compared: Any, value: Any, order: Any) -> Any:
        """Compare and swap."""
        self._touch(pointers, None, value.dtype.itemsize, "writes", store=True)
        return self._real.atomic_cas(pointers, compared, value, order)

    def _touch(self, pointers: _Addresses, mask: Any, width: int, act: str, *, store: bool) -> None:
        if time.thread_time() > self._deadline:
            raise TooSlowError
        active = pointers if mask is None else pointers[np.broadcast_to(mask, pointers.shape)]
        left = active.ravel().astype(np.int64)
        for region in self.regions:
            if not left.size:
                return
            offsets = left - region.base
            inside = (offsets >= 0) & (offsets + width <= region.size)
            if inside.any():
                self._fill(region, offsets[inside], width)
                if store:
                    self._stored.setdefault(region.number, []).append(offsets[inside])
                    region.marks[offsets[inside]] = 1
                    region.dirty[offsets[inside] // PAGE] = True
                left = left[~inside]
        if left.size:
            raise OutOfBoundsError(f"{act} outside of its tensors")

    def _fill(self, region: Region, offsets: npt.NDArray[np.int64], width: int) -> None:
        for ends in (offsets // PAGE, (offsets + width - 1) // PAGE):
            missing = ~region.filled[ends]
            for page in np.unique(ends[missing]) if missing.any() else ():
                _fill_page(region, int(page), positive=self._positive)
                region.filled[page] = True


def _fill_page(region: Region, page: int, *, positive: bool) -> None:
    start = page * PAGE
    end = min(start + PAGE, region.size)
    if region.values is not None:
        known = region.values.view(np.uint8)[start:end]
        region.bytes[start : start + len(known)] = known
        return
    count = (end - start) // region.format.bytes
    generator = np.random.default_rng((region.number, page))
    bits = region.format.random(count, generator, positive=positive).view(np.uint8)
    region.bytes[start : start + len(bits)] = bits


def _overlapping(
    tensors: Sequence[tuple[str, TensorSample, str]],
) -> Iterator[list[tuple[str, TensorSample, str]]]:
    group: list[tuple[str, TensorSample, str]] = []
    for each in sorted(tensors, key=lambda tensor: tensor[1].start):
        if group and each[1].start >= max(tensor.end for _, tensor, _ in group):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _mapped(number: int, group: Sequence[tuple[str, TensorSample, str]]) -> Region:
    start = min(tensor.start for _, tensor, _ in group)
    size = max(tensor.end for _, tensor, _ in group) - start
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory, written = (mmap.mmap(-1, size + 2 * PAGE, flags=flags) for _ in range(2))
    _, first, format_ = group[0]
    values = first.values if len(group) == 1 else None
    names = tuple(name for name, _, _ in group)
    return Region(number, names, start, size, NumberFormat(format_), values, memory, written)
