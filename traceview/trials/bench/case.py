"""An operation at one size and data type: its inputs, and its results against the reference."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError, TraceviewError
from traceview.base.records import record
from traceview.trials.bench.operation import Operation, error_line

_POISON = 255
"""Bytes of this value are NaN in every floating-point type, and -1 or the maximum in all others."""
_POISONED_COPIES, _MOST_POISONED_BYTES = 8, 256 << 20


@record
class CheckResult:
    """The outcome of a comparison.

    `error` is the largest difference ÷ the largest magnitude of the reference. `wrong` says what
    is wrong; None if the results are right.
    """

    error: float | None
    wrong: str | None = None


def reference_outputs(operation: Operation, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The output tensors of the reference for these inputs converted to float64.

    Raises InputError if the reference returns anything but tensors.
    """

    def in_float64(value: Any) -> Any:
        return _widest(value) if value.is_floating_point() or value.is_complex() else value

    outputs = flatten(operation.reference(*map_tensors(inputs, in_float64)))
    for output in outputs:
        if not _is_tensor(output):
            what = f"the reference of {operation.name} returns {_kind(output)}, not a tensor"
            raise InputError(what, "return a tensor, or a tuple of them")
    return outputs


def compare(results: Any, expected: tuple[Any, ...], tolerance: float) -> CheckResult:
    """Compare what a version returned with the outputs of the reference."""
    outputs = flatten(results)
    if len(outputs) != len(expected):
        return CheckResult(
            None, f"returns {len(outputs)} tensors, the reference returns {len(expected)}"
        )
    for output, true in zip(outputs, expected, strict=True):
        if not _is_tensor(output):
            return CheckResult(None, f"returns {_kind(output)}, not a tensor")
        if tuple(output.shape) != tuple(true.shape):
            shapes = f"returns shape {tuple(output.shape)}, the reference {tuple(true.shape)}"
            return CheckResult(None, shapes)
    error = max((_error(*pair) for pair in zip(outputs, expected, strict=True)), default=0.0)
    wrong = None
    if math.isinf(error):
        wrong = "has NaN or infinity in different elements than the reference"
    elif error > tolerance:
        wrong = f"relative error {error:.1e} exceeds the tolerance {tolerance:.1e}"
    return CheckResult(error, wrong)


def flatten(results: Any) -> tuple[Any, ...]:
    """The leaves of nested tuples, lists and mappings, in order; mappings are sorted by key."""
    if isinstance(results, Mapping):
        results = [results[name] for name in sorted(results, key=str)]
    if not isinstance(results, tuple | list):
        return (results,)
    return tuple(leaf for part in results for leaf in flatten(part))


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested tuples, lists and mappings with `change(tensor)` in place of each tensor."""
    if isinstance(value, Mapping):
        return {name: map_tensors(part, change) for name, part in value.items()}
    if isinstance(value, tuple | list):
        mapped = [map_tensors(part, change) for part in value]
        return value._make(mapped) if hasattr(value, "_make") else type(value)(mapped)
    return change(value) if _is_tensor(value) else value


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "clone") and hasattr(value, "element_size")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _same(now: Any, then: Any) -> bool:
    return bool(((now == then) | ((now != now) & (then != then))).all())


def _widest(tensor: Any) -> Any:
    """The tensor in float64 or complex128."""
    detached = tensor.detach()
    return detached.cdouble() if detached.is_complex() else detached.double()


def _error(output: Any, true: Any) -> float:
    """The largest difference ÷ the largest magnitude; infinite if NaN or infinities differ."""
    if not true.numel():
        return 0.0
    output, true = _widest(output), _widest(true)
    finite = true.isfinite()
    # Where the reference is infinite or NaN, the version has to be the same.
    if not bool((output.isfinite() == finite).all()) or not _same(output[~finite], true[~finite]):
        return math.inf
    output, true = output[finite], true[finite]
    if not true.numel():
        return 0.0
    largest = float(true.abs().max())
    difference = float((output - true).abs().max())
    return difference / largest if largest else difference


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
        pairs = zip(flatten(self.inputs), flatten(self.before), strict=True)
        return any(_is_tensor(now) and not _same(now, then) for now, then in pairs)

    def restore(self) -> None:
        """Undo what a version wrote to the inputs."""
        for now, then in zip(flatten(self.inputs), flatten(self.before), strict=True):
            if _is_tensor(now):
                now.copy_(then)

    def poison_free_memory(self) -> None:
        """Fill free memory of the sizes that results may have with NaN, as far as there is any.

        Allocators hand out first what was freed last. A version that leaves its output, or the end
        of it, unwritten would otherwise find the results of the previous version there and pass.
        """
        import torch

        tensors = filter(_is_tensor, (*flatten(self.inputs), *self.expected))
        widths = {4, *(tensor.element_size() for tensor in tensors)}
        try:
            # Twice: the C library learns from what is freed where to put the next block of that
            # size.
            for _ in range(2):
                held = []
                for true, width in product(self.expected, widths):
                    size = true.numel() * width
                    # Several blocks of each size at once, fewer of large ones.
                    copies = max(_MOST_POISONED_BYTES // max(size, 1), 1)
                    for _ in range(min(copies, _POISONED_COPIES)):
                        block = torch.empty(size, dtype=torch.uint8, device=true.device)
                        held.append(block.fill_(_POISON))
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
            return Reference(size, inputs, outputs, map_tensors(inputs, lambda x: x.clone()))
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
