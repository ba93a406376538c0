"""Compile CUDA C++ to PTX and a cubin with nvcc, or with NVRTC where nvcc is missing."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path

from traceview.base.errors import TimeUpError, ToolNotFoundError, TraceviewError, unreadable
from traceview.base.records import record
from traceview.base.stages import stage
from traceview.kernels.ptx.model import ptx_text
from traceview.kernels.toolchain import listings, tools
from traceview.kernels.toolchain.device_code import (
    GCC_ERROR,
    NO_HEADER,
    NVIDIA_ERROR,
    folder_of,
    with_one_kernel,
    without_host_code,
)
from traceview.kernels.toolchain.tools import TOOLKITS

# NVRTC, NVIDIA's runtime compiler library, which every CUDA build of torch includes.

# Below a folder of sys.path: NVIDIA's wheels for CUDA 12 and for CUDA 13, then torch.
_IN_WHEELS = ("nvidia/cuda_nvrtc/lib", "nvidia/cu1*/lib", "torch/lib")
_IN_TOOLKITS = ("cuda*/lib64", "cuda*/targets/*/lib")
_LIBRARY = "libnvrtc.so*"
# Folders of headers, below a folder of sys.path: of NVIDIA's wheels, of PyTorch, of other wheels.
_HEADERS = (
    "nvidia/*/include", "nvidia/*/include/cccl", "torch/include",
    "torch/include/torch/csrc/api/include", "*/include", "*/source/include",
)  # fmt: skip


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
        # In a toolkit, and in a wheel for CUDA 13, headers are beside the library.
        beside = library.parent.parent / "include"
        wheels = (folder for pattern in _HEADERS[:2] for folder in _in_wheels(pattern))
        folders = (path.parent, beside, beside / "cccl", *wheels)
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


def _in_wheels(pattern: str) -> Iterator[Path]:
    """What the installed packages have, in the order of sys.path."""
    return (found for folder in sys.path for found in sorted(Path(folder).glob(pattern)))


def _candidates() -> Iterator[Path]:
    folders = [(Path(folder), pattern) for folder in sys.path for pattern in _IN_WHEELS]
    folders += [(TOOLKITS, pattern) for pattern in _IN_TOOLKITS]
    for folder, pattern in folders:
        libraries = folder.glob(f"{pattern}/{_LIBRARY}")
        # The variants named .alt. are for other hosts.
        yield from sorted((p for p in libraries if ".alt." not in p.name), reverse=True)


def compile_cuda(
    path: Path,
    arch: str = "sm_90",
    note: Callable[[str], None] = lambda _: None,
    kernel: str = "",
) -> tuple[str, bytes]:
    """Compile a CUDA C++ file to PTX and a cubin for `arch`, with line information.

    nvcc compiles whole programs, without host code that does not compile, which `note` names, and
    without kernels other than `kernel` where that takes long; NVRTC (used only without nvcc)
    compiles device code alone. Raises
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
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        return _with_nvcc(path, arch, nvcc, Path(folder), note, kernel)


# What kernels use of PyTorch's largest headers, which compile in a third of the time: no modules,
# no optimizers, no Python. A module's functions are still named, so that their kernels exist.
_LIGHT = """#pragma once
#include <torch/types.h>
#include <string>
#ifndef PYBIND11_MODULE
struct traceview_module {
  template <class... A> traceview_module& def(const char*, A&&...) { return *this; }
  std::string& doc() { static std::string text; return text; }
};
#define PYBIND11_MODULE(name, m) extern "C" void traceview_bindings(traceview_module& m)
#endif
"""


def _light_headers(folder: Path) -> Path:
    (folder / "torch").mkdir()
    for name in ("extension", "torch", "all"):
        (folder / "torch" / f"{name}.h").write_text(_LIGHT, "utf-8")
    return folder


