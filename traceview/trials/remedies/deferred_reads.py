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
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "float", "str"))
        for inner in ast.walk(node)
    }
    loads = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return {node.id for node in loads if id(node) not in at_once}


def _reads(node: ast.expr) -> Iterator[SourceEdit]:
    """`x.item()`, also as a factor: what stays a tensor under + − × ÷."""
    if isinstance(node, ast.BinOp):
        yield from _reads(node.left)
        yield from _reads(node.right)
        return
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        line, column = node.func.value.end_lineno, node.func.value.end_col_offset
        end_line, end_column = node.end_lineno, node.end_col_offset
        yield SourceEdit(line or 0, column or 0, end_line or 0, end_column or 0, _DEFERRED)


_DEFERRED, _SWITCHED = ".detach().double()", "_traceview_read"


def _install(torch: Any, run: RemedyRun) -> None:
    setattr(torch.Tensor, _SWITCHED, lambda x: x.detach().double() if run.on else x.item())


REMEDY = ProgramRemedy(
    name="deferred_reads",
    does="Sum results on the GPU",
    answers=r"(?:Read|read) (?:results|values)",
    effect="waits for results go, so that the CPU runs ahead",
    install=_install,
    rewrites=rewrites,
    in_run=f".{_SWITCHED}()",
    may_change="logged sums are tensors",
    is_switchable=True,
)
