"""An operation at one size and data type: its inputs and the outputs of its reference."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from traceview.bench.correctness import (
    clone_tensors,
    is_modified,
    poison_free_memory,
    reference_outputs,
    restore,
)
from traceview.bench.loading import error_line
from traceview.bench.operation import Operation
from traceview.errors import InputError, TraceviewError


@dataclass
class Reference:
    """Inputs of one size, and the float64 outputs to compare results with.

    `before` are clones of the inputs.
    """

    size: int
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    before: tuple[Any, ...]

    def is_modified(self) -> bool:
        """Whether a version wrote to the inputs."""
        return is_modified(self.inputs, self.before)

    def restore(self) -> None:
        """Undo what a version wrote to the inputs."""
        restore(self.inputs, self.before)

    def poison_free_memory(self) -> None:
        """Overwrite earlier results in free memory, unless memory is too short for that."""
        try:
            poison_free_memory(self.inputs, self.expected)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise


@dataclass
class Case:
    """Inputs to time versions on, and inputs to check them on: the same unless memory is short.

    `unchecked` says why there is no reference to check against.
    """

    size: int
    dtype: str
    inputs: tuple[Any, ...]
    bytes_moved: int
    flop: int
    checked: Reference | None
    unchecked: str | None = None

    @classmethod
    def prepare(cls, operation: Operation, size: int, dtype: str, device: str) -> Case:
        """Make the inputs, check them by the operation's own check, and run the reference.

        Raises InputError if the operation does not take the size, or if memory is too short.
        """
        try:
            inputs = _inputs(operation, size, dtype, device)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            what = f"{operation.name}: inputs of size {size:,} do not fit in memory"
            raise InputError(what, "choose a smaller --size") from error
        checked = _reference(operation, size, inputs)
        for smaller in sorted({*operation.sizes, *operation.small_sizes}, reverse=True):
            if not checked and smaller < size:
                checked = _reference(operation, smaller, _inputs(operation, smaller, dtype, device))
        with user_code(operation, "bytes_moved or flop"):
            moved, flop = int(operation.bytes_moved(*inputs)), int(operation.flop(*inputs))
        unchecked = None if checked else "the float64 reference does not fit in memory"
        return cls(size, dtype, inputs, moved, flop, checked, unchecked)


def _inputs(operation: Operation, size: int, dtype: str, device: str) -> tuple[Any, ...]:
    import torch

    torch_dtype = getattr(torch, dtype, None)
    if not isinstance(torch_dtype, torch.dtype):
        raise InputError(
            f"torch {torch.__version__} has no data type {dtype[:40]!r}", "pass one such as float16"
        )
    with user_code(operation, "inputs or check"):
        inputs = operation.inputs(size, torch_dtype, device)
        if not isinstance(inputs, tuple | list):
            # A bare tensor would be taken apart into its rows.
            what = f"inputs of {operation.name} returns a {type(inputs).__name__}"
            raise InputError(what, "return a tuple; for one tensor: (x,)")
        operation.check(*inputs)
    return tuple(inputs)


def _reference(operation: Operation, size: int, inputs: tuple[Any, ...]) -> Reference | None:
    """The reference at one size; None if memory is short."""
    try:
        with user_code(operation, "reference"):
            outputs = reference_outputs(operation, inputs)
            return Reference(size, inputs, outputs, clone_tensors(inputs))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        return None


@contextmanager
def user_code(operation: Operation, function: str) -> Iterator[None]:
    """Turn an error in a function of the user's file into an InputError that names its line."""
    try:
        yield
    except TraceviewError:
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and _is_out_of_memory(error):
            raise
        o, files = operation, set()
        for code in (o.inputs, o.check, o.reference, o.bytes_moved, o.flop):
            written = code.func if isinstance(code, partial) else code
            # A function written in C has no code and no file.
            files.add(getattr(getattr(written, "__code__", None), "co_filename", None))
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
        place = (
            f" at line {frames[-1].lineno} of {Path(frames[-1].filename).name}" if frames else ""
        )
        raise InputError(
            f"{function} of {operation.name} raised {error_line(error, place)}"
        ) from error


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether memory was too short; a GPU's error has a type of its own, a CPU's only a text."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


@contextmanager
def releasing_memory(device: str) -> Iterator[None]:
    """Free GPU memory after one size, and reset torch.compile.

    On seeing a second size torch.compile would otherwise compile a kernel for all sizes, which is
    slower.
    """
    try:
        yield
    finally:
        if device == "cuda":
            import torch

            if "torch._dynamo" in sys.modules:
                torch.compiler.reset()
            # After a CUDA error this fails as well, and adds nothing.
            with suppress(RuntimeError):
                torch.cuda.empty_cache()
