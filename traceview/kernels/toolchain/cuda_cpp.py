"""Compile CUDA C++ to PTX and a cubin with nvcc, or with NVRTC where nvcc is missing."""

from __future__ import annotations

import ctypes
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from traceview.base.errors import TimeUpError, ToolNotFoundError, TraceviewError, unreadable
from traceview.base.records import record
from traceview.base.stages import stage
from traceview.kernels.ptx.model import ptx_text
from traceview.kernels.toolchain import (
    device_code,
    listings,
    missing_headers,
    tools,
    torch_headers,
)
from traceview.kernels.toolchain.device_code import GCC_ERROR, NO_HEADER, NVIDIA_ERROR, Copies
from traceview.kernels.toolchain.tools import TOOLKITS

# NVRTC, NVIDIA's runtime compiler library, which every CUDA build of torch includes.

# Below a folder of sys.path: NVIDIA's wheels for CUDA 12 and for CUDA 13, then torch.
_IN_WHEELS = ("nvidia/cuda_nvrtc/lib", "nvidia/cu1*/lib", "torch/lib")
_IN_TOOLKITS = ("cuda*/lib64", "cuda*/targets/*/lib")
_LIBRARY = "libnvrtc.so*"


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
        wheels = missing_headers.of_nvidia()
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
    budget_s: float = tools.COMPILE_TIMEOUT_S,
) -> tuple[str, bytes]:
    """Compile a CUDA C++ file to PTX and a cubin for `arch`, with line information.

    nvcc compiles whole programs, without host code that does not compile or takes long, which
    `note` names, and without kernels other than `kernel` where those take long; a `kernel<float>`
    is made of its template, and a template that the file makes no kernel of comes with a file of
    the project that does. Once `budget_s` are over nvcc does not start again, and it never runs for
    longer than three times as long. NVRTC (used only without nvcc) compiles device code alone.
    Raises InputError if the file cannot be read, ToolNotFoundError without either compiler, and
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
        ends = time.monotonic() + budget_s
        return _with_nvcc(path, _Asked(arch, nvcc, Path(folder), kernel, budget_s, ends), note)


@record
class _Asked:
    """What nvcc is to compile, where copies go, and when it does not start again."""

    arch: str
    nvcc: Path
    folder: Path
    kernel: str
    budget_s: float
    ends: float

    @property
    def name(self) -> str:
        """The kernel's own name; empty for all."""
        return self.kernel.partition("<")[0].rpartition("::")[2]

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.ends

    @property
    def more_s(self) -> float:
        """The seconds for which nvcc runs at most, and the budget to ask for where those end."""
        return 3 * self.budget_s


def _with_nvcc(path: Path, asked: _Asked, note: Callable[[str], None]) -> tuple[str, bytes]:
    """Compile with nvcc, first without those headers of PyTorch that take it long.

    Code that calls functions of other files is assembled without them, as for a linker.
    """
    arch, nvcc, attempt = asked.arch, asked.nvcc, _Attempt(path, asked, "light")
    ptx = attempt.ptx()
    can_be_more = attempt.is_light and torch_headers.folders() and not asked.is_over
    if can_be_more and not attempt.is_whole(ptx):
        attempt = _Attempt(path, asked, "all", is_light=False)
        ptx = attempt.ptx()
    is_whole, is_late = attempt.is_whole(ptx), attempt.is_late
    source = ptx_text(path.read_bytes())
    is_unmade = not is_whole and asked.kernel.rpartition("::")[2] in templates(source)
    for user in _users(path, asked.name) if ptx and is_unmade else ():
        other = _Attempt(user, asked, user.stem, header=path)
        is_whole, is_late = other.is_whole(made := other.ptx()), is_late or other.is_late
        if is_whole:
            note(f"{path.name} makes no kernel of its template; {user.name} does, and is compiled")
            ptx, attempt, is_late = made, other, False
            break
    # Of templates alone, nothing is left without the code that uses them.
    is_used = len(re.findall(rf"\b{asked.name}\b", _COMMENT.sub("", source))) > 1
    is_lost = bool(attempt.why) and (is_used if is_unmade else ".entry" not in (ptx or ""))
    if ptx is None or (not is_whole and (is_lost or is_late)):
        error, missing = attempt.error, attempt.missing[1:]
        also = f"; also missing: {', '.join(missing)}" if missing else ""
        remedy = missing_headers.remedy(error, tools.release_of(nvcc), missing)
        what = f"{error}{also}" if error else "no kernel is made of its template"
        if blanks := list(dict.fromkeys(_BLANK.findall(source))):
            what = f"it is a template whose {', '.join(blanks[:_MOST_BLANKS])} are not filled in"
            remedy = "fill in the values that the program gives them, and pass the result"
        if is_late:
            what = f"{what}; not done within {asked.budget_s:g} s"
            longer = f"allow more time with --budget {asked.more_s:g}"
            remedy = f"{remedy}, or {longer}" if remedy else longer
        raise TraceviewError(f"nvcc does not compile {path}: {what}", remedy)
    for text in attempt.notes():
        note(text)
    # The ptxas beside this nvcc, if any, makes the code that its user gets.
    beside = nvcc.with_name("ptxas")
    ptxas = beside if beside.is_file() else None
    try:
        return ptx, listings.assemble(ptx, arch, ptxas=ptxas).cubin
    except TraceviewError as error:
        linked = _run_nvcc(nvcc, [*attempt.flags, "-rdc=true"])
        if "Unresolved extern" not in error.what or linked.written is None:
            raise
        ptx = ptx_text(linked.written)
        return ptx, listings.assemble(ptx, arch, ["--compile-only"], ptxas).cubin


