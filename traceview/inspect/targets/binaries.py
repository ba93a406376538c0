"""Kernels in the user's files: cubins, PTX, and the files that nvcc embeds these in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from traceview.errors import InputError, TraceFormatError, unreadable
from traceview.inspect.targets.embedded import kernels_of_entry, paired_code
from traceview.ptx.model import Compiled, ptx_text
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import cubin as cubin_file
from traceview.ptx.sass import fatbin
from traceview.toolchain.ptxas import arch_for

_ELF = b"\x7fELF"
# e_machine of an ELF file, and what it is in a cubin.
_MACHINE_AT, _CUDA = 18, 190


def binary_kernels(paths: Sequence[str | Path]) -> list[Compiled]:
    """The kernels of .cubin and .ptx files, and of extension modules, programs and fatbins.

    Raises InputError if a file cannot be read or holds no kernel, ToolNotFoundError without
    pyelftools, TraceFormatError for damaged code, and PtxSyntaxError.
    """
    compiled: list[Compiled] = []
    for path in map(Path, paths):
        kernels = list(_kernels(path))
        if not kernels:
            raise InputError(f"{path} holds no kernel", "name a cubin, or what nvcc made")
        compiled += kernels
    return paired_code(compiled)


def _kernels(path: Path) -> Iterator[Compiled]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if path.suffix == ".ptx":
        yield from _of_ptx(path, ptx_text(raw))
        return
    if _is_cubin(raw):
        yield from _of_cubin(path, raw)
    else:
        yield from _inside(path)


def _is_cubin(raw: bytes) -> bool:
    machine = int.from_bytes(raw[_MACHINE_AT : _MACHINE_AT + 2], "little")
    return raw.startswith(_ELF) and machine == _CUDA


def _of_ptx(path: Path, text: str) -> Iterator[Compiled]:
    arch = arch_for(text)
    for kernel in parse_ptx(text, str(path)).kernels():
        yield Compiled(kernel.name, arch, "given", text, source_file=str(path))


def _of_cubin(path: Path, cubin: bytes) -> Iterator[Compiled]:
    try:
        arch, names = cubin_file.arch_of(cubin), cubin_file.kernels(cubin)
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error.what}", error.remedy) from None
    for name in names:
        yield Compiled(name, arch, "given", None, cubin, source_file=str(path))


def _inside(path: Path) -> Iterator[Compiled]:
    """The kernels that nvcc embedded in a host file: the cubins, or the PTX if there are none."""
    try:
        entries = fatbin.entries(path) if fatbin.has_fatbin(path) else []
        cubins = [entry for entry in entries if entry.kind == "cubin"]
        for entry in cubins or entries:
            yield from kernels_of_entry(entry, path)
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error.what}", error.remedy) from None
    if not entries:
        raise InputError(f"{path} holds no GPU code", "name a cubin, or what nvcc made")
