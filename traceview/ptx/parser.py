"""Parse PTX text into functions and instructions, with source lines and loop depths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from traceview.memory import garbage_collection
from traceview.ptx.control_flow import BRANCHES, ENDS, Flow, UnknownLabelError
from traceview.ptx.declarations import Header, SharedVariable, read_header, read_shared
from traceview.ptx.lexer import IF_CUT_OFF, SHOWN_CHARACTERS, Source, Statement
from traceview.ptx.line_info import Chain, FileTable, LineTracker
from traceview.ptx.loops import Jump, loop_depths
from traceview.ptx.model import Function, Instruction, Listing
from traceview.ptx.shared_variables import Uses, static_shared_bytes

GIVE_PTX = "pass a .ptx file that a compiler wrote"


def parse_ptx(text: str, name: str = "PTX") -> Listing:
    """Parse a PTX module. `name` is what errors call the text.

    An instruction's `source` is the line in the kernel, `inlined` are the lines of helpers inlined
    there. Unknown opcodes are kept. Raises PtxSyntaxError, with line and column, for text that is
    not PTX, damaged or truncated.
    """
    # Parsing makes no cycles, and searching for them takes a third of the time.
    with garbage_collection.paused():
        return _Module(Source(text.rstrip("\0"), name)).read()


@dataclass
class _Body:
    """A function that is being parsed: one list per field of its instructions."""

    header: Header
    offset: int
    opcodes: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    guards: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    shared: list[SharedVariable] = field(default_factory=list)
    flow: Flow = field(default_factory=Flow)
    tracker: LineTracker = field(default_factory=LineTracker)


class _Module:
    """A module that is being parsed, statement by statement."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._words = {".version": "", ".target": ""}
        self._files = FileTable()
        self._shared: list[SharedVariable] = []
        self._bodies: list[_Body] = []
        self._body: _Body | None = None
        self._pending: Header | None = None
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
                self._instruction(statement)
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

    def _instruction(self, statement: Statement) -> None:
        _, offset, line, operands, opcode, guard = statement
        body = self._body or self._inside(statement)
        known = self._opcodes.get(opcode)
        if known is None:
            known = self._opcodes[opcode] = _opcode_and_root(opcode)
        whole, root = known
        operands = " ".join(operands.split()) if "\n" in operands else operands.strip()
        if root:
            body.flow.instruction(root, operands, bool(guard), len(body.lines), offset)
        body.opcodes.append(whole)
        body.operands.append(operands)
        body.guards.append(guard and "".join(guard.split()))
        body.lines.append(line)
        body.chains.append(body.tracker.chain)

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
        if body.flow.is_outermost:
            self._bodies.append(body)
            self._body = None
        else:
            body.flow.close_scope()

    def _header(self, statement: Statement) -> None:
        if self._body:
            what = f"{self._body.header.name} is not closed by '}}' before"
            self._source.fail(statement.offset, what)
        self._pending = read_header(statement.text)
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
            self._shared_variables(statement)

    def _shared_variables(self, statement: Statement) -> None:
        try:
            variables = read_shared(statement.text)
        except ValueError:
            self._source.fail(statement.offset, "the size of this shared variable is not a number")
        (self._body.shared if self._body else self._shared).extend(variables)

    def _finish(self) -> Listing:
        source = self._source
        if self._body:
            what = f"the text ends within {self._body.header.name}, without its '}}'"
            source.fail(len(source.text), what, IF_CUT_OFF)
        if not self._words[".target"]:
            source.fail(len(source.text), "the text ends without .target", IF_CUT_OFF)
        uses = {body.header.name: Uses(body.shared, body.operands) for body in self._bodies}
        shared = static_shared_bytes(uses, self._shared)
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
            self._source.fail(
                error.offset, f"{body.header.name} has no label {error.label[:SHOWN_CHARACTERS]!a}"
            )


def _opcode_and_root(opcode: str) -> tuple[str, str]:
    """The opcode without blanks, and its first word if it is a branch or an exit."""
    whole = "".join(opcode.split())
    root = whole.partition(".")[0]
    return whole, root if root in BRANCHES or root in ENDS else ""
