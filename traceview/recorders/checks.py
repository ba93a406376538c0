"""What of traceview works on this machine, and how to mend the rest."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from traceview.errors import TraceviewError
from traceview.recorders import environment as surroundings
from traceview.recorders import nvtx_compatibility
from traceview.recorders.export import export
from traceview.recorders.nsys import ATTEMPTS, GET_IT, Broken, Nsys, look
from traceview.recorders.options import RecordOptions, abilities, blind_spots, profile_command
from traceview.toolchain.processes import run_process
from traceview.trace.sqlite import c_decoder
from traceview.version import __version__

Status = Literal["ok", "missing", "broken"]
_OPTIONAL = {
    "torch": ("to run the workloads", "pip install 'traceview[workloads]'"),
    "triton": ("to look into Triton kernels", "pip install 'traceview[ptx]'"),
    "nvtx": ("for ranges where torch has no CUDA", "pip install 'nvtx<0.2.12'"),
}
_TRIAL_S = 60.0


@dataclass(frozen=True)
class MachineCheck:
    """One thing that traceview can use; `remedy` is empty where it works."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def check_machine(root: Path = Path("/")) -> list[MachineCheck]:
    """Look at everything; takes some seconds, as nsys is tried. `root` holds install folders."""
    python = f"{sys.version.split()[0]} ({sys.executable})"
    tools = list(look(root))
    working = [tool for tool in tools if isinstance(tool, Nsys)]
    return [
        MachineCheck("traceview", "ok", __version__),
        MachineCheck("python", "ok", python),
        _page_decoder(),
        *_gpu(),
        *_nsys(tools),
        *(_trial(min(working, key=lambda tool: tool.lack is not None)) if working else ()),
        *_packages(working),
        _zstd(),
    ]


def _page_decoder() -> MachineCheck:
    if c_decoder.there():
        return MachineCheck("page decoder", "ok", "compiled")
    if os.environ.get(c_decoder.SWITCH):
        why, remedy = f"{c_decoder.SWITCH} is set", f"unset {c_decoder.SWITCH}"
    else:
        why, remedy = "no C compiler at install", "get a C compiler and install traceview again"
    detail = f"numpy ({why}); reading a trace takes about 2.5 times as long"
    return MachineCheck("page decoder", "missing", detail, remedy)


def _gpu() -> Iterator[MachineCheck]:
    found = surroundings.gpu_versions()
    if found:
        yield MachineCheck("GPU", "ok", found["gpu"])
        yield MachineCheck("driver", "ok", found["driver"])
    else:
        yield MachineCheck(
            "GPU",
            "missing",
            "nvidia-smi finds none: traces can be read here, GPU work cannot be recorded",
            "record on a machine with an NVIDIA GPU, read the trace anywhere",
        )


def _nsys(tools: list[Nsys | Broken]) -> Iterator[MachineCheck]:
    if not tools:
        yield MachineCheck(
            "nsys", "missing", "not on PATH, nor in the usual install folders", GET_IT
        )
    for tool in tools:
        if isinstance(tool, Broken):
            yield MachineCheck("nsys", "broken", tool.reason, tool.remedy)
        elif tool.lack:
            yield MachineCheck("nsys", "broken", tool.lack.what, tool.lack.remedy)
        else:
            yield MachineCheck("nsys", "ok", f"{tool.version_text} ({tool.path})")


def _trial(nsys: Nsys) -> Iterator[MachineCheck]:
    """Record and export a program that does nothing."""
    try:
        able = abilities(nsys)
        with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
            report = Path(folder, "trial.nsys-rep")
            nothing = [sys.executable, "-c", "pass"]
            command = profile_command(nsys, able, RecordOptions(), report, nothing)
            for _ in range(ATTEMPTS):
                said = run_process(command, timeout_s=_TRIAL_S)
                if said.ok and report.is_file():
                    break
            if not said.ok or not report.is_file():
                remedy = nsys.lack.remedy if nsys.lack else "install nsys again"
                yield MachineCheck("nsys profile", "broken", said.evidence, remedy)
                return
            yield MachineCheck("nsys profile", "ok", "records a program")
            export(nsys, report, Path(folder, "trial.sqlite"))
            yield MachineCheck("nsys export", "ok", "exports SQLite")
    except TraceviewError as error:
        yield MachineCheck("nsys export", "broken", error.what, error.remedy)
        return
    yield from _call_chains(blind_spots(RecordOptions(), able))


def _call_chains(blind: list[str]) -> Iterator[MachineCheck]:
    for line in blind:
        detail, _, remedy = line.partition("; ")
        yield MachineCheck("call chains", "missing", detail, remedy)
    if not blind:
        yield MachineCheck("call chains", "ok", "nsys may sample the CPU")


def _packages(working: list[Nsys]) -> Iterator[MachineCheck]:
    there = surroundings.python_versions(Path(sys.executable))
    for name, (purpose, remedy) in _OPTIONAL.items():
        if name not in there:
            yield MachineCheck(name, "missing", f"needed only {purpose}", remedy)
            continue
        problem = (
            nvtx_compatibility.clash(there[name], working[0])
            if name == "nvtx" and working
            else None
        )
        detail, _, mend = (problem or there[name]).partition(": ")
        yield MachineCheck(name, "broken" if problem else "ok", detail, mend)


def _zstd() -> MachineCheck:
    if find_spec("zstandard"):
        return MachineCheck("zstandard", "ok", version("zstandard"))
    return MachineCheck(
        "zstandard", "missing", "needed to read .zst files", "pip install zstandard"
    )
