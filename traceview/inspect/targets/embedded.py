"""Kernels in the user's files: cubins, PTX, and those that nvcc embeds in other files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from traceview import units
from traceview.errors import InputError, TraceFormatError, unreadable
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.targets.python import DEFAULT_ARCH
from traceview.ptx.model import Compiled, ptx_text
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import cubin as cubin_file
from traceview.ptx.sass import fatbin
from traceview.ptx.sass.fatbin import FatbinEntry
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


_REMEDY = "compile it with CUDA kernels for the GPU: nvcc -arch=sm_90"


def embedded_kernels(
    path: Path, options: CompileOptions, note: Callable[[str], None] = lambda _: None
) -> list[Compiled]:
    """The kernels in a file for one architecture: `options.arch`, else sm_90, else the newest.

    Cubins come with the PTX that is stored for the same architecture. Raises InputError if the file
    has no kernel or none for the architecture, and what `fatbin.entries` raises.
    """
    try:
        entries = fatbin.entries(path)
        arch = _chosen(path, entries, options.arch)
        same = [entry for entry in entries if entry.arch == arch]
        kernels = paired_code([k for entry in same for k in kernels_of_entry(entry, path)])
    except (TraceFormatError, InputError) as error:
        if str(path) in error.what:
            raise
        raise type(error)(f"{path}: {error.what}", error.remedy) from None
    others = sorted({entry.arch for entry in entries} - {arch}, key=_number)
    also = f"; it has {', '.join(others)}, too (--arch)" if others else ""
    note(f"{path.name}: {units.counted(len(kernels), 'kernel')} for {arch}{also}")
    return [replace(kernel, num_warps=options.num_warps) for kernel in kernels]


def kernels_of_entry(entry: FatbinEntry, path: Path) -> Iterator[Compiled]:
    """The kernels of one PTX or cubin of a file. Raises TraceFormatError if it is damaged."""
    code = entry.code()
    if entry.kind == "cubin":
        arch = cubin_file.arch_of(code)
        for name in cubin_file.kernels(code):
            yield Compiled(name, arch, "given", None, code, source_file=str(path))
        return
    text = ptx_text(code.rstrip(b"\0"))
    for kernel in parse_ptx(text, str(path)).kernels():
        yield Compiled(kernel.name, arch_for(text), "given", text, source_file=str(path))


def paired_code(kernels: Sequence[Compiled]) -> list[Compiled]:
    """The kernels, with the PTX and the cubin of the same kernel and architecture joined."""
    ptx = {(k.name, k.arch): k.ptx for k in kernels if k.ptx}
    cubins = [replace(k, ptx=ptx.get((k.name, k.arch))) for k in kernels if k.cubin]
    both = {(k.name, k.arch) for k in cubins}
    return cubins + [k for k in kernels if not k.cubin and (k.name, k.arch) not in both]


def _chosen(path: Path, entries: Sequence[FatbinEntry], wanted: str | None) -> str:
    archs = sorted({entry.arch for entry in entries}, key=_number)
    if not archs:
        raise InputError(f"{path} holds no GPU code", _REMEDY)
    plain = wanted.rstrip("af") if wanted else DEFAULT_ARCH
    if plain in archs:
        return plain
    if wanted:
        raise InputError(f"{path} has no code for {wanted}", f"it has {', '.join(archs)}")
    return archs[-1]


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))
