"""Parse PTX text into functions and instructions, with source lines and loop depths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from traceview.base import memory
from traceview.kernels.ptx import declarations
from traceview.kernels.ptx.lexer import (
    IF_CUT_OFF,
    SHOWN_CHARACTERS,
    Chain,
    FileTable,
    LineTracker,
    Source,
    Statement,
)
from traceview.kernels.ptx.loops import Jump, loop_depths
from traceview.kernels.ptx.model import Function, Instruction, Listing

# Labels, branches and scopes of a PTX function, resolved to jumps between instructions.

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
        self.scope = 0
        # By name, then by the scope that it stands in.
        self._labels: dict[str, dict[int, _Label]] = {}
        self._branches: list[_Branch] = []
        self._last_label = ("", 0)

    def open_scope(self) -> None:
        self._outer.append(self.scope)
        self.scope = len(self._outer) - 1

    def close_scope(self) -> None:
        self.scope = self._outer[self.scope]

    def label(self, name: str, at: int) -> None:
        self._labels.setdefault(name, {})[self.scope] = _Label(at, ())
        self._last_label = (name, self.scope)

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
        self._branches.append(_Branch(at, label, guarded, self.scope, offset))

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


GIVE_PTX = "pass a .ptx file that a compiler wrote"


def parse_ptx(text: str, name: str = "PTX") -> Listing:
    """Parse a PTX module. `name` is what errors call the text.

    An instruction's `source` is the line in the kernel, `inlined` are the lines of helpers inlined
    there. Unknown opcodes are kept. Raises PtxSyntaxError, with line and column, for text that is
    not PTX, damaged or truncated.
    """
    # Parsing makes no cycles, and searching for them takes a third of the time.
    with memory.paused():
        return _Module(Source(text.rstrip("\0"), name)).read()


@dataclass
class _Body:
    """A function that is being parsed: one list per field of its instructions."""

    header: declarations.Header
    offset: int
    opcodes: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    guards: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    shared: list[declarations.SharedVariable] = field(default_factory=list)
    flow: Flow = field(default_factory=Flow)
    tracker: LineTracker = field(default_factory=LineTracker)


class _Module:
    """A module that is being parsed, statement by statement."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._words = {".version": "", ".target": ""}
        self._files = FileTable()
        self._shared: list[declarations.SharedVariable] = []
        self._bodies: list[_Body] = []
        self._body: _Body | None = None
        self._pending: declarations.Header | None = None
        # One string object per opcode, shared by all its instructions, and its root.
        self._opcodes: dict[str, tuple[str, str]] = {}

    def read(self) -> Listing:
        statements = self._source.statements()
        self._read_start(statements)
        take = {
            "loc": self._loc,
            "remark": self._remark,
            "label": self._label,
            "open": self._open,
            "close": self._close,
            "directive": self._directive,
            "header": self._header,
        }
        for statement in statements:
            if statement.kind == "instruction":
                _, offset, line, operands, opcode, guard = statement
                body = self._body or self._inside(statement)
                known = self._opcodes.get(opcode)
                if known is None:
                    whole = "".join(opcode.split())
                    root = whole.partition(".")[0]
                    # The root alone of a branch or an exit.
                    root = root if root in BRANCHES or root in ENDS else ""
                    known = self._opcodes[opcode] = whole, root
                whole, root = known
                operands = " ".join(operands.split()) if "\n" in operands else operands.strip()
                if root:
                    body.flow.instruction(root, operands, bool(guard), len(body.lines), offset)
                body.opcodes.append(whole)
                body.operands.append(operands)
                body.guards.append(guard and "".join(guard.split()))
                body.lines.append(line)
                body.chains.append(body.tracker.chain)
            else:
                take[statement.kind](statement)
        return self._finish()

    def _read_start(self, statements: Iterator[Statement]) -> None:
        """Require `.version` to come first; report what the text is instead."""
        if not self._source.text.strip():
            self._source.fail(0, "the text is empty", GIVE_PTX)
        first = self._source.text.lstrip("\ufeff \t\r\n")
        if not first.startswith(("//", "/*", ".version")):
            at = len(self._source.text) - len(first)
            self._source.fail(at, "not PTX text, which begins with .version", GIVE_PTX)
        for statement in statements:
            if statement.kind == "directive" and statement.text.startswith(".version"):
                self._directive(statement)
                return
            if statement.kind != "remark":
                self._source.fail(statement.offset, "PTX begins with .version, not with")
        self._source.fail(len(self._source.text), "the text ends before .version", IF_CUT_OFF)

    def _inside(self, statement: Statement) -> _Body:
        if self._body is None:
            self._source.fail(statement.offset, "outside of any function")
        return self._body

    def _loc(self, statement: Statement) -> None:
        self._inside(statement).tracker.loc(statement.text)

    def _remark(self, statement: Statement) -> None:
        if self._body:
            self._body.tracker.remark(statement.text)

    def _label(self, statement: Statement) -> None:
        body = self._inside(statement)
        body.flow.label(statement.text, len(body.lines))

    def _open(self, statement: Statement) -> None:
        if self._body:
            self._body.flow.open_scope()
        elif self._pending:
            self._body, self._pending = _Body(self._pending, statement.offset), None
        else:
            self._source.fail(statement.offset, "no function header before")

    def _close(self, statement: Statement) -> None:
        body = self._inside(statement)
        if body.flow.scope == 0:
            self._bodies.append(body)
            self._body = None
        else:
            body.flow.close_scope()

    def _header(self, statement: Statement) -> None:
        if self._body:
            what = f"{self._body.header.name} is not closed by '}}' before"
            self._source.fail(statement.offset, what)
        self._pending = declarations.read_header(statement.text)
        if not self._pending:
            self._source.fail(statement.offset, "not a function header")

    def _directive(self, statement: Statement) -> None:
        text = statement.text
        word, rest = (*text.split(None, 1), "")[:2]
        if word in self._words:
            self._words[word] = self._words[word] or rest.split(",")[0].strip()
        elif word == ".file":
            self._files.add(text)
        elif word == ".branchtargets" and self._body:
            self._body.flow.branch_targets(rest)
        elif ".shared" in text:
            try:
                variables = declarations.read_shared(statement.text)
            except ValueError:
                what = "the size of this shared variable is not a number"
                self._source.fail(statement.offset, what)
            (self._body.shared if self._body else self._shared).extend(variables)

    def _finish(self) -> Listing:
        source = self._source
        if self._body:
            what = f"the text ends within {self._body.header.name}, without its '}}'"
            source.fail(len(source.text), what, IF_CUT_OFF)
        if not self._words[".target"]:
            source.fail(len(source.text), "the text ends without .target", IF_CUT_OFF)
        uses = {
            body.header.name: declarations.Uses(body.shared, body.operands) for body in self._bodies
        }
        shared = declarations.static_shared_bytes(uses, self._shared)
        functions = tuple(self._function(body, shared[body.header.name]) for body in self._bodies)
        return Listing("ptx", self._words[".target"], self._words[".version"], functions)

    def _function(self, body: _Body, static_shared: int) -> Function:
        home = next((chain[-1][0] for chain in body.chains if chain), "")
        origins = [self._files.origin(chain, home) for chain in body.chains]
        jumps = self._jumps(body)
        instructions = map(
            Instruction,
            body.opcodes,
            body.operands,
            body.guards,
            body.lines,
            (source for source, _ in origins),
            (inlined for _, inlined in origins),
            loop_depths(len(body.lines), jumps),
        )
        name, is_entry, parameters, directives = body.header
        return Function(
            name, "ptx", is_entry, tuple(instructions), parameters, directives, static_shared, jumps
        )

    def _jumps(self, body: _Body) -> tuple[Jump, ...]:
        try:
            return tuple(body.flow.jumps())
        except UnknownLabelError as error:
            label = error.label[:SHOWN_CHARACTERS]
            self._source.fail(error.offset, f"{body.header.name} has no label {label!a}")
