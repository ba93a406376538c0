"""The PTX and SASS of one kernel, assembled and disassembled as far as there are tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from traceview.base.errors import InputError, ToolNotFoundError, TraceFormatError, TraceviewError
from traceview.base.records import record
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx.disassembly import parse, with_sources_of
from traceview.kernels.ptx.model import Compiled, Function, Listing, Resources
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.tools import ProcessResult, number_of

MOST_KEPT = 16


def disassemble(cubin: bytes) -> Listing:
    """Disassemble a cubin to SASS, with source lines if ptxas kept them.

    Raises ToolNotFoundError without nvdisasm, TraceFormatError if it cannot read the cubin.
    """
    return parse(text_of(cubin))


@lru_cache(maxsize=MOST_KEPT)
def text_of(cubin: bytes) -> str:
    """The output of nvdisasm for a cubin, which the line numbers of instructions refer to.

    The latest MOST_KEPT are cached, so that several cubins can be disassembled ahead of use.
    Raises as `disassemble` does.
    """

    def attempt(path: Path) -> ProcessResult:
        return tools.run(path, lambda source, _: ("-c", "-gi", "-gp", source), cubin, ".cubin")

    result = tools.run_first_able(tools.find_newest("nvdisasm"), attempt, "")
    if not result.ok:
        raise TraceFormatError(
            f"nvdisasm cannot read the cubin: {result.evidence}",
            "install a newer CUDA toolkit, or set $TRACEVIEW_NVDISASM to its nvdisasm",
        )
    return result.out


# Errors of a ptxas that is older than the PTX version or than the GPU.
_TOO_OLD = r"Unsupported \.version|not defined for option 'gpu-name'|Unsupported \.target"
_VERSION = re.compile(r"^(\s*\.version\s+)(\d+\.\d+)", re.MULTILINE)
_KNOWN_VERSION = re.compile(r"Unsupported \.version \S+; current version is '(\d+\.\d+)'")
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)([af]?)", re.MULTILINE)
_MESSAGE = re.compile(
    r"^\S+ (?:\S+, line (?P<line>\d+); )?(?P<level>info|warning)\s*: (?P<text>.*)$"
)
_ERROR_WITH_LINE = re.compile(
    r"line (?P<line>\d+); (?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE
)
_ERROR = re.compile(r"^ptxas\S* (?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)
_REMARK = re.compile(r"\(C\d+\)|Performance", re.IGNORECASE)


@record
class Assembled:
    """A cubin and what ptxas reported while making it.

    `arch` is the target with its suffix (sm_90a). `notes` are warnings and performance remarks,
    such as "wgmma.mma_async instructions are serialized"; `log` is all that it wrote with -v.
    """

    cubin: bytes
    arch: str
    notes: tuple[str, ...]
    log: str


def assemble(
    ptx: str, arch: str | None = None, options: Sequence[str] = (), ptxas: Path | None = None
) -> Assembled:
    """Assemble PTX for `arch` (default: its `.target`), with line information.

    `options` are extra ptxas options; `ptxas` is a path to use instead of searching for one. PTX of
    a newer ISA version than any ptxas here knows is assembled as the newest known version, with a
    note: ptxas rejects it if it uses newer instructions. Raises ToolNotFoundError, or
    TraceviewError with the first error that ptxas reports.
    """
    chosen = arch_for(ptx, arch)
    paths = [ptxas] if ptxas else tools.find("ptxas", chosen)
    flags = ("-v", "-lineinfo", f"--gpu-name={chosen}", *options)
    result, note = _run(paths, ptx.rstrip("\0"), flags)
    if not result.ok or result.written is None:
        old = re.search(_TOO_OLD, result.err)
        raise TraceviewError(
            f"ptxas rejects the PTX for {chosen}: {_first_error(result)}",
            "install a newer CUDA toolkit, or set $TRACEVIEW_PTXAS to its ptxas" if old else "",
        )
    # Without repetitions, with the PTX line if there is one.
    remarks: dict[str, None] = {}
    for line in result.err.splitlines():
        message = _MESSAGE.match(line)
        if message and (message["level"] == "warning" or _REMARK.search(message["text"])):
            place = f"line {message['line']}: " if message["line"] else ""
            remarks.setdefault(place + message["text"].strip())
    return Assembled(result.written, chosen, (*note, *remarks), result.err)


def _run(
    paths: Sequence[Path], ptx: str, flags: Sequence[str]
) -> tuple[ProcessResult, tuple[str, ...]]:
    """The result of the first ptxas that takes the PTX, else of the last; and a note on it."""
    known: dict[tuple[int, ...], Path] = {}

    def attempt(path: Path, text: str = ptx) -> ProcessResult:
        source = text.encode()
        result = tools.run(path, lambda file, cubin: (*flags, file, "-o", cubin), source, ".ptx")
        if older := _KNOWN_VERSION.search(result.err):
            known.setdefault(tuple(map(int, older[1].split("."))), path)
        return result

    result = tools.run_first_able(paths, attempt, _TOO_OLD)
    written = _VERSION.search(ptx)
    if result.ok or not known or not written:
        return result, ()
    newest = max(known)
    version = ".".join(map(str, newest))
    as_older = attempt(known[newest], _VERSION.sub(rf"\g<1>{version}", ptx, count=1))
    known_as = f"assembled as PTX ISA {version}, the newest that ptxas here knows"
    return (as_older, (f"{known_as}; it is {written[2]}",)) if as_older.ok else (result, ())


def arch_for(ptx: str, arch: str | None = None) -> str:
    """The architecture to assemble for; the PTX's `.target` decides the suffix.

    PTX for sm_90a turns an `arch` of sm_90 into sm_90a, as it runs nowhere else. An `arch` newer
    than the PTX's target is kept, as PTX is forward compatible. Raises TraceviewError if neither
    names an architecture, or if the PTX cannot run on `arch`.
    """
    target = _TARGET.search(ptx)
    if not target and not arch:
        raise TraceviewError("the PTX has no .target directive", "pass --arch, e.g. --arch sm_90")
    if not target:
        return str(arch)
    own, suffix = target.groups()
    if arch in (None, own):
        return own + suffix
    if number_of(str(arch)) < number_of(own) or (suffix == "a" and arch != own + suffix):
        remedy = "recompile the source for that GPU"
        raise TraceviewError(f"the PTX is for {own}{suffix} and cannot run on {arch}", remedy)
    return str(arch)


def _first_error(result: ProcessResult) -> str:
    with_line = _ERROR_WITH_LINE.search(result.err)
    if with_line:
        return f"line {with_line['line']}: {with_line['text'].strip()[:300]}"
    without_line = _ERROR.search(result.err)
    return without_line["text"].strip()[:300] if without_line else result.evidence


T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_ON_FUNCTION = re.compile(r"function '([^']+)'")


@record
class Code:
    """A kernel's PTX, cubin, SASS and resources; None for what is not available.

    `remarks` are those of the compiler, `notes` say what is missing and how to get it.
    """

    ptx: Function | None
    sass: Function | None
    resources: Resources | None
    remarks: tuple[str, ...]
    notes: tuple[str, ...]
    cubin: bytes | None = None


def code_of(compiled: Compiled, *, sass: bool = True, ptxas: bool = True) -> Code:
    """Parse, assemble and disassemble a kernel as far as possible.

    With `ptxas` False nothing is assembled: neither to make a missing cubin nor to get remarks.
    Raises TraceFormatError if the PTX is damaged, InputError if it has no such kernel.
    """
    ptx = _parsed(compiled.ptx) if compiled.ptx else None
    notes: list[str] = []
    remarks, cubin = _cubin(compiled, notes) if ptxas else (compiled.notes, compiled.cubin)
    listing, resources = None, None
    if cubin and sass:
        with _noted("no SASS", notes):
            listing = _disassembled(cubin, compiled.ptx)
    if cubin:
        with _noted("no registers or spills", notes):
            resources = _resources(cubin).get(compiled.name)
    # The remarks without those on other kernels of the file.
    matches = ((remark, _ON_FUNCTION.search(remark)) for remark in remarks)
    function_of = {remark: match[1] for remark, match in matches if match}
    kernels = ptx.kernels() if ptx and function_of else ()
    others = {kernel.name for kernel in kernels} - {compiled.name}
    return Code(
        ptx=_function(ptx, compiled.name, required=True),
        sass=_function(listing, compiled.name),
        resources=resources,
        remarks=tuple(remark for remark in remarks if function_of.get(remark) not in others),
        notes=tuple(dict.fromkeys(notes)),
        cubin=cubin,
    )


@contextmanager
def _noted(what: str, notes: list[str]) -> Iterator[None]:
    try:
        yield
    except TraceviewError as error:
        notes.append(f"{what}: {error}")


def _once(function: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
    """Cache the latest results and errors of a function that is called per kernel of a file."""

    @lru_cache(maxsize=2)
    def kept(arguments: tuple[*Ts]) -> T | TraceviewError:
        try:
            return function(*arguments)
        except ToolNotFoundError:
            # The user may install or name the tool in the meantime.
            raise
        except TraceviewError as error:
            return error

    @wraps(function)
    def once(*arguments: *Ts) -> T:
        result = kept(arguments)
        if isinstance(result, TraceviewError):
            raise result.with_traceback(None)
        return result

    return once


_parsed = lru_cache(maxsize=2)(parse_ptx)
_resources = _once(cubin_file.resources)


@_once
def _assembled(ptx: str, arch: str) -> Assembled:
    return assemble(ptx, arch)


@_once
def _disassembled(cubin: bytes, ptx: str | None) -> Listing:
    listing = disassemble(cubin)
    return with_sources_of(listing, _parsed(ptx)) if ptx else listing


def _cubin(compiled: Compiled, notes: list[str]) -> tuple[tuple[str, ...], bytes | None]:
    """The compiler's remarks and the cubin, assembled if there is none.

    Triton discards ptxas's remarks. Code with wgmma, to which the important ones refer, is
    therefore assembled again.
    """
    if compiled.ptx is None or (compiled.cubin and (compiled.notes or "wgmma" not in compiled.ptx)):
        return compiled.notes, compiled.cubin
    try:
        assembled = _assembled(compiled.ptx, compiled.arch)
    except ToolNotFoundError as error:
        notes.append(f"no registers, spills or SASS: {error}")
    except TraceviewError as error:
        notes.append(f"not assembled: {error}")
    else:
        return (*compiled.notes, *assembled.notes), compiled.cubin or assembled.cubin
    return compiled.notes, compiled.cubin


def _function(listing: Listing | None, name: str, *, required: bool = False) -> Function | None:
    if listing is None:
        return None
    same = [function for function in listing.functions if function.name == name]
    if not same and required:
        raise InputError(f"the PTX has no kernel {name[:80]!r}")
    return same[0] if same else None
