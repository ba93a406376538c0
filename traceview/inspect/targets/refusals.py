"""Refusals of targets that hold no kernel to inspect, each in one line that names what to pass."""

from __future__ import annotations

import re
from pathlib import Path

from traceview.errors import InputError

# Refuse code for AMD GPUs, with a one-line error.

_REMEDY = "traceview ptx reads code for NVIDIA GPUs"
_ELF = b"\x7fELF"
# e_machine of an ELF file: EM_AMDGPU.
_MACHINE_AT, _AMDGPU = 18, 224
_BUNDLES = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")
_ARCH = re.compile(r"\bgfx[0-9a-f]{3,4}\b")
_ASSEMBLY = re.compile(rb"^\s*\.amdgcn_target\b|^\s*\.amdhsa_", re.MULTILINE)
_SUFFIXES = (".hsaco", ".amdgcn", ".hip")
_READ_BYTES = 1 << 16


def refuse_amd_arch(arch: str) -> None:
    """Raise InputError for an architecture of AMD's, such as gfx942 or hip:gfx942."""
    if _ARCH.search(arch) or arch.partition(":")[0] == "hip":
        raise InputError(f"{arch[:40]} is an AMD GPU", f"{_REMEDY}; pass, for example, sm_90")


def refuse_amd_code(path: Path) -> None:
    """Raise InputError if a file is code for AMD GPUs: a code object, a bundle or assembly."""
    try:
        with path.open("rb") as file:
            start = file.read(_READ_BYTES)
    except OSError:
        # The error is reported where the file is read.
        return
    if path.suffix in _SUFFIXES or is_amd(start):
        named = _ARCH.search(start.decode("latin-1"))
        which = f" ({named[0]})" if named else ""
        raise InputError(f"{path} is code for AMD GPUs{which}", _REMEDY)


def is_amd(start: bytes) -> bool:
    """Whether bytes are the start of AMD's code."""
    machine = int.from_bytes(start[_MACHINE_AT : _MACHINE_AT + 2], "little")
    is_object = start.startswith(_ELF) and machine == _AMDGPU
    return is_object or start.startswith(_BUNDLES) or bool(_ASSEMBLY.search(start))


def refuse_amd_cache(folder: Path) -> None:
    """Raise InputError if a Triton cache holds kernels for AMD GPUs."""
    binary = next(folder.rglob("*.hsaco"), None) or next(folder.rglob("*.amdgcn"), None)
    if binary:
        raise InputError(f"{folder} holds kernels for AMD GPUs ({binary.name})", _REMEDY)


# Refuse debug folders and logs of torch.compile, naming the file to pass instead.

_WRITTEN_TO = re.compile(rb"\[__output_code\].* Output code written to: (\S+\.py)")
_MOST_BYTES = 1 << 24


def refuse_debug_folder(folder: Path) -> None:
    """Raise InputError if a folder holds generated graphs, as that of TORCH_COMPILE_DEBUG does."""
    graph = min(folder.rglob("output_code.py"), default=None)
    if graph:
        what = f"{folder} holds no compiled kernel, but graphs that torch.compile has generated"
        raise InputError(what, f"pass one, such as {graph}")


def refuse_log(path: Path) -> None:
    """Raise InputError if a file is what TORCH_LOGS=output_code prints."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        named = _WRITTEN_TO.search(stream.read(_MOST_BYTES))
    if named:
        what = f"{path} is a log of torch.compile"
        raise InputError(what, f"pass the file that it names: {named[1].decode(errors='replace')}")
