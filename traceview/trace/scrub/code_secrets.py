"""Remove private texts from PTX and cubins, in place.

Texts are overwritten with the same length, so that offsets in debug information stay valid and a
cubin stays a valid ELF file. A home folder becomes `~` and as many slashes as needed; the SASS
reader collapses them, so that paths in PTX and SASS stay equal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping

from traceview.trace.scrub.secrets import PrivateTexts

# File names and comments; the code itself contains nothing private.
_QUOTED_OR_REMARK = re.compile(rb'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# Texts written as byte values: debug information, and arrays such as an assertion's file name.
_SPELT = re.compile(rb"(?:^[ \t]*\.b8[ \t][^\n;{]*\n)+|\.b8[^;{}\n]*=\s*\{[^}]*\}", re.MULTILINE)
_VALUES = re.compile(rb"//[^\n]*|\w+(?=\s*[\[=])|(?<![\w.])\d{1,3}(?!\w)")

_ELF64 = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<4xIQ8xQQ24x")
_PROGBITS, _NOTE = 1, 7
_EXECUTABLE = 4


def clean_ptx(ptx: bytes, private: PrivateTexts) -> bytes:
    """PTX without private texts in file names, comments and debug information."""
    ptx = _QUOTED_OR_REMARK.sub(lambda text: private.overwritten(private.shortened(text[0])), ptx)
    return _SPELT.sub(lambda found: _respelt(found[0], private), ptx)


def clean_cubin(cubin: bytes, private: PrivateTexts) -> bytes | None:
    """A cubin without private texts outside its code and symbols; None if it is not ELF."""
    cleaned = bytearray(cubin)
    try:
        for start, end in _texts(cubin):
            cleaned[start:end] = private.overwritten(cubin[start:end])
    except (struct.error, ValueError):
        return None
    return bytes(cleaned)


CLEAN: Mapping[str, Callable[[bytes, PrivateTexts], bytes | None]] = {
    "ptx": clean_ptx,
    "cubin": clean_cubin,
}


def _respelt(text: bytes, private: PrivateTexts) -> bytes:
    """A list of byte values, with those that spell a private text replaced."""
    places = [match for match in _VALUES.finditer(text) if match[0][:1].isdigit()]
    spelt = bytes(min(int(place[0]), 255) for place in places)
    cleaned = private.overwritten(spelt)
    if cleaned == spelt:
        return text
    pieces, after = [], 0
    for place, old, new in zip(places, spelt, cleaned, strict=True):
        if old != new:
            pieces += [text[after : place.start()], b"%d" % new]
            after = place.end()
    return b"".join((*pieces, text[after:]))


def _texts(elf: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of ELF sections that may hold private texts: debug information, constants."""
    if not elf.startswith(_ELF64):
        raise ValueError("not a cubin")
    table, entry, count, _ = _FILE_HEADER.unpack_from(elf)
    for index in range(count):
        kind, flags, start, size = _SECTION.unpack_from(elf, table + index * entry)
        if kind in (_PROGBITS, _NOTE) and not flags & _EXECUTABLE:
            if start + size > len(elf):
                raise ValueError("a section beyond the end")
            yield start, start + size