class _Attempt:
    """Compiling with what nvcc's errors show to be missing, and without host code with errors."""

    def __init__(
        self,
        path: Path,
        asked: _Asked,
        folder: str,
        *,
        is_light: bool = True,
        header: Path | None = None,
    ) -> None:
        self.is_light, self.missing, self.error, self.is_late = False, list[str](), "", False
        self._path, self._source, self._asked = path, path.absolute(), asked
        self._may_be_light, self._is_one = is_light, False
        self._flags = ["-ptx", "-lineinfo", f"-arch={asked.arch}", *_LENIENT, "-x", "cu"]
        self._flags.append(str(self._source))
        self._copies = Copies(self._source, asked.folder / folder, missing_headers.root(path))
        if "<" in asked.kernel:
            self._copies.take(replace(self._copies.of_source(), wanted=asked.kernel))
        if header:
            of_header = device_code.templates_in(header)
            self._copies.take(replace(self._copies.of_source(), templates=of_header))

    def ptx(self) -> str | None:
        """What nvcc makes of the kernels; None, with the first error, if it refuses them."""
        while not (self.error and self._asked.is_over):
            without = f" without {self.missing[-1]}" if self.missing else ""
            stage(f"Compiling {self._path.name}{without}")
            result = self._run()
            if result is None:
                break
            if result.ok and result.written is not None:
                return ptx_text(result.written)
            error = _first_error(result.err, self._path) or result.evidence
            header = found["header"] if (found := NO_HEADER.search(error)) else ""
            absent = list(dict.fromkeys([header, *self._absent()])) if header else []
            if self._may_be_light and self._stands_in(absent, result.err):
                continue
            if self._finds(error, absent[1:]) or self._is_mended(result.err):
                continue
            self.error = self.error or error
            if lacking := [each for each in absent if self._copies.stand_in(each, _MISSING)]:
                self.missing += lacking
            elif _AMBIGUOUS.search(result.err) and _AS_TORCH[0] not in self._flags:
                self._flags += _AS_TORCH
            elif _BASES_GONE.search(result.err) and self._copies.stand_in(_BASES, _BASES_TEXT):
                self._flags += ["-include", _BASES]
            elif header or not self._copies.drop(result.err, self._flags):
                return None
        self.is_late = True
        return None

    @property
    def flags(self) -> list[str]:
        """The flags of nvcc for what is compiled."""
        return self._copies.flags(self._flags)

    @property
    def why(self) -> str:
        """Why host code is left out; empty if none is."""
        missing = f"{', '.join(self.missing)} missing" if self.missing else ""
        if not self._copies.has_dropped:
            return missing
        light = "PyTorch's headers take nvcc long" if self.is_light else ""
        return ", and ".join(filter(None, (missing, light))) or self.error

    def is_whole(self, ptx: str | None) -> bool:
        """Whether each kernel that is asked for is there."""
        names = [self._asked.name] if self._asked.name else device_code.kernels_in(self._source)
        made = re.findall(r"\.entry\s+(\S+?)\(", ptx or "")
        return bool(made) and all(
            any(name == each or f"{len(name)}{name}" in each for each in made) for name in names
        )

    def notes(self) -> Iterator[str]:
        name = self._path.name
        if self._is_one:
            yield f"other kernels of {name} are left out: nvcc takes long to compile all"
        if self.why:
            yield f"host code of {name} is left out: {self.why}"
        if guessed := self._copies.guessed():
            yield f"`{device_code.SCALAR}` is taken as {' and '.join(guessed)}"

    def _finds(self, error: str, headers: Sequence[str]) -> bool:
        """Whether the project, or a package, has what an error asks for, or more headers."""
        wanted = missing_headers.project_flags(error, self._path)
        for name in headers:
            wanted += missing_headers.header_flags(name, self._path)
        more = [flag for flag in dict.fromkeys(wanted) if flag not in self._flags]
        self._flags += more
        return bool(more)

    def _is_mended(self, log: str) -> bool:
        """Whether errors are of code that needs a flag, with which it is then compiled."""
        lacking = [f for f, errors in _BY_FLAG if f not in self._flags and errors.search(log)]
        self._flags += lacking
        return bool(lacking)

    def _run(self) -> tools.ProcessResult | None:
        """What nvcc says; None where there is no time left to compile what errors leave."""
        whole = self._copies.of_source()
        one = whole.with_one_kernel(self._asked.name) if self._asked.name else whole
        can_be_one = one != whole
        half_s = self._asked.budget_s / 2
        most_s = half_s if can_be_one else self._asked.more_s
        if self.error:
            # To compile what is left of a file is a trial.
            most_s = min(most_s, max(self._asked.ends - time.monotonic(), half_s))
        try:
            return _run_nvcc(self._asked.nvcc, self.flags, most_s)
        except TimeUpError:
            if self.error and (self._asked.is_over or not can_be_one):
                return None
            if not can_be_one:
                raise self._takes_long(most_s) from None
        self._is_one = True
        self._copies.take(one)
        return self._run()

    def _takes_long(self, most_s: float) -> TraceviewError:
        """The error where nvcc is not done with the first compilation."""
        name, remedy = self._path.name, f"allow more time with --budget {self._asked.more_s:g}"
        if not self._asked.name and len(device_code.kernels_in(self._source)) > 1:
            remedy = f"name one of its kernels, as {name}:KERNEL, or {remedy}"
        return TraceviewError(f"nvcc takes more than {most_s:g} s to compile {name}", remedy)

    def _absent(self) -> Iterator[str]:
        """The headers that nvcc would not find, one after the other, in the order of the source."""
        flags = ["-E", "-Xcompiler=-M,-MG", *self.flags[1:]]
        listed = _run_nvcc(self._asked.nvcc, flags).written or b""
        for name in re.split(r"(?<!\\)\s+", ptx_text(listed).replace("\\\n", " ")):
            if _HEADER.fullmatch(name) and not Path(name).exists():
                yield name

    def _stands_in(self, absent: Sequence[str], log: str) -> bool:
        """Stand in for the headers of PyTorch among those that are missing, all at once."""
        headers = [each for each in absent if torch_headers.is_of_torch(each)]
        if not headers:
            return False
        texts = (each for name in headers for each in torch_headers.stand_ins(name))
        written = [name for name, text in texts if self._copies.stand_in(name, text)]
        if not self.is_light:
            self._flags.append(missing_headers.NOT_GENERATED)
            self._copies.take(self._copies.of_source().without_tensors())
        self.is_light = True
        if not torch_headers.folders():
            self.error = self.error or _first_error(log, self._path) or ""
            self.missing += headers
        return bool(written)


