"""How far a version's results are from the reference, computed in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from traceview.bench.operation import Operation
from traceview.errors import InputError

_SPOILT = 255
"""Bytes of this are NaN in every floating type, and -1 or the most in every other."""
_PLACES, _MOST_SPOILT_BYTES = 8, 256 << 20


@dataclass(frozen=True)
class Checked:
    """What became of comparing: `error` is the largest, as a share of the largest magnitude.

    `wrong` says what is wrong, None where nothing is.
    """

    error: float | None
    wrong: str | None = None


def expected(operation: Operation, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors that the reference gives for the inputs as they are, in float64.

    Raises InputError if it gives anything else.
    """
    found = tensors(operation.reference(*changed(inputs, _in_float64)))
    for each in found:
        if not _is_tensor(each):
            what = f"the reference of {operation.name} gives {_kind(each)}, not a tensor"
            raise InputError(what, "return a tensor, or a tuple of them")
    return found


def compare(results: Any, wanted: tuple[Any, ...], tolerance: float) -> Checked:
    """Compare what a version gave with what the reference gave."""
    given = tensors(results)
    if len(given) != len(wanted):
        return Checked(None, f"gives {len(given)} tensors, the reference {len(wanted)}")
    for got, true in zip(given, wanted, strict=True):
        if not _is_tensor(got):
            return Checked(None, f"gives {_kind(got)}, not a tensor")
        if tuple(got.shape) != tuple(true.shape):
            said = f"gives the shape {tuple(got.shape)}, the reference {tuple(true.shape)}"
            return Checked(None, said)
    worst = max((_error(*pair) for pair in zip(given, wanted, strict=True)), default=0.0)
    if math.isinf(worst):
        return Checked(worst, "gives NaN or infinity where the reference has a number, or not so")
    if worst > tolerance:
        return Checked(worst, f"is off by {worst:.1e} where {tolerance:.1e} is allowed")
    return Checked(worst)


def copies(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the tensors among the inputs, to see later whether these were changed."""
    found: tuple[Any, ...] = changed(inputs, lambda each: each.clone())
    return found


def is_changed(inputs: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Whether a tensor among the inputs is no longer what it was."""
    pairs = zip(tensors(inputs), tensors(before), strict=True)
    return any(_is_tensor(now) and not _same(now, then) for now, then in pairs)


def restore(inputs: tuple[Any, ...], before: tuple[Any, ...]) -> None:
    """Put the values of the tensors back."""
    for now, then in zip(tensors(inputs), tensors(before), strict=True):
        if _is_tensor(now):
            now.copy_(then)


def spoil_free_memory(inputs: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Fill memory of the sizes that results may have with NaN, and give it back.

    Allocators hand out first what was freed last: a version that leaves its output unwritten, or
    the end of it, would otherwise find there what the version before wrote, and be right.
    """
    widths = {4, *(each.element_size() for each in (*tensors(inputs), *wanted) if _is_tensor(each))}
    # Twice, as the C library learns from what is freed where to put the next of that size.
    for _ in range(2):
        _spoil([(true.numel() * width, true.device) for true, width in product(wanted, widths)])


def _spoil(sizes: list[tuple[int, Any]]) -> None:
    """Several of each at once, as there may be several free places for it; of large ones few."""
    import torch

    held = []
    for size, device in sizes:
        for _ in range(min(max(_MOST_SPOILT_BYTES // max(size, 1), 1), _PLACES)):
            held.append(torch.empty(size, dtype=torch.uint8, device=device).fill_(_SPOILT))


def tensors(results: Any) -> tuple[Any, ...]:
    """A tensor or several as a tuple: what is in nested tuples, lists and mappings, in order."""
    return tuple(_leaves(results))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = [value[name] for name in sorted(value, key=str)]
    if not isinstance(value, tuple | list):
        yield value
        return
    for each in value:
        yield from _leaves(each)


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same with `change(tensor)` for each tensor in nested tuples, lists and mappings."""
    if isinstance(value, Mapping):
        return {name: changed(each, change) for name, each in value.items()}
    if isinstance(value, tuple | list):
        made = [changed(each, change) for each in value]
        return value._make(made) if hasattr(value, "_make") else type(value)(made)
    return change(value) if _is_tensor(value) else value


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "clone") and hasattr(value, "element_size")


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _same(now: Any, then: Any) -> bool:
    return bool(((now == then) | ((now != now) & (then != then))).all())


def _in_float64(value: Any) -> Any:
    numbers = value.is_floating_point() or value.is_complex()
    return _widest(value) if numbers else value


def _widest(tensor: Any) -> Any:
    """In float64, or in complex128."""
    own = tensor.detach()
    return own.cdouble() if own.is_complex() else own.double()


def _error(got: Any, true: Any) -> float:
    """The largest difference ÷ the largest magnitude; infinite where one is not a number."""
    if not true.numel():
        return 0.0
    got, true = _widest(got), _widest(true)
    usable = true.isfinite()
    # Where the reference is infinite or NaN, the version has to be the same.
    if not bool((got.isfinite() == usable).all()) or not _same(got[~usable], true[~usable]):
        return math.inf
    got, true = got[usable], true[usable]
    if not true.numel():
        return 0.0
    largest = float(true.abs().max())
    off = float((got - true).abs().max())
    return off / largest if largest else off
