"""PTX text split into statements in linear time, the words of opcodes, and source lines.

Line breaks mean nothing in PTX: a statement ends at its `;`, and several may share a line. Only a
few directives (`.loc`, `.file`, `.version` …) have no `;` and end with their last token. A brace
opens a scope between statements and a vector within one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple, NoReturn

from traceview.base.errors import PtxSyntaxError
from traceview.kernels.ptx.model import SourceLine, source_path

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


# Source lines of PTX instructions, from `.loc` and `.file`, with their inlining chains.
#
# A `.loc` gives the innermost line. Its callers are in the comment that LLVM writes behind it
# (`helper.py:8:39 @[ kernel.py:15:31 ]`) or, in newer output, in earlier `.loc`s that
# `inlined_at` refers to. Within inline assembly newer LLVM adds a `.loc` per line of assembly,
# with line numbers that are wrong: all of it comes from the one source line in force before.

Place = tuple[str, int]
Chain = tuple[Place, ...]
Origin = tuple[SourceLine | None, tuple[SourceLine, ...]]

_LOCATION = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^/]*(//.*)?", re.DOTALL
)
CALLER = re.compile(r"@\[ (.+?):(\d{1,9})(?::\d+)? (?=@\[|\])")
FILE = re.compile(r'\.file\s+(\d+)\s+"((?:\\.|[^"\\])*)"(?:\s+"((?:\\.|[^"\\])*)")?')
DEEPEST_INLINING = 100
ASM_BEGINS, ASM_ENDS = "// begin inline asm", "// end inline asm"


class LineTracker:
    """The inlining chain in force while a function is parsed, innermost place first.

    A place is a file and a line. The file is its number in the `.file` table, which may come at
    the end of the text, or the bare name from a comment.
    """

    def __init__(self) -> None:
        self.chain: Chain = ()
        self._in_asm = False
        self._called_from: dict[tuple[str, ...], Chain] = {}
        self._read: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None, Chain]] = {}

    def remark(self, text: str) -> None:
        """Track where inline assembly begins and ends."""
        if text.startswith(ASM_BEGINS):
            self._in_asm = True
        elif text.startswith(ASM_ENDS):
            self._in_asm = False

    def loc(self, text: str) -> None:
        """Apply a `.loc` directive with the comment behind it."""
        if self._in_asm and self.chain:
            return
        if text not in self._read:
            self._read[text] = _read_loc(text)
        position, inlined_at, callers = self._read[text]
        if inlined_at:
            callers = self._called_from.get(inlined_at, ((inlined_at[0], int(inlined_at[1])),))
        self.chain = ((position[0], int(position[1])), *callers)[:DEEPEST_INLINING]
        self._called_from[position] = self.chain


def _read_loc(text: str) -> tuple[tuple[str, ...], tuple[str, ...] | None, Chain]:
    match = _LOCATION.match(text)
    assert match, text
    callers = tuple((file, int(line)) for file, line in CALLER.findall(match[7] or ""))
    return match.group(1, 2, 3), match.group(4, 5, 6) if match[4] else None, callers


class FileTable:
    """The `.file` table, which resolves inlining chains to source lines."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = {}
        self._origins: dict[tuple[Chain, str], Origin] = {}

    def add(self, text: str) -> None:
        """Add a `.file` directive."""
        match = FILE.match(text)
        assert match, text
        path = source_path(f"{match[2]}/{match[3]}" if match[3] else match[2])
        self._paths[match[1]] = path
        self._by_name.setdefault(PurePosixPath(path).name, []).append(path)

    def origin(self, chain: Chain, home: str) -> Origin:
        """The kernel's line of a chain, and the lines of inlined helpers, innermost first.

        `home` is the number of the function's file, which is meant by a bare name that several
        files share. Places with line 0, which have no source line, are left out.
        """
        key = (chain, home)
        if key not in self._origins:
            places = ((self._path(file, home), line) for file, line in chain if line)
            lines = [SourceLine(path, line) for path, line in places if path]
            self._origins[key] = (lines[-1], tuple(lines[:-1])) if lines else (None, ())
        return self._origins[key]

    def _path(self, file: str, home: str) -> str | None:
        if file.isdigit():
            return self._paths.get(file)
        candidates = self._by_name.get(file, [file])
        own = self._paths.get(home)
        return own if own in candidates else candidates[0]


# The words of PTX opcodes: types, vector sizes, state spaces, scopes, families.
#
# Modifiers come in any order, so a word is recognized by itself, not by its position. Names and
# sizes are those of the PTX ISA manual.

