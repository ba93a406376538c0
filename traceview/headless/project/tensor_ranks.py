"""Ranks of tensors, as far as the code that uses or creates them shows."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from traceview.headless.project.assumed_tensor import Shape

_OF_TENSORS = frozenset(
    ("shape", "stride", "dtype", "numel", "contiguous", "data_ptr", "is_contiguous", "size")
)
_OPERANDS = ("q", "k", "v", "query", "key", "value")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def tensor_ranks(function: Function) -> dict[str, int | None]:
    """The names that are used as tensors, with the dimensions that their uses show, or None."""
    shown: dict[str, int] = defaultdict(int)
    for node in ast.walk(function):
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(owner, ast.Name) and getattr(node, "attr", "") in _OF_TENSORS:
            shown[owner.id] += 0
        for name, rank in _uses(node):
            shown[name] = max(shown[name], rank)
    # Uses show the least rank; operands of attention have the same.
    operands = [name for name in shown if name.lower() in _OPERANDS]
    shown |= dict.fromkeys(operands, max((shown[name] for name in operands), default=0))
    return {name: rank if rank > 1 else None for name, rank in shown.items()}


def _uses(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of tensors in a node, with the least rank that it shows."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        name = _shape_of(node.value)
        starred = any(isinstance(each, ast.Starred) for each in node.targets[0].elts)
        if name and not starred:
            yield name, len(node.targets[0].elts)
        elif isinstance(node.value, ast.Tuple) and not starred:
            rest = len(node.targets[0].elts) - len(node.value.elts) + 1
            shapes = (each.value for each in node.value.elts if isinstance(each, ast.Starred))
            yield from ((owner, rest) for shape in shapes if (owner := _shape_of(shape)))
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    if isinstance(node, ast.Call):
        yield from _with_last(node)
    name, index = None, None
    if isinstance(node, ast.Subscript):
        name, index = _shape_of(node.value), node.slice
    elif isinstance(node, ast.Call) and node.args:
        name, index = _shape_of(node.func), node.args[0]
    if isinstance(index, ast.Constant) and type(index.value) is int and name:
        yield name, index.value + 1


def _with_last(call: ast.Call) -> Iterator[tuple[str, int]]:
    """The ranks in `kernel[grid](x.stride(2), x.stride(-1))`, which passes two dimensions."""
    passed: dict[str, set[int]] = defaultdict(set)
    for part in (p for each in (*call.args, *call.keywords) for p in ast.walk(each)):
        if isinstance(part, ast.Call) and len(part.args) == 1:
            name, at = _shape_of(part.func), part.args[0]
            if name and isinstance(part.func, ast.Attribute) and part.func.attr == "stride":
                passed[name].add(_index(at))
    for name, indices in passed.items():
        if -1 in indices:
            yield name, max(indices) + 2


def _index(node: ast.expr) -> int:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return 0
    return value if isinstance(value, int) else 0


def _compared(node: ast.Compare) -> Iterator[tuple[str, int]]:
    """The ranks in `x.shape == (m, n)` and `x.ndim == 2`."""
    right = node.comparators[0]
    name = _shape_of(node.left)
    if name and isinstance(right, ast.Tuple):
        yield name, len(right.elts)
    name = _shape_of(node.left, ("ndim", "dim")) if isinstance(node.ops[0], ast.Eq) else None
    if name and isinstance(right, ast.Constant) and type(right.value) is int:
        yield name, right.value


def _shape_of(
    node: ast.expr, attributes: Sequence[str] = ("shape", "size", "stride")
) -> str | None:
    node = node.func if isinstance(node, ast.Call) and not node.args else node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id if node.attr in attributes else None
    return None


def rank_of(sizes: Sequence[Any]) -> int | None:
    """The rank of a tensor that is created with these sizes."""
    if not sizes:
        return None
    if isinstance(sizes[0], Shape):
        return None if sizes[0].is_strides else sizes[0].tensor.rank
    if isinstance(sizes[0], (tuple, list)):
        return len(sizes[0])
    return len(sizes) if all(isinstance(size, int) for size in sizes) else None