def _with_nvcc(
    path: Path, arch: str, nvcc: Path, folder: Path, note: Callable[[str], None], kernel: str
) -> tuple[str, bytes]:
    """Compile with nvcc, with the folders and macros that its errors show to be missing.

    What still has errors is host code that kernels may do without. Code that calls functions of
    other files is assembled without them, as for a linker.
    """

    def run(flags: Sequence[str]) -> tools.ProcessResult:
        return _run_nvcc(nvcc, flags)

    light = f"-I{_light_headers(folder)}"
    flags = ["-ptx", "-lineinfo", f"-arch={arch}", *_LENIENT, "-x", "cu", str(path.absolute())]
    flags.append(light)
    try:
        result = _run_nvcc(nvcc, flags, _MOST_OF_ALL_S if kernel else tools.COMPILE_TIMEOUT_S)
    except TimeUpError:
        if not kernel:
            raise
        note(f"other kernels of {path.name} are left out: nvcc takes long to compile all")
        one = with_one_kernel(path.absolute(), kernel, folder)
        flags[flags.index(str(path.absolute()))] = str(one)
        flags.append(folder_of(path.absolute()))
        result = _run_nvcc(nvcc, flags)
    while not result.ok or result.written is None:
        error = _first_error(result.err, path) or result.evidence
        more = [flag for flag in project_flags(error, path) if flag not in flags]
        if not more and light in flags and any("/torch/" in flag for flag in flags):
            # It uses more of PyTorch: with all of it, nvcc takes some 30 s of CPU time.
            flags.remove(light)
            stage(f"compiling {path.name} with all of PyTorch's headers")
        elif not more:
            others = _missing_too(error, path, nvcc, flags)
            alone = without_host_code(path, flags, folder / "device", run)
            # Of templates alone, nothing is left without the code that uses them.
            if alone and b".entry" in (alone[1].written or b""):
                flags, result = alone
                missing = [m["header"] for m in [NO_HEADER.search(error)] if m]
                why = f"{', '.join([*missing, *others])} missing" if missing else error
                note(f"host code of {path.name} is left out: {why}")
                break
            also = f"; also missing: {', '.join(others)}" if others else ""
            remedy = _remedy(error, tools.release_of(nvcc), others)
            raise TraceviewError(f"nvcc does not compile {path}: {error}{also}", remedy)
        flags += more
        result = _run_nvcc(nvcc, flags)
    ptx = ptx_text(result.written or b"")
    # The ptxas beside this nvcc, if any, makes the code that its user gets.
    beside = nvcc.with_name("ptxas")
    ptxas = beside if beside.is_file() else None
    try:
        return ptx, listings.assemble(ptx, arch, ptxas=ptxas).cubin
    except TraceviewError as error:
        linked = _run_nvcc(nvcc, [*flags, "-rdc=true"])
        if "Unresolved extern" not in error.what or linked.written is None:
            raise
        ptx = ptx_text(linked.written)
        return ptx, listings.assemble(ptx, arch, ["--compile-only"], ptxas).cubin


def _missing_too(error: str, path: Path, nvcc: Path, flags: Sequence[str]) -> list[str]:
    """The headers that are missing behind the first one: with that one empty, the next error."""
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        flags = [*flags, f"-I{folder}"]
        while (found := NO_HEADER.search(error)) and found["header"] not in missing:
            missing.append(found["header"])
            empty = Path(folder, found["header"])
            if ".." in empty.parts:
                break
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
            error = _first_error(_run_nvcc(nvcc, flags).err, path) or ""
            while more := [flag for flag in project_flags(error, path) if flag not in flags]:
                flags = [*flags, *more]
                error = _first_error(_run_nvcc(nvcc, flags).err, path) or ""
    return missing[1:]


def _run_nvcc(
    nvcc: Path, flags: Sequence[str], most_s: float = tools.COMPILE_TIMEOUT_S
) -> tools.ProcessResult:
    # In the current folder, from which folders in NVCC_APPEND_FLAGS are named.
    return tools.run(
        nvcc, lambda _, target: (*flags, "-o", target), None, timeout_s=most_s, folder=Path.cwd()
    )


