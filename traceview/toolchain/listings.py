"""The PTX and SASS of one kernel, as far as this machine has the tools to make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple

from traceview.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.ptx.model import Compiled, Function, Listing, Resources
from traceview.ptx.parser import parse_ptx
from traceview.ptx.sass import cubin as cubin_file
from traceview.ptx.sass.disassembly import with_sources_of
from traceview.records import record
from traceview.toolchain import nvdisasm
from traceview.toolchain.ptxas import Assembled, assemble

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_ON_FUNCTION = re.compile(r"function '([^']+)'")


@record
class Code:
    """A kernel's PTX, SASS and resources; None for what is not available.

    `remarks` are those of the compiler, `notes` say what is missing and how to get it.
    """

    ptx: Function | None
    sass: Function | None
    resources: Resources | None
    remarks: tuple[str, ...]
    notes: tuple[str, ...]


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


@_once
def _assembled(ptx: str, arch: str) -> Assembled:
    return assemble(ptx, arch)


@_once
def _disassembled(cubin: bytes, ptx: str | None) -> Listing:
    listing = nvdisasm.disassemble(cubin)
    return with_sources_of(listing, _parsed(ptx)) if ptx else listing


@_once
def _resources(cubin: bytes) -> dict[str, Resources]:
    return cubin_file.resources(cubin)


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
