"""GPU operations, one per file: a reference, and versions from naive to fast.

`dispatch("gelu", "triton")(x)` computes one; `traceview bench kernels/gelu.py` measures them all.
A file that defines `OPERATION` is an entry: there is no list to keep.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError
from traceview.trials.bench.operation import Operation

_SUPPORT = {"__init__", "checks", "compiled", "cuda_cpp", "input_guard", "row_tile"}


def operations() -> tuple[str, ...]:
    """Names of all operations in alphabetical order, without importing them."""
    files = Path(__file__).parent.glob("*.py")
    return tuple(sorted(file.stem for file in files if file.stem not in _SUPPORT))


@cache
def operation(name: str) -> Operation:
    """The operation of that name. Raises InputError if there is none."""
    if name not in operations():
        known = ", ".join(operations())
        raise InputError(f"there is no operation {name[:60]!r}", f"there are: {known}")
    entry: Operation = import_module(f"kernels.{name}").OPERATION
    return entry


def dispatch(name: str, version: str) -> Callable[..., Any]:
    """A function that checks its inputs and computes the operation by that version.

    Raises InputError if there is no such operation or version, and, when called, for inputs that
    the operation or that version of it cannot take: shapes, layouts, a type that is none of its
    `dtypes` (of the first tensor, from which those of the others follow), a device, or a
    gradient that the version does not have.
    """
    # It imports torch, which `operations` does without.
    from kernels.input_guard import guarded

    chosen = operation(name)
    return guarded(chosen, chosen.version(version))
