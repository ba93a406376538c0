"""The targets of `traceview ptx` and their compiled kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import InputError, TraceFormatError, unreadable
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.targets.cache import read_cache, refuse_amd_arch, refuse_amd_code
from traceview.inspect.targets.embedded import embedded_kernels
from traceview.inspect.targets.python import DEFAULT_ARCH, compile_python, refuse_log
from traceview.ptx import demangle, parser
from traceview.ptx.model import Compiled, ptx_text
from traceview.ptx.producers import own_name
from traceview.ptx.sass import cubin as cubin_file
from traceview.ptx.sass.fatbin import has_fatbin
from traceview.toolchain import cuda_cpp, demangling, ptxas
from traceview.trace.load import is_trace

if TYPE_CHECKING:
    from traceview.headless.recompile import Recompiler

_KINDS = (
    "a .ptx, .cubin or .cu file, a .so, .o or .fatbin with GPU code, FILE.py[:kernel], "
    "package.module:kernel, a Triton cache, or a trace of `traceview record`"
)
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_ELF = b"\x7fELF"
_DEFAULTS = CompileOptions()


def kernels_of(
    target: str,
    options: CompileOptions = _DEFAULTS,
    *,
    recompiler: Recompiler | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Compiled]:
    """Compile the kernels of a target.

    `recompiler` keeps the worker process of a Python target, to compile its kernels again. `note`
    gets a line at a time for the user. Raises InputError if the target is of no known kind or has
    no such kernel, and what its compiler raises.
    """
    check_arch(options.arch)
    if is_python(target):
        # Its kernels are selected by the names of their functions.
        return compile_python(target, options, recompiler=recompiler, note=note)
    kernels = _kernels_in_file(target, options, note)
    names = demangling.demangled(kernel.name for kernel in kernels)
    selected = [k for k in kernels if is_named(options.kernel, k.name, names[k.name])]
    if not selected:
        raise InputError(*_no_kernel(target, options.kernel, kernels))
    return selected


def is_named(pattern: str | None, symbol: str, demangled_name: str) -> bool:
    """Whether a name or a glob selects a kernel; None selects every kernel.

    It may be the symbol, the kernel's own name in its framework, or its plain, short or whole C++
    name.
    """
    names = (
        symbol,
        own_name(symbol) or symbol,
        demangle.plain_name(symbol),
        demangle.short_name(demangled_name),
        demangled_name,
    )
    return pattern is None or pattern in names or any(fnmatchcase(n, pattern) for n in names)


def check_arch(arch: str | None) -> None:
    """Raise InputError unless `arch` is None or of the form of an architecture, such as sm_90a."""
    if arch:
        refuse_amd_arch(arch)
    if arch and not _ARCH.fullmatch(arch):
        raise InputError(
            f"{arch[:40]!r} is not a GPU architecture", "pass, for example, --arch sm_90"
        )


def is_python(target: str) -> bool:
    """True for FILE.py, FILE.py:kernel and package.module:kernel."""
    path = Path(target)
    if path.exists():
        return path.is_file() and path.suffix == ".py"
    file, colon, kernel = target.rpartition(":")
    return bool(colon and kernel.isidentifier() and file) or target.endswith(".py")


def unused_options(target: str, options: CompileOptions, *, what_if: bool) -> str | None:
    """The options, as on the command line, that such a target does not use; None without any."""
    if is_python(target):
        return None
    path = Path(target)
    has_warps = options.num_warps is not None and (path.is_dir() or is_trace(path))
    unused = ["--what-if"] * what_if + ["--num-warps"] * has_warps + options.of_sources
    return ", ".join(unused) or None


def _kernels_in_file(
    target: str, options: CompileOptions, note: Callable[[str], None]
) -> list[Compiled]:
    path = Path(target)
    if path.is_dir():
        return _of_cache(path, options, note)
    if not path.exists():
        raise InputError(f"{target} does not exist", f"pass {_KINDS}")
    refuse_amd_code(path)
    read = {".ptx": _of_ptx, ".cubin": _of_cubin, ".cu": _of_cuda}.get(path.suffix)
    if read is None and path.is_file() and has_fatbin(path):
        return embedded_kernels(path, options, note)
    if read is None:
        refuse_log(path)
        raise InputError(f"{target} is not a supported target", f"pass {_KINDS}")
    return read(path, options)


def _of_cache(folder: Path, options: CompileOptions, note: Callable[[str], None]) -> list[Compiled]:
    kernels = read_cache(folder, note=note)
    selected = [each for each in kernels if each.arch.startswith(options.arch or "")]
    if not selected:
        archs = ", ".join(sorted({each.arch for each in kernels}))
        raise InputError(
            f"{folder} has no kernel for {options.arch}", f"its kernels are for {archs}"
        )
    return selected


def _of_ptx(path: Path, options: CompileOptions) -> list[Compiled]:
    raw = _bytes_of(path)
    if raw.startswith(_ELF):
        raise InputError(*_not_text(path, raw))
    text = ptx_text(raw)
    listing = parser.parse_ptx(text, str(path))
    arch = ptxas.arch_for(text, options.arch)
    names = [kernel.name for kernel in listing.kernels()]
    return [_given(name, arch, text, None, path, options) for name in names]


def _not_text(path: Path, raw: bytes) -> tuple[str, str]:
    try:
        cubin_file.arch_of(raw)
    except TraceFormatError:
        return f"{path} is not PTX but another kind of binary", f"pass {_KINDS}"
    return f"{path} is not PTX but a cubin", "rename it to end in .cubin"


def _of_cubin(path: Path, options: CompileOptions) -> list[Compiled]:
    raw = _bytes_of(path)
    try:
        arch, names = cubin_file.arch_of(raw), cubin_file.kernels(raw)
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error.what}", error.remedy) from None
    if options.arch and not arch.startswith(options.arch):
        raise InputError(f"{path} is for {arch}, not for {options.arch}", "leave out --arch")
    return [_given(name, arch, None, raw, path, options) for name in names]


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def _of_cuda(path: Path, options: CompileOptions) -> list[Compiled]:
    arch = options.arch or DEFAULT_ARCH
    ptx, cubin = cuda_cpp.compile_cuda(path, arch)
    names = [kernel.name for kernel in parser.parse_ptx(ptx, str(path)).kernels()]
    return [_given(name, arch, ptx, cubin, path, options) for name in names]


def _given(
    name: str, arch: str, ptx: str | None, cubin: bytes | None, path: Path, options: CompileOptions
) -> Compiled:
    return Compiled(
        name=name,
        arch=arch,
        how="given",
        ptx=ptx,
        cubin=cubin,
        num_warps=options.num_warps,
        source_file=str(path),
    )


def _no_kernel(target: str, kernel: str | None, kernels: Sequence[Compiled]) -> tuple[str, str]:
    whole = demangling.demangled(each.name for each in kernels)
    short = (own_name(each.name) or demangle.short_name(whole[each.name]) for each in kernels)
    names = list(dict.fromkeys(short))
    if kernel is None:
        return f"{target} has no kernel", "pass a file that defines or launches one"
    listed = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return f"{target} has no kernel {kernel!r}", f"it has {listed}" if names else ""
