"""NVRTC, NVIDIA's compiler as a library: it comes with every CUDA build of torch."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traceview.errors import ToolNotFoundError
from traceview.toolchain.tools import TOOLKITS

# Below a folder of sys.path: NVIDIA's wheels and torch; the first is CUDA 12's, the next 13's.
_IN_WHEELS = ("nvidia/cuda_nvrtc/lib", "nvidia/cu1*/lib", "torch/lib")
_IN_TOOLKITS = ("cuda*/lib64", "cuda*/targets/*/lib")
_LIBRARY = "libnvrtc.so*"
# From the folder of the library: where the headers are that programs include.
_HEADERS = ("../include", "../../cuda_runtime/include", "../../include")


@dataclass(frozen=True)
class Done:
    """What came of it: PTX, or None and why."""

    ptx: str | None
    log: str
    status: str


def find() -> Path | None:
    """The NVRTC of this machine: the newest in the first place that has any; None without one."""
    return next(_places(), None)


def compile_to_ptx(library: Path, source: bytes, path: Path, arch: str) -> Done:
    """Compile device code; `path` is what errors and line information call it.

    Raises ToolNotFoundError if the library cannot be loaded.
    """
    nvrtc = _load(library)
    program = ctypes.c_void_p()
    name = str(path).encode("utf-8", "surrogateescape")
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
    if status:
        return Done(None, "", _meaning(nvrtc, status))
    try:
        options = [option.encode() for option in _options(library, path, arch)]
        array = (ctypes.c_char_p * len(options))(*options)
        status = nvrtc.nvrtcCompileProgram(program, len(options), array)
        ptx = None if status else _text(nvrtc, "PTX", program)
        return Done(ptx, _text(nvrtc, "ProgramLog", program), _meaning(nvrtc, status))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _options(library: Path, path: Path, arch: str) -> Iterator[str]:
    yield f"--gpu-architecture={re.sub('^sm_', 'compute_', arch)}"
    yield "--generate-line-info"
    folders = (library.parent / headers for headers in _HEADERS)
    yield from (f"--include-path={folder}" for folder in (path.parent, *folders) if folder.is_dir())


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    """PTX or ProgramLog of a program: each has a call for its size and one for its bytes."""
    size = ctypes.c_size_t()
    if nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size)):
        return ""
    buffer = ctypes.create_string_buffer(size.value)
    nvrtc[f"nvrtcGet{what}"](program, buffer)
    return buffer.value.decode("utf-8", "replace")


def _meaning(nvrtc: ctypes.CDLL, status: int) -> str:
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return str(nvrtc.nvrtcGetErrorString(status).decode())


def _load(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ToolNotFoundError(f"{library} cannot be loaded: {error}") from None


def _places() -> Iterator[Path]:
    folders = [(Path(folder), pattern) for folder in sys.path for pattern in _IN_WHEELS]
    folders += [(TOOLKITS, pattern) for pattern in _IN_TOOLKITS]
    for folder, pattern in folders:
        found = folder.glob(f"{pattern}/{_LIBRARY}")
        # The variants named .alt. are for other hosts.
        yield from sorted((p for p in found if ".alt." not in p.name), reverse=True)
