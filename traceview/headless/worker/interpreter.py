"""Run kernels on the CPU in Triton's interpreter, so that tensors get their values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock


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
