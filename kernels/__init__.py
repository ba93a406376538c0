"""GPU operations, one a file: a reference, and versions from naive to fast.

`dispatch("gelu", "triton")(x)` computes one; `traceview bench kernels/gelu.py` measures them all.
A file that defines `OPERATION` is an entry: there is no list to keep.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from traceview.bench.operation import Operation, Version
from traceview.errors import InputError

_SUPPORT = {"__init__", "checks", "compiled", "cuda_cpp", "row_tile"}


def operations() -> tuple[str, ...]:
    """Names of all operations, in alphabetical order; nothing is imported to tell."""
    files = Path(__file__).parent.glob("*.py")
    return tuple(sorted(file.stem for file in files if file.stem not in _SUPPORT))


@cache
def operation(name: str) -> Operation:
    """The operation of that name. Raises InputError if there is none."""
    if name not in operations():
        known = ", ".join(operations())
        raise InputError(f"there is no operation {name[:60]!r}", f"there are: {known}")
    found: Operation = import_module(f"kernels.{name}").OPERATION
    return found


def dispatch(name: str, version: str) -> Callable[..., Any]:
    """A function that checks its inputs and computes the operation by that version.

    Raises InputError if there is no such operation or version, and, when called, for inputs that
    the operation or that version of it cannot take: shapes, layouts, a type that is none of its
    `dtypes` (of the first tensor, from which those of the others follow), a device.
    """
    chosen = operation(name)
    taken = chosen.version(version)

    def checked(*inputs: Any) -> Any:
        chosen.check(*inputs)
        _check_type(chosen, inputs)
        _check_version(chosen, taken, inputs)
        _check_device(chosen, taken, inputs)
        return taken.run(*inputs)

    return checked


def _check_type(chosen: Operation, inputs: tuple[Any, ...]) -> None:
    """Other types may well run and be wrong: a sum of float64 in float32, say."""
    first = next(each.dtype for each in inputs if hasattr(each, "dtype"))
    dtype = str(first).removeprefix("torch.")
    if dtype not in chosen.dtypes:
        known = ", ".join(chosen.dtypes)
        raise InputError(f"{chosen.name} does not take {dtype}", f"it takes {known}")


def _check_version(chosen: Operation, version: Version, inputs: tuple[Any, ...]) -> None:
    if _supports(version, inputs):
        return
    others = ", ".join(each.name for each in chosen.versions if _supports(each, inputs))
    what = f"{chosen.name}: {version.name} does not take such inputs"
    raise InputError(what, f"these do: {others}")


def _supports(version: Version, inputs: tuple[Any, ...]) -> bool:
    return version.supports is None or version.supports(*inputs)


def _check_device(chosen: Operation, version: Version, inputs: tuple[Any, ...]) -> None:
    if version.needs == "cpu" or all(str(getattr(each, "device", "")) != "cpu" for each in inputs):
        return
    what = f"{chosen.name}: {version.name} needs tensors on a GPU, and these are on the CPU"
    if version.needs == "cuda":
        raise InputError(what, "call .cuda() first, or take another version")
    if os.environ.get("TRITON_INTERPRET") != "1":
        remedy = "call .cuda() first, or set TRITON_INTERPRET=1 before Triton is imported"
        raise InputError(what, remedy)
