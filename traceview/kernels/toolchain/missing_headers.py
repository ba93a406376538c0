"""What nvcc lacks for a file of a project: folders of headers, macros, and packages to install."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from pathlib import Path

from traceview.kernels.toolchain import torch_headers
from traceview.kernels.toolchain.device_code import NO_HEADER

# Folders of headers, below a folder of sys.path: of NVIDIA's wheels, of PyTorch, of other wheels.
_HEADERS = (
    "nvidia/*/include", "nvidia/*/include/cccl", "torch/include",
    "torch/include/torch/csrc/api/include", "*/include", "*/source/include",
)  # fmt: skip
# Names of macros, as projects write them.
_UNDEFINED = re.compile(
    r'(?:identifier "|#error\W+)(_*[A-Z][A-Z0-9_]*(?:max|min)?_*|_[A-Z]_)"? is '
    r"(?:undefined|not defined)"
)
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
NOT_GENERATED = "-DC10_USING_CUSTOM_GENERATED_MACROS"
_GENERATED = "c10/cuda/impl/cuda_cmake_macros.h"
_ROOTS = (".git", "CMakeLists.txt", "Makefile", "setup.py", "pyproject.toml")
_BUILDS = (".py", ".txt", ".cmake", ".sh", ".mk", "Makefile")
_MOST_LEVELS, _MOST_FILES, _MOST_BYTES = 6, 20_000, 200_000


def project_flags(error: str, path: Path) -> list[str]:
    """The flags that an error asks for: a folder of headers, or a macro as the project sets it."""
    if missing := NO_HEADER.search(error):
        return header_flags(missing["header"], path)
    undefined = _UNDEFINED.search(error)
    value = _macro_value(undefined[1], path) if undefined else ""
    return [f"-D{undefined[1]}={value}"] if undefined and value else []


def header_flags(header: str, path: Path) -> list[str]:
    """The folder in the project from which a header is included, or that of an installed package.

    A package comes after the toolkit, which may be of another release.
    """
    if header == _GENERATED:
        return [NOT_GENERATED]
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
    folders = (folder for pattern in patterns for folder in in_wheels(pattern))
    folder = next((each for each in folders if (each / header).is_file()), None)
    if folder and folder in torch_headers.folders():
        return _torch_flags()
    return [f"-Xcompiler=-idirafter{folder}"] if folder else []


def _torch_flags() -> list[str]:
    """All that PyTorch's headers need, at once: each failed compilation takes seconds."""
    present = [*torch_headers.folders(), Path(sysconfig.get_paths()["include"])]
    flags = [f"-Xcompiler=-idirafter{folder}" for folder in dict.fromkeys(present)]
    whole = any((folder / _GENERATED).is_file() for folder in present)
    return flags if whole else [*flags, NOT_GENERATED]


def remedy(error: str, release: tuple[int, int] | None, others: Sequence[str] = ()) -> str:
    """How to give what an error of nvcc says is missing, and `others` that are missing, too."""
    missing, macro = NO_HEADER.search(error), _UNDEFINED.search(error)
    if macro:
        return f"define it, such as with NVCC_APPEND_FLAGS=-D{macro[1]}=<value>"
    if _REMOVED.search(error) and release and release >= (13, 0):
        old = "an nvcc of CUDA 12, such as of `pip install nvidia-cuda-nvcc-cu12`"
        return f"CUDA 13 removed names of its C++ libraries: set $TRACEVIEW_NVCC to {old}"
    if not missing:
        return next((text for form, text in _GONE if re.search(form, error)), "")
    if missing["header"].startswith("__clang"):
        return "remove this #include, as editors with clangd add it"
    headers = [missing["header"], *others]
    folders = " ".join(f"-I<folder of {each}>" for each in headers)
    flag = f"name its folder with NVCC_APPEND_FLAGS={folders}"
    if others:
        flag = f'name their folders with NVCC_APPEND_FLAGS="{folders}"'
    packages = list(dict.fromkeys(filter(None, (_package(each, release) for each in headers))))
    return f"`pip install {' '.join(packages)}`, or {flag}" if packages else flag


_GONE = (
    (
        r'identifier "__(?:shfl\w*|all|any|ballot)" is undefined',
        "CUDA 9 replaced it by a function with the mask of the threads, such as "
        "__shfl_sync(0xffffffff, …)",
    ),
    (
        r"cudaDeviceSynchronize.*from a __global__",
        "CUDA 12 removed waiting for kernels inside a kernel: launch them from the host",
    ),
    (
        r'"cudaDeviceProp" has no member "(?:clockRate|memoryClockRate|deviceOverlap|computeMode'
        r'|kernelExecTimeoutEnabled)"',
        "CUDA 13 removed it: ask cudaDeviceGetAttribute for it",
    ),
)
"""What CUDA removed, by nvcc's error, and what stands in its place (release notes of 9, 12, 13)."""


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
    for file in nearest(path, _BUILDS):
        text = file.read_text("utf-8", "replace")
        for found in sets.finditer(text):
            # The last that is set before it is used.
            named = re.findall(rf"\b{found[2]}\s*=\s*(\d+)", text[: found.start()])
            if found[1] or named:
                return str(found[1] or named[-1])
    return ""


def nearest(path: Path, endings: str | tuple[str, ...]) -> Iterator[Path]:
    """The other files of the project around a file with such endings, the nearest first."""
    files = (file for file in _project_files(path) if file.name.endswith(endings))
    for file in sorted(files, key=lambda file: -_shared_folders(file, path)):
        if file != path.absolute() and file.stat().st_size <= _MOST_BYTES:
            yield file


def _shared_folders(file: Path, path: Path) -> int:
    pairs = zip(file.parts, path.absolute().parts, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _project_files(path: Path) -> Iterator[Path]:
    """The files of the project around a file."""
    return islice(_walked(root(path)), _MOST_FILES)


def root(path: Path) -> Path:
    """The folder of a file's project: that of its repository or of its build.

    The current folder where that is above, as builds of parts have folders, too; without any of
    these, the file's folder.
    """
    above = path.absolute().parents[:_MOST_LEVELS]
    here = [Path.cwd()] if Path.cwd() in above else []
    marked = next((f for f in above if any((f / mark).exists() for mark in _ROOTS)), None)
    if marked and ((marked / ".git").exists() or not here):
        return marked
    return min([*here, *([marked] if marked else [])], key=lambda f: len(f.parts), default=above[0])


def _walked(root: Path) -> Iterator[Path]:
    """The files below a folder, without the packages of an environment in it."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(set(below) - {"site-packages", ".git"})
        yield from (Path(folder, name) for name in sorted(names))


def in_wheels(pattern: str) -> Iterator[Path]:
    """What the installed packages have, in the order of sys.path."""
    return (found for folder in sys.path for found in sorted(Path(folder).glob(pattern)))


def of_nvidia() -> Iterator[Path]:
    """The folders of headers in NVIDIA's wheels."""
    return (folder for pattern in _HEADERS[:2] for folder in in_wheels(pattern))
