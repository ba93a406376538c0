"""The targets of `traceview ptx` and their compiled kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import InputError, TraceFormatError, unreadable
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.targets import embedded, refusals
from traceview.inspect.targets.cache import read_cache
from traceview.inspect.targets.python import DEFAULT_ARCH, compile_python
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
    if selected:
        return selected
    if options.kernel is None:
        raise InputError(f"{target} has no kernel", "pass a file that defines or launches one")
    short = (own_name(k.name) or demangle.short_name(names[k.name]) for k in kernels)
    listed = list(dict.fromkeys(short))
    more = " …" if len(listed) > 8 else ""
    remedy = f"it has {', '.join(listed[:8])}{more}" if listed else ""
    raise InputError(f"{target} has no kernel {options.kernel!r}", remedy)


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
        refusals.refuse_amd_arch(arch)
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
    refusals.refuse_amd_code(path)
    cubin: bytes | None = None
    if path.suffix == ".cu":
        arch = options.arch or DEFAULT_ARCH
        text, cubin = cuda_cpp.compile_cuda(path, arch)
        names = [kernel.name for kernel in parser.parse_ptx(text, str(path)).kernels()]
    elif path.suffix in (".ptx", ".cubin"):
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        if path.suffix == ".cubin":
            return _of_cubin(path, raw, options)
        if raw.startswith(_ELF):
            try:
                cubin_file.arch_of(raw)
            except TraceFormatError:
                what = f"{path} is not PTX but another kind of binary"
                raise InputError(what, f"pass {_KINDS}") from None
            raise InputError(f"{path} is not PTX but a cubin", "rename it to end in .cubin")
        text = ptx_text(raw)
        names = [kernel.name for kernel in parser.parse_ptx(text, str(path)).kernels()]
        arch = ptxas.arch_for(text, options.arch)
    elif path.is_file() and has_fatbin(path):
        return embedded.embedded_kernels(path, options, note)
    else:
        refusals.refuse_log(path)
        raise InputError(f"{target} is not a supported target", f"pass {_KINDS}")
    return [
        Compiled(
            name, arch, "given", text, cubin,
            num_warps=options.num_warps, source_file=str(path),
        )
        for name in names
    ]  # fmt: skip


def _of_cache(folder: Path, options: CompileOptions, note: Callable[[str], None]) -> list[Compiled]:
    kernels = read_cache(folder, note=note)
    selected = [kernel for kernel in kernels if kernel.arch.startswith(options.arch or "")]
    if not selected:
        archs = ", ".join(sorted({kernel.arch for kernel in kernels}))
        what = f"{folder} has no kernel for {options.arch}"
        raise InputError(what, f"its kernels are for {archs}")
    return selected


def _of_cubin(path: Path, raw: bytes, options: CompileOptions) -> list[Compiled]:
    try:
        arch, kernels = cubin_file.arch_of(raw), embedded.of_cubin(raw, path)
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error.what}", error.remedy) from None
    if options.arch and not arch.startswith(options.arch):
        raise InputError(f"{path} is for {arch}, not for {options.arch}", "leave out --arch")
    return [replace(kernel, num_warps=options.num_warps) for kernel in kernels]
