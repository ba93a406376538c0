"""Describe the machine of a benchmark, without which its figures mean nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# A tenth of a second or more of arithmetic.
_WORK = "sum(i * i for i in range(3_000_000))"


def machine(nsys: str | None, nsys_ai: str | None) -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "at_once": round(_at_once(), 2),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load_at_start": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "pandas": version("pandas"),
        "sqlite": sqlite3.sqlite_version,
        "traceview": version("traceview") + _commit(),
        "nsys": _version_printed(nsys, "--version"),
        "nsys_ai": _installed(nsys_ai, "nsys-ai"),
    }


def sentence(facts: dict[str, Any]) -> str:
    """The machine and the tools in one line; missing tools are omitted."""
    names = ("traceview", "python", "numpy", "pandas", "sqlite", "nsys", "nsys_ai")
    versions = [f"{name.replace('_', '-')} {facts[name]}" for name in names if facts[name]]
    # Results of older benchmarks do not know it.
    together = facts.get("at_once")
    work = f", which together do {together} times the work of one" if together else ""
    return (
        f"{facts['cores']} cores of {facts['cpu']}{work}, "
        f"{facts['memory_gb']} GB, {facts['system']}; "
        f"load {facts['load_at_start']} at the start; {', '.join(versions)}"
    )


def _at_once() -> float:
    """How often all cores at once do the work of one: what a virtual machine calls two cores may
    be the two threads of one.
    """
    cores = len(os.sched_getaffinity(0))
    alone, together = (min(_work_s(count) for _ in range(5)) for count in (1, cores))
    return cores * alone / together


def _work_s(processes: int) -> float:
    begun = time.perf_counter()
    running = [subprocess.Popen((sys.executable, "-c", _WORK)) for _ in range(processes)]
    for each in running:
        each.wait()
    return time.perf_counter() - begun


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _commit() -> str:
    git = shutil.which("git")
    commit = _version_printed(
        git, "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"
    )
    return f" ({commit})" if commit else ""


def _installed(tool: str | None, package: str) -> str | None:
    """The version of a program without a version option, from the Python beside it."""
    python = Path(tool).resolve().with_name("python") if tool else None
    if python is None or not python.exists():
        return None
    return _version_printed(
        str(python), "-c", f"from importlib.metadata import version as v; print(v({package!r}))"
    )


def _version_printed(tool: str | None, *arguments: str) -> str | None:
    """The last word of its output, which is the version."""
    if not tool:
        return None
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    return words[-1] if words else None
