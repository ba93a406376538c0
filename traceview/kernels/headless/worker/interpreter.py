"""Kernels in Triton's interpreter: those of a script, and single programs of one kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from traceview.kernels.headless.worker import sparse_memory


def emulate(source: Any, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
    """Run a kernel on tensors that are on the CPU; `arguments` includes the constexprs.

    Raises whatever the interpreter raises: it supports only part of the language.
    """
    import torch

    with interpreting(), torch._C.DisableTorchFunction():
        interpreted(source.fn).run(*arguments, grid=grid, warmup=False)


@contextmanager
def interpreting() -> Iterator[None]:
    """Let the interpreter take floats, and kernels call jitted functions."""
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    convert = _with_floats(interpreter, interpreter._implicit_cvt)
    with (
        mock.patch.object(interpreter, "_implicit_cvt", convert),
        mock.patch.object(JITFunction, "__call__", _call_helper),
    ):
        yield


def _call_helper(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call a jitted function from a kernel.

    The interpreter's own call leaves triton.language patched, which would break the next
    compilation. So remove the patches.
    """
    from triton.runtime.interpreter import _patch_lang

    patches = _patch_lang(function.fn)
    try:
        return interpreted(function).rewrite()(*arguments, **keywords)
    finally:
        patches.restore()


def _with_floats(interpreter: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Convert floats to tensors: the interpreter does not, and `eps.to(tl.float32)` fails."""
    import numpy as np
    import triton.language as tl

    def converted(value: Any) -> Any:
        if not isinstance(value, float):
            return convert(value)
        handle = interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    return converted


def interpreted(function: Any) -> Any:
    """The interpreter's twin of a jitted function."""
    # A jitted function itself is hashed by its source, which takes long, and fails while the
    # language is patched.
    return _twin(function.fn)


@functools.cache
def _twin(function: Any) -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(function)


Tensors = list[tuple[str, sparse_memory.TensorSample, str]]


class NotRunnableError(Exception):
    """A launch cannot be repeated with other constexprs; the message says why."""


def tensors_of(signature: Mapping[str, Any], sample: sparse_memory.LaunchSample) -> Tensors:
    """The tensors among the arguments, each with its name and the format of its elements.

    Raises NotRunnableError for an argument that hides tensors.
    """
    return [
        leaf
        for name, argument in sample.arguments.items()
        for leaf in _leaves(name, signature.get(name), argument)
    ]


class InterpretedKernel:
    """A kernel whose programs run one by one; `changed` replaces arguments of the launch."""

    def __init__(
        self,
        source: Any,
        sample: sparse_memory.LaunchSample,
        memory: sparse_memory.SparseMemory,
        grid: sparse_memory.Grid,
        changed: Mapping[str, Any],
    ) -> None:
        self._function = interpreted(source.fn)
        self._source, self._memory = source, memory
        self._grid = grid
        self._arguments = {**sample.arguments, **changed}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Prepare the interpreter; `run` works within this context."""
        from triton.runtime import interpreter

        function = self._function.rewrite()
        executor = interpreter.GridExecutor(function, self._function.arg_names, self._grid, [])
        builder = interpreter.interpreter_builder
        with (
            interpreting(),
            mock.patch.object(interpreter, "_interpreter", self._memory),
            mock.patch.object(builder, "create_dot", _dot(builder.create_dot)),
        ):
            patches = interpreter._patch_lang(function)
            try:
                builder.set_grid_dim(*self._grid)
                self._call, signature = function, self._source.signature
                self._converted = {
                    name: value
                    if name in executor.constexprs
                    else self._value(name, signature.get(name), value)
                    for name, value in self._arguments.items()
                }
                yield
            finally:
                patches.restore()

    def run(self, program: sparse_memory.Grid) -> None:
        """Run one program. Raises what the interpreter and the memory raise."""
        from triton.runtime.interpreter import interpreter_builder

        interpreter_builder.set_grid_idx(*program)
        self._call(**self._converted)

    def _value(self, path: str, type_: Any, value: Any) -> Any:
        import triton.language as tl
        from triton.runtime import interpreter

        if isinstance(value, sparse_memory.TensorSample):
            pointer = tl.str_to_ty(type_, None)
            address = np.array([self._memory.address(path, value)], dtype=np.uint64)
            return tl.tensor(interpreter.TensorHandle(address, pointer), pointer)
        if isinstance(value, tuple):
            return sparse_memory.tuple_like(
                value,
                [
                    self._value(f"{path}[{at}]", inner_type, inner)
                    for at, (inner, inner_type) in enumerate(_typed(value, type_))
                ],
            )
        return interpreter._implicit_cvt(value)


def _dot(create: Callable[..., Any]) -> Callable[..., Any]:
    """tl.dot with its operands as fp32, which hold all shorter floats.

    NumPy's own products of 16-bit floats take a hundred times as long, and for bf16 it would
    multiply the bits as integers.
    """

    def create_dot(a: Any, b: Any, c: Any, *rest: Any) -> Any:
        from triton.runtime.interpreter import TensorHandle

        formats = [sparse_memory.NumberFormat(str(operand.dtype.scalar)) for operand in (a, b)]
        if not all(each.is_float and each.bytes < 4 for each in formats):
            return create(a, b, c, *rest)
        x, y = (
            each.decoded(np.ascontiguousarray(operand.data)).astype(np.float32)
            for each, operand in zip(formats, (a, b), strict=True)
        )
        total = np.matmul(x, y) + c.data
        return TensorHandle(total.astype(c.data.dtype), c.dtype.scalar)

    return create_dot


def _typed(values: tuple[Any, ...], types: Any) -> Iterator[tuple[Any, Any]]:
    listed = types if isinstance(types, (tuple, list)) else [None] * len(values)
    return zip(values, listed, strict=False)


def _leaves(
    path: str, type_: Any, argument: Any
) -> Iterator[tuple[str, sparse_memory.TensorSample, str]]:
    if isinstance(argument, sparse_memory.TensorSample):
        yield path, argument, str(type_).lstrip("*k")
    elif isinstance(argument, tuple):
        for at, (inner, inner_type) in enumerate(_typed(argument, type_)):
            yield from _leaves(f"{path}[{at}]", inner_type, inner)
    elif hasattr(argument, "block_shape"):
        raise NotRunnableError("its tensor descriptors are made for the old size")
