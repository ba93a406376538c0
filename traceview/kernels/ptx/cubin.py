"""Kernel resources from a cubin, and GPU code that nvcc puts into objects and programs."""

from __future__ import annotations

import io
import math
import mmap
import struct
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from traceview.base.errors import MALFORMED, InputError, ToolNotFoundError, TraceFormatError
from traceview.base.records import record
from traceview.kernels.ptx.model import Resources

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile


# Kernel resources from a cubin: registers, stack, spills, shared memory, barriers.
#
# A cubin is an ELF file; the section `.nv.info.<kernel>` lists attributes as (format, attribute,
# value). NVIDIA documents neither these nor the flags: names are those of `cuobjdump -elf`, and
# the tests compare every number with `cuobjdump -res-usage` and `ptxas -v`.

# Attributes of .nv.info and .nv.info.<kernel>, called EIATTR_… by cuobjdump.
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_REGISTERS = 0x2F
_TOOLKIT = 0x37
_BARRIERS = 0x4C
_ANNOTATIONS = 0x55
_SPILL = 1
# The first toolkit whose ptxas marks the instructions that spill.
_MARKS_SPILLS = 128
# Attribute of .nv.compat, EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET: an architecture with an "a".
_ARCH_SPECIFIC = 0x09
_SIZED = 4
_MADE_BY = "pass one that ptxas, nvcc -cubin or Triton wrote"

# Far above the size of any section.
_MOST_BYTES = 1 << 40

# The last one, without a name in pyelftools, is shared memory of debug information.
_NOT_IN_FILE = ("SHT_NOBITS", "SHT_NULL", 0x7000000A)
# Offset of st_other in a symbol, and its bit that marks a kernel (STO_CUDA_ENTRY).
_ST_OTHER = 5
_KERNEL = 0x10
# From 9.0 on the shared memory section begins with bytes that the driver reserves.
_RESERVES_FROM = 90
_RESERVED_BYTES = 1024

# In SASS from 7.0 on: the opcode of STL in the low 12 bits, the log of its width from bit 73 on.
_INSTRUCTION = struct.Struct("<QQ")
_STORE_LOCAL = 0x387
_WIDTH_BYTES = (1, 1, 2, 2, 4, 8, 16)


@record
class _Section:
    """A section; one that is not in the file (shared memory) has no `data`."""

    data: memoryview
    size: int
    flags: int
    info: int


@record
class _Cubin:
    """A parsed cubin: sections by name, and (name, st_other) of each symbol."""

    flags: int
    abi: int
    sections: Mapping[str, _Section]
    symbols: tuple[tuple[str, int], ...]


_ABSENT = _Section(memoryview(b""), 0, 0, 0)
_Attributes = dict[int, memoryview]


def resources(cubin: bytes) -> dict[str, Resources]:
    """The resources of each kernel of a cubin.

    `static_shared_bytes` excludes bytes that the driver reserves, like ptxas and unlike cuobjdump.
    `spill_bytes` are ptxas's spill stores: bytes per thread, summed over the instructions that
    spill; None if a ptxas before 12.8 left a stack, as it does not record what is on it.
    `max_threads` is the required or the maximum block size (reqntid, maxntid).

    Raises TraceFormatError if this is not a cubin or is damaged, ToolNotFoundError without
    pyelftools.
    """
    opened = _read(cubin)
    try:
        return {name: _resources(opened, index, name) for index, name in _kernels(opened)}
    except MALFORMED as error:
        raise _damaged(error) from None


def kernels(cubin: bytes) -> tuple[str, ...]:
    """The names of the kernels, as linked (mangled). Raises as `resources` does."""
    return tuple(name for _, name in _kernels(_read(cubin)))


def machine_code(cubin: bytes, name: str) -> bytes:
    """The instructions of a kernel; empty if it is not there. Raises as `resources` does."""
    return bytes(_section(_read(cubin), f".text.{name}").data)


def arch_of(cubin: bytes) -> str:
    """The architecture of a cubin, such as sm_90a. Raises as `resources` does.

    A cubin does not record the family suffix f: its code is that of the plain architecture.
    """
    opened = _read(cubin)
    specific = opened.flags & (0x8 if opened.abi >= 8 else 0x800)
    compat = _attributes(opened, ".nv.compat").get(_ARCH_SPECIFIC)
    return f"sm_{_number(opened)}{'a' if specific or (compat and compat[0]) else ''}"


def _resources(cubin: _Cubin, index: int, name: str) -> Resources:
    own = _attributes(cubin, f".nv.info.{name}")
    code = _section(cubin, f".text.{name}")
    shared = dict(_of_functions(cubin, index))
    stack = shared.get(_MIN_STACK_SIZE, shared.get(_FRAME_SIZE, 0))
    size = _section(cubin, f".nv.shared.{name}").size
    reserved = _RESERVED_BYTES if _number(cubin) >= _RESERVES_FROM else 0
    sides = own.get(_REQUIRED_THREADS) or own.get(_MAX_THREADS)
    return Resources(
        registers=shared.get(_REGISTERS, code.info >> 24),
        stack_bytes=stack,
        spill_bytes=_spill_bytes(code.data, own) if stack else 0,
        static_shared_bytes=max(0, size - reserved),
        # Before 13.0 the number of barriers is in the flags of the code's section.
        barriers=own[_BARRIERS][0] if _BARRIERS in own else code.flags >> 20 & 0x7F,
        max_threads=math.prod(_integers(sides)) if sides else None,
    )


