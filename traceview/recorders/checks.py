"""Checks of this machine: what traceview can use, and how to fix the rest."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from traceview.compiled import library
from traceview.errors import LibraryError, TraceviewError
from traceview.recorders import environment as surroundings
from traceview.recorders import nsys
from traceview.recorders.export import export
from traceview.recorders.nsys import ATTEMPTS, GET_IT, Broken, Nsys, probe_all
from traceview.recorders.options import RecordOptions, abilities, blind_spots, profile_command
from traceview.records import record
from traceview.toolchain.processes import run_process
from traceview.version import __version__

Status = Literal["ok", "missing", "broken"]
_OPTIONAL = {
    "torch": ("to run the workloads", "pip install 'traceview[workloads]'"),
    "triton": ("to inspect Triton kernels", "pip install 'traceview[ptx]'"),
    "nvtx": ("for NVTX ranges without a CUDA build of torch", "pip install 'nvtx<0.2.12'"),
}
_FRAMES_AND_CHARTS = {"matplotlib": "for Result.figure()", "pandas": "for Table.to_pandas()"}
_TRIAL_S = 60.0


@record
class MachineCheck:
    """One component that traceview can use; `remedy` is empty if it works."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def check_machine(root: Path = Path("/")) -> list[MachineCheck]:
    """Check every component, with a short recording. nsys is sought on PATH and below `root`."""
    python = f"{sys.version.split()[0]} ({sys.executable})"
    tools = list(probe_all(root))
    working = [tool for tool in tools if isinstance(tool, Nsys)]
    best = sorted(working, key=lambda tool: tool.defect is not None)[:1]
    return [
        *(MachineCheck("traceview", "ok", __version__), MachineCheck("python", "ok", python)),
        *(_library(), *_gpu(), *_nsys(tools)),
        *(check for tool in best for check in _trial(tool)),
        *_packages(working),
    ]


def _library() -> MachineCheck:
    try:
        library.check()
    except LibraryError as error:
        return MachineCheck("C library", "broken", error.what, error.remedy)
    return MachineCheck("C library", "ok", str(library.PATH))


def _gpu() -> Iterator[MachineCheck]:
    versions = surroundings.gpu_versions()
    if versions:
        yield MachineCheck("GPU", "ok", versions["gpu"])
        yield MachineCheck("driver", "ok", versions["driver"])
    else:
        yield MachineCheck(
            "GPU",
            "missing",
            "nvidia-smi lists no GPU; traces can be read but not recorded here",
            "record on a machine with an NVIDIA GPU; the trace can be read anywhere",
        )


def _nsys(tools: list[Nsys | Broken]) -> Iterator[MachineCheck]:
    if not tools:
        yield MachineCheck("nsys", "missing", "not on PATH or in the usual install folders", GET_IT)
    for tool in tools:
        if isinstance(tool, Broken):
            yield MachineCheck("nsys", "broken", tool.reason, tool.remedy)
        elif tool.defect:
            yield MachineCheck("nsys", "broken", tool.defect.what, tool.defect.remedy)
        else:
            yield MachineCheck("nsys", "ok", f"{tool.version_text} ({tool.path})")


def _trial(nsys: Nsys) -> Iterator[MachineCheck]:
    """Record and export an empty program."""
    try:
        able = abilities(nsys)
        with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
            report = Path(folder, "trial.nsys-rep")
            nothing = [sys.executable, "-c", "pass"]
            command = profile_command(nsys, able, RecordOptions(), report, nothing)
            for _ in range(ATTEMPTS):
                ran = run_process(command, timeout_s=_TRIAL_S)
                if ran.ok and report.is_file():
                    break
            if not ran.ok or not report.is_file():
                remedy = nsys.defect.remedy if nsys.defect else "reinstall nsys"
                yield MachineCheck("nsys profile", "broken", ran.evidence, remedy)
                return
            yield MachineCheck("nsys profile", "ok", "recorded an empty program")
            export(nsys, report, Path(folder, "trial.sqlite"))
            yield MachineCheck("nsys export", "ok", "exported SQLite")
    except TraceviewError as error:
        yield MachineCheck("nsys export", "broken", error.what, error.remedy)
        return
    missing = blind_spots(RecordOptions(), able)
    for line in missing:
        detail, _, remedy = line.partition("; ")
        yield MachineCheck("call chains", "missing", detail, remedy)
    if not missing:
        yield MachineCheck("call chains", "ok", "nsys can sample the CPU")


def _packages(working: list[Nsys]) -> Iterator[MachineCheck]:
    installed = surroundings.python_versions(Path(sys.executable))
    for name, (purpose, remedy) in _OPTIONAL.items():
        if name not in installed:
            yield MachineCheck(name, "missing", f"needed only {purpose}", remedy)
            continue
        problem = None
        if name == "nvtx" and working:
            problem = nsys.incompatibility(installed[name], working[0])
        detail, _, fix = (problem or installed[name]).partition(": ")
        yield MachineCheck(name, "broken" if problem else "ok", detail, fix)
    for name, purpose in _FRAMES_AND_CHARTS.items():
        if find_spec(name):
            yield MachineCheck(name, "ok", version(name))
        else:
            remedy = f"pip install {name}"
            yield MachineCheck(name, "missing", f"needed only {purpose}", remedy)
