"""PyTorch's guards of devices: what its C++ calls to switch to a GPU and to find its stream.

A build without CUDA has none for a GPU; that of a build with CUDA fails where no GPU is in reach,
and ends the process where it may not throw. The guard of the meta device, which does nothing,
stands in for either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceview.headless.fakes import torch_cuda

_CUDA, _META = 1, 14
_DEVICE_TYPES = 20
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


def install(torch: Any) -> None:
    """Let tensors without values say that they are on the GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake: Any = FakeTensorMode
    fake.avoid_device_init = property(lambda _: True)
    guards = _Guards(torch)
    if guards.of_cuda:
        # Called as tensors without values come into play, also in the middle of a backward pass.
        torch._C._ensureCUDADeviceGuardSet = guards.pretend
        variable: Any = torch.autograd.Variable
        variable._execution_engine = _Engine(variable._execution_engine, guards)
    guards.pretend()


class _Guards:
    """The registry of c10, an array by type of device; `of_cuda` is None in a build without."""

    def __init__(self, torch: Any) -> None:
        import ctypes

        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        self._all = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(library, _REGISTRY)
        self.of_cuda = self._all[_CUDA]

    def pretend(self) -> None:
        """Let the guard that does nothing be that of the GPU."""
        if not torch_cuda.tracing.on_cpu:
            self._all[_CUDA] = self._all[_META]

    @contextmanager
    def real(self) -> Iterator[None]:
        """The guard of the build with CUDA: it knows that there is no GPU."""
        before = self._all[_CUDA]
        self._all[_CUDA] = self.of_cuda
        try:
            yield
        finally:
            self._all[_CUDA] = before


class _Engine:
    """Autograd of a build with CUDA: it asks for the stream of every GPU that its guard counts."""

    def __init__(self, engine: Any, guards: _Guards) -> None:
        self._engine, self._guards = engine, guards

    def run_backward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the engine gives, all of whose tensors are on the CPU."""
        with self._guards.real():
            return self._engine.run_backward(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        """All else is the engine's."""
        return getattr(self._engine, name)
