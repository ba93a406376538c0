"""The expressions that stand for a kernel in a module: `run = kernel`, `TABLE[name]["update"]`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

_MOST_STEPS = 8


class Aliases:
    """The assignments of a module, to trace expressions back to one kernel."""

    def __init__(self, kernel: str, module: ast.Module) -> None:
        self._kernel = kernel
        self._assigned: dict[str, list[ast.expr]] = defaultdict(list)
        self._fields: dict[str, list[ast.expr]] = defaultdict(list)
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned[node.targets[0].id].append(node.value)
            elif isinstance(node, ast.keyword) and node.arg:
                # A field of an object: Implementations(update=kernel).
                self._fields[node.arg].append(node.value)

    def names(self, node: ast.expr, steps: int = _MOST_STEPS) -> bool:
        """Whether an expression can be the kernel: itself, of a module, wrapped, or an alias."""
        if steps == 0:
            return False
        if isinstance(node, ast.Name) and node.id == self._kernel:
            return True
        if isinstance(node, ast.Attribute):
            values = self._fields.get(node.attr, ())
            return node.attr == self._kernel or any(_is_name(v, self._kernel) for v in values)
        if isinstance(node, ast.Call):
            return any(self.names(part, steps - 1) for part in node.args)
        return any(self.names(each, steps - 1) for each in self._values(node, steps))

    def _values(self, node: ast.expr, steps: int) -> Iterator[ast.expr]:
        """The expressions whose values `node` may have."""
        if steps == 0:
            return
        if isinstance(node, ast.Name):
            yield from self._assigned.get(node.id, ())
        elif isinstance(node, ast.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, ast.Subscript):
            for container in self._containers(node.value, steps - 1):
                yield from _items(container, node.slice)

    def _containers(self, node: ast.expr, steps: int) -> Iterator[ast.expr]:
        """The dicts, lists and tuples whose values `node` may have."""
        if isinstance(node, (ast.Dict, ast.List, ast.Tuple)):
            yield node
        else:
            for each in self._values(node, steps):
                if steps:
                    yield from self._containers(each, steps - 1)


def _items(container: ast.expr, key: ast.expr) -> Iterator[ast.expr]:
    """The elements of a literal at a key, all of them if the key is not constant."""
    if isinstance(container, (ast.List, ast.Tuple)):
        yield from container.elts
    elif isinstance(container, ast.Dict):
        for each, value in zip(container.keys, container.values, strict=True):
            known = isinstance(key, ast.Constant) and isinstance(each, ast.Constant)
            if not known or ast.dump(key) == ast.dump(each or key):
                yield value


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
