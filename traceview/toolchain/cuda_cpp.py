"""Compile CUDA C++ to PTX and a cubin with nvcc, or with NVRTC where nvcc is missing."""

from __future__ import annotations

import re
from pathlib import Path

from traceview.errors import ToolNotFoundError, TraceviewError, unreadable
from traceview.ptx.model import ptx_text
from traceview.toolchain import nvrtc, tools
from traceview.toolchain.ptxas import assemble

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
    nvcc = _find_nvcc()
    return _with_nvcc(path, arch, nvcc) if nvcc else _with_nvrtc(path, source, arch)


def _find_nvcc() -> Path | None:
    try:
        return tools.find("nvcc")[0]
    except ToolNotFoundError:
        return None


def _with_nvcc(path: Path, arch: str, nvcc: Path) -> tuple[str, bytes]:
    flags = ("-ptx", "-lineinfo", f"-arch={arch}", "-x", "cu", path.absolute(), "-o")
    result = tools.run(nvcc, lambda _, target: (*flags, target), None)
    if not result.ok or result.written is None:
        error = _first_error(result.err, path) or result.evidence
        raise TraceviewError(f"nvcc does not compile {path}: {error}")
    ptx = ptx_text(result.written)
    # The ptxas beside this nvcc, if any, makes the code that its user gets.
    beside = nvcc.with_name("ptxas")
    return ptx, assemble(ptx, arch, ptxas=beside if beside.is_file() else None).cubin


def _with_nvrtc(path: Path, source: bytes, arch: str) -> tuple[str, bytes]:
    library = nvrtc.find()
    if library is None:
        what = "compiling CUDA C++ needs nvcc or NVRTC, and neither was found on this machine"
        raise ToolNotFoundError(what, tools.HOW_TO_INSTALL["nvcc"])
    compilation = nvrtc.compile_to_ptx(library, source, path.absolute(), arch)
    if compilation.ptx is None:
        error = _first_error(compilation.log, path) or compilation.status
        raise TraceviewError(f"NVRTC does not compile {path}: {error}")
    return compilation.ptx, assemble(compilation.ptx, arch).cubin


def _first_error(log: str, path: Path) -> str | None:
    """The first error in a compiler's log with its file and line, on one line."""
    for line in log.replace(str(path.absolute()), path.name).splitlines():
        error = _NVIDIA_ERROR.match(line) or _GCC_ERROR.match(line)
        if error:
            return f"{error['place']}: {error['text'].strip()[:300]}"
    return None