# Of twelve kernels of public-key arithmetic, nvcc compiled one in 5 s and all in 110 s.
_MOST_OF_ALL_S = 30.0
# What builds of kernels mostly allow, and a word of Windows that says nothing of kernels; they
# change no code that compiles without.
_LENIENT = ("--expt-relaxed-constexpr", "--extended-lambda", "-D__declspec(x)=")
# Names of macros, as projects write them.
_UNDEFINED = re.compile(r'identifier "(_*[A-Z][A-Z0-9_]*(?:max|min)?_*|_[A-Z]_)" is undefined')
# Headers by package of PyPI; those of NVIDIA end in -cu12 for CUDA 12. Only headers that the
# package has, or its folders: a name that merely begins alike is of the project.
_PACKAGES = {
    r"(cublas)(?:_api|_v2|Lt|Xt)?\.h$": "nvidia-{name}{cu12}",
    r"(curand)(?:_(?:kernel|discrete2?|globals|lognormal|mrg32k3a|mtgp32\w*|normal(?:_static)?"
    r"|philox4x32_x|poisson|precalc|uniform))?\.h$": "nvidia-{name}{cu12}",
    r"(cusparse)(?:_v2)?\.h$": "nvidia-{name}{cu12}",
    r"(cusolver)(?:_common|Dn|Mg|Rf|Sp|Sp_LOWLEVEL_PREVIEW)\.h$": "nvidia-{name}{cu12}",
    r"(cufft)(?:w|Xt)?\.h$": "nvidia-{name}{cu12}",
    r"(npp)(?:core|defs|i|s|[is]_\w+)?\.h$": "nvidia-{name}{cu12}",
    r"(cudnn)(?:_(?:adv|backend|cnn|graph|ops|version)(?:_infer|_train)?(?:_v\d)?|_v\d)?\.h$": (
        "nvidia-{name}-cu{release}"
    ),
    r"(nccl)(?:_device|_net)?\.h$": "nvidia-{name}-cu{release}",
    r"(cub|thrust)/|(?:nv|cuda)/(?:std/)?\w+$": "nvidia-cuda-cccl{cu12}",
    r"(cutlass|cute)/": "nvidia-cutlass",
    r"(torch|ATen|c10|caffe2)/": "torch",
    r"(pybind11)/": "pybind11",
}
# Names of CUB and Thrust that code for CUDA 12 uses.
_REMOVED = re.compile(r'namespace "(?:cub|thrust)\b[^"]*" has no member')
# A CPU build of PyTorch has the headers of CUDA without this one.
_NOT_GENERATED = "-DC10_USING_CUSTOM_GENERATED_MACROS"
_TORCH = (("torch", "include"), ("torch", "include", "torch", "csrc", "api", "include"))
_GENERATED = "c10/cuda/impl/cuda_cmake_macros.h"
_ROOTS = (".git", "CMakeLists.txt", "Makefile", "setup.py", "pyproject.toml")
_BUILDS = (".py", ".txt", ".cmake", ".sh", ".mk", "Makefile")
_MOST_LEVELS, _MOST_FILES, _MOST_BYTES = 6, 20_000, 200_000


def project_flags(error: str, path: Path) -> list[str]:
    """The flags that an error asks for: a folder of headers, or a macro as the project sets it."""
    missing = NO_HEADER.search(error)
    if missing and missing["header"] == _GENERATED:
        return [_NOT_GENERATED]
    if missing:
        return _header_flags(missing["header"], path)
    undefined = _UNDEFINED.search(error)
    value = _macro_value(undefined[1], path) if undefined else ""
    return [f"-D{undefined[1]}={value}"] if undefined and value else []


def _header_flags(header: str, path: Path) -> list[str]:
    """The folder in the project from which a header is included, or that of an installed package.

    A package comes after the toolkit, which may be of another release.
    """
    name = header.rpartition("/")[2]
    found = (file for file in _project_files(path) if file.name == name)
    whole = [file for file in found if file.as_posix().endswith(f"/{header}")]
    if whole:
        nearest = max(whole, key=lambda file: _shared_folders(file, path))
        return [f"-I{nearest.parents[header.count('/')]}"]
    if name == "Python.h":
        return [f"-I{sysconfig.get_paths()['include']}"]
    # Of other packages than NVIDIA's, a bare name could be any header.
    patterns = _HEADERS if "/" in header else _HEADERS[:2]
    folders = (folder for pattern in patterns for folder in _in_wheels(pattern))
    folder = next((each for each in folders if (each / header).is_file()), None)
    torch = [Path(folder, *below) for folder in sys.path for below in _TORCH] if folder else []
    if folder in torch:
        return _torch_flags(torch)
    return [f"-Xcompiler=-idirafter{folder}"] if folder else []


def _torch_flags(folders: Iterable[Path]) -> list[str]:
    """All that PyTorch's headers need, at once: each failed compilation takes seconds."""
    present = [folder for folder in folders if folder.is_dir()]
    present.append(Path(sysconfig.get_paths()["include"]))
    flags = [f"-Xcompiler=-idirafter{folder}" for folder in dict.fromkeys(present)]
    whole = any((folder / _GENERATED).is_file() for folder in present)
    return flags if whole else [*flags, _NOT_GENERATED]


