"""The machine that a measurement was made on, without its name, and what its GPU could reach."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from traceview import hardware


@dataclass(frozen=True)
class Machine:
    """Versions and the current GPU; None for what is not there or cannot be asked."""

    gpu: str | None
    compute_capability: str | None
    sm_count: int | None
    memory_bytes: int | None
    l2_cache_bytes: int | None
    driver_version: str | None
    cuda_version: str | None
    torch_version: str | None
    triton_version: str | None
    python_version: str
    interpreter: bool
    """Whether Triton's kernels run in its interpreter."""

    @property
    def device(self) -> str:
        """Where tensors are made: cuda or cpu."""
        return "cuda" if self.gpu else "cpu"

    @property
    def arch(self) -> str | None:
        """Such as sm_90."""
        capability = self.compute_capability
        return f"sm_{capability.replace('.', '')}" if capability else None


def this_machine() -> Machine:
    """The machine as it is; torch is imported to ask for the GPU, where there is torch."""
    try:
        import torch
    except ImportError:
        return _machine()
    if not torch.cuda.is_available():
        return _machine(cuda_version=torch.version.cuda)
    own = torch.cuda.get_device_properties(torch.cuda.current_device())
    return _machine(
        gpu=own.name,
        compute_capability=f"{own.major}.{own.minor}",
        sm_count=own.multi_processor_count,
        memory_bytes=own.total_memory,
        l2_cache_bytes=own.L2_cache_size,
        driver_version=_driver(),
        cuda_version=torch.version.cuda,
    )


def _machine(
    *,
    gpu: str | None = None,
    compute_capability: str | None = None,
    sm_count: int | None = None,
    memory_bytes: int | None = None,
    l2_cache_bytes: int | None = None,
    driver_version: str | None = None,
    cuda_version: str | None = None,
) -> Machine:
    return Machine(
        gpu=gpu,
        compute_capability=compute_capability,
        sm_count=sm_count,
        memory_bytes=memory_bytes,
        l2_cache_bytes=l2_cache_bytes,
        driver_version=driver_version,
        cuda_version=cuda_version,
        torch_version=_version("torch"),
        triton_version=_version("triton"),
        python_version=platform.python_version(),
        interpreter=os.environ.get("TRITON_INTERPRET") == "1",
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _driver() -> str | None:
    """The driver's version as nvidia-smi gives it, from the library that nvidia-smi asks."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2():
        return None
    said = ctypes.create_string_buffer(96)
    failed = nvml.nvmlSystemGetDriverVersion(said, len(said))
    nvml.nvmlShutdown()
    return None if failed else said.value.decode("ascii", "replace")


_KINDS = {"float64": "fp64", "float32": "fp32", "int8": "int8"}
_TENSOR_KINDS = {
    "float64": "fp64-tensor",
    "float32": "tf32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8": "int8",
}


def flop_kind(dtype: str, tensor_cores: bool) -> str:
    """The unit, of hardware.FLOP_KINDS, that computes with this type.

    The ordinary lanes compute small types in fp32, as kernels here do.
    """
    return (_TENSOR_KINDS if tensor_cores else _KINDS).get(dtype, "fp32")


@dataclass(frozen=True)
class Peaks:
    """What the GPU reaches at most; empty or None where no source tells."""

    memory_bytes_per_s: float | None = None
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    source: str | None = None

    def share_pct(
        self, time_ns: float, moved: int, flop: int, kind: str
    ) -> tuple[float | None, str | None]:
        """How near a time comes to the least that the peaks allow, and which of them it is.

        `memory` or `compute`: whichever would take longer at its peak.
        """
        least = {}
        if self.memory_bytes_per_s:
            least["memory"] = moved / self.memory_bytes_per_s * 1e9
        if kind in self.flop_per_s:
            least["compute"] = flop / self.flop_per_s[kind] * 1e9
        if not least or time_ns <= 0:
            return None, None
        bound = max(least, key=lambda name: least[name])
        return 100 * least[bound] / time_ns, bound


def peaks_of(machine: Machine, given: str | Iterable[str] | Mapping[str, float] = ()) -> Peaks:
    """The peaks of the machine's GPU: its data sheet, and before that the figures `given`.

    `given` are as `--peak` takes them. Raises InputError for one that it does not know.
    """
    own = hardware.given(given)
    sheet = hardware.rates_of(machine.gpu, machine.sm_count)
    bandwidth = own.get("bandwidth") or (sheet.memory_bytes_per_s if sheet else None)
    rates = dict(sheet.flop_per_s) if sheet else {}
    rates |= {name: own[name] for name in hardware.FLOP_KINDS if name in own}
    sources = [*(["--peak"] if own else []), *([sheet.source] if sheet else [])]
    return Peaks(bandwidth, rates, ", ".join(sources) or None)
