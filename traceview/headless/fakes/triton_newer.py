"""Stand-ins for functions of a newer Triton, or of GPU libraries, that this Triton lacks."""

from __future__ import annotations

from typing import Any


class _Answer(int):
    """A truth value that is also callable, as some versions have a method, not an attribute."""

    def __call__(self) -> bool:
        return bool(self)


class _CublasLt:
    """A stub of Triton's cuBLAS wrapper, with which programs compute a reference."""

    def __init__(self, *_: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: None


def install() -> None:
    """Answer `GPUTarget.is_cuda_backend` and the like, and replace cuBLAS by a stub."""
    from triton._C.libtriton import nvidia
    from triton.backends.compiler import GPUTarget

    target: Any = GPUTarget
    target.__getattr__ = _asked
    if hasattr(nvidia, "cublas"):
        nvidia.cublas.CublasLt = _CublasLt


def _asked(self: Any, name: str) -> _Answer:
    if not name.startswith("is_"):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
    return _Answer("cuda" in name or "nvidia" in name)
