"""This machine: what traceview can use and how to fix the rest, and what a recording notes."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from traceview.base.compiled import library
from traceview.base.errors import LibraryError, TraceviewError
from traceview.base.records import record
from traceview.base.version import __version__
from traceview.kernels.toolchain.tools import run_process
from traceview.traces.recorders import nsys, options
from traceview.traces.recorders.nsys import ATTEMPTS, GET_IT, Broken, Nsys, export, probe_all

PACKAGES = ("torch", "triton", "nvtx", "numpy", "jax")
# Runs in the Python of the script, and imports none of the packages, which would take seconds.
_VERSIONS_SCRIPT = f"""
import json, platform
from importlib import metadata
found = {{"python": platform.python_version()}}
for name in {PACKAGES!r}:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
for place in metadata.distributions():
    name = place.metadata["Name"] or ""
    if name.startswith("nvidia-cuda-runtime"):
        found["cuda"] = place.version
print(json.dumps(found))
"""
_STATE_FIELDS: Mapping[str, str] = {
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "power.limit": "power_limit_w",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
}
"""Fields of `nvidia-smi --query-gpu`, and the names in TRACEVIEW_RUN."""
_CLOCK_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Field of the reasons why the clock is not higher: its name since driver 535, and before."""
_STATE_TIMEOUT_S = 2.0


def python_versions(python: Path | None) -> dict[str, str]:
    """Versions of Python, of the installed PACKAGES and of the CUDA runtime installed by pip."""
    if python is None:
        return {}
    answer = run_process([python, "-c", _VERSIONS_SCRIPT])
    try:
        printed = json.loads(answer.out)
    except ValueError:
        return {}
    versions = {str(name): str(version) for name, version in printed.items()}
    built_for = versions.get("torch", "").partition("+cu")[2]
    if built_for.isdecimal():
        versions.setdefault("cuda", f"{built_for[:-1]}.{built_for[-1]}")
    return versions


def gpu_versions() -> dict[str, str]:
    """GPU names and driver version; empty without an NVIDIA driver."""
    query = run_process(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = [line.split(", ") for line in query.out.splitlines() if ", " in line]
    if not query.ok or not rows:
        return {}
    return {"gpu": ", ".join(row[0] for row in rows), "driver": rows[0][1]}


def gpu_state(when: Literal["before", "after"], *, processes: bool = True) -> dict[str, str]:
    """Clocks, power, temperature and other processes of the GPUs that the program sees.

    Values of several GPUs are joined by commas in the order of nvidia-smi. Of other processes only
    their number and the sum of their device memory are read; the program must not be running, or
    `processes` be False. Values that nvidia-smi does not
    know or does not return within 2 s are left out.
    """
    for reasons in _CLOCK_REASONS:
        rows = _smi("gpu", ("index", "uuid", *_STATE_FIELDS, reasons))
        if rows is not None:
            break
    gpus = [row for row in rows or () if _is_visible(*row[:2])]
    names = (*_STATE_FIELDS.values(), "clock_reasons")
    columns = zip(names, list(zip(*gpus, strict=True))[2:], strict=False)
    facts = {name: ",".join(values) for name, values in columns if all(map(_is_number, values))}
    if processes and gpus:
        facts |= _processes({row[1] for row in gpus})
    return {f"{name}_{when}": value for name, value in facts.items()}


def _processes(uuids: set[str]) -> dict[str, str]:
    rows = _smi("compute-apps", ("gpu_uuid", "used_memory"))
    if rows is None:
        return {}
    used = [memory for uuid, memory in rows if uuid in uuids]
    # In containers the memory may be unknown.
    mib = sum(int(memory) for memory in used if memory.isdecimal())
    return {"other_processes": str(len(used)), "other_processes_mib": str(mib)}


def _smi(what: str, fields: Sequence[str]) -> list[list[str]] | None:
    """The rows of an nvidia-smi query; None if it fails, such as for an unknown field."""
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    query = run_process(command, timeout_s=_STATE_TIMEOUT_S)
    rows = [line.split(", ") for line in query.out.splitlines()]
    return [row for row in rows if len(row) == len(fields)] if query.ok else None


def _is_visible(index: str, uuid: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES, with indices or starts of UUIDs, lets the program see a GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",")]
    return index in names or any(n.startswith("GPU-") and uuid.startswith(n) for n in names)


def _is_number(text: str) -> bool:
    try:
        float.fromhex(text) if text.startswith("0x") else float(text)
    except ValueError:
        return False
    return True


def git_commit(script: Path) -> dict[str, str]:
    """Commit of the script's repository and whether it has changes; empty outside git."""
    folder = script.resolve().parent
    # Read-only: without this, `git status` refreshes the index.
    quiet = {"GIT_OPTIONAL_LOCKS": "0"}
    head = run_process(["git", "rev-parse", "HEAD"], folder=folder, environment=quiet)
    if not head.ok:
        return {}
    status = ["git", "status", "--porcelain", "-uno"]
    changes = run_process(status, folder=folder, environment=quiet)
    dirty = {"git_dirty": "yes" if changes.out.strip() else "no"} if changes.ok else {}
    return {"git_commit": head.out.strip(), **dirty}


def describe(python: Path | None, script: Path) -> Mapping[str, str]:
    """All facts about the environment, name to text; unknown ones are left out."""
    return {
        **python_versions(python),
        **gpu_versions(),
        **git_commit(script),
        "host_os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu_count": str(os.cpu_count() or 0),
    }


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
    versions = gpu_versions()
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
        able = options.abilities(nsys)
        with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
            report = Path(folder, "trial.nsys-rep")
            nothing = [sys.executable, "-c", "pass"]
            command = options.profile_command(nsys, able, options.RecordOptions(), report, nothing)
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
    missing = options.blind_spots(options.RecordOptions(), able)
    for line in missing:
        detail, _, remedy = line.partition("; ")
        yield MachineCheck("call chains", "missing", detail, remedy)
    if not missing:
        yield MachineCheck("call chains", "ok", "nsys can sample the CPU")


def _packages(working: list[Nsys]) -> Iterator[MachineCheck]:
    installed = python_versions(Path(sys.executable))
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
