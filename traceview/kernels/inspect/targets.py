"""The targets of `traceview ptx`: PTX, cubins, and code that nvcc embeds in other files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from traceview.base import units
from traceview.base.errors import InputError, TraceFormatError, unreadable
from traceview.base.vocabulary import amounts
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect import python_targets
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx import producers
from traceview.kernels.ptx.cubin import FatbinEntry, has_fatbin
from traceview.kernels.ptx.model import Compiled, ptx_text
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.producers import own_name
from traceview.kernels.toolchain import cuda_cpp, cuda_launches, device_code, tools
from traceview.kernels.toolchain.listings import arch_for
from traceview.traces.trace import ncu_report
from traceview.traces.trace.load import is_trace

if TYPE_CHECKING:
    from traceview.kernels.headless.recompile import Recompiler


_ELF = b"\x7fELF"
# e_machine of an ELF file, and what it is in a cubin.
_MACHINE_AT, _CUDA = 18, (190).to_bytes(2, "little")


_MOST_PTX_BYTES = 8_000_000
"""Beside a cubin more PTX is not read: parsing it would take longer than the whole report."""


def binary_kernels(paths: Sequence[str | Path]) -> list[Compiled]:
    """The kernels of .cubin and .ptx files, and of extension modules, programs and fatbins.

    Raises InputError if a file cannot be read or holds no kernel, ToolNotFoundError without
    pyelftools, TraceFormatError for damaged code, and PtxSyntaxError.
    """
    compiled: list[Compiled] = []
    for path in map(Path, paths):
        kernels = list(_kernels(path))
        if not kernels:
            raise InputError(f"{path} holds no kernel", "name a cubin, or what nvcc made")
        compiled += kernels
    return paired_code(compiled)


def _kernels(path: Path) -> Iterator[Compiled]:
    raw = _bytes_of(path)
    if path.suffix == ".ptx":
        yield from _in_code(raw, "ptx", path)
        return
    with _naming(path):
        if raw.startswith(_ELF) and raw[_MACHINE_AT : _MACHINE_AT + 2] == _CUDA:
            yield from _in_code(raw, "cubin", path)
            return
        # What nvcc embedded in a host file: the cubins with their PTX, or the PTX of all without.
        entries = cubin_file.entries(path) if cubin_file.has_fatbin(path) else []
        run = {entry.arch for entry in entries if entry.kind == "cubin"}
        for entry in entries:
            large = entry.kind == "ptx" and entry.size > _MOST_PTX_BYTES
            if not run or entry.kind == "cubin" or (entry.arch in run and not large):
                yield from _in_entry(entry, path)
    if not entries:
        raise InputError(f"{path} holds no GPU code", "name a cubin, or what nvcc made")


def _in_code(
    code: bytes, kind: Literal["ptx", "cubin"], path: Path, arch: str | None = None
) -> Iterator[Compiled]:
    """The kernels of a cubin, or of a PTX text, whose `.target` has the suffix of `arch`."""
    if kind == "cubin":
        arch = cubin_file.arch_of(code)
        for name in cubin_file.kernels(code):
            yield Compiled(name, arch, "given", None, code, source_file=str(path))
        return
    text = ptx_text(code)
    listing = parse_ptx(text, str(path))
    arch = arch_for(text, arch)
    for kernel in listing.kernels():
        yield Compiled(kernel.name, arch, "given", text, source_file=str(path))


def _in_entry(entry: FatbinEntry, path: Path) -> Iterator[Compiled]:
    code = entry.code()
    return _in_code(code if entry.kind == "cubin" else code.rstrip(b"\0"), entry.kind, path)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors on its code."""
    try:
        yield
    except TraceFormatError as error:
        raise TraceFormatError(f"{path}: {error.what}", error.remedy) from None


_REMEDY = "compile it with CUDA kernels for the GPU: nvcc -arch=sm_90"


def embedded_kernels(
    path: Path, options: CompileOptions, note: Callable[[str], None] = lambda _: None
) -> list[Compiled]:
    """The kernels in a file for one architecture: `options.arch`, else sm_90, else the newest.

    Cubins come with the PTX that is stored for the same architecture. Raises InputError if the file
    has no kernel or none for the architecture, and what `cubin.entries` raises.
    """
    try:
        entries = cubin_file.entries(path)
        arch = _chosen(path, entries, options.arch)
        same = [entry for entry in entries if entry.arch == arch]
        kernels = paired_code([k for entry in same for k in _in_entry(entry, path)])
    except (TraceFormatError, InputError) as error:
        if str(path) in error.what:
            raise
        raise type(error)(f"{path}: {error.what}", error.remedy) from None
    others = sorted({entry.arch for entry in entries} - {arch}, key=tools.number_of)
    also = f"; it has {', '.join(others)}, too (--arch)" if others else ""
    note(f"{path.name}: {units.counted(len(kernels), 'kernel')} for {arch}{also}")
    return kernels


