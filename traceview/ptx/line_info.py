"""Source lines of PTX instructions, from `.loc` and `.file`, with their inlining chains.

A `.loc` gives the innermost line. Its callers are in the comment that LLVM writes behind it
(`helper.py:8:39 @[ kernel.py:15:31 ]`) or, in newer output, in earlier `.loc`s that `inlined_at`
refers to. Within inline assembly newer LLVM adds a `.loc` per line of assembly, with line numbers
that are wrong: all of it comes from the one source line in force before.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from traceview.ptx.model import SourceLine, source_path

Place = tuple[str, int]
Chain = tuple[Place, ...]
Origin = tuple[SourceLine | None, tuple[SourceLine, ...]]

LOC = re.compile(
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
    match = LOC.match(text)
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
