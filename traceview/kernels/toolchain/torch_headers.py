"""The headers of PyTorch that code for the GPU uses, without those that take nvcc long."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

BELOW = (("torch", "include"), ("torch", "include", "torch", "csrc", "api", "include"))
_OF_TORCH = re.compile(r"(?:torch|ATen|c10|caffe2|THC|pybind11)/")
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([\w./+-]+)[>"]', re.MULTILINE)
# Of PyTorch 2.13, headers for device code (accessors of tensors, Half, atomics) include 6 to 63
# others and take nvcc 1 s of CPU time; those that know tensors include 103 to 4,800 and take 2 to
# 8 s each time.
_MOST_FILES = 64
_STANDARD = (
    "algorithm", "array", "cmath", "complex", "cstdint", "cstring", "functional", "iostream",
    "limits", "map", "memory", "mutex", "numeric", "optional", "sstream", "stdexcept", "string",
    "tuple", "type_traits", "unordered_map", "utility", "vector",
)  # fmt: skip
# Host members of classes that kernels use take tensors; what they declare is never defined.
_NAMESPACES = """namespace at {
struct Tensor {
  template <class T = void> T* data_ptr() const;
  template <class T> T* data() const;
  int64_t size(int64_t) const; int64_t stride(int64_t) const;
  int64_t dim() const; int64_t numel() const;
};
}
namespace torch { using namespace at; }
"""
# Headers of old versions, which only included others.
_NOW = {"THC/THCAtomics.cuh": "ATen/cuda/Atomic.cuh"}
PRELUDE = "traceview/torch.h"
_LIGHT = (
    "torch/version.h",
    "ATen/core/TensorAccessor.h",
    "ATen/Dispatch.h",
    "c10/cuda/CUDAException.h",
)


def is_of_torch(header: str) -> bool:
    """Whether a header is PyTorch's, or one that comes with it, by its name."""
    return bool(_OF_TORCH.match(header))


def folders() -> list[Path]:
    """The folders of the headers of an installed PyTorch."""
    found = (Path(folder, *below) for folder in sys.path for below in BELOW)
    return [folder for folder in found if folder.is_dir()]


def included(path: Path) -> list[str]:
    """The headers that a file names, in any of its branches."""
    return _INCLUDED.findall(path.read_text("utf-8", "replace")) if path.is_file() else []


def stand_ins(header: str) -> Iterator[tuple[str, str]]:
    """Names and texts of headers for one of PyTorch's and for all that they include.

    One that takes nvcc long has the types of device code alone: what kernels use besides is an
    error, and never other code.
    """
    roots = folders()
    now = _NOW.get(header, header)
    wanted = [now] if _reached(now, roots) else list(_LIGHT)
    for name, path in (pair for each in wanted for pair in _reached(each, roots).items()):
        yield name, f'#include "{path}"\n'
    if now != header:
        yield header, f"#include <{now}>\n"
    elif wanted != [header]:
        names = [*_STANDARD, *(name for name in _LIGHT if _reached(name, roots))]
        text = "".join(f"#include <{name}>\n" for name in names)
        yield PRELUDE, f"#pragma once\n{text}{_NAMESPACES}"
        yield header, f"#include <{PRELUDE}>\n"


def _reached(header: str, roots: list[Path]) -> dict[str, Path]:
    """The files of PyTorch that a header includes, and itself; none if they are many."""
    reached, names = dict[str, Path](), [header]
    while names and len(reached) <= _MOST_FILES:
        name = names.pop()
        path = next((root / name for root in roots if (root / name).is_file()), None)
        if path and name not in reached:
            reached[name] = path
            names += included(path)
    return {} if len(reached) > _MOST_FILES else reached