def paired_code(kernels: Sequence[Compiled]) -> list[Compiled]:
    """The kernels, with the PTX and the cubin of the same kernel and architecture joined."""
    ptx = {(k.name, k.arch): k.ptx for k in kernels if k.ptx}
    cubins = [replace(k, ptx=ptx.get((k.name, k.arch))) for k in kernels if k.cubin]
    both = {(k.name, k.arch) for k in cubins}
    return cubins + [k for k in kernels if not k.cubin and (k.name, k.arch) not in both]


def _chosen(path: Path, entries: Sequence[FatbinEntry], wanted: str | None) -> str:
    archs = sorted({entry.arch for entry in entries}, key=tools.number_of)
    if not archs:
        raise InputError(f"{path} holds no GPU code", _REMEDY)
    plain = wanted.rstrip("af") if wanted else python_targets.DEFAULT_ARCH
    if plain in archs:
        return plain
    if wanted:
        raise InputError(f"{path} has no code for {wanted}", f"it has {', '.join(archs)}")
    return archs[-1]


_KINDS = (
    "a .ptx, .cubin or .cu file, a .so, .o or .fatbin with GPU code, FILE.py[:kernel], "
    "package.module:kernel, a Triton cache, a report of ncu, or a trace of `traceview record`"
)
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
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
        return python_targets.compile_python(target, options, recompiler=recompiler, note=note)
    kernels = _kernels_in_file(target, options, note)
    names = tools.demangled(kernel.name for kernel in kernels)
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
        producers.plain_name(symbol),
        producers.short_name(demangled_name),
        demangled_name,
    )
    if pattern is None or any(fnmatchcase(n, pattern) for n in names):
        return True
    return _as_written(pattern) in map(_as_written, names)


def _as_written(name: str) -> str:
    """A name without blanks, and with its numbers as source has them: 256 for 256u."""
    return re.sub(r"(?<=\d)[uUlL]+\b|\([\w ]+\)(?=-?\d)|\s", "", name)


def check_arch(arch: str | None) -> None:
    """Raise InputError unless `arch` is None or of the form of an architecture, such as sm_90a."""
    if arch:
        python_targets.refuse_amd_arch(arch)
    if arch and not _ARCH.fullmatch(arch):
        raise InputError(
            f"{arch[:40]!r} is not a GPU architecture", "pass, for example, --arch sm_90"
        )


def is_python(target: str) -> bool:
    """True for FILE.py, FILE.py:kernel and package.module:kernel."""
    path = Path(target)
    if path.exists():
        return path.is_file() and path.suffix == ".py"
    if _named_in_file(target):
        return False
    file, colon, kernel = target.rpartition(":")
    return bool(colon and kernel.isidentifier() and file) or target.endswith(".py")


def split_target(target: str, options: CompileOptions) -> tuple[str, CompileOptions]:
    """A file, and the options with the kernel of `FILE:kernel`, except for Python's files.

    Raises InputError if `kernel` in the options is another one.
    """
    named = _named_in_file(target)
    if named is None:
        return target, options
    file, kernel = named
    if options.kernel not in (None, kernel):
        what = f"{target} and --kernel {options.kernel} name different kernels"
        raise InputError(what, "leave out one of them")
    return file, replace(options, kernel=kernel)


def _named_in_file(target: str) -> tuple[str, str] | None:
    """The file and the kernel of `FILE:kernel`; a C++ name may have colons, too."""
    if Path(target).exists():
        return None
    for colon in re.finditer(":", target):
        file, kernel = Path(target[: colon.start()]), target[colon.end() :]
        known = file.suffix in _READERS or (file.exists() and file.suffix != ".py")
        if known and kernel and not kernel.startswith(":"):
            return target[: colon.start()], kernel
    return None


def unused_options(target: str, options: CompileOptions, *, what_if: bool) -> str | None:
    """The options, as on the command line, that such a target does not use; None without any."""
    if is_python(target):
        return None
    path = Path(target)
    has_budget = path.suffix in _CUDA_FILES
    has_warps = options.num_warps is not None and (path.is_dir() or is_trace(path))
    of_sources = [each for each in options.of_sources if each != "--budget" or not has_budget]
    unused = ["--what-if"] * what_if + ["--num-warps"] * has_warps + of_sources
    return ", ".join(unused) or None


def _kernels_in_file(
    target: str, options: CompileOptions, note: Callable[[str], None]
) -> list[Compiled]:
    path = Path(target)
    if path.is_dir():
        kernels = python_targets.read_cache(path, note=note)
        selected = [each for each in kernels if each.arch.startswith(options.arch or "")]
        if not selected:
            archs = ", ".join(sorted({each.arch for each in kernels}))
            raise InputError(
                f"{path} has no kernel for {options.arch}", f"its kernels are for {archs}"
            )
        return selected
    if not path.exists():
        raise InputError(f"{target} does not exist", f"pass {_KINDS}")
    python_targets.refuse_amd_code(path)
    read = _READERS.get(path.suffix)
    if read is None and path.is_file() and has_fatbin(path):
        kernels = embedded_kernels(path, options, note)
    elif read is None:
        python_targets.refuse_log(path)
        raise InputError(f"{target} is not a supported target", f"pass {_KINDS}")
    else:
        kernels = list(read(path, options))
    if options.num_warps is None:
        return kernels
    return [replace(kernel, num_warps=options.num_warps, block=None) for kernel in kernels]


