"""What a user points `traceview ptx` at, and the compiled kernels that are in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.errors import InputError, TraceFormatError
from traceview.ptx.demangle import plain_name
from traceview.ptx.model import Compiled
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import cubin as cubin_file
from traceview.toolchain.ptxas import arch_for

if TYPE_CHECKING:
    from traceview.headless.recompile import Recompiler

DEFAULT_ARCH = "sm_90"
_KINDS = (
    "a .ptx, .cubin or .cu file, FILE.py[:kernel], package.module:kernel, a Triton cache, or a "
    "trace of `traceview record`"
)
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Options:
    """How kernels are to be compiled; None leaves it to the target.

    `signature` is in Triton's notation, `constexprs` maps names to values as written, and
    `arguments` are those of the script, `timeout_s` is how long it may run, `emulate` gives its
    tensors their values, `compile_torch` lets torch.compile compile. `recompiler` is to keep the
    process of a Python target. `note` gets a line at a time for the user, `step` what is done next.
    """

    arch: str | None = None
    kernel: str | None = None
    signature: str | None = None
    constexprs: Mapping[str, str] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None
    first_config: bool = False
    emulate: bool = False
    compile_torch: bool = False
    timeout_s: float | None = None
    recompiler: Recompiler | None = None
    arguments: Sequence[str] = ()
    note: Callable[[str], None] = lambda _: None
    step: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        if isinstance(self.arguments, str):
            # One argument, not its letters.
            object.__setattr__(self, "arguments", (self.arguments,))


def kernels_of(target: str, options: Options) -> list[Compiled]:
    """The kernels of a target, compiled.

    Raises InputError if the target is of no known kind or has no such kernel, and what its
    compiler raises.
    """
    check_arch(options.arch)
    found = _found(target, options)
    if is_python(target):
        # Its kernels were chosen by the names of their functions.
        return found
    chosen = [
        kernel for kernel in found if options.kernel in (None, kernel.name, plain_name(kernel.name))
    ]
    if not chosen:
        raise InputError(*_none(target, options.kernel, found))
    return chosen


def check_arch(arch: str | None) -> None:
    """Raise InputError if it is not written as a GPU architecture is."""
    if arch and not _ARCH.fullmatch(arch):
        raise InputError(f"{arch[:40]!r} is no GPU architecture", "write it as --arch sm_90")


def is_python(target: str) -> bool:
    """True for FILE.py, FILE.py:kernel and package.module:kernel."""
    path = Path(target)
    if path.exists():
        return path.is_file() and path.suffix == ".py"
    file, colon, kernel = target.rpartition(":")
    return bool(colon and kernel.isidentifier() and file) or target.endswith(".py")


def _found(target: str, options: Options) -> list[Compiled]:
    path = Path(target)
    if is_python(target):
        return _of_python(target, options)
    if path.is_dir():
        return _of_cache(path, options)
    if not path.exists():
        raise InputError(f"there is no file {target}", f"name {_KINDS}")
    read = {".ptx": _of_ptx, ".cubin": _of_cubin, ".cu": _of_cuda}.get(path.suffix)
    if read is None:
        raise InputError(f"{target} is no known kind of target", f"name {_KINDS}")
    return read(path, options)


def _of_ptx(path: Path, options: Options) -> list[Compiled]:
    raw = _bytes_of(path)
    if raw.startswith(_ELF):
        raise InputError(*_not_text(path, raw))
    text = raw.decode("utf-8", "surrogateescape")
    listing = parse_ptx(text, str(path))
    arch = arch_for(text, options.arch)
    names = [kernel.name for kernel in listing.kernels()]
    return [_given(name, arch, text, None, path, options) for name in names]


def _not_text(path: Path, raw: bytes) -> tuple[str, str]:
    try:
        cubin_file.arch_of(raw)
    except TraceFormatError:
        return f"{path} is not PTX but another program's binary", f"name {_KINDS}"
    return f"{path} is not PTX but a cubin", "rename it to end in .cubin"


def _of_cubin(path: Path, options: Options) -> list[Compiled]:
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
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _of_cuda(path: Path, options: Options) -> list[Compiled]:
    from traceview.toolchain.cuda_cpp import compile_cuda

    arch = options.arch or DEFAULT_ARCH
    ptx, cubin = compile_cuda(path, arch)
    names = [kernel.name for kernel in parse_ptx(ptx, str(path)).kernels()]
    return [_given(name, arch, ptx, cubin, path, options) for name in names]


def _given(
    name: str, arch: str, ptx: str | None, cubin: bytes | None, path: Path, options: Options
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


def _none(target: str, kernel: str | None, found: Sequence[Compiled]) -> tuple[str, str]:
    names = list(dict.fromkeys(each.name for each in found))
    if kernel is None:
        return f"{target} has no kernel", "name a file that defines or launches one"
    listed = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return f"{target} has no kernel {kernel!r}", f"it has {listed}" if names else ""


def _of_python(target: str, options: Options) -> list[Compiled]:
    from traceview.inspect.targets.python import compile_python

    return compile_python(
        target,
        kernel=options.kernel,
        arch=options.arch or DEFAULT_ARCH,
        script_args=options.arguments,
        signature=options.signature,
        constexprs=options.constexprs,
        num_warps=options.num_warps,
        num_stages=options.num_stages,
        first_config=options.first_config,
        emulate=options.emulate,
        compile_torch=options.compile_torch,
        timeout_s=options.timeout_s,
        recompiler=options.recompiler,
        note=options.note,
    )


def _of_cache(folder: Path, options: Options) -> list[Compiled]:
    from traceview.inspect.targets.cache import read_cache

    return read_cache(folder, kernel=options.kernel, note=options.note)
