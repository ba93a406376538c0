"""Labels, branches and scopes of one PTX function, resolved to jumps between instructions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from traceview.ptx.loops import Jump

BRANCHES = frozenset({"bra", "brx"})
ENDS = frozenset({"ret", "exit", "trap"})


class UnknownLabelError(Exception):
    """A branch at `offset` of the text names a label that the function does not have."""

    def __init__(self, offset: int, label: str) -> None:
        super().__init__(label)
        self.offset = offset
        self.label = label


class _Label(NamedTuple):
    scope: int
    at: int
    targets: tuple[str, ...]


class _Branch(NamedTuple):
    at: int
    label: str
    guarded: bool
    scope: int
    offset: int


class Flow:
    """Gathers a function's control flow while it is read.

    A label is known in the scope of its braces and in those within: inline assembly repeats its
    labels in scopes of its own.
    """

    def __init__(self) -> None:
        self._outer = [-1]
        self._scope = 0
        self._labels: dict[str, list[_Label]] = {}
        self._branches: list[_Branch] = []
        self._last_label = ""

    @property
    def is_outermost(self) -> bool:
        """Whether the function's own braces are the only open ones."""
        return self._scope == 0

    def open_scope(self) -> None:
        self._outer.append(self._scope)
        self._scope = len(self._outer) - 1

    def close_scope(self) -> None:
        self._scope = self._outer[self._scope]

    def label(self, name: str, at: int) -> None:
        self._labels.setdefault(name, []).append(_Label(self._scope, at, ()))
        self._last_label = name

    def branch_targets(self, names: str) -> None:
        """Make the last label a table of targets, as `brx.idx` uses it."""
        if self._last_label:
            label = self._labels[self._last_label].pop()
            targets = tuple(name.strip() for name in names.split(","))
            self._labels[self._last_label].append(label._replace(targets=targets))

    def instruction(self, root: str, operands: str, guarded: bool, at: int, offset: int) -> None:
        """Notice a branch or an end; `root` is the opcode without its modifiers."""
        label = ""
        if root in BRANCHES:
            label = operands.split(",")[-1 if root == "brx" else 0].strip()
        self._branches.append(_Branch(at, label, guarded, self._scope, offset))

    def jumps(self) -> Iterator[Jump]:
        """The jumps in order. Raises UnknownLabelError."""
        for branch in self._branches:
            yield Jump(branch.at, self._targets(branch) if branch.label else (), branch.guarded)

    def _targets(self, branch: _Branch) -> tuple[int, ...]:
        label = self._find(branch.label, branch)
        if not label.targets:
            return (label.at,)
        return tuple(self._find(name, branch).at for name in label.targets)

    def _find(self, name: str, branch: _Branch) -> _Label:
        labels = self._labels.get(name, [])
        if len(labels) == 1:
            return labels[0]
        by_scope = {label.scope: label for label in labels}
        scope = branch.scope if by_scope else -1
        while scope >= 0:
            if scope in by_scope:
                return by_scope[scope]
            scope = self._outer[scope]
        raise UnknownLabelError(branch.offset, name)
