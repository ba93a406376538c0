"""A version of an operation behind the checks of what it is given, as `dispatch` returns it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from traceview.base.errors import InputError
from traceview.trials.bench.operation import Needs, Operation, Version


def guarded(operation: Operation, version: Version) -> Callable[..., Any]:
    """The version's function; called, it raises InputError for inputs that it cannot take."""

    def run(*inputs: Any) -> Any:
        operation.check(*inputs)
        _check_type(operation, inputs)
        _check_version(operation, version, inputs)
        on_a_gpu(f"{operation.name}: {version.name}", version.needs, inputs)
        _check_gradient(operation, version, inputs)
        # Kernels are launched on the current GPU, whichever the tensors are on.
        with torch.cuda.device_of(inputs[0]):
            return version.run(*inputs)

    return run


def _check_type(operation: Operation, inputs: tuple[Any, ...]) -> None:
    """Other types may well run and be wrong: a sum of float64 in float32, say."""
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    if dtype not in operation.dtypes:
        known = ", ".join(operation.dtypes)
        raise InputError(f"{operation.name} does not take {dtype}", f"it takes {known}")


def _check_version(operation: Operation, version: Version, inputs: tuple[Any, ...]) -> None:
    if _supports(version, inputs):
        return
    others = ", ".join(each.name for each in operation.versions if _supports(each, inputs))
    what = f"{operation.name}: {version.name} does not take such inputs"
    raise InputError(what, f"these do: {others}")


def _supports(version: Version, inputs: tuple[Any, ...]) -> bool:
    return version.supports is None or version.supports(*inputs)


def on_a_gpu(what: str, needs: Needs, inputs: tuple[Any, ...]) -> None:
    """Refuse tensors on the CPU where a version needs a GPU, and Triton does not interpret."""
    if needs == "cpu" or all(str(getattr(each, "device", "")) != "cpu" for each in inputs):
        return
    problem = f"{what} needs tensors on a GPU, and these are on the CPU"
    if needs == "cuda":
        raise InputError(problem, "call .cuda() first, or take another version")
    if os.environ.get("TRITON_INTERPRET") != "1":
        remedy = "call .cuda() first, or set TRITON_INTERPRET=1 before Triton is imported"
        raise InputError(problem, remedy)


def _check_gradient(operation: Operation, version: Version, inputs: tuple[Any, ...]) -> None:
    """Autograd does not see our kernels: the result would silently be a constant to it."""
    needs_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in inputs)
    if version.needs == "cpu" or not needs_gradient:
        return
    known = ", ".join(each.name for each in operation.versions if each.needs == "cpu")
    what = f"{operation.name}: {version.name} has no gradient, and an input asks for one"
    other = f", or take one that has: {known}" if known else ""
    raise InputError(what, f"call it under torch.no_grad(){other}")
