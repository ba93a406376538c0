"""The arguments and the grid of one launch, kept without the memory of its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.records import record

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
