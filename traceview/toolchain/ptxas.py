"""From PTX to a cubin through ptxas, keeping what ptxas remarks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceview.errors import TraceviewError
from traceview.toolchain import tools

# What a ptxas says that is older than the PTX or than the GPU.
_TOO_OLD = r"Unsupported \.version|not defined for option 'gpu-name'|Unsupported \.target"
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)([af]?)", re.MULTILINE)
_SAID = re.compile(r"^\S+ (?:\S+, line (?P<line>\d+); )?(?P<level>info|warning)\s*: (?P<text>.*)$")
_AN_ERROR = re.compile(r"line (?P<line>\d+); (?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)
_NO_LINE = re.compile(r"^ptxas\S* (?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)
_REMARK = re.compile(r"\(C\d+\)|Performance", re.IGNORECASE)
_OF = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Assembled:
    """A cubin and what ptxas said of it.

    `arch` is what it was compiled for, with its suffix. `notes` are ptxas's warnings and its
    remarks on performance, such as that on serialised wgmma. `spill_store_bytes` and
    `spill_load_bytes` hold, by function, what ptxas counts over all spilling instructions.
    """

    cubin: bytes
    arch: str
    notes: tuple[str, ...]
    spill_store_bytes: Mapping[str, int]
    spill_load_bytes: Mapping[str, int]


def assemble(
    ptx: str, arch: str | None = None, options: Sequence[str] = (), ptxas: Path | None = None
) -> Assembled:
    """Compile PTX for `arch`, or for its own target, with line information kept.

    `options` are more options of ptxas; `ptxas` is the one to use instead of the one found.
    Raises ToolNotFoundError, and TraceviewError with the first error that ptxas reports.
    """
    chosen = arch_for(ptx, arch)
    given = ptx.encode("utf-8", "surrogateescape")
    paths = [ptxas] if ptxas else tools.find("ptxas", chosen)

    def attempt(path: Path) -> tools.Ran:
        flags = ("-v", "-lineinfo", f"--gpu-name={chosen}", *options)
        return tools.run(path, lambda source, cubin: (*flags, source, "-o", cubin), given, ".ptx")

    ran = tools.first_success(paths, attempt, _TOO_OLD)
    if ran.status != 0 or ran.written is None:
        raise TraceviewError(f"ptxas does not accept the PTX for {chosen}: {_first_error(ran)}")
    stores, loads = _spills(ran.err)
    return Assembled(ran.written, chosen, _notes(ran.err), stores, loads)


def arch_for(ptx: str, arch: str | None = None) -> str:
    """The architecture to compile for: the PTX's own target has the last word on the suffix.

    sm_90a in the PTX makes sm_90a of sm_90, as such code runs nowhere else; a newer `arch` than
    the PTX's stays, as PTX compiles forward. Raises TraceviewError if there is neither, or if the
    code cannot run there.
    """
    target = _TARGET.search(ptx)
    if not target and not arch:
        raise TraceviewError("the PTX names no target", "pass --arch, such as --arch sm_90")
    if not target:
        return str(arch)
    own, suffix = target.groups()
    if arch in (None, own):
        return own + suffix
    if _number(str(arch)) < _number(own) or (suffix == "a" and arch != own + suffix):
        remedy = "compile it anew for that GPU"
        raise TraceviewError(f"the PTX is for {own}{suffix}, which does not run on {arch}", remedy)
    return str(arch)


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _first_error(ran: tools.Ran) -> str:
    placed = _AN_ERROR.search(ran.err)
    if placed:
        return f"line {placed['line']}: {placed['text'].strip()[:300]}"
    bare = _NO_LINE.search(ran.err)
    return bare["text"].strip()[:300] if bare else ran.evidence


def _notes(said: str) -> tuple[str, ...]:
    """Warnings and remarks on performance, each once, with their PTX line where there is one."""
    notes: dict[str, None] = {}
    for line in said.splitlines():
        found = _SAID.match(line)
        if found and (found["level"] == "warning" or _REMARK.search(found["text"])):
            place = f"line {found['line']}: " if found["line"] else ""
            notes.setdefault(place + found["text"].strip())
    return tuple(notes)


def _spills(said: str) -> tuple[dict[str, int], dict[str, int]]:
    stores: dict[str, int] = {}
    loads: dict[str, int] = {}
    function = ""
    for line in said.splitlines():
        named, spilled = _OF.search(line), _SPILLS.search(line)
        if named:
            function = named[1]
        elif spilled:
            stores[function], loads[function] = int(spilled[1]), int(spilled[2])
    return stores, loads
