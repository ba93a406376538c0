"""NVRTC, NVIDIA's runtime compiler library, which every CUDA build of torch includes."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from traceview.errors import ToolNotFoundError
from traceview.records import record
from traceview.toolchain.tools import TOOLKITS

# Below a folder of sys.path: NVIDIA's wheels for CUDA 12 and for CUDA 13, then torch.
_IN_WHEELS = ("nvidia/cuda_nvrtc/lib", "nvidia/cu1*/lib", "torch/lib")
_IN_TOOLKITS = ("cuda*/lib64", "cuda*/targets/*/lib")
_LIBRARY = "libnvrtc.so*"
# Folders of CUDA headers, relative to the folder of the library.
_HEADERS = ("../include", "../../cuda_runtime/include", "../../include")


@record
class NvrtcCompilation:
    """PTX, or None with the compiler's log and the meaning of its status code."""

    ptx: str | None
    log: str
    status: str


def find() -> Path | None:
    """The newest libnvrtc in the first folder that has one; None without any."""
    return next(_candidates(), None)


def compile_to_ptx(library: Path, source: bytes, path: Path, arch: str) -> NvrtcCompilation:
    """Compile device code; errors and line information refer to it as `path`.

    Raises ToolNotFoundError if the library cannot be loaded.
    """
    nvrtc = _load(library)
    program = ctypes.c_void_p()
    name = str(path).encode("utf-8", "surrogateescape")
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
    if status:
        return NvrtcCompilation(None, "", _error_string(nvrtc, status))
    try:
        options = [option.encode() for option in _options(library, path, arch)]
        array = (ctypes.c_char_p * len(options))(*options)
        status = nvrtc.nvrtcCompileProgram(program, len(options), array)
        ptx = None if status else _text(nvrtc, "PTX", program)
        return NvrtcCompilation(
            ptx, _text(nvrtc, "ProgramLog", program), _error_string(nvrtc, status)
        )
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _options(library: Path, path: Path, arch: str) -> Iterator[str]:
    yield f"--gpu-architecture={re.sub('^sm_', 'compute_', arch)}"
    yield "--generate-line-info"
    folders = (library.parent / headers for headers in _HEADERS)
    yield from (f"--include-path={folder}" for folder in (path.parent, *folders) if folder.is_dir())


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    """The `PTX` or `ProgramLog` of a program, through NVRTC's pair of calls for size and bytes."""
    size = ctypes.c_size_t()
    if nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size)):
        return ""
    buffer = ctypes.create_string_buffer(size.value)
    nvrtc[f"nvrtcGet{what}"](program, buffer)
    return buffer.value.decode("utf-8", "replace")


def _error_string(nvrtc: ctypes.CDLL, status: int) -> str:
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return str(nvrtc.nvrtcGetErrorString(status).decode())


def _load(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ToolNotFoundError(
            f"{library} cannot be loaded: {error}", "install it again"
        ) from None


def _candidates() -> Iterator[Path]:
    folders = [(Path(folder), pattern) for folder in sys.path for pattern in _IN_WHEELS]
    folders += [(TOOLKITS, pattern) for pattern in _IN_TOOLKITS]
    for folder, pattern in folders:
        libraries = folder.glob(f"{pattern}/{_LIBRARY}")
        # The variants named .alt. are for other hosts.
        yield from sorted((p for p in libraries if ".alt." not in p.name), reverse=True)
