"""Large tensors without memory, and large operations of PyTorch that are not computed.

No kernel runs here, so the values of a reference computation decide nothing. Large tensors are
zeros, in memory that the system provides page by page when it is first accessed.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Sequence
from typing import Any

_LARGE = 1 << 24
"""Elements from which on an operation is not computed."""
_MOST_PRODUCTS = 1 << 30
_CREATES = ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "empty_strided")
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution")
_NORESERVE = 0x4000


def install(skipped: Callable[[], None]) -> None:
    """Skip large operations for good; `skipped` is called for each that would have computed."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    def answered(func: Any, args: Any, given: dict[str, Any]) -> Any:
        if not _is_large(func, args):
            return func(*args, **given)
        return _uncomputed(func, args, given, skipped)

    untraced = torch._disable_dynamo(answered)

    class SkippedWork(TorchDispatchMode):  # type: ignore[misc]
        """Answers large operations with zeros of the right shape."""

    def dispatch(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = untraced if "torch._dynamo" in sys.modules else answered
        return answer(func, args, kwargs or {})

    # PyTorch keeps Dynamo out of a method in the class's body by importing Dynamo at the first
    # operation, which takes as long as importing PyTorch. It skips functions of PyTorch's files.
    dispatch.__code__ = dispatch.__code__.replace(co_filename=torch._compile.__file__)
    SkippedWork.__torch_dispatch__ = dispatch
    SkippedWork().__enter__()


def unreserved_zeros(size: Sequence[int], stride: Sequence[int], dtype: Any) -> Any:
    """A tensor of zeros on the CPU that takes no memory until it is read or written."""
    import torch

    last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    count = 0 if 0 in size else last + 1
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    memory = mmap.mmap(-1, max(1, count * dtype.itemsize), flags=flags)
    flat = torch.frombuffer(memory, dtype=torch.uint8, count=count * dtype.itemsize)
    return flat.view(dtype).as_strided(tuple(size), tuple(stride))


def _is_large(func: Any, args: Sequence[Any]) -> bool:
    name = func._schema.name.partition("::")[2]
    if name in _CREATES:
        size = args[0] if name != "randint" else next(a for a in args if not isinstance(a, int))
        return bool(math.prod(size) >= _LARGE)
    import torch

    flat = (part for arg in args for part in (arg if isinstance(arg, (list, tuple)) else [arg]))
    tensors = [part for part in flat if isinstance(part, torch.Tensor)]
    if any(tensor.device.type == "meta" for tensor in tensors):
        return False
    if name in _PRODUCTS and len(tensors) > 1:
        one, other = tensors[-2:] if name != "convolution" else tensors[:2]
        return bool(one.numel() * other.shape[-1] >= _MOST_PRODUCTS)
    return bool(sum(tensor.numel() for tensor in tensors) >= _LARGE)


def _uncomputed(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], skipped: Callable[[], None]
) -> Any:
    """The result of a large operation, with zeros for values; views are made as usual."""
    import torch
    from torch.utils._pytree import tree_map

    schema = func._schema
    aliases = [result.alias_info for result in schema.returns]
    if schema.name.endswith("_") and aliases and aliases[0] and args:
        skipped()
        return args[0]
    if any(aliases) or not schema.returns or "out" in kwargs:
        return func(*args, **kwargs)

    def meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            like = (tuple(value.shape), value.stride())
            return torch.empty_strided(*like, dtype=value.dtype, device="meta")
        return torch.device("meta") if isinstance(value, torch.device) else value

    def zeros(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return unreserved_zeros(value.shape, value.stride(), value.dtype)

    created = schema.name.partition("::")[2] in _CREATES
    device = {"device": torch.device("meta")} if created else {}
    try:
        shape = func(*tree_map(meta, args), **tree_map(meta, kwargs) | device)
    except (NotImplementedError, RuntimeError):
        # A shape that depends on values.
        return func(*args, **kwargs)
    if not created:
        skipped()
    return tree_map(zeros, shape)
