"""One size and data type of an operation: its inputs, and what the reference makes of them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from traceview.bench.correctness import copies, expected, is_changed, restore, spoil_free_memory
from traceview.bench.loading import in_words
from traceview.bench.operation import Operation
from traceview.errors import InputError, TraceviewError


@dataclass
class Reference:
    """Inputs of one size with the float64 values that the results are compared with."""

    size: int
    inputs: tuple[Any, ...]
    wanted: tuple[Any, ...]
    before: tuple[Any, ...]

    def is_changed(self) -> bool:
        """Whether a version wrote to the inputs."""
        return is_changed(self.inputs, self.before)

    def restore(self) -> None:
        """Put the values back."""
        restore(self.inputs, self.before)

    def spoil_free_memory(self) -> None:
        """Leave nothing of earlier results in memory; where it is short, what there is stays."""
        try:
            spoil_free_memory(self.inputs, self.wanted)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise


@dataclass
class Case:
    """Inputs to time versions on, and those to check them on: the same unless memory is short.

    `unchecked` says why there is nothing to check on.
    """

    size: int
    dtype: str
    inputs: tuple[Any, ...]
    bytes_moved: int
    flop: int
    checked: Reference | None
    unchecked: str | None = None

    @classmethod
    def made(cls, operation: Operation, size: int, dtype: str, device: str) -> Case:
        """The inputs, checked by the operation's own check.

        Raises InputError if it cannot take a size, or if the inputs do not fit into memory.
        """
        try:
            inputs = _inputs(operation, size, dtype, device)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            what = f"{operation.name}: inputs of size {size:,} do not fit into memory"
            raise InputError(what, "choose a smaller --size") from error
        checked = _reference(operation, size, inputs)
        for smaller in sorted((s for s in _sizes(operation) if s < size), reverse=True):
            if checked:
                break
            checked = _reference(operation, smaller, _inputs(operation, smaller, dtype, device))
        with users(operation, "bytes_moved or flop"):
            moved, flop = int(operation.bytes_moved(*inputs)), int(operation.flop(*inputs))
        unchecked = None if checked else "the float64 reference does not fit into memory"
        return cls(size, dtype, inputs, moved, flop, checked, unchecked)


def _sizes(operation: Operation) -> set[int]:
    return {*operation.sizes, *operation.small_sizes}


def _inputs(operation: Operation, size: int, dtype: str, device: str) -> tuple[Any, ...]:
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise InputError(f"torch {torch.__version__} has no type {dtype[:40]!r}")
    with users(operation, "inputs or check"):
        inputs = operation.inputs(size, kind, device)
        if not isinstance(inputs, tuple | list):
            # Its rows would be the inputs, else.
            what = f"inputs of {operation.name} gives a {type(inputs).__name__}"
            raise InputError(what, "return a tuple, of one tensor: (x,)")
        operation.check(*inputs)
    return tuple(inputs)


def _reference(operation: Operation, size: int, inputs: tuple[Any, ...]) -> Reference | None:
    """None if memory is short."""
    try:
        with users(operation, "reference"):
            return Reference(size, inputs, expected(operation, inputs), copies(inputs))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        return None


@contextmanager
def users(operation: Operation, what: str) -> Iterator[None]:
    """An error in a function of the user's file becomes one line that names it."""
    try:
        yield
    except TraceviewError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and _is_out_of_memory(error):
            raise
        place = _line(error, operation)
        raise InputError(f"{what} of {operation.name} raised {in_words(error, place)}") from error


def _line(error: BaseException, operation: Operation) -> str:
    """Where in a file of the operation it was raised; nothing if it was elsewhere."""
    o = operation
    files = set(map(_file, (o.inputs, o.check, o.reference, o.bytes_moved, o.flop))) - {None}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return f" at line {frame.lineno} of {Path(frame.filename).name}"
    return ""


def _file(function: Any) -> str | None:
    """That which a function was written in; None for one of C."""
    code = getattr(function.func if isinstance(function, partial) else function, "__code__", None)
    return code.co_filename if code else None


def _is_out_of_memory(error: RuntimeError) -> bool:
    """A GPU's is an error of its own; a CPU's is told by its text alone."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _release() -> None:
    import torch

    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    # After an error of CUDA this fails, too, and says nothing new.
    with suppress(RuntimeError):
        torch.cuda.empty_cache()


@contextmanager
def released(device: str) -> Iterator[None]:
    """Give back what one size took before the next, and have torch.compile start afresh.

    It would otherwise make a kernel for all sizes once it sees the second, which is slower.
    """
    try:
        yield
    finally:
        if device == "cuda":
            _release()
