"""From `.loc` and `.file` to the user's lines, through inlined helpers.

A `.loc` names the innermost line. The calls around it are in LLVM's remark behind it
(`helper.py:8:39 @[ kernel.py:15:31 ]`) or, in newer output, in earlier `.loc`s that `inlined_at`
refers to. Within a block of inline assembly newer LLVM adds `.loc`s that count on with the lines
of the assembly, though all of it comes from one line of the program: that in force before it.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from traceview.ptx.model import SourceLine

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
    """The call chain in force while a function is read, innermost place first.

    A place is a file and a line; the file is its number in the table, which may come last, or
    the bare name that a remark gives.
    """

    def __init__(self) -> None:
        self.chain: Chain = ()
        self._in_asm = False
        self._called_from: dict[tuple[str, ...], Chain] = {}
        self._read: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None, Chain]] = {}

    def remark(self, text: str) -> None:
        """Notice where inline assembly begins and ends."""
        if text.startswith(ASM_BEGINS):
            self._in_asm = True
        elif text.startswith(ASM_ENDS):
            self._in_asm = False

    def loc(self, text: str) -> None:
        """Take over a `.loc` directive with the remark behind it."""
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
    found = LOC.match(text)
    assert found, text
    callers = tuple((file, int(line)) for file, line in CALLER.findall(found[7] or ""))
    return found.group(1, 2, 3), found.group(4, 5, 6) if found[4] else None, callers


class FileTable:
    """The `.file` table, and what chains of places mean by it."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = {}
        self._origins: dict[tuple[Chain, str], Origin] = {}

    def add(self, text: str) -> None:
        """Take over a `.file` directive."""
        found = FILE.match(text)
        assert found, text
        path = f"{found[2]}/{found[3]}" if found[3] else found[2]
        self._paths[found[1]] = path
        self._by_name.setdefault(PurePosixPath(path).name, []).append(path)

    def origin(self, chain: Chain, home: str) -> Origin:
        """The user's line of a chain and the helpers' lines within it, innermost first.

        `home` is the number of the function's own file: of several files with one name, a bare
        name means that one. Line 0 is a compiler's way to say that there is none.
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
