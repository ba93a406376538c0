"""Remove private texts from PTX and cubins, in place.

Texts are overwritten with the same length, so that offsets in debug information stay valid and a
cubin stays a valid ELF file. A folder becomes `~` and as many slashes as needed; the SASS reader
collapses them, so that paths in PTX and SASS stay equal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from traceview.trace.scrub import paths, vocabulary
from traceview.trace.scrub.kept import TextKind
from traceview.trace.scrub.secrets import HOME

# File names and comments; the code itself contains nothing private.
_QUOTED_OR_REMARK = re.compile(rb'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# Texts written as byte values: debug information, and arrays such as an assertion's file name.
_SPELT = re.compile(rb"(?:^[ \t]*\.b8[ \t][^\n;{]*\n)+|\.b8[^;{}\n]*=\s*\{[^}]*\}", re.MULTILINE)
_VALUES = re.compile(rb"//[^\n]*|\w+(?=\s*[\[=])|(?<![\w.])\d{1,3}(?!\w)")

_ELF64 = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQ8xQQ24x")
_PROGBITS, _NOBITS, _NOTE = 1, 8, 7
_EXECUTABLE = 4
_LINE_TABLES = (b".debug_line\0", b".nv_debug_line_sass\0")
_LINE_HEADER = struct.Struct("<IHI")
# Shorter ones occur in binary data by chance.
_SHORTEST_TEXT = 5
_RUN = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{%d,}(?=\0|\Z)" % _SHORTEST_TEXT)
_PLACE = re.compile(rb"@\[|\]|[^\s@\[\]\"]+:\d{1,9}(?::\d{1,9})?(?=[\s\]]|$)")
_LINE_NUMBERS = re.compile(rb"(?::\d{1,9}){1,2}$")
_ASSEMBLY = (b"// begin inline asm", b"// end inline asm")
_FUNCTION = re.compile(rb"\.(?:entry|func)\b(?:\s*\([^)]*\))?\s*([\w$]+)")


class Policy(Protocol):
    """What is left of the texts in code."""

    def quoted(self, text: bytes) -> bytes:
        """A text in quotes or a comment of PTX, of any length."""

    def overwritten(self, text: bytes) -> bytes:
        """Bytes of debug information and constants, in the same length."""


class PublicTexts:
    """Keeps the ends of paths, public words, and the names of the functions in the code."""

    def __init__(self, functions: frozenset[bytes] = frozenset()) -> None:
        self._functions = functions

    @classmethod
    def of(cls, ptx: bytes) -> PublicTexts:
        """For the code of this PTX."""
        return cls(frozenset(_FUNCTION.findall(ptx)))

    def quoted(self, text: bytes) -> bytes:
        """A text in quotes or a comment; of comments, only source lines and inline assembly."""
        if text.startswith(b'"'):
            return b'"%s"' % self._text(text[1:-1])
        if text.strip() in _ASSEMBLY:
            return text
        if text.startswith(b"/*"):
            return b"/**/"
        return b"//" + b"".join(_places(text[2:]))

    def overwritten(self, text: bytes) -> bytes:
        """Bytes with each text that ends in NUL reduced, in the same length."""
        return _RUN.sub(lambda run: self._text(run[0]), text)

    def _text(self, text: bytes) -> bytes:
        plain = text.decode() if text.isascii() else ""
        if text in self._functions or (plain and vocabulary.is_public(plain)):
            return text
        # The public end of a folder of installed files, or of a file.
        below = paths.public_tail(f"{plain}/_.py") or ""
        folder = below.removesuffix("/_.py") if below.count("/") > 1 else ""
        tail = (folder or paths.public_tail(plain) or "").encode()
        if not tail:
            return (HOME if b"/" in text else b"").ljust(len(text), b"/" if b"/" in text else b"_")
        size = len(text)
        head = size - len(tail)
        return (HOME.ljust(head, b"/") if head > 1 else b"/" * head) + tail


def _places(remark: bytes) -> Iterator[bytes]:
    """The `FILE:LINE:COLUMN @[ … ]` of a comment behind a `.loc`, with public files alone."""
    for mark in _PLACE.findall(remark):
        if mark in (b"@[", b"]"):
            yield b" " + mark
        else:
            numbers = _LINE_NUMBERS.search(mark)
            assert numbers
            tail = paths.public_tail(mark[: numbers.start()].decode("ascii", "replace"))
            yield b" " + (tail or "unknown").encode() + numbers[0]


def clean_ptx(ptx: bytes, texts: Policy) -> bytes:
    """PTX without private texts in file names, comments and debug information."""
    ptx = _QUOTED_OR_REMARK.sub(lambda text: texts.quoted(text[0]), ptx)
    return _SPELT.sub(lambda found: _respelt(found[0], texts), ptx)


def clean_cubin(cubin: bytes, texts: Policy) -> bytes | None:
    """A cubin without private texts outside its code and symbols; None if it is not ELF."""
    cleaned = bytearray(cubin)
    try:
        for start, end in _texts(cubin):
            cleaned[start:end] = texts.overwritten(cubin[start:end])
    except (struct.error, ValueError):
        return None
    return bytes(cleaned)


CLEAN: Mapping[TextKind, Callable[[bytes, Policy], bytes | None]] = {
    TextKind.PTX: clean_ptx,
    TextKind.CUBIN: clean_cubin,
}


def _respelt(text: bytes, texts: Policy) -> bytes:
    """A list of byte values, with those that spell a private text replaced."""
    places = [match for match in _VALUES.finditer(text) if match[0][:1].isdigit()]
    spelt = bytes(min(int(place[0]), 255) for place in places)
    cleaned = texts.overwritten(spelt)
    if cleaned == spelt:
        return text
    pieces, after = [], 0
    for place, old, new in zip(places, spelt, cleaned, strict=True):
        if old != new:
            pieces += [text[after : place.start()], b"%d" % new]
            after = place.end()
    return b"".join((*pieces, text[after:]))


def _texts(elf: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of what may hold private texts: debug information, constants, unused bytes."""
    if not elf.startswith(_ELF64):
        raise ValueError("not a cubin")
    table, entry, count, names = _FILE_HEADER.unpack_from(elf)
    sections = [_SECTION.unpack_from(elf, table + index * entry) for index in range(count)]
    for name, kind, flags, start, size in sections:
        if kind in (_PROGBITS, _NOTE) and not flags & _EXECUTABLE:
            if start + size > len(elf):
                raise ValueError("a section beyond the end")
            if elf[sections[names][3] + name :][:24].startswith(_LINE_TABLES):
                yield from _line_headers(elf, start, start + size)
            else:
                yield start, start + size
    ends = (start + size for _, kind, _, start, size in sections if kind != _NOBITS)
    yield max((table + count * entry, *ends)), len(elf)


def _line_headers(elf: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the headers of a line table, which name its files.

    The programs behind them are binary, and by chance look like text.
    """
    while start + _LINE_HEADER.size <= end:
        size, _, header = _LINE_HEADER.unpack_from(elf, start)
        stop = start + _LINE_HEADER.size + header
        if not size or stop > end:
            raise ValueError("a line table beyond its section")
        yield start + _LINE_HEADER.size, stop
        start += 4 + size
