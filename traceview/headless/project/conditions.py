"""The condition under which a file defines a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def condition_of(file: str, name: str) -> str:
    """The innermost `if` around a definition, as a clause; empty where there is none."""
    try:
        module = ast.parse(Path(file).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return ""
    for function, condition in _definitions(module, None):
        if function.name == name and condition:
            test = ast.unparse(condition.test)
            return f"line {function.lineno} defines it under `if {test}` (line {condition.lineno})"
    return ""


def _definitions(
    node: ast.AST, condition: ast.If | None
) -> Iterator[tuple[ast.FunctionDef, ast.If | None]]:
    """The functions of a module, each with the innermost `if` around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child, condition
        elif isinstance(child, ast.If):
            yield from _definitions(child, child)