def _run_nvcc(
    nvcc: Path, flags: Sequence[str], most_s: float = tools.COMPILE_TIMEOUT_S
) -> tools.ProcessResult:
    # In the current folder, from which folders in NVCC_APPEND_FLAGS are named.
    return tools.run(
        nvcc, lambda _, target: (*flags, "-o", target), None, timeout_s=most_s, folder=Path.cwd()
    )


# What stands in for a header that is missing: those of PyTorch, where others are included, and what
# the headers of NVIDIA's libraries include.
_MISSING = f"""#pragma once
#if __has_include(<{torch_headers.PRELUDE}>)
#include <{torch_headers.PRELUDE}>
#endif
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>
"""
_MOST_USERS = 2
# What CUDA 13 removed of Thrust, and code for CUDA 12 derives functors from.
_BASES_GONE = re.compile(r'namespace "thrust" has no member (?:class )?"(?:unary|binary)_function"')
_BASES = "traceview/thrust.h"
_BASES_TEXT = """#pragma once
namespace thrust {
template <class A, class R> struct unary_function {
  typedef A argument_type; typedef R result_type;
};
template <class A, class B, class R> struct binary_function {
  typedef A first_argument_type; typedef B second_argument_type; typedef R result_type;
};
}
"""
_HEADER = re.compile(r"[\w.+-][\w./+-]*(?<!:)")
# What builds of kernels mostly allow, and a word of Windows that says nothing of kernels; they
# change no code that compiles without.
_LENIENT = ("--expt-relaxed-constexpr", "--extended-lambda", "-D__declspec(x)=")
# What builds of PyTorch's extensions define: its own types and NVIDIA's convert to each other, and
# both have operators.
_AS_TORCH = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)
# Words of C++20 in the lines that nvcc, which compiles C++17 by itself, does not understand.
_OF_CPP20 = re.compile(
    r"\b(?:concept|consteval|constinit)\b|\brequires\s*[({]|>\s*requires\b|[Cc]\+\+20"
    r'|"std" has no member "(?:bit_cast|span|type_identity_t|remove_cvref_t|popcount|countl_zero)"'
)
_BY_FLAG = (
    ("-std=c++20", _OF_CPP20),
    # A kernel that launches kernels.
    ("-rdc=true", re.compile(r"\bseparate compilation mode\b")),
)
_AMBIGUOUS = re.compile(r"error: more than one \w+.*\n(?:.*\n){,12}?.*c10::(?:Half|BFloat16)")


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
    """The first error in a compiler's log with its file and line, on one line.

    A header that is missing comes first: it may define the macro that an `#error` asks for.
    """
    lines = log.replace(str(path.absolute()), path.name).splitlines()
    errors = [(n, e) for n, line in enumerate(lines, 1) for e in [_error_in(line)] if e]
    for number, error in sorted(errors, key=lambda each: not NO_HEADER.search(each[1]["text"])):
        text = error["text"].strip()
        more = f" {lines[number].strip()}" if text.endswith(":") and lines[number:] else ""
        return f"{error['place']}: {text[:300]}{more[:100]}"
    return None


