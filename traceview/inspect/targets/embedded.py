"""Kernels embedded by nvcc: in .so, .o and .fatbin files and in programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        archs = sorted({entry.arch for entry in entries}, key=_number)
        if not archs:
            raise InputError(f"{path} holds no GPU code", _REMEDY)
        arch = options.arch.rstrip("af") if options.arch else DEFAULT_ARCH
        if arch not in archs:
            if options.arch:
                what = f"{path} has no code for {options.arch}"
                raise InputError(what, f"it has {', '.join(archs)}")
            arch = archs[-1]
        same = [entry for entry in entries if entry.arch == arch]
        kernels = _paired([k for entry in same for k in _kernels_of_entry(entry, path)])
    except (TraceFormatError, InputError) as error:
        if str(path) in error.what:
            raise
        raise type(error)(f"{path}: {error.what}", error.remedy) from None
    others = [other for other in archs if other != arch]
    also = f"; it has {', '.join(others)}, too (--arch)" if others else ""
    note(f"{path.name}: {units.counted(len(kernels), 'kernel')} for {arch}{also}")
    return [replace(kernel, num_warps=options.num_warps) for kernel in kernels]


def _kernels_of_entry(entry: FatbinEntry, path: Path) -> list[Compiled]:
    """The kernels of one PTX or cubin of a file. Raises TraceFormatError if it is damaged."""
    code = entry.code()
    return of_cubin(code, path) if entry.kind == "cubin" else _of_ptx(code.rstrip(b"\0"), path)


def of_cubin(cubin: bytes, path: Path) -> list[Compiled]:
    """The kernels of a cubin in a file. Raises TraceFormatError if it is damaged."""
    arch = cubin_file.arch_of(cubin)
    return [
        Compiled(name, arch, "given", None, cubin, source_file=str(path))
        for name in cubin_file.kernels(cubin)
    ]


def _of_ptx(raw: bytes, path: Path) -> list[Compiled]:
    text = ptx_text(raw)
    return [
        Compiled(kernel.name, arch_for(text), "given", text, source_file=str(path))
        for kernel in parse_ptx(text, str(path)).kernels()
    ]


def _paired(kernels: Sequence[Compiled]) -> list[Compiled]:
    """The kernels, with the PTX and the cubin of the same kernel and architecture joined."""
    ptx = {(k.name, k.arch): k.ptx for k in kernels if k.ptx}
    cubins = [replace(k, ptx=ptx.get((k.name, k.arch))) for k in kernels if k.cubin]
    both = {(k.name, k.arch) for k in cubins}
    return cubins + [k for k in kernels if not k.cubin and (k.name, k.arch) not in both]


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


# Kernels in the user's files: cubins, PTX, and the files that nvcc embeds these in.

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
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        machine = int.from_bytes(raw[_MACHINE_AT : _MACHINE_AT + 2], "little")
        remedy = "name a cubin, or what nvcc made"
        try:
            if path.suffix == ".ptx":
                kernels = _of_ptx(raw, path)
            elif raw.startswith(_ELF) and machine == _CUDA:
                kernels = of_cubin(raw, path)
            else:
                # What nvcc embedded in a host file: the cubins, or the PTX if there are none.
                entries = fatbin.entries(path) if fatbin.has_fatbin(path) else []
                if not entries:
                    raise InputError(f"{path} holds no GPU code", remedy)
                cubins = [entry for entry in entries if entry.kind == "cubin"]
                kernels = [k for e in cubins or entries for k in _kernels_of_entry(e, path)]

        except TraceFormatError as error:
            raise TraceFormatError(f"{path}: {error.what}", error.remedy) from None
        if not kernels:
            raise InputError(f"{path} holds no kernel", remedy)
        compiled += kernels
    return _paired(compiled)
