"""Kernels of files that the user gives: cubins, PTX, and what nvcc put them into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from traceview.errors import InputError, TraceFormatError, TraceviewError
from traceview.ptx.model import Compiled
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import cubin as cubin_file
from traceview.toolchain import tools
from traceview.toolchain.ptxas import arch_for

_ELF = b"\x7fELF"
# e_machine of an ELF file, and what it is in a cubin.
_MACHINE_AT, _CUDA = 18, 190


def binary_kernels(paths: Sequence[str | Path]) -> list[Compiled]:
    """The kernels of .cubin and .ptx files, and of extension modules, programs and fatbins.

    Raises InputError if a file cannot be read or holds no kernel, ToolNotFoundError where
    cuobjdump is needed and missing, TraceFormatError for a damaged cubin, and PtxSyntaxError.
    """
    found: list[Compiled] = []
    for path in map(Path, paths):
        kernels = list(_kernels(path))
        if not kernels:
            raise InputError(f"{path} holds no kernel", "name a cubin, or what nvcc made")
        found += kernels
    return _paired(found)


def _paired(kernels: Sequence[Compiled]) -> list[Compiled]:
    """The kernels, with PTX and cubin of one together where two files have them."""
    ptx = {(k.name, k.arch): k.ptx for k in kernels if k.ptx}
    cubins = [replace(k, ptx=ptx.get((k.name, k.arch))) for k in kernels if k.cubin]
    both = {(k.name, k.arch) for k in cubins}
    return cubins + [k for k in kernels if not k.cubin and (k.name, k.arch) not in both]


def _kernels(path: Path) -> Iterator[Compiled]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    if path.suffix == ".ptx":
        yield from _of_ptx(path, raw.decode("utf-8", "surrogateescape"))
        return
    for cubin in [raw] if _is_cubin(raw) else _inside(path):
        yield from _of_cubin(path, cubin)


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


def _inside(path: Path) -> list[bytes]:
    """The cubins that nvcc put into a file of the host. Raises TraceviewError if there is none."""
    result, cubins = tools.run_for_files(
        tools.find_newest("cuobjdump")[0], ("-xelf", "all", path.absolute()), ".cubin"
    )
    if cubins:
        return cubins
    if not result.ok or "does not contain device code" in result.text:
        raise InputError(f"cuobjdump finds no GPU code in {path}: {result.evidence}")
    raise TraceviewError(
        f"{path} holds no cubin, only PTX if anything", "compile it for the GPU: nvcc -arch=sm_90"
    )
