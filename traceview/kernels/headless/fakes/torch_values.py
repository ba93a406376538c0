"""Large tensors without memory, operations that are not computed, and the fake current GPU.

No kernel runs here, so the values of a reference computation decide nothing. Large tensors are
zeros, in memory that the system provides page by page when it is first accessed.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceview.kernels.headless.fakes import torch_cuda

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


# A stub of PyTorch's CUDA device guard, by which its C++ code switches GPUs and finds streams.
#
# A build without CUDA has no such guard. In a build with CUDA the guard fails without a GPU, and
# ends the process where it cannot throw. In both the guard of the meta device, which does
# nothing, takes its place.

_CUDA, _META = 1, 14
_DEVICE_TYPES = 20
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


def install_device_guard(torch: Any) -> None:
    """Let fake tensors have a CUDA device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake: Any = FakeTensorMode
    fake.avoid_device_init = property(lambda _: True)
    guards = _Guards(torch)
    if guards.of_cuda:
        # Called when fake tensors are first used, also within a backward pass.
        torch._C._ensureCUDADeviceGuardSet = guards.stub
        variable: Any = torch.autograd.Variable
        variable._execution_engine = _Engine(variable._execution_engine, guards)
    guards.stub()


class _Guards:
    """The guard registry of c10, an array by device type; `of_cuda` is None without CUDA."""

    def __init__(self, torch: Any) -> None:
        import ctypes

        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        self._all = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(library, _REGISTRY)
        self.of_cuda = self._all[_CUDA]

    def stub(self) -> None:
        """Use the guard of the meta device, which does nothing, for the GPU."""
        if not torch_cuda.tracing.on_cpu:
            self._all[_CUDA] = self._all[_META]

    @contextmanager
    def real(self) -> Iterator[None]:
        """Restore the real CUDA guard, which sees no GPU, in this context."""
        before = self._all[_CUDA]
        self._all[_CUDA] = self.of_cuda
        try:
            yield
        finally:
            self._all[_CUDA] = before


class _Engine:
    """Autograd of a build with CUDA, which queries the stream of every GPU its guard reports."""

    def __init__(self, engine: Any, guards: _Guards) -> None:
        self._engine, self._guards = engine, guards

    def run_backward(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the engine with the real guard, as all tensors are on the CPU."""
        with self._guards.real():
            return self._engine.run_backward(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the engine."""
        return getattr(self._engine, name)
