"""Recordings that ship with the repository, and the runs that make them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = "tests/data"


@dataclass(frozen=True)
class Recording:
    """A recording by its path in the repository, and the run that makes it.

    `options` are those of `traceview record`, `arguments` those of the recorded script.
    """

    path: str
    script: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        """The absolute path."""
        return REPOSITORY / self.path

    @property
    def name(self) -> str:
        return self.file.name.removesuffix(".sqlite.xz")

    def command(self, out: str) -> list[str]:
        """The arguments of `traceview record`."""
        return [*self.options, "-o", out, self.script, *self.arguments]

    def record(
        self,
        file: Path | None = None,
        run: Callable[..., Any] = subprocess.run,
    ) -> None:
        """Record it again, shrunk to what the answers need. Needs a GPU and nsys.

        It is written to `file`, by default over the kept one. `run` starts each command. Raises
        CalledProcessError if one fails.
        """
        with TemporaryDirectory() as folder:
            whole = str(Path(folder, f"{self.name}.sqlite"))
            record = [sys.executable, "-m", "traceview", "record", *self.command(whole)]
            shrink = [sys.executable, f"{DATA}/shrink.py", whole, str(file or self.file)]
            for command in (record, shrink):
                run(command, check=True, cwd=REPOSITORY)


def _workload(
    name: str, *arguments: str, options: tuple[str, ...] = ("--no-kernels",)
) -> Recording:
    # No finding here needs C++ call chains, and they are most of what nsys would write.
    options = ("--backtrace", "none", *options)
    return Recording(
        f"{DATA}/workloads/{name}.sqlite.xz", f"workloads/{name}.py", arguments, options
    )


_UNIFIED_MEMORY = ("cuda-um-cpu-page-faults", "cuda-um-gpu-page-faults")
WORKLOADS = (
    _workload("sleep", "--steps", "6"),
    _workload("add", "--steps", "4"),
    _workload("matmul", "--steps", "3"),
    _workload("cdist", "--steps", "3"),
    # With the code of its kernels, for their load widths.
    _workload("gelu", "--steps", "3", options=()),
    _workload("softmax", "--steps", "3"),
    _workload("mlp_sweep", "--steps", "2"),
    _workload("coalescing", "--steps", "3"),
    _workload("divergence", "--steps", "3"),
    _workload("fusion", "--steps", "3"),
    _workload("low_precision", "--steps", "4"),
    _workload("recomputation", "--steps", "2"),
    _workload("attention", "--steps", "2"),
    _workload("transformer", "--steps", "3"),
    _workload("data_loader", "--steps", "6"),
    _workload(
        "unified_memory", "--steps", "2", "--megabytes", "16",
        options=("--no-kernels", *(f"--nsys-option=--{name}=true" for name in _UNIFIED_MEMORY)),
    ),
)  # fmt: skip
"""The workloads whose `Expect:` lines the tests check, as they were recorded."""


def workload(name: str) -> Recording:
    """The recording of workloads/NAME.py in WORKLOADS. Raises StopIteration if there is none."""
    return next(recording for recording in WORKLOADS if recording.name == name)
