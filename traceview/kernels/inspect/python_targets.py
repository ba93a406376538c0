"""Targets that Triton compiles: kernels of a Python file or module, or in a cache folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError, TraceviewError
from traceview.base.hardware import limits_of
from traceview.base.records import record
from traceview.kernels.headless.client import Worker
from traceview.kernels.headless.compile_options import CompileOptions, Request
from traceview.kernels.headless.events import Events, Generated
from traceview.kernels.headless.recompile import Recompiler
from traceview.kernels.ptx.model import Argument, Compiled, source_path

# Compile the kernels of a Python target: FILE.py, FILE.py:kernel or package.module:kernel.
#
# The script runs in a worker process on a fake GPU, so neither a GPU nor its driver is needed.
# Kernels are compiled as the script launches them, else as declared by a signature, else with
# arguments guessed from the source. Debug folders and logs of torch.compile are refused, with the
# file to pass instead.

_WRITTEN_TO = re.compile(rb"\[__output_code\].* Output code written to: (\S+\.py)")
_MOST_BYTES = 1 << 24


def refuse_log(path: Path) -> None:
    """Raise InputError if a file is what TORCH_LOGS=output_code prints."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        named = _WRITTEN_TO.search(stream.read(_MOST_BYTES))
    if named:
        what = f"{path} is a log of torch.compile"
        raise InputError(what, f"pass the file that it names: {named[1].decode(errors='replace')}")


DEFAULT_ARCH = "sm_90"
_DEFAULTS = CompileOptions()
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_REACH = "pass it arguments, after --, with which it launches one"


@record
class Target:
    """A parsed target: a `file` or a `module`, and one kernel or None for all."""

    text: str
    file: str | None
    module: str | None
    kernel: str | None


def compile_python(
    target: str,
    options: CompileOptions = _DEFAULTS,
    *,
    recompiler: Recompiler | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Compiled]:
    """Compile the kernels of a Python target without launching any.

    `recompiler` keeps the worker process, to compile the kernels again. `note` gets a line at a
    time for the user. The script writes to stderr.

    Raises InputError where the target, the signature or the script is at fault, ToolNotFoundError
    without Triton, TraceviewError if the process is killed before anything was compiled.
    """
    parts = parse_target(target, options.kernel)
    arch = options.arch or DEFAULT_ARCH
    request = Request(
        file=parts.file,
        module=parts.module,
        capability=limits_of(arch).compute_capability,
        options=replace(options, kernel=parts.kernel, budget_s=options.trials_s),
    )
    with ExitStack() as stack:
        worker = Worker(request)
        stack.callback(worker.close)
        ended = worker.run()
        events = Events.read(worker.events, arch)
        kernels = _compiled(events, ended, parts, note)
        if recompiler:
            why = f"{_name(parts)} {ended or 'exited'}, so its kernels cannot be recompiled"
            recompiler.take(worker, None if worker.lives else why, events.left_out)
            stack.pop_all()
        return kernels


def parse_target(text: str, kernel: str | None = None) -> Target:
    """Parse a target. Raises InputError if it is invalid or contradicts `kernel`."""
    place, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    if kernel and name and kernel != name:
        remedy = "leave out one of them"
        raise InputError(f"{text} and --kernel {kernel} name different kernels", remedy)
    selected = name or kernel or None
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "does not exist"
            raise InputError(f"{place} {reason}", "check the path")
        return Target(text, str(path.absolute()), None, selected)
    if _MODULE.fullmatch(place):
        return Target(text, None, place, selected)
    remedy = "write FILE.py, FILE.py:kernel or package.module:kernel"
    raise InputError(f"{text[:200]!r} is not a Python target", remedy)


def _name(target: Target) -> str:
    return Path(target.file).name if target.file else str(target.module)


