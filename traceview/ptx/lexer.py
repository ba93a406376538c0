"""Split PTX text into statements, in order, in linear time.

Line breaks mean nothing in PTX: a statement ends at its `;`, and several may share a line. Only a
few directives (`.loc`, `.file`, `.version` …) have no `;` and end with their last token. A brace
opens a scope between statements and a vector within one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from traceview.errors import PtxSyntaxError

STRING = r'"(?:[^"\\\n]|\\[^\n])*+"'
REMARK = r"//[^\n]*+|/\*(?s:.*?)\*/"
GUARD = r"(?:@\s*+(!?\s*+%?[\w$]++)\s*+)?"
# A `:` after the word would make it a label.
OPCODE = r"([A-Za-z_]\w*+(?:\s*+(?:\.|::)\w++)*+)(?!\s*+:)"
NUMBER = r"\s++\d{1,9}+"
LOC = (
    rf"\.loc{NUMBER}{NUMBER}{NUMBER}(?:\s*+,\s*+function_name\s++[\w$.]++(?:\s*+\+\s*+\d++)?+"
    rf"\s*+,\s*+inlined_at{NUMBER}{NUMBER}{NUMBER})?+(?:[ \t]*+//[^\n]*+)?+"
)

# The common form of each statement; anything else is read piece by piece.
STATEMENT = re.compile(
    rf"""\s*+(?:
      {GUARD}{OPCODE}\s*+(?P<instruction>[^;{{}}/"]*+(?:\{{[^;{{}}/"]*+\}}[^;{{}}/"]*+)*+);
    | (?P<loc>{LOC})
    | (?P<remark>{REMARK})
    | (?P<registers>\.(?:reg|param)\b[^;{{}}/"]*+;)
    | (?P<label>[A-Za-z_$%][\w$]*+)\s*+:(?!:)
    | (?P<open>\{{)
    | (?P<close>\}})
    | (?P<directive>\.[A-Za-z_]\w*+)
    | (?P<irregular>[@A-Za-z_])
    | (?P<end>\Z)
    | (?P<stray>.)
    )""",
    re.VERBOSE | re.ASCII,
)
INSTRUCTION = re.compile(rf"{GUARD}{OPCODE}\s*+(.*)", re.ASCII | re.DOTALL)
PIECE = re.compile(
    rf'(?P<plain>[^;{{}}/"]++)|(?P<remark>{REMARK})|(?P<string>{STRING})|(?P<mark>[;{{}}])'
)
# The directives without a `;`.
UNENDED = {
    ".loc": re.compile(LOC, re.ASCII),
    ".version": re.compile(r"\.version\s++\d++\.\d++", re.ASCII),
    ".target": re.compile(r"\.target\s++\w++(?:\s*+,\s*+\w++)*+", re.ASCII),
    ".address_size": re.compile(r"\.address_size\s++\d++", re.ASCII),
    ".file": re.compile(
        rf"\.file\s++\d++\s++{STRING}(?:[ \t]++{STRING})?+(?:\s*+,\s*+\d++\s*+,\s*+\d++)?+",
        re.ASCII,
    ),
    ".section": re.compile(
        rf'\.section\s++[.\w]++[^{{\n]*+\s*+\{{(?:[^}}/"]++|{REMARK}|{STRING})*+\}}', re.ASCII
    ),
}
IS_HEADER = re.compile(r"\.(?:entry|func)\b")
TWO_WORDS = re.compile(r"[\w\])}]\s++(?=[\w%$({\[])", re.ASCII)
SHOWN_CHARACTERS = 40
IF_CUT_OFF = "the file may be truncated; generate it again"


class Statement(NamedTuple):
    """One statement.

    `kind` is instruction, loc, remark (a comment), label, open, close, directive, or header (of a
    function, up to its brace). `text` is an instruction's operands, a label's name, or the whole
    statement. `line` counts from 1, `offset` counts characters from 0.
    """

    kind: str
    offset: int
    line: int
    text: str
    opcode: str = ""
    guard: str | None = None


class Source:
    """A PTX text; error messages call it `name`."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name

    def fail(self, offset: int, what: str, remedy: str = "compile it again") -> NoReturn:
        """Raise PtxSyntaxError at an offset, quoting the text there."""
        line = self.text.count("\n", 0, offset) + 1
        column = offset - self.text.rfind("\n", 0, offset)
        excerpt = self.text[offset : offset + SHOWN_CHARACTERS].partition("\n")[0].rstrip()
        seen = f"{what}: {excerpt!a}" if excerpt else what
        raise PtxSyntaxError(self.name, line, column, seen, remedy)

    def statements(self) -> Iterator[Statement]:
        """All statements in order. Raises PtxSyntaxError at the first that is not PTX."""
        text, at, line, counted = self.text, 0, 1, 0
        while match := STATEMENT.match(text, at):
            kind, at = match.lastgroup or "", match.end()
            if kind == "end":
                return
            start = match.start(2 if kind == "instruction" else kind)
            line += text.count("\n", counted, start)
            counted = start
            if kind == "instruction":
                operands = match[3]
                if words := TWO_WORDS.search(operands):
                    self.fail(match.start(3) + words.end(), "a ',' or ';' is missing before")
                yield Statement(kind, start, line, operands, match[2], match[1])
            elif kind == "directive" or kind == "irregular":
                statement, at = self._irregular(start, line)
                yield statement
            elif kind == "stray":
                self.fail(start, "not the beginning of a PTX statement")
            elif kind != "registers":
                yield Statement(kind, start, line, match[kind])

    def _irregular(self, start: int, line: int) -> tuple[Statement, int]:
        if self.text[start] == ".":
            word = self.text[start : start + 16].split(None, 1)[0]
            if unended := UNENDED.get(word):
                match = unended.match(self.text, start)
                if not match:
                    self.fail(start, f"{word} is damaged or truncated", IF_CUT_OFF)
                return Statement("directive", start, line, match[0]), match.end()
            plain, end = self._pieces(start)
            opens = self.text[end - 1] == "{"
            # A pragma ends with a ';', even within a function header.
            is_header = opens or (plain.endswith('"') and bool(IS_HEADER.search(plain)))
            kind = "header" if is_header else "directive"
            # The brace is the next statement.
            return Statement(kind, start, line, plain), end - opens
        plain, end = self._pieces(start)
        match = INSTRUCTION.fullmatch(plain)
        if not match:
            self.fail(start, "not a PTX instruction")
        if TWO_WORDS.search(match[3]):
            self.fail(start, "a ',' or ';' is missing in")
        return Statement("instruction", start, line, match[3], match[2], match[1]), end

    def _pieces(self, start: int) -> tuple[str, int]:
        """The text up to its `;` or a function's `{`, without comments, and its end."""
        pieces: list[str] = []
        at, depth, braced = start, 0, False
        while True:
            piece = PIECE.match(self.text, at)
            if not piece:
                self.fail(start, "this statement has no ';'", IF_CUT_OFF)
            at = piece.end()
            mark = piece[0] if piece.lastgroup == "mark" else ""
            if mark == ";" and not depth:
                return "".join(pieces).strip(), at
            if mark == "{" and not braced and pieces[0].startswith("."):
                header = "".join(pieces)
                if IS_HEADER.search(header):
                    return header.strip(), at
            braced = braced or mark == "{"
            if mark == ";" or (mark == "}" and not depth):
                self.fail(at - 1, "the statement is incomplete before")
            depth += (mark == "{") - (mark == "}")
            pieces.append(" " if piece.lastgroup == "remark" else piece[0])
