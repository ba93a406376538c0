"""GPU code that nvcc puts into objects, libraries, programs and .fatbin files.

A fatbin is a header and entries, each PTX or a cubin for one architecture, most of them compressed.
An ELF file of the host has fatbins in the section .nv_fatbin, and __nv_relfatbin before linking.
NVIDIA does not document the format: the tests compare what is read with `cuobjdump`.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from traceview.errors import MALFORMED, InputError, ToolNotFoundError, TraceFormatError
from traceview.records import record

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
# kind, version, header size, size, compressed size, options, minor, major, architecture, the place
# and the length of a name, flags, 0, size once decompressed.
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS: dict[int, Literal["ptx", "cubin"]] = {1: "ptx", 2: "cubin"}
_LZ4, _ZSTD = 0x2000, 0x8000
_ALIGNED = 8
# A corrupt size must not fill the memory.
_MOST_BYTES = 1 << 30
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_AMD_SECTION = ".hip_fatbin"
_ELF = b"\x7fELF"
_AGAIN = "build or copy the file again"


@record
class FatbinEntry:
    """One PTX or cubin of a fatbin, as stored. `arch` is e.g. sm_90."""

    kind: Literal["ptx", "cubin"]
    arch: str
    stored: bytes
    flags: int
    size: int

    def code(self) -> bytes:
        """The code, decompressed. Raises TraceFormatError if it is damaged."""
        if not self.flags & (_LZ4 | _ZSTD):
            return self.stored
        if self.size > _MOST_BYTES:
            raise TraceFormatError(
                f"GPU code for {self.arch} has a size of {self.size:,} bytes", _AGAIN
            )
        code = _zstd(self.stored, self.size) if self.flags & _ZSTD else _lz4(self.stored, self.size)
        if len(code) != self.size:
            raise TraceFormatError(f"compressed GPU code for {self.arch} is damaged", _AGAIN)
        return code


def has_fatbin(path: Path) -> bool:
    """Whether a file is a fatbin or an ELF file."""
    with path.open("rb") as file:
        start = file.read(4)
    return start == _ELF or start == _MAGIC.to_bytes(4, "little")


def entries(path: Path) -> list[FatbinEntry]:
    """The GPU code in a file, in its order; empty if it has none.

    Raises InputError for code for AMD GPUs, TraceFormatError if the file is damaged, and
    ToolNotFoundError without pyelftools.
    """
    with path.open("rb") as file:
        if not path.stat().st_size:
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [
                entry for start, end in _ranges(file, data) for entry in _entries(data, start, end)
            ]


def _ranges(file: BinaryIO, data: mmap.mmap) -> list[tuple[int, int]]:
    if data[:4] != _ELF:
        return [(0, len(data))]
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise ToolNotFoundError(
            "libraries are read with pyelftools", "install it: pip install 'traceview[ptx]'"
        ) from None
    try:
        sections = list(ELFFile(file).iter_sections())
    except (ELFError, TypeError, *MALFORMED) as error:
        raise TraceFormatError(f"the ELF file is damaged: {type(error).__name__}", _AGAIN) from None
    ranges = [
        (int(s["sh_offset"]), int(s["sh_offset"] + s["sh_size"]))
        for s in sections
        if s.name in _SECTIONS
    ]
    if not ranges and any(s.name == _AMD_SECTION for s in sections):
        raise InputError("its code is for AMD GPUs", "traceview ptx reads code for NVIDIA GPUs")
    if any(end > len(data) for _, end in ranges):
        raise _truncated()
    return ranges


def _entries(data: mmap.mmap, start: int, end: int) -> Iterator[FatbinEntry]:
    """The entries of all fatbins between two offsets; padding is skipped."""
    at = start
    while at + _HEADER.size <= end:
        magic, _, header, size = _HEADER.unpack_from(data, at)
        if magic != _MAGIC:
            at += _ALIGNED
            continue
        stop = at + header + size
        if stop > len(data) or header < _HEADER.size:
            raise _truncated()
        yield from _of_one(data, at + header, stop)
        at = stop


def _truncated() -> TraceFormatError:
    return TraceFormatError("the GPU code ends early: the file is truncated", _AGAIN)


def _of_one(data: mmap.mmap, at: int, stop: int) -> Iterator[FatbinEntry]:
    while at + _ENTRY.size <= stop:
        kind, _, header, size, packed, _, _, _, arch, _, _, flags, _, whole = _ENTRY.unpack_from(
            data, at
        )
        begin, after = at + header, at + header + size
        if header < _ENTRY.size or after > stop:
            raise TraceFormatError("an entry of the GPU code is damaged", _AGAIN)
        if kind in _KINDS:
            stored = data[begin : begin + packed] if packed else data[begin:after]
            yield FatbinEntry(_KINDS[kind], f"sm_{arch}", stored, flags, whole)
        at = after


def _zstd(stored: bytes, size: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    try:
        return zstd.ZstdDecompressor().decompress(stored, max_length=size)
    except zstd.ZstdError as error:
        raise TraceFormatError(f"compressed GPU code is damaged: {error}", _AGAIN) from None


def _lz4(stored: bytes, size: int) -> bytes:
    """Decompress a block of LZ4 (its block format description, 1.6.1)."""
    out, at = bytearray(), 0
    try:
        while at < len(stored):
            token = stored[at]
            count, at = _length(stored, at + 1, token >> 4)
            out += stored[at : at + count]
            at += count
            if at >= len(stored):
                break
            back = stored[at] | stored[at + 1] << 8
            count, at = _length(stored, at + 2, token & 15)
            _repeat(out, back, count + 4, size)
    except IndexError:
        raise TraceFormatError("compressed GPU code ends early", _AGAIN) from None
    return bytes(out)


def _length(stored: bytes, at: int, first: int) -> tuple[int, int]:
    """A length, continued in further bytes if its four bits are all set, and the next offset."""
    count = first
    while first == 15:
        more = stored[at]
        count, at = count + more, at + 1
        if more != 255:
            break
    return count, at


def _repeat(out: bytearray, back: int, count: int, size: int) -> None:
    """Append `count` bytes that begin `back` bytes before the end, and may overlap it."""
    if not 0 < back <= len(out) or len(out) + count > size:
        raise TraceFormatError("compressed GPU code is damaged", _AGAIN)
    while count:
        part = out[len(out) - back : len(out) - back + count]
        out += part[:count]
        count -= len(part[:count])
