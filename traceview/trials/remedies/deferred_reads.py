"""`total += loss.item()` in a loop becomes a sum of tensors, which is read when it is printed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, SourceEdit


def rewrites(source: str) -> list[SourceEdit]:
    """The edits of all sums of `.item()` in loops. Raises SyntaxError."""
    tree = ast.parse(source)
    kept = _kept(tree)
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    edits = {
        (edit.line, edit.column): edit
        for loop in loops
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        if isinstance(node.target, ast.Name) and node.target.id not in kept
        for edit in _reads(node.value)
    }
    return list(edits.values())


def _kept(tree: ast.AST) -> set[str]:
    """Names whose value may be kept: a tensor that is added to changes wherever it was put.

    What prints or formats a number, or makes a float of it, reads it at once.
    """
    at_once = {
        id(name) for node in ast.walk(tree) for read in _read_at_once(node) for name in _terms(read)
    }
    loads = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return {node.id for node in loads if id(node) not in at_once}


def _read_at_once(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.FormattedValue) and node.conversion == -1:
        spec = ast.unparse(node.format_spec) if node.format_spec else ""
        # A float has no integer format; one that is put together may be any.
        is_of_float = not spec or spec[-2] in "eEfFgG%" or spec[-2].isdigit()
        return [node.value] if is_of_float else []
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "float"):
        return node.args
    return []


def _terms(node: ast.expr) -> Iterator[ast.Name]:
    """Names in a sum, difference, product or quotient, where a tensor stands for a number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        yield from _terms(node.left)
        yield from _terms(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        yield from _terms(node.operand)
    elif isinstance(node, ast.Name):
        yield node


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _reads(node: ast.expr) -> Iterator[SourceEdit]:
    """`x.item()`, also as a factor: what stays a tensor under + − × ÷."""
    if isinstance(node, ast.BinOp):
        yield from _reads(node.left)
        yield from _reads(node.right)
        return
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return
    # Whether a tensor is of integers by its text: comparisons, and what they are summed to.
    if not isinstance(node.func, ast.Attribute) or any(
        isinstance(each, ast.Compare)
        or (isinstance(each, ast.Attribute | ast.Name) and _name(each) in _OF_INTEGERS)
        for each in ast.walk(node.func.value)
    ):
        return
    if node.func.attr == "item":
        line, column = node.func.value.end_lineno, node.func.value.end_col_offset
        end_line, end_column = node.end_lineno, node.end_col_offset
        yield SourceEdit(line or 0, column or 0, end_line or 0, end_column or 0, _DEFERRED)


_DEFERRED, _SWITCHED = ".detach().double()", "_traceview_read"
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div
_OF_INTEGERS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "equal", "isclose", "logical_and", "logical_or"),
    *("argmax", "argmin", "count_nonzero", "long", "int", "bool", "int64", "int32"),
)


def _install(torch: Any, run: RemedyRun) -> None:
    def read(value: Any) -> Any:
        if not value.is_floating_point():
            run.reject("it sums integers, which would become floats")
        return value.detach().double() if run.on else value.item()

    setattr(torch.Tensor, _SWITCHED, read)


REMEDY = ProgramRemedy(
    name="deferred_reads",
    does="Sum results on the GPU",
    answers=r"(?:Read|read) (?:results|values)",
    effect="no waits for results, so that the CPU runs ahead",
    install=_install,
    rewrites=rewrites,
    in_run=f".{_SWITCHED}()",
    may_change="logged sums are tensors",
    is_switchable=True,
)