def _spill_bytes(code: memoryview, own: _Attributes) -> int | None:
    if _ANNOTATIONS not in own:
        toolkit = _integers(own[_TOOLKIT])[0] if _TOOLKIT in own else 0
        return 0 if toolkit >= _MARKS_SPILLS else None
    marks = _integers(own[_ANNOTATIONS])
    pairs = zip(marks[::2], marks[1::2], strict=False)
    spills = (_INSTRUCTION.unpack_from(code, at) for kind, at in pairs if kind == _SPILL)
    return sum(_WIDTH_BYTES[high >> 9 & 7] for low, high in spills if low & 0xFFF == _STORE_LOCAL)


def _kernels(cubin: _Cubin) -> Iterator[tuple[int, str]]:
    for index, (name, other) in enumerate(cubin.symbols):
        if other & _KERNEL and f".text.{name}" in cubin.sections:
            yield index, name


def _of_functions(cubin: _Cubin, index: int) -> Iterator[tuple[int, int]]:
    """The attributes of one function in .nv.info, whose values are (symbol, number) pairs."""
    for number, value in _each_attribute(_section(cubin, ".nv.info").data):
        pair = _integers(value)
        if len(pair) == 2 and pair[0] == index:
            yield number, pair[1]


def _attributes(cubin: _Cubin, section: str) -> _Attributes:
    return dict(_each_attribute(_section(cubin, section).data))


def _each_attribute(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        value = data[at + 4 : at + 4 + size] if form == _SIZED else data[at + 2 : at + 4]
        at += 4 + (size if form == _SIZED else 0)
        yield number, value


def _integers(value: memoryview) -> tuple[int, ...]:
    return struct.unpack_from(f"<{len(value) // 4}I", value)


def _section(cubin: _Cubin, name: str) -> _Section:
    return cubin.sections.get(name, _ABSENT)


def _number(cubin: _Cubin) -> int:
    return cubin.flags >> 8 & 0xFF if cubin.abi >= 8 else cubin.flags & 0xFF


@lru_cache(maxsize=2)
def _read(raw: bytes) -> _Cubin:
    """Parse a file completely, so that a damaged one fails here and not later."""
    try:
        from elftools.common.exceptions import ELFError
    except ImportError:
        remedy = "install it: pip install 'traceview[ptx]'"
        raise ToolNotFoundError("reading a cubin needs pyelftools", remedy) from None
    try:
        from elftools.elf.elffile import ELFFile

        if not raw.startswith(b"\x7fELF"):
            what = f"not a cubin: it begins with {raw[:8]!r}, not with the ELF magic number"
            raise TraceFormatError(what, _MADE_BY)
        elf = ELFFile(io.BytesIO(raw))
        if elf["e_machine"] != "EM_CUDA":
            raise TraceFormatError(f"not a cubin but an ELF file for {elf['e_machine']}", _MADE_BY)
        if elf["e_phoff"] + elf["e_phnum"] * elf["e_phentsize"] > len(raw):
            raise ValueError("the file ends within its program headers")
        sections = dict(_sections(elf, memoryview(raw)))
        return _Cubin(elf["e_flags"], elf["e_ident"]["EI_ABIVERSION"], sections, _symbols(elf))
    except (ELFError, TypeError, *MALFORMED) as error:
        raise _damaged(error) from None


def _sections(elf: ELFFile, raw: memoryview) -> Iterator[tuple[str, _Section]]:
    for section in elf.iter_sections():
        size, flags, info = (int(section[key]) for key in ("sh_size", "sh_flags", "sh_info"))
        start, in_file = section["sh_offset"], section["sh_type"] not in _NOT_IN_FILE
        if size > _MOST_BYTES:
            raise ValueError(f"section {section.name[:60]!r} claims to have {size:,} bytes")
        if in_file and start + size > len(raw):
            raise ValueError(f"the file ends within section {section.name[:60]!r}")
        data = raw[start : start + size] if in_file else _ABSENT.data
        yield section.name, _Section(data, size, flags, info)


def _symbols(elf: ELFFile) -> tuple[tuple[str, int], ...]:
    from elftools.elf.sections import SymbolTableSection

    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return ()
    # pyelftools drops the bits of st_other that only NVIDIA uses: read the byte itself.
    raw, size = table.data(), table["sh_entsize"]
    names = (symbol.name for symbol in table.iter_symbols())
    return tuple((name, raw[size * at + _ST_OTHER]) for at, name in enumerate(names))


def _damaged(error: Exception) -> TraceFormatError:
    why = str(error).strip() or type(error).__name__
    return TraceFormatError(f"the cubin is damaged: {why[:200]}", "recompile it")


# GPU code that nvcc puts into objects, libraries, programs and .fatbin files.
#
# A fatbin is a header and entries, each PTX or a cubin for one architecture, most of them
# compressed. An ELF file of the host has fatbins in the section .nv_fatbin, and __nv_relfatbin
# before linking. NVIDIA does not document the format: the tests compare what is read with
# `cuobjdump`.

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
# kind, version, header size, size, compressed size, options, minor, major, architecture, the place
# and the length of a name, flags, 0, size once decompressed.
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS: dict[int, Literal["ptx", "cubin"]] = {1: "ptx", 2: "cubin"}
_LZ4, _ZSTD = 0x2000, 0x8000
_ALIGNED = 8
# A corrupt size must not fill the memory.
_MOST_CODE_BYTES = 1 << 30
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
        if self.size > _MOST_CODE_BYTES:
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
