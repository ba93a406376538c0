"""A stub of PyTorch's CUDA device guard, by which its C++ code switches GPUs and finds streams.

A build without CUDA has no such guard. In a build with CUDA the guard fails without a GPU, and ends
the process where it cannot throw. In both the guard of the meta device, which does nothing, takes
its place.
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
