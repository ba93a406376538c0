"""Sizes and types that conditions leave: asserts, `if …: raise`, and tl.static_assert."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

# Powers of two, up to the longest row that fits a block.
_MOST_BITS = 16
# Sizes below which the number of warps is not what a wrapper chooses by them.
_LEAST_THRESHOLD = 32


def parts(test: ast.expr, holds: bool = True) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that each must have a value: those of `a and b`, and of `not (a or b)`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from parts(test.operand, not holds)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        for each in test.values:
            yield from parts(each, holds)
    else:
        yield test, holds


def allowed_sizes(
    test: ast.expr,
    holds: bool,
    sizes: Mapping[str, int],
    value: Callable[[ast.expr, Mapping[str, int]], Any],
) -> dict[str, int]:
    """The sizes to assume instead of those that a condition rules out; empty if none are found.

    `sizes` are by the text of their expressions, and `value` computes the condition with others.
    Of one size the next smaller one is taken that is a power of two or a number of the condition,
    else the next larger one; of several, the largest is halved.
    """

    def fits(candidate: Mapping[str, int]) -> bool:
        found = value(_with_names(test, sizes), candidate)
        return isinstance(found, (bool, int)) and bool(found) == holds

    ruled_out = value(_with_names(test, sizes), sizes)
    if not sizes or not isinstance(ruled_out, (bool, int)) or bool(ruled_out) == holds:
        return {}
    if len(sizes) > 1:
        halved = dict(sizes)
        while max(halved.values()) > 1:
            largest = max(halved, key=lambda name: halved[name])
            halved[largest] //= 2
            if fits(halved):
                return halved
        return {}
    ((name, size),) = sizes.items()
    named = {
        n.value for n in ast.walk(test) if isinstance(n, ast.Constant) and type(n.value) is int
    }
    options = {n for n in named if n > 0} | {1 << bits for bits in range(_MOST_BITS + 1)}
    ordered = sorted(options, key=lambda n: (n > size, abs(n - size)))
    return next(({name: n} for n in ordered if fits({name: n})), {})


def _with_names(test: ast.expr, sizes: Mapping[str, int]) -> ast.expr:
    """A condition in which each of the expressions is one name: `x.shape[1]`."""

    class Named(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            is_size = isinstance(node, (ast.Subscript, ast.Call)) and ast.unparse(node) in sizes
            return ast.Name(ast.unparse(node), ast.Load()) if is_size else super().visit(node)

    whole = ast.parse(ast.unparse(test), mode="eval")
    Named().visit(whole)
    return whole.body


def is_refusal(node: ast.stmt) -> bool:
    """Whether an if only raises an error."""
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


def sizes_of_warps(function: ast.AST) -> dict[str, int]:
    """The largest sizes by which a wrapper chooses num_warps, by name.

    `num_warps = 4 if d <= 64 else 8` is written for sizes up to some 128.
    """
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            tests = [node.test] if any(map(_sets_warps, node.body)) else []
        else:
            value = node.value if _sets_warps(node) else ast.Pass()
            tests = [n.test for n in ast.walk(value) if isinstance(n, ast.IfExp)]
        for test in tests:
            right = test.comparators[0] if isinstance(test, ast.Compare) else None
            left = test.left if isinstance(test, ast.Compare) else None
            if isinstance(left, ast.Name) and isinstance(right, ast.Constant):
                size = right.value if type(right.value) is int else 0
                if size >= _LEAST_THRESHOLD:
                    found[left.id] = max(found.get(left.id, 0), 2 * size)
    return found


def _sets_warps(node: ast.AST) -> TypeGuard[ast.Assign | ast.keyword]:
    names = [ast.unparse(each) for each in getattr(node, "targets", ())]
    return "num_warps" in (*names, getattr(node, "arg", ""))