def _error_in(line: str) -> re.Match[str] | None:
    return NVIDIA_ERROR.match(line) or GCC_ERROR.match(line)


_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_EXTERNAL = re.compile(r"^\.extern \.func\s+(?:\([^)]*\)\s*)?(\w+)", re.MULTILINE)
_OF_THE_DRIVER = {"vprintf", "malloc", "free", "__assertfail"}


def called_elsewhere(ptx: str) -> tuple[str, ...]:
    """The functions of other files that PTX calls."""
    return tuple(each for each in _EXTERNAL.findall(ptx) if each not in _OF_THE_DRIVER)


_TEMPLATE = re.compile(
    r"\btemplate\s*<(?P<parameters>[^;{}]*)>\s*(?:static\s+)?__global__[^;{}]*?\b(?P<name>\w+)\s*\([^;{}]*\)\s*\{"
)


def templates(source: str) -> dict[str, str]:
    """The kernel templates that CUDA C++ source defines, and their parameters."""
    text = _BOUNDS.sub("", _COMMENT.sub("", source))
    return {m["name"]: " ".join(m["parameters"].split()) for m in _TEMPLATE.finditer(text)}


def _users(path: Path, template: str) -> list[Path]:
    """The files of the project that use a template, or include its file, the nearest first."""
    names = re.compile(rf"\b{re.escape(template)}\s*<|#\s*include\s.*\b{re.escape(path.name)}[\">]")
    sources = missing_headers.nearest(path, ".cu")
    using = (file for file in sources if names.search(ptx_text(file.read_bytes())))
    return list(islice(using, _MOST_USERS))


_BLANK, _MOST_BLANKS = re.compile(r"\{\{ *[A-Za-z_]\w* *\}\}"), 4
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