def _remedy(error: str, release: tuple[int, int] | None, others: Sequence[str] = ()) -> str:
    """How to give what an error of nvcc says is missing, and `others` that are missing, too."""
    missing, macro = NO_HEADER.search(error), _UNDEFINED.search(error)
    if macro:
        return f"define it, such as with NVCC_APPEND_FLAGS=-D{macro[1]}=<value>"
    if _REMOVED.search(error) and release and release >= (13, 0):
        old = "an nvcc of CUDA 12, such as of `pip install nvidia-cuda-nvcc-cu12`"
        return f"CUDA 13 removed names of its C++ libraries: set $TRACEVIEW_NVCC to {old}"
    if not missing:
        return ""
    if missing["header"].startswith("__clang"):
        return "remove this #include, as editors with clangd add it"
    headers = [missing["header"], *others]
    folders = " ".join(f"-I<folder of {each}>" for each in headers)
    flag = f"name its folder with NVCC_APPEND_FLAGS={folders}"
    if others:
        flag = f'name their folders with NVCC_APPEND_FLAGS="{folders}"'
    packages = list(dict.fromkeys(filter(None, (_package(each, release) for each in headers))))
    return f"`pip install {' '.join(packages)}`, or {flag}" if packages else flag


def _package(header: str, release: tuple[int, int] | None) -> str:
    """The package of PyPI that has a header; empty if none is known."""
    for form, package in _PACKAGES.items():
        if found := re.match(form, header):
            major = release[0] if release else 13
            cu12 = "-cu12" if major == 12 else ""
            return package.format(name=found[1], cu12=cu12, release=major)
    return ""


def _macro_value(name: str, path: Path) -> str:
    """The number that a build of the project defines a macro as; empty where none is found."""
    sets = re.compile(rf"-D\s?{name}=(?:(\d+)|\{{(\w+)\}})")
    for file in sorted(_project_files(path), key=lambda file: -_shared_folders(file, path)):
        if not file.name.endswith(_BUILDS) or file.stat().st_size > _MOST_BYTES:
            continue
        text = file.read_text("utf-8", "replace")
        for found in sets.finditer(text):
            # The last that is set before it is used.
            named = re.findall(rf"\b{found[2]}\s*=\s*(\d+)", text[: found.start()])
            if found[1] or named:
                return str(found[1] or named[-1])
    return ""


def _shared_folders(file: Path, path: Path) -> int:
    pairs = zip(file.parts, path.absolute().parts, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _project_files(path: Path) -> Iterator[Path]:
    """The files of the project around a file.

    Where no file marks one, it is the current folder, if the file is in it, else the file's folder.
    """
    above = path.absolute().parents[:_MOST_LEVELS]
    marked = (f for f in above if any((f / mark).exists() for mark in _ROOTS))
    here = Path.cwd()
    root = next(marked, here if here in above else above[0])
    return islice(_walked(root), _MOST_FILES)


def _walked(root: Path) -> Iterator[Path]:
    """The files below a folder, without the packages of an environment in it."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(set(below) - {"site-packages", ".git"})
        yield from (Path(folder, name) for name in sorted(names))


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
    lines = log.replace(str(path.absolute()), path.name).splitlines()
    for number, line in enumerate(lines, 1):
        error = NVIDIA_ERROR.match(line) or GCC_ERROR.match(line)
        if error:
            text = error["text"].strip()
            more = f" {lines[number].strip()}" if text.endswith(":") and lines[number:] else ""
            return f"{error['place']}: {text[:300]}{more[:100]}"
    return None


_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_EXTERNAL = re.compile(r"^\.extern \.func\s+(?:\([^)]*\)\s*)?(\w+)", re.MULTILINE)
_OF_THE_DRIVER = {"vprintf", "malloc", "free", "__assertfail"}


def called_elsewhere(ptx: str) -> tuple[str, ...]:
    """The functions of other files that PTX calls."""
    return tuple(each for each in _EXTERNAL.findall(ptx) if each not in _OF_THE_DRIVER)


_TEMPLATE = re.compile(
    r"\btemplate\s*<[^;{}]*>\s*(?:static\s+)?__global__[^;{}]*?\b(?P<name>\w+)\s*\([^;{}]*\)\s*\{"
)


def templates(source: str) -> tuple[str, ...]:
    """The names of the kernel templates that CUDA C++ source defines."""
    text = _BOUNDS.sub("", _COMMENT.sub("", source))
    return tuple(found["name"] for found in _TEMPLATE.finditer(text))


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def parameter_names(source: str, kernel: str, count: int | None = None) -> tuple[str, ...]:
    """The names of a kernel's parameters as CUDA C++ source declares them; none if not found.

    Of several kernels of one name, it is the first with `count` parameters.
    """
    text = _COMMENT.sub("", source)
    for found in re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(([^)]*)\)", text):
        declared = [part.partition("=")[0] for part in found[1].split(",")]
        words = [re.findall(r"[A-Za-z_]\w*", part.partition("[")[0]) for part in declared]
        names = tuple(each[-1] for each in words if each)
        if count in (None, len(names)):
            return names
    return ()