TYPE_BITS: Mapping[str, int] = {
    **{f"{letter}{bits}": bits for letter in "bus" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("e4m3", "e5m2"), 8),
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2"), 16),
    **dict.fromkeys(("f32", "tf32", "f16x2", "bf16x2", "u16x2", "s16x2"), 32),
    **dict.fromkeys(("e4m3x4", "e5m2x4"), 32),
    **dict.fromkeys(("f64", "f32x2"), 64),
    "b128": 128,
}
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
SPACES = frozenset({"global", "shared", "local", "const", "param"})
SCOPES = frozenset({"cta", "cluster", "gpu", "sys"})
CACHE_OPERATORS = frozenset({"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "volatile"})
HINT_PREFIXES = ("L1::", "L2::", "evict_")

SPECIAL_FUNCTIONS = frozenset({"rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"})
_ROOTS: Mapping[str, str] = {
    "load": "ld ldu ldmatrix tex tld4 suld",
    "store": "st stmatrix sust",
    "async-copy": "cp",
    "atomic": "atom red sured",
    "tensor-core": "mma wmma wgmma tcgen05",
    "shuffle": "shfl vote match redux elect activemask",
    "barrier": "bar barrier mbarrier membar fence griddepcontrol",
    "conversion": "cvt cvta",
    "control": "bra brx call ret exit trap brkpt nanosleep setmaxnreg pmevent",
}
FAMILY_OF_ROOT = {root: family for family, roots in _ROOTS.items() for root in roots.split()}
# Arithmetic and comparisons: their type decides between integer and float.
_ARITHMETIC = """
    abs add addc and bfe bfi bfind bmsk brev clz cnot copysign div dp2a dp4a fma fns lop3 mad mad24
    madc max min mul mul24 neg not or popc prmt rem sad selp set setp shf shl shr slct sub subc
    szext testp xor vadd vadd2 vadd4 vsub vmin vmax vset vmad vshl vshr
"""
ARITHMETIC = frozenset(_ARITHMETIC.split())


class Words(NamedTuple):
    """An opcode split at its dots: `root` is ld, cp, mma …, `modifiers` the words after it."""

    root: str
    modifiers: tuple[str, ...]

    @property
    def space(self) -> str | None:
        """The first state space; `shared::cluster` is shared."""
        bases = (word.partition("::")[0] for word in self.modifiers)
        return next((base for base in bases if base in SPACES), None)

    @property
    def types(self) -> tuple[str, ...]:
        """The types, in order."""
        return tuple(word for word in self.modifiers if word in TYPE_BITS)

    @property
    def vector_bits(self) -> int | None:
        """Vector size times the size of the last type; None without a type."""
        vector = next((VECTORS[word] for word in self.modifiers if word in VECTORS), 1)
        return vector * TYPE_BITS[self.types[-1]] if self.types else None

    @property
    def scope(self) -> str | None:
        """The scope: cta, cluster, gpu, sys, or None."""
        return next((word for word in self.modifiers if word in SCOPES), None)

    @property
    def hints(self) -> tuple[str, ...]:
        """Cache operators and eviction hints, as written."""
        return tuple(
            word
            for word in self.modifiers
            if word in CACHE_OPERATORS or word.startswith(HINT_PREFIXES)
        )


@lru_cache(maxsize=4096)
def words(opcode: str) -> Words:
    """Split an opcode at its dots."""
    root, *modifiers = opcode.split(".")
    return Words(root, tuple(modifiers))


@lru_cache(maxsize=4096)
def family(opcode: str) -> str:
    """The family of an opcode in the instruction mix.

    Loads and stores of parameters do not count as memory accesses: they are "other", like mov.
    """
    root, modifiers = words(opcode)
    if root == "multimem":
        return {"ld_reduce": "load", "st": "store"}.get(modifiers[0] if modifiers else "", "atomic")
    if root in {"ld", "st"} and words(opcode).space == "param":
        return "other"
    if root in FAMILY_OF_ROOT:
        return FAMILY_OF_ROOT[root]
    if root in SPECIAL_FUNCTIONS:
        return "special-function"
    return _kind_of_number(words(opcode)) if root in ARITHMETIC else "other"


def _kind_of_number(opcode: Words) -> str:
    """`float` or `integer`, by the last type: set.lt.u32.f32 compares floats."""
    last = opcode.types[-1] if opcode.types else ""
    return "float" if last[:1] in {"f", "t", "e"} or last.startswith("bf") else "integer"
