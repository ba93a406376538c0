"""Giving a launch its values on the CPU, through Triton's interpreter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock


def emulate(source: Any, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
    """Run a kernel on tensors that are really on the CPU; `arguments` hold the constexprs too.

    Raises whatever the interpreter raises: it lacks some of the language.
    """
    import torch
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    convert = _with_floats(interpreter, interpreter._implicit_cvt)
    with (
        mock.patch.object(interpreter, "_implicit_cvt", convert),
        mock.patch.object(JITFunction, "__call__", _call_helper),
        torch._C.DisableTorchFunction(),
    ):
        _interpreted(source.fn).run(*arguments, grid=grid, warmup=False)


def _call_helper(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """A jitted function called by a kernel.

    The interpreter's own call leaves triton.language patched, so that the next compilation would
    fail: take the patches off.
    """
    from triton.runtime.interpreter import _patch_lang

    patches = _patch_lang(function.fn)
    try:
        return _interpreted(function).rewrite()(*arguments, **keywords)
    finally:
        patches.restore()


def _with_floats(interpreter: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The interpreter passes floats on as they are, and then `eps.to(tl.float32)` fails."""
    import numpy as np
    import triton.language as tl

    def converted(value: Any) -> Any:
        if not isinstance(value, float):
            return convert(value)
        handle = interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32)
        return tl.tensor(handle, tl.float32)

    return converted


@functools.cache
def _interpreted(function: Any) -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(function.fn)
