"""Compile CUDA C++ to PTX and a cubin with nvcc, or with NVRTC where nvcc is missing."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from traceview.base.errors import ToolNotFoundError, TraceviewError, unreadable
from traceview.base.records import record
from traceview.kernels.ptx.model import ptx_text
from traceview.kernels.toolchain import listings, tools
from traceview.kernels.toolchain.tools import TOOLKITS

# NVRTC, NVIDIA's runtime compiler library, which every CUDA build of torch includes.

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
    try:
        nvrtc = ctypes.CDLL(str(library))
    except OSError as error:
        what = f"{library} cannot be loaded: {error}"
        raise ToolNotFoundError(what, "install it again") from None
    program = ctypes.c_void_p()
    name = str(path).encode("utf-8", "surrogateescape")
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
    if status:
        return NvrtcCompilation(None, "", _error_string(nvrtc, status))
    try:
        folders = (path.parent, *(library.parent / headers for headers in _HEADERS))
        flags = [f"--gpu-architecture={re.sub('^sm_', 'compute_', arch)}", "--generate-line-info"]
        flags += [f"--include-path={folder}" for folder in folders if folder.is_dir()]
        options = [flag.encode() for flag in flags]
        array = (ctypes.c_char_p * len(options))(*options)
        status = nvrtc.nvrtcCompileProgram(program, len(options), array)
        ptx = None if status else _text(nvrtc, "PTX", program)
        return NvrtcCompilation(
            ptx, _text(nvrtc, "ProgramLog", program), _error_string(nvrtc, status)
        )
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


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


def _candidates() -> Iterator[Path]:
    folders = [(Path(folder), pattern) for folder in sys.path for pattern in _IN_WHEELS]
    folders += [(TOOLKITS, pattern) for pattern in _IN_TOOLKITS]
    for folder, pattern in folders:
        libraries = folder.glob(f"{pattern}/{_LIBRARY}")
        # The variants named .alt. are for other hosts.
        yield from sorted((p for p in libraries if ".alt." not in p.name), reverse=True)


_NVIDIA_ERROR = re.compile(
    r"^(?P<place>.*?\(\d+\)|nvrtc): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
_GCC_ERROR = re.compile(r"^(?P<place>.*?:\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")


def compile_cuda(path: Path, arch: str = "sm_90") -> tuple[str, bytes]:
    """Compile a CUDA C++ file to PTX and a cubin for `arch`, with line information.

    nvcc compiles whole programs, NVRTC (used only without nvcc) device code alone. Raises
    InputError if the file cannot be read, ToolNotFoundError without either compiler, and
    TraceviewError with the compiler's first error.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        nvcc = tools.find("nvcc")[0]
    except ToolNotFoundError:
        return _with_nvrtc(path, source, arch)
    return _with_nvcc(path, arch, nvcc)


def _with_nvcc(path: Path, arch: str, nvcc: Path) -> tuple[str, bytes]:
    flags = ("-ptx", "-lineinfo", f"-arch={arch}", "-x", "cu", path.absolute(), "-o")
    result = tools.run(nvcc, lambda _, target: (*flags, target), None)
    if not result.ok or result.written is None:
        error = _first_error(result.err, path) or result.evidence
        raise TraceviewError(f"nvcc does not compile {path}: {error}")
    ptx = ptx_text(result.written)
    # The ptxas beside this nvcc, if any, makes the code that its user gets.
    beside = nvcc.with_name("ptxas")
    return ptx, listings.assemble(ptx, arch, ptxas=beside if beside.is_file() else None).cubin


def _with_nvrtc(path: Path, source: bytes, arch: str) -> tuple[str, bytes]:
    library = find()
    if library is None:
        what = "compiling CUDA C++ needs nvcc or NVRTC, and neither was found on this machine"
        raise ToolNotFoundError(what, tools.HOW_TO_INSTALL["nvcc"])
    compilation = compile_to_ptx(library, source, path.absolute(), arch)
    if compilation.ptx is None:
        error = _first_error(compilation.log, path) or compilation.status
        raise TraceviewError(f"NVRTC does not compile {path}: {error}")
    return compilation.ptx, listings.assemble(compilation.ptx, arch).cubin


def _first_error(log: str, path: Path) -> str | None:
    """The first error in a compiler's log with its file and line, on one line."""
    for line in log.replace(str(path.absolute()), path.name).splitlines():
        error = _NVIDIA_ERROR.match(line) or _GCC_ERROR.match(line)
        if error:
            return f"{error['place']}: {error['text'].strip()[:300]}"
    return None


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def parameter_names(source: str, kernel: str) -> tuple[str, ...]:
    """The names of a kernel's parameters as CUDA C++ source declares them; none if not found."""
    text = _COMMENT.sub("", source)
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(([^)]*)\)", text)
    declared = [part.partition("=")[0] for part in found[1].split(",")] if found else []
    words = [re.findall(r"[A-Za-z_]\w*", part.partition("[")[0]) for part in declared]
    return tuple(each[-1] for each in words if each)
