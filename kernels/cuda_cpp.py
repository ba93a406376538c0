"""CUDA C++ from a string: compiled by NVRTC, which every CUDA build of torch brings, without nvcc.

`torch.cuda._compile_kernel` is not part of torch's public interface, but the one way to launch
such a kernel on torch's stream that needs no further package. It is called only here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from traceview.base.errors import ToolNotFoundError


def kernel(source: str, name: str) -> Any:
    """The kernel `name` of an extern "C" source, compiled once for the current GPU.

    Call it as `kernel(source, name)(grid, block, arguments, shared_mem=bytes)`; grid and block
    have three numbers. Raises ToolNotFoundError if this torch cannot do it.
    """
    if not hasattr(torch.cuda, "_compile_kernel"):
        what = f"torch {torch.__version__} cannot compile CUDA C++ from a string"
        raise ToolNotFoundError(what, "install torch 2.9 or newer")
    return _compiled(source, name, torch.cuda.current_device())


@cache
def _compiled(source: str, name: str, device: int) -> Any:
    del device  # Part of the key: a module is loaded into one context.
    return torch.cuda._compile_kernel(source, name)
