"""Find a working nsys on this machine, and diagnose those that do not work."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from traceview.errors import ToolNotFoundError
from traceview.records import record
from traceview.toolchain import processes

NAMED_BY = processes.variable_of("nsys")
# Older versions export a schema below 3.0, which cannot be read.
OLDEST = (2022, 4)
GET_IT = (
    "install Nsight Systems from https://developer.nvidia.com/nsight-systems, "
    f"or set {NAMED_BY} to its path"
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
# On a busy machine the processes of nsys sometimes lose their connection before the program starts
# ("End of file", "Connection to Agent lost", "Local Endpoint is not available"): nsys 2023.4 did so
# in 12 of 300 recordings made four at a time on two cores, and in none of 25 made one at a time.
# In one of 160 recordings its importer failed (in AnalysisStatus::SetNextState), but imported the
# same file when run again.
ATTEMPTS = 3
_VERSION = re.compile(r"NVIDIA Nsight Systems version ((\d{4})\.(\d+)[\w.\-]*)")
_SHARED_LIBRARY = re.compile(r"(lib\w+)[\w.\-]*\.so[\w.]*: cannot open shared object")
_PACKAGES = {"libdw": "libdw1", "libelf": "libelf1", "libssh": "libssh-4"}


@record
class Defect:
    """Why an nsys cannot produce a usable recording, and the fix."""

    what: str
    remedy: str


@record
class Nsys:
    """An nsys that runs. `version` is its year and its number within the year."""

    path: Path
    version_text: str
    version: tuple[int, int]

    @property
    def importer(self) -> Path | None:
        """The program that turns a raw recording into a report, if it is where nsys expects it."""
        path = _importer_folder(self.path) / "QdstrmImporter"
        return path if path.exists() else None

    @cached_property
    def defect(self) -> Defect | None:
        """What keeps this nsys from importing its own recordings; None if nothing is known.

        The importer, a second program, turns the raw recording into a report.
        """
        folder = _importer_folder(self.path)
        if folder.is_dir():
            importer = self.importer
            answer = processes.run_process([importer, "--help"]) if importer else None
            library = _SHARED_LIBRARY.search(answer.text) if answer and not answer.ok else None
            if answer is None or library is None:
                return None
            return Defect(
                f"the importer of nsys does not start ({answer.evidence})",
                f"install the package {_PACKAGES.get(library[1], library[1])}",
            )
        shipped = sorted(folder.parent.glob("linux-desktop-*-x64"))
        if not shipped:
            return None
        link = f"ln -s {shlex.quote(shipped[-1].name)} {shlex.quote(str(folder))}"
        what = f"{self.path} cannot find its importer (folder {folder} does not exist)"
        return Defect(what, f"run: {link}")


@record
class Broken:
    """An nsys executable that does not work, with the evidence."""

    path: Path
    reason: str
    remedy: str = GET_IT


def find(root: Path = Path("/")) -> Nsys:
    """The nsys to use: the one named by $TRACEVIEW_NSYS, or the first without a defect.

    An nsys that cannot import its own recordings is the last choice. `root` holds the install
    folders. Raises ToolNotFoundError if none works.
    """
    candidates = list(probe_all(root))
    working = [tool for tool in candidates if isinstance(tool, Nsys)]
    for tool in working:
        if not tool.defect:
            return tool
    if working:
        return working[0]
    broken = [tool for tool in candidates if isinstance(tool, Broken)]
    if broken:
        raise ToolNotFoundError("; ".join(tool.reason for tool in broken), broken[0].remedy)
    raise ToolNotFoundError("nsys was not found on PATH or in the usual install folders", GET_IT)


def probe_all(root: Path = Path("/")) -> Iterator[Nsys | Broken]:
    """Probe every nsys in the usual install folders, best first, each once."""
    seen: set[Path] = set()
    for path in _places(root):
        if path.resolve() not in seen:
            seen.add(path.resolve())
            yield probe(path)


def probe(path: Path) -> Nsys | Broken:
    """Run `nsys --version`: the least that a working nsys can do."""
    answer = processes.run_process([path, "--version"])
    match = _VERSION.search(answer.out)
    if not answer.ok or not match:
        why = "`nsys --version` shows no version: " if answer.ok else ""
        return Broken(path, f"{path} is broken ({why}{answer.evidence})")
    version = int(match[2]), int(match[3])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Broken(path, f"{path} is version {match[1]}, but {oldest} or newer is needed")
    return Nsys(path, match[1], version)


def _places(root: Path) -> Iterator[Path]:
    chosen = processes.chosen_by_user("nsys")
    if chosen:
        # No other nsys may take its place: that would be a surprise.
        yield chosen
        return
    yield from processes.on_path("nsys")
    for pattern in (*INSTALLED, *INSIDE_NSIGHT_COMPUTE):
        yield from processes.newest_first(root.glob(pattern))


def _importer_folder(tool: Path) -> Path:
    return tool.resolve().parent.parent / "host-linux-x64"


# Compatibility of the nvtx package with nsys: newer packages record no range in older nsys.

FIRST_NEW_NVTX = (0, 2, 12)
LAST_OLD_NSYS = (2024, 2)


def incompatibility(nvtx: str | None, nsys: Nsys) -> str | None:
    """Warning if ranges of this nvtx will not be recorded; None if they will."""
    numbers = tuple(map(int, re.findall(r"\d+", nvtx or "")[:3]))
    if not nvtx or nsys.version > LAST_OLD_NSYS or numbers < FIRST_NEW_NVTX:
        return None
    newest = ".".join(map(str, LAST_OLD_NSYS))
    return (
        f"nvtx {nvtx} records no ranges under nsys {nsys.version_text} (nor any nsys up to "
        f"{newest}): pip install 'nvtx<0.2.12' or use a newer nsys"
    )