def _compiled(
    events: Events, ended: str | None, target: Target, note: Callable[[str], None]
) -> list[Compiled]:
    """The compiled kernels, with notes on how the script ended; raises if there are none."""
    if events.failure:
        raise events.failure
    name = _name(target)
    if ended and not events.compiled:
        limit = "budget" if "still compiling" in ended else "timeout" if "within" in ended else ""
        remedy = f"allow more time with --{limit}" if limit else ""
        raise TraceviewError(f"{name} {ended} before any kernel was compiled", remedy)
    if not events.compiled:
        raise InputError(f"{name} exited before it compiled any kernel", _REACH)
    if ended:
        note(f"{name} {ended.rstrip(',')}; only kernels compiled by then are shown")
    for text in events.notes:
        note(text)
    if not events.is_whole and any(compiled.launches for compiled in events.compiled):
        note(f"{name} did not run to its end: launch counts are lower bounds")
    note(f"{name}: {events.summary}")
    return events.compiled


# Kernels in a cache folder of Triton's or of Inductor's: what a real run has compiled.
#
# Each kernel has a folder with NAME.json beside NAME.ptx, NAME.cubin and NAME.ttir. The JSON
# knows the options and the dynamic shared memory; the types and alignment of the arguments are in
# the Triton IR, which drops constexprs.

_FUNCTION = re.compile(r"tt\.func public @\S+?\((?P<parameters>.*)\)\s*(?:attributes|\{|->)")
_PARAMETER = re.compile(
    r"%\w+: (?P<type>.+?)(?: \{(?P<attributes>[^}]*)\})?"
    r' loc\("(?P<name>[^"]*)"\((?P<place>#loc\d*)\)\)'
)
_DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")
_POINTER = re.compile(r"!tt\.ptr<(.+?)(?:, \d+)?>")
_TYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}


_STAGES = ("ttir", "ttgir", "llir")


def read_cache(folder: Path, *, note: Callable[[str], None] = lambda _: None) -> list[Compiled]:
    """The kernels in a folder and below it, by name and path.

    A damaged kernel is left out, and `note` gets a message. Raises InputError if there is no
    kernel.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "pass the folder of a cache")
    generated = Generated.in_folder(folder)
    each = (c for path in sorted(_descriptions(folder)) for c in _entry(path, note))
    kernels = [generated.described(compiled) for compiled in each]
    if not kernels:
        binary = next(folder.rglob("*.hsaco"), None) or next(folder.rglob("*.amdgcn"), None)
        if binary:
            raise InputError(f"{folder} holds kernels for AMD GPUs ({binary.name})", _REMEDY)
        graph = min(folder.rglob("output_code.py"), default=None)
        if graph:
            what = f"{folder} holds no compiled kernel, but graphs that torch.compile has generated"
            raise InputError(what, f"pass one, such as {graph}")
        remedy = "give TRITON_CACHE_DIR, ~/.triton/cache, TORCHINDUCTOR_CACHE_DIR or one below it"
        raise InputError(f"{folder} holds no CUDA kernel compiled by Triton", remedy)
    return sorted(kernels, key=lambda compiled: compiled.name)


def _descriptions(folder: Path) -> Iterator[Path]:
    """The JSON files beside compiled code, each of which describes a kernel."""
    for path in folder.rglob("*.json"):
        code = (path.with_suffix(suffix) for suffix in (".ptx", ".cubin"))
        if not path.name.startswith("__grp__") and any(file.is_file() for file in code):
            yield path


def _entry(path: Path, note: Callable[[str], None]) -> Iterator[Compiled]:
    try:
        described = json.loads(path.read_text("utf-8"))
        if described["target"]["backend"] == "cuda":
            yield _cached(path, described)
    except (OSError, ValueError, LookupError, TypeError) as error:
        note(f"{path} is left out: it is damaged ({type(error).__name__}: {error})")


def _cached(path: Path, described: Mapping[str, Any]) -> Compiled:
    cubin = path.with_suffix(".cubin")
    arguments, source = _from_ir(_read_if_there(path, ".ttir", ".source") or "")
    return Compiled(
        name=str(described["name"]),
        arch=f"sm_{int(described['target']['arch'])}",
        how="given",
        ptx=_read_if_there(path, ".ptx"),
        cubin=cubin.read_bytes() if cubin.is_file() else None,
        arguments=arguments,
        num_warps=int(described["num_warps"]),
        num_stages=described.get("num_stages"),
        dynamic_shared_bytes=described.get("shared"),
        source_file=source[0] if source else None,
        source_line=source[1] if source else None,
        stages={
            name: text for name in _STAGES if (text := _read_if_there(path, f".{name}")) is not None
        },
    )


def _read_if_there(path: Path, *suffixes: str) -> str | None:
    files = (path.with_suffix(suffix) for suffix in suffixes)
    return next((file.read_text("utf-8") for file in files if file.is_file()), None)


def _from_ir(text: str) -> tuple[tuple[Argument, ...], tuple[str, int] | None]:
    """Arguments, and the file and line of the kernel's `def`, from Triton IR."""
    function = _FUNCTION.search(text)
    parameters = list(_PARAMETER.finditer(function["parameters"])) if function else []
    place = parameters[0]["place"] if parameters else "#loc"
    at = re.search(rf'^{place} = loc\("(.*)":(\d+):\d+\)', text, re.MULTILINE)
    return tuple(map(_argument, parameters)), (source_path(at[1]), int(at[2])) if at else None


