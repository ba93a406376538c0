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


def _workload(name: str, *arguments: str, options: tuple[str, ...] = ()) -> Recording:
    return Recording(
        f"{DATA}/workloads/{name}.sqlite.xz", f"workloads/{name}.py", arguments, options
    )


_UNIFIED_MEMORY = ("cuda-um-cpu-page-faults", "cuda-um-gpu-page-faults")
WORKLOADS = (
    _workload("sleep", "--steps", "6"),
    _workload("add", "--steps", "4"),
    _workload("matmul", "--steps", "3"),
    _workload("cdist", "--steps", "3"),
    _workload("gelu", "--steps", "3"),
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
        options=tuple(f"--nsys-option=--{name}=true" for name in _UNIFIED_MEMORY),
    ),
)  # fmt: skip
"""The workloads whose `Expect:` lines the tests check.

Those that the gallery does not show were recorded with --backtrace none --no-kernels.
"""

MLP_SIZES = {
    "large": (),
    "middle": ("--dim", "1024", "--batch", "2048", "--steps", "20"),
    "small": ("--dim", "512", "--batch", "512", "--steps", "20"),
}
MLP_RUNS = {"without": (), "with": ("--print-loss",)}
GEMM_SIZES = tuple(range(1024, 4097, 128))
GALLERY = (
    *(
        Recording(
            f"reports/printing-the-loss/{size}_{run}.sqlite.xz", "workloads/mlp.py", (*sizes, *more)
        )
        for size, sizes in MLP_SIZES.items()
        for run, more in MLP_RUNS.items()
    ),
    Recording(
        "reports/matmul-sawtooth/sizes.sqlite.xz",
        "workloads/matmul.py",
        ("--types", "float16", "--sizes", *map(str, GEMM_SIZES), "--steps", "3"),
        ("--shapes",),
    ),
    Recording(f"{DATA}/rates.sqlite.xz", f"{DATA}/rates.py"),
    Recording(f"{DATA}/waves.sqlite.xz", "workloads/wave_quantization.py"),
)
"""The recordings of the gallery that are not in WORKLOADS."""


def recording(name: str) -> Recording:
    """The recording of that name in WORKLOADS or GALLERY. Raises StopIteration without one."""
    return next(one for one in (*GALLERY, *WORKLOADS) if one.name == name)
