"""From CUDA C++ to PTX and a cubin, through nvcc or else NVRTC, whichever is here."""

from __future__ import annotations

import re
from pathlib import Path

from traceview.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.toolchain import nvrtc, tools
from traceview.toolchain.ptxas import assemble

_AN_ERROR = re.compile(
    r"^(?P<place>.*?\(\d+\)|nvrtc): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
_GCC_ERROR = re.compile(r"^(?P<place>.*?:\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")


def compile_cuda(path: Path, arch: str = "sm_90") -> tuple[str, bytes]:
    """The PTX and the cubin of a CUDA C++ file for a GPU, with line information.

    nvcc compiles whole programs; NVRTC, where there is no nvcc, device code alone. Raises
    InputError if the file cannot be read, ToolNotFoundError if neither compiler is here, and
    TraceviewError with the compiler's first error.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    nvcc = _nvcc()
    return _with_nvcc(path, arch, nvcc) if nvcc else _with_nvrtc(path, source, arch)


def _nvcc() -> Path | None:
    try:
        return tools.find("nvcc")[0]
    except ToolNotFoundError:
        return None


def _with_nvcc(path: Path, arch: str, nvcc: Path) -> tuple[str, bytes]:
    flags = ("-ptx", "-lineinfo", f"-arch={arch}", "-x", "cu", path.absolute(), "-o")
    ran = tools.run(nvcc, lambda _, target: (*flags, target), None)
    if ran.status != 0 or ran.written is None:
        raise TraceviewError(
            f"nvcc does not compile {path}: {_first_error(ran.err, path) or ran.evidence}"
        )
    ptx = ran.written.decode("utf-8", "surrogateescape")
    # Its own ptxas, where it has one, is what a user of this nvcc gets.
    own = nvcc.with_name("ptxas")
    return ptx, assemble(ptx, arch, ptxas=own if own.is_file() else None).cubin


def _with_nvrtc(path: Path, source: bytes, arch: str) -> tuple[str, bytes]:
    library = nvrtc.find()
    if library is None:
        what = "compiling CUDA C++ needs nvcc or NVRTC, and neither is on this machine"
        raise ToolNotFoundError(what, tools.GET_IT["nvcc"])
    done = nvrtc.compile_to_ptx(library, source, path.absolute(), arch)
    if done.ptx is None:
        raise TraceviewError(
            f"NVRTC does not compile {path}: {_first_error(done.log, path) or done.status}"
        )
    return done.ptx, assemble(done.ptx, arch).cubin


def _first_error(said: str, path: Path) -> str | None:
    """The first error of a compiler with its place, on one line, or None."""
    for line in said.replace(str(path.absolute()), path.name).splitlines():
        found = _AN_ERROR.match(line) or _GCC_ERROR.match(line)
        if found:
            return f"{found['place']}: {found['text'].strip()[:300]}"
    return None
