"""Find nsys on this machine, and say what is wrong with it where it does not work."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from traceview.errors import ToolNotFoundError
from traceview.toolchain.processes import (
    ProcessResult,
    chosen_by_user,
    newest_first,
    on_path,
    run_process,
    variable_of,
)

NAMED_BY = variable_of("nsys")
# Older ones export a schema below 3.0, which has no reader.
OLDEST = (2022, 4)
GET_IT = (
    "install Nsight Systems from https://developer.nvidia.com/nsight-systems, "
    f"or name the tool in ${NAMED_BY}"
)
INSTALLED = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "usr/lib/*/nsight-systems/target-linux-*/nsys",
)
INSIDE_NSIGHT_COMPUTE = (
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
)
# Where the cores are busy its parts lose one another now and then before the program starts, with
# "End of file", "Connection to Agent lost" or "Local Endpoint is not available": with 2023.4 in 12
# of 300 recordings, four at a time on two cores, and in none of 25 one at a time.
ATTEMPTS = 3
_VERSION = re.compile(r"NVIDIA Nsight Systems version ((\d{4})\.(\d+)[\w.\-]*)")
_SHARED_LIBRARY = re.compile(r"(lib\w+)[\w.\-]*\.so[\w.]*: cannot open shared object")
_PACKAGES = {"libdw": "libdw1", "libelf": "libelf1", "libssh": "libssh-4"}


@dataclass(frozen=True)
class Lack:
    """What a tool needs and has not got, and how to mend that."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Nsys:
    """An nsys that answers; `version` is its year and number within the year."""

    path: Path
    version_text: str
    version: tuple[int, int]

    @cached_property
    def lack(self) -> Lack | None:
        """Why a recording of it cannot be imported; None where it can, as far as is known."""
        return _importer_lack(self.path)


@dataclass(frozen=True)
class Broken:
    """A file that is there as nsys and does not work, with the evidence."""

    path: Path
    reason: str
    remedy: str = GET_IT


def find(root: Path = Path("/")) -> Nsys:
    """The nsys to use: the one that $TRACEVIEW_NSYS names, or the first that can do all.

    A tool that records but cannot import its recording is the last choice. `root` is where
    install folders are looked for. Raises ToolNotFoundError if none works.
    """
    found = list(look(root))
    working = [tool for tool in found if isinstance(tool, Nsys)]
    for tool in working:
        if not tool.lack:
            return tool
    if working:
        return working[0]
    raise _none_works([tool for tool in found if isinstance(tool, Broken)])


def look(root: Path = Path("/")) -> Iterator[Nsys | Broken]:
    """Try the places where nsys may be, best first, each tool once."""
    seen: set[Path] = set()
    for path in _places(root):
        if path.resolve() not in seen:
            seen.add(path.resolve())
            yield inspect(path)


def inspect(path: Path) -> Nsys | Broken:
    """Ask a tool for its version, the least that a working one can tell."""
    answer = run_process([path, "--version"])
    found = _VERSION.search(answer.out)
    if not answer.ok or not found:
        return Broken(path, f"{path} is broken ({_why_no_version(answer)})")
    version = int(found[2]), int(found[3])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Broken(path, f"{path} is version {found[1]}, too old: {oldest} is the oldest usable")
    return Nsys(path, found[1], version)


def _why_no_version(answer: ProcessResult) -> str:
    return f"`nsys --version` tells no version: {answer.evidence}" if answer.ok else answer.evidence


def _places(root: Path) -> Iterator[Path]:
    chosen = chosen_by_user("nsys")
    if chosen:
        # No other nsys may take its place: that would be a surprise.
        yield chosen
        return
    yield from on_path("nsys")
    for pattern in (*INSTALLED, *INSIDE_NSIGHT_COMPUTE):
        yield from newest_first(root.glob(pattern))


def _none_works(broken: list[Broken]) -> ToolNotFoundError:
    if broken:
        return ToolNotFoundError("; ".join(tool.reason for tool in broken), broken[0].remedy)
    return ToolNotFoundError(
        "nsys is not on this machine (not on PATH, nor in the usual install folders)", GET_IT
    )


def _importer_lack(tool: Path) -> Lack | None:
    """nsys records into a raw stream; a second program, in a folder beside it, makes a report."""
    beside = tool.resolve().parent.parent
    folder = beside / "host-linux-x64"
    if folder.is_dir():
        importer = folder / "QdstrmImporter"
        return _library_lack(run_process([importer, "--help"])) if importer.exists() else None
    shipped = sorted(beside.glob("linux-desktop-*-x64"))
    if not shipped:
        return None
    link = f"ln -s {shlex.quote(shipped[-1].name)} {shlex.quote(str(folder))}"
    return Lack(f"{tool} does not find its importer (there is no {folder})", f"run: {link}")


def _library_lack(answer: ProcessResult) -> Lack | None:
    library = _SHARED_LIBRARY.search(answer.text)
    if answer.ok or not library:
        return None
    package = _PACKAGES.get(library[1], library[1])
    return Lack(
        f"its importer does not start ({answer.evidence})", f"install the library: {package}"
    )
