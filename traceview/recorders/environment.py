"""Environment of a recording: package versions, GPU, driver, git commit."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

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
_GPU_FIELDS = "name,driver_version"


def python_versions(python: Path | None) -> dict[str, str]:
    """Versions of Python, of the installed PACKAGES and of the CUDA runtime installed by pip."""
    if python is None:
        return {}
    said = run_process([python, "-c", _VERSIONS_SCRIPT])
    try:
        found = json.loads(said.out)
    except ValueError:
        return {}
    versions = {str(name): str(version) for name, version in found.items()}
    built_for = versions.get("torch", "").partition("+cu")[2]
    if built_for.isdecimal():
        versions.setdefault("cuda", f"{built_for[:-1]}.{built_for[-1]}")
    return versions


def gpu_versions() -> dict[str, str]:
    """GPU names and driver version; empty without an NVIDIA driver."""
    query = run_process(["nvidia-smi", f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader"])
    rows = [line.split(", ") for line in query.out.splitlines() if ", " in line]
    if not query.ok or not rows:
        return {}
    return {"gpu": ", ".join(row[0] for row in rows), "driver": rows[0][1]}


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
