"""System requirements of a compiled library, read from its ELF or Mach-O file."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from packages.platforms import DARWIN, Platform

EXPORTS = ("traceview_interface", "traceview_count_rows", "traceview_decode")
ELF_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
# mach-o/loader.h and mach/machine.h of Apple's SDK.
ELF, MACH_O_64 = b"\x7fELF", b"\xcf\xfa\xed\xfe"
MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
LOAD_DYLIB, CODE_SIGNATURE, VERSION_MIN, BUILD_VERSION = 0xC, 0x1D, 0x24, 0x32


def library_problems(library: bytes, platform: Platform) -> Iterator[str]:
    """Reasons why a library cannot be loaded on every machine of a platform."""
    magic, read = (MACH_O_64, _mach_o_needs) if platform.libc == DARWIN else (ELF, _elf_needs)
    if not library.startswith(magic):
        yield "is not a library of this system"
        return
    machine, libraries, newest = read(io.BytesIO(library))
    if machine != platform.machine:
        yield f"compiled for {machine}"
    if libraries != {platform.libc}:
        yield f"needs {', '.join(sorted(libraries))}"
    most = platform.newest_glibc or _version(platform.tag.split("_")[1:3])
    if newest > most:
        yield f"needs version {'.'.join(map(str, newest))}"
    yield from (f"does not export {name}" for name in EXPORTS if name.encode() not in library)


def _elf_needs(file: BinaryIO) -> tuple[str, set[str], tuple[int, ...]]:
    """The machine, the libraries, and the newest version of a symbol of glibc."""
    elf = ELFFile(file)
    libraries, newest = set(), ()
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            libraries |= {tag.needed for tag in section.iter_tags("DT_NEEDED")}
        if isinstance(section, GNUVerNeedSection):
            names = [need.name for _, needs in section.iter_versions() for need in needs]
            newest = max(_version(name.removeprefix("GLIBC_").split(".")) for name in names)
    return ELF_MACHINES.get(elf["e_machine"], elf["e_machine"]), libraries, newest


def _mach_o_needs(file: BinaryIO) -> tuple[str, set[str], tuple[int, ...]]:
    """The machine, the libraries, and the oldest macOS that loads it."""
    _, machine, _, _, commands, _, _, _ = struct.unpack("<8I", file.read(32))
    libraries, oldest, signed = set(), (), False
    for _ in range(commands):
        start = file.tell()
        kind, size = struct.unpack("<2I", file.read(8))
        body = file.read(size - 8)
        if kind == LOAD_DYLIB:
            (at,) = struct.unpack_from("<I", body)
            libraries.add(body[at - 8 :].rstrip(b"\0").decode())
        if kind in (VERSION_MIN, BUILD_VERSION):
            (packed,) = struct.unpack_from("<I", body, 0 if kind == VERSION_MIN else 4)
            oldest = (packed >> 16, packed >> 8 & 0xFF)
        signed |= kind == CODE_SIGNATURE
        file.seek(start + size)
    name = MACH_O_MACHINES[machine]
    if name == "aarch64" and not signed:
        # Macs with Apple's processors load nothing unsigned.
        libraries.add("a signature")
    return name, libraries, oldest


def _version(numbers: list[str]) -> tuple[int, ...]:
    return tuple(map(int, numbers))
