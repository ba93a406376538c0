"""The code of one kernel at both levels, made with the tools that this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from traceview.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.ptx import cubin as cubin_file
from traceview.ptx import sass as sass_code
from traceview.ptx.model import Compiled, Function, Listing, Resources
from traceview.ptx.parse import parse_ptx
from traceview.ptx.tools import Assembled, assemble


@dataclass(frozen=True)
class Code:
    """A kernel's PTX and SASS, and what the cubin tells; None for what could not be had.

    `remarks` are those of the compiler, `notes` say what is missing and how to get it.
    """

    ptx: Function | None
    sass: Function | None
    resources: Resources | None
    remarks: tuple[str, ...]
    notes: tuple[str, ...]


def code_of(compiled: Compiled, *, sass: bool = True) -> Code:
    """Parse, assemble and disassemble a kernel as far as can be.

    Raises TraceFormatError if its PTX is damaged, InputError if that has no such kernel.
    """
    ptx = _parsed(compiled.ptx) if compiled.ptx else None
    notes: list[str] = []
    remarks, cubin = _cubin(compiled, notes)
    listing = _disassembled_or_none(cubin, ptx, notes) if cubin and sass else None
    return Code(
        ptx=_named(ptx, compiled.name, required=True),
        sass=_named(listing, compiled.name),
        resources=_resources_or_none(cubin, compiled.name, notes) if cubin else None,
        remarks=remarks,
        notes=tuple(dict.fromkeys(notes)),
    )


# A file with many kernels is given once for each of them.
_parsed = lru_cache(maxsize=2)(parse_ptx)


@lru_cache(maxsize=2)
def _assembled(ptx: str, arch: str) -> Assembled:
    return assemble(ptx, arch)


@lru_cache(maxsize=2)
def _disassembled(cubin: bytes) -> Listing:
    return sass_code.disassemble(cubin)


@lru_cache(maxsize=2)
def _resources(cubin: bytes) -> dict[str, Resources]:
    return cubin_file.resources(cubin)


def _cubin(compiled: Compiled, notes: list[str]) -> tuple[tuple[str, ...], bytes | None]:
    """The compiler's remarks and the cubin, made by ptxas where there is none.

    Triton throws ptxas's remarks away: for wgmma, of which they tell most, it is asked again.
    """
    told = compiled.notes or "wgmma" not in (compiled.ptx or "")
    if compiled.ptx is None or (compiled.cubin and told):
        return compiled.notes, compiled.cubin
    try:
        made = _assembled(compiled.ptx, compiled.arch)
    except ToolNotFoundError as error:
        notes.append(f"no registers, spills and SASS: {error}")
    except TraceviewError as error:
        notes.append(f"not assembled: {error}")
    else:
        return (*compiled.notes, *made.notes), compiled.cubin or made.cubin
    return compiled.notes, compiled.cubin


def _disassembled_or_none(cubin: bytes, ptx: Listing | None, notes: list[str]) -> Listing | None:
    try:
        listing = _disassembled(cubin)
    except TraceviewError as error:
        notes.append(f"no SASS: {error}")
        return None
    return sass_code.with_sources_of(listing, ptx) if ptx else listing


def _resources_or_none(cubin: bytes, name: str, notes: list[str]) -> Resources | None:
    try:
        return _resources(cubin).get(name)
    except TraceviewError as error:
        notes.append(f"no registers and spills: {error}")
        return None


def _named(listing: Listing | None, name: str, *, required: bool = False) -> Function | None:
    if listing is None:
        return None
    same = [function for function in listing.functions if function.name == name]
    if not same and required:
        raise InputError(f"the PTX has no kernel {name[:80]!r}")
    return same[0] if same else None