def _of_ptx(path: Path, options: CompileOptions) -> Iterator[Compiled]:
    raw = _bytes_of(path)
    if raw.startswith(_ELF):
        try:
            cubin_file.arch_of(raw)
        except TraceFormatError:
            what = f"{path} is not PTX but another kind of binary"
            raise InputError(what, f"pass {_KINDS}") from None
        raise InputError(f"{path} is not PTX but a cubin", "rename it to end in .cubin")
    return _in_code(raw, "ptx", path, options.arch)


def _of_cubin(path: Path, options: CompileOptions) -> list[Compiled]:
    raw = _bytes_of(path)
    with _naming(path):
        arch, kernels = cubin_file.arch_of(raw), list(_in_code(raw, "cubin", path))
    if options.arch and not arch.startswith(options.arch):
        raise InputError(f"{path} is for {arch}, not for {options.arch}", "leave out --arch")
    return kernels


def _of_report(path: Path, _: CompileOptions) -> list[Compiled]:
    """The kernels in a report of Nsight Compute whose warps were sampled."""
    modules, launches = ncu_report.read_samples(path)
    sampled = {launch.symbol for launch in launches}
    listed = chain.from_iterable(modules.values())
    cubins = dict.fromkeys(module.cubin for module in listed if module.cubin)
    kernels = (kernel for cubin in cubins for kernel in _in_code(cubin, "cubin", path))
    return [kernel for kernel in kernels if kernel.name in sampled]


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


# `space::kernel<float>`, but no glob.
_NAME = re.compile(r"(?:\w+::)*[^\W\d]\w*(?:<[^;{}]+>)?")
_CUDA_FILES = (".cu", ".cuh", ".h", ".hpp")


def _of_cuda(path: Path, options: CompileOptions) -> Iterator[Compiled]:
    arch = options.arch or python_targets.DEFAULT_ARCH
    notes = list[str]()
    named = _NAME.fullmatch(options.kernel or "")
    name = named[0] if named else ""
    ptx, cubin = cuda_cpp.compile_cuda(path, arch, notes.append, name, options.trials_s)
    counts = {k.name: len(k.parameters) for k in parse_ptx(ptx, str(path)).kernels()}
    whole, text = tools.demangled(counts), ptx_text(_bytes_of(path))
    others = list(tools.demangled(cuda_cpp.called_elsewhere(ptx)).values())
    if others:
        notes.append(
            f"functions of other files are called and not counted: {units.first(others, 3)}"
        )
    for name, count in counts.items():
        short = own_name(name) or producers.short_name(whole[name])
        parameters = cuda_cpp.parameter_names(text, _own(short), count)
        compiled = Compiled(
            name, arch, "given", ptx, cubin, notes=tuple(notes), source_file=str(path)
        )
        compiled = replace(compiled, parameter_names=parameters)
        launch = cuda_launches.launch_of(path, _own(short))
        if launch:
            warps = -(-math.prod(launch.block) // amounts.WARP_THREADS)
            compiled = replace(
                compiled, block=launch.block, num_warps=warps, block_from=launch.source
            )
        yield compiled


def _own(name: str) -> str:
    """A kernel's name without template arguments and namespaces."""
    return name.partition("<")[0].rpartition("::")[2]


_READERS = {
    ".ptx": _of_ptx,
    ".cubin": _of_cubin,
    **dict.fromkeys(_CUDA_FILES, _of_cuda),
    ".ncu-rep": _of_report,
    ".ncu-repz": _of_report,
}


def _arguments(parameters: str) -> str:
    """Examples of the arguments that a template takes: `float, 64` for `typename T, int N`."""
    kinds = (re.sub(r"\bconst\b", "", each).split() for each in device_code.split(parameters))
    examples = {"typename": "float", "class": "float", "bool": "true"}
    return ", ".join(examples.get(words[0], "64") for words in kinds if words)


def _no_kernel(target: str, kernel: str | None, kernels: Sequence[Compiled]) -> tuple[str, str]:
    whole = tools.demangled(each.name for each in kernels)
    short = (own_name(each.name) or producers.short_name(whole[each.name]) for each in kernels)
    names = list(dict.fromkeys(short))
    path = Path(target)
    templates = cuda_cpp.templates(ptx_text(_bytes_of(path))) if path.suffix in _CUDA_FILES else {}
    if unused := [each for each in templates if fnmatchcase(each, _own(kernel or "*"))]:
        parameters = templates[unused[0]]
        what = (
            f"{target} only defines the kernel template {unused[0]}<{parameters}>, and no kernel "
            "is made of it"
        )
        made = f"'{target}:{unused[0]}<{_arguments(parameters)}>'"
        return what, f"name its arguments, such as {made}, or pass the .cu file that launches it"
    if kernel is None:
        return f"{target} has no kernel", "pass a file that defines or launches one"
    listed = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return f"{target} has no kernel {kernel!r}", f"it has {listed}" if names else ""
