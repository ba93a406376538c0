"""Functions of a module that define kernels when they are called, such as `_build_kernels()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# The condition under which a file defines a function.


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


def call_kernel_factories(path: str, names: Mapping[str, Any]) -> None:
    """Call the functions of a file, by `names`, that define kernels and need no argument.

    Kernels that a function defines before it raises are kept.
    """
    for name in _factories(ast.parse(Path(path).read_bytes())):
        with suppress(Exception):
            names[name]()


def _factories(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and not _required(node.args):
            inner = (each for each in ast.walk(node) if isinstance(each, ast.FunctionDef))
            if any(_is_jitted(each) for each in inner if each is not node):
                yield node.name


def _required(arguments: ast.arguments) -> int:
    named = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return named + sum(default is None for default in arguments.kw_defaults)


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(each).split("(")[0] for each in function.decorator_list)