def _argument(match: re.Match[str]) -> Argument:
    divisible = _DIVISIBLE.search(match["attributes"] or "")
    return Argument(
        match["name"], _type(match["type"]), bool(divisible and int(divisible[1]) % 16 == 0)
    )


def _type(written: str) -> str:
    """Triton's name of a type of its IR: *fp32 for !tt.ptr<f32>."""
    pointer = _POINTER.fullmatch(written)
    return f"*{_type(pointer[1])}" if pointer else _TYPES.get(written, written)


_REMEDY = "traceview ptx reads code for NVIDIA GPUs"
_ELF = b"\x7fELF"
# e_machine of an ELF file: EM_AMDGPU.
_MACHINE_AT, _AMDGPU = 18, 224
_BUNDLES = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")
_ARCH = re.compile(r"\bgfx[0-9a-f]{3,4}\b")
_ASSEMBLY = re.compile(rb"^\s*\.amdgcn_target\b|^\s*\.amdhsa_", re.MULTILINE)
_SUFFIXES = (".hsaco", ".amdgcn", ".hip")
_READ_BYTES = 1 << 16


def refuse_amd_arch(arch: str) -> None:
    """Raise InputError for an architecture of AMD's, such as gfx942 or hip:gfx942."""
    if _ARCH.search(arch) or arch.partition(":")[0] == "hip":
        raise InputError(f"{arch[:40]} is an AMD GPU", f"{_REMEDY}; pass, for example, sm_90")


def refuse_amd_code(path: Path) -> None:
    """Raise InputError if a file is code for AMD GPUs: a code object, a bundle or assembly."""
    try:
        with path.open("rb") as file:
            start = file.read(_READ_BYTES)
    except OSError:
        # The error is reported where the file is read.
        return
    if path.suffix in _SUFFIXES or is_amd(start):
        named = _ARCH.search(start.decode("latin-1"))
        which = f" ({named[0]})" if named else ""
        raise InputError(f"{path} is code for AMD GPUs{which}", _REMEDY)


def is_amd(start: bytes) -> bool:
    """Whether bytes are the start of AMD's code."""
    machine = int.from_bytes(start[_MACHINE_AT : _MACHINE_AT + 2], "little")
    is_object = start.startswith(_ELF) and machine == _AMDGPU
    return is_object or start.startswith(_BUNDLES) or bool(_ASSEMBLY.search(start))
