"""What operations ask of their inputs, each as one line that says what to fix."""

from __future__ import annotations

import torch
from torch import Tensor

from traceview.base.errors import InputError

MOST_ELEMENTS = 1 << 30
"""Kernels here count elements in 32 bits, and a block may count a little beyond the last one."""


def tensor(operation: str, name: str, x: Tensor) -> None:
    """At least one element, not too many, all of them side by side in memory."""
    if not isinstance(x, Tensor):
        raise InputError(f"{operation}: {name} is {type(x).__name__}, not a tensor")
    if not 0 < x.numel() <= MOST_ELEMENTS:
        what = f"{operation}: {name} has {x.numel():,} elements"
        raise InputError(what, f"give between one and {MOST_ELEMENTS:,}")
    if not x.is_contiguous():
        what = f"{operation}: {name} is not contiguous: shape {_shape(x)}, strides {x.stride()}"
        raise InputError(what, "call .contiguous() first")


def aligned(operation: str, name: str, x: Tensor) -> None:
    """Its first element at a multiple of 16 bytes, as TMA wants it."""
    if x.data_ptr() % 16:
        what = f"{operation}: {name} does not begin at a multiple of 16 bytes"
        raise InputError(what, "call .clone() on the slice first")


def floating(operation: str, name: str, x: Tensor) -> None:
    """float32, float16 or bfloat16; float64 is what references are computed in."""
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise InputError(f"{operation}: {name} has the type {x.dtype}", "give floating point")


def matrix(operation: str, name: str, x: Tensor) -> None:
    """Two dimensions."""
    if x.dim() != 2:
        what = f"{operation}: {name} has the shape {_shape(x)}"
        raise InputError(what, "give a matrix: rows and columns")


def alike(operation: str, x: Tensor, y: Tensor, names: str = "x and y") -> None:
    """One shape, one type, one device."""
    if x.shape != y.shape:
        what = f"{operation}: {names} have the shapes {_shape(x)} and {_shape(y)}"
        raise InputError(what, "give two of one shape")
    same_kind(operation, x, y, names)


def same_kind(operation: str, x: Tensor, y: Tensor, names: str = "x and y") -> None:
    """One type, one device."""
    if x.dtype != y.dtype or x.device != y.device:
        kinds = f"{x.dtype} on {x.device} and {y.dtype} on {y.device}"
        raise InputError(f"{operation}: {names} are {kinds}", "give two of one kind")


def _shape(x: Tensor) -> str:
    return " × ".join(map(str, x.shape)) or "()"
