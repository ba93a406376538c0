"""Environment of a recording: package versions, GPU and its state, driver, git commit."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from traceview.toolchain.processes import run_process

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
