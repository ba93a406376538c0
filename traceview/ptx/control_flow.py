"""Labels, branches and scopes of a PTX function, resolved to jumps between instructions."""

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
    at: int
    targets: tuple[str, ...]


class _Branch(NamedTuple):
    at: int
    label: str
    guarded: bool
    scope: int
    offset: int


class Flow:
    """The control flow of a function, collected while it is parsed.

    A label is visible in its own braces and in nested ones: inline assembly repeats its labels in
    scopes of its own.
    """

    def __init__(self) -> None:
        self._outer = [-1]
        self._scope = 0
        # By name, then by the scope that it stands in.
        self._labels: dict[str, dict[int, _Label]] = {}
        self._branches: list[_Branch] = []
        self._last_label = ("", 0)

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
        self._labels.setdefault(name, {})[self._scope] = _Label(at, ())
        self._last_label = (name, self._scope)

    def branch_targets(self, names: str) -> None:
        """Make the last label a table of targets, as `brx.idx` uses it."""
        name, scope = self._last_label
        if name:
            targets = tuple(name.strip() for name in names.split(","))
            self._labels[name][scope] = self._labels[name][scope]._replace(targets=targets)

    def instruction(self, root: str, operands: str, guarded: bool, at: int, offset: int) -> None:
        """Add a branch or an exit; `root` is the opcode without its modifiers."""
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
        labels = self._labels.get(name, {})
        if len(labels) == 1:
            return next(iter(labels.values()))
        passed: list[int] = []
        scope = branch.scope
        while scope not in labels:
            passed.append(scope)
            scope = self._outer[scope] if labels else -1
            if scope < 0:
                raise UnknownLabelError(branch.offset, name)
        # Remember the result for this scope and those on the way.
        labels.update(dict.fromkeys(passed, labels[scope]))
        return labels[scope]
