"""Ranges of modules in a backward pass, which runs what a module did back from its result.

Autograd runs the nodes that were made last first. So those of a call run between the node of its
result and the node of what it was given. Hooks on these two open and close the range, on the thread
that runs them.
"""

from __future__ import annotations

from _thread import get_ident
from functools import partial

from .nvtx_ranges import end, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEY = "traceview"
BACKWARD = -1
"""Stands for a backward pass beside the ids of threads: any may call modules during one."""


class BackwardRanges:
    """The ranges open in the backward pass in progress, if `inside` has BACKWARD."""

    def __init__(self, inside: set[int]) -> None:
        self._inside = inside
        self._open: dict[int, list[tuple[str, Any]]] = {}

    def follow(self, name: str, given: Any, result: Any) -> None:
        """Have the nodes of a module's call open and close a range of this name. Never raises."""
        try:
            last, before = _node(result), _node(given)
            # A module that did nothing, as Dropout does in evaluation, has no nodes.
            if last is None or last is before:
                return
            # Those of modules around this one follow, and are to open first.
            self._hooked(last)[1].insert(0, name)
            if before is not None:
                self._hooked(before)[0].append(name)
        except Exception:  # The program must not notice.
            return

    def _hooked(self, node: Any) -> tuple[list[str], list[str]]:
        """The names of the ranges to close, and of those to open, as a node runs."""
        names: tuple[list[str], list[str]] | None = node.metadata.get(_KEY)
        if names is None:
            names = node.metadata[_KEY] = [], []
            node.register_prehook(partial(self._runs, *names))
        return names

    def _runs(self, closed: list[str], opened: list[str], _: Any) -> None:
        if BACKWARD not in self._inside:
            return
        stack = self._open.setdefault(get_ident(), [])
        for name in closed:
            if any(name == each for each, _ in stack):
                while stack[-1][0] != name:
                    end(stack.pop()[1])
                end(stack.pop()[1])
        for name in opened:
            # What is around it stays open, what came before does not.
            while stack and not name.startswith(f"{stack[-1][0]}."):
                end(stack.pop()[1])
            stack.append((name, start(name)))

    def close(self) -> None:
        """Close what is open: the backward pass ends."""
        for stack in self._open.values():
            while stack:
                end(stack.pop()[1])

    def forget(self) -> None:
        """Drop everything in a forked process."""
        self._open.clear()


def _node(value: Any) -> Any:
    """The node that made a tensor, or the first of several with one."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((node for each in value if (node := _node(each)) is not None), None)
    return getattr(value, "grad_fn", None)
