"""What to measure, the request completed by the operation's defaults, and on which machine."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral
from typing import Any

from traceview.base import hardware
from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.kernels.inspect.targets import check_arch
from traceview.trials.bench.growth import SIZE, Axis
from traceview.trials.bench.measurement import check_counts
from traceview.trials.bench.operation import Operation


@record
class Machine:
    """Versions and the current GPU; None for what is missing or cannot be queried."""

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
    """Whether Triton kernels run in the interpreter."""

    @property
    def device(self) -> str:
        """The device on which tensors are made: cuda or cpu."""
        return "cuda" if self.gpu else "cpu"

    @property
    def arch(self) -> str | None:
        """The architecture, such as sm_90."""
        capability = self.compute_capability
        return f"sm_{capability.replace('.', '')}" if capability else None


def this_machine() -> Machine:
    """Describe this machine; imports torch, if installed, to query the GPU."""
    names = ("gpu", "compute_capability", "sm_count", "memory_bytes", "l2_cache_bytes")
    gpu: dict[str, Any] = dict.fromkeys((*names, "driver_version", "cuda_version"))
    try:
        import torch
    except ImportError:
        pass
    else:
        gpu["cuda_version"] = torch.version.cuda
        if torch.cuda.is_available():
            device = torch.cuda.get_device_properties(torch.cuda.current_device())
            gpu |= {
                "gpu": device.name,
                "compute_capability": f"{device.major}.{device.minor}",
                "sm_count": device.multi_processor_count,
                "memory_bytes": device.total_memory,
                "l2_cache_bytes": device.L2_cache_size,
                "driver_version": _driver(),
            }
    return Machine(
        **gpu,
        torch_version=_version("torch"),
        triton_version=_version("triton"),
        python_version=platform.python_version(),
        interpreter=os.environ.get("TRITON_INTERPRET") == "1",
    )


def _driver() -> str | None:
    """The driver's version as nvidia-smi shows it, from the library that nvidia-smi uses."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2():
        return None
    text = ctypes.create_string_buffer(96)
    failed = nvml.nvmlSystemGetDriverVersion(text, len(text))
    nvml.nvmlShutdown()
    return None if failed else text.value.decode("ascii", "replace")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
    """The peak rate, one of hardware.FLOP_KINDS, that applies to a data type.

    On CUDA cores small types are computed in fp32, as the kernels here do.
    """
    return (_TENSOR_KINDS if tensor_cores else _KINDS).get(dtype, "fp32")


@record
class Peaks:
    """Peak rates of the GPU; empty or None if no source has them."""

    memory_bytes_per_s: float | None = None
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    source: str | None = None

    def peak_pct(
        self, time_ns: float, moved: int, flop: int, kind: str
    ) -> tuple[float | None, str | None]:
        """Percent of peak, and what bounds it: `memory` or `compute`.

        The bound is the one that would take longer at its peak. Both are None without a peak.
        """
        at_peak_ns = {}
        if self.memory_bytes_per_s:
            at_peak_ns["memory"] = moved / self.memory_bytes_per_s * 1e9
        if kind in self.flop_per_s:
            at_peak_ns["compute"] = flop / self.flop_per_s[kind] * 1e9
        if not at_peak_ns or time_ns <= 0:
            return None, None
        bound = max(at_peak_ns, key=lambda name: at_peak_ns[name])
        return 100 * at_peak_ns[bound] / time_ns, bound


def peaks_of(machine: Machine, overrides: str | Iterable[str] | Mapping[str, float] = ()) -> Peaks:
    """The peak rates of the machine's GPU, from `overrides` and else from its data sheet.

    `overrides` are as `--peak` takes them. Raises InputError for an unknown name.
    """
    figures = hardware.parse_figures(overrides)
    sheet = hardware.rates_of(machine.gpu, machine.sm_count)
    bandwidth = figures.get("bandwidth") or (sheet.memory_bytes_per_s if sheet else None)
    rates = dict(sheet.flop_per_s) if sheet else {}
    rates |= {name: figures[name] for name in hardware.FLOP_KINDS if name in figures}
    sources = [*(["--peak"] if figures else []), *([sheet.source] if sheet else [])]
    return Peaks(bandwidth, rates, ", ".join(sources) or None)


@record
class BenchRequest:
    """What to measure, and how. Empty sequences mean the operation's defaults.

    `sweep` is a text such as `batch=1,2,4,8`: measure at each value of the size, or of a parameter
    of the operation, and fit a line through the times. A single size, data type or version may
    stand for a list of one. `cold` empties the L2 cache before every call. `widths` compiles the
    kernels for `arch` to read their load widths. `peaks` are as `--peak` takes them.
    """

    sizes: Sequence[int] = ()
    dtypes: Sequence[str] = ()
    versions: Sequence[str] = ()
    warmup: int = 3
    trials: int = 30
    cold: bool = True
    widths: bool = True
    arch: str | None = None
    peaks: str | Iterable[str] | Mapping[str, float] = ()
    sweep: str | None = None

    def __post_init__(self) -> None:
        # A text is a sequence, too: of letters.
        for name in ("sizes", "dtypes", "versions"):
            value = getattr(self, name)
            if isinstance(value, (str, Integral)):
                object.__setattr__(self, name, (value,))


def resolve_request(
    operation: Operation, request: BenchRequest, machine: Machine
) -> tuple[BenchRequest, str, tuple[int | None, ...]]:
    """The request completed by defaults, the name of the swept parameter, and its values.

    The values are (None,) if the size is swept or nothing. Raises InputError for a version, data
    type, size or parameter that the operation does not have.
    """
    axis = None if request.sweep is None else Axis.of(request.sweep)
    sizes = request.sizes or (operation.sizes if machine.gpu else operation.small_sizes)
    if axis and axis.over == SIZE:
        if request.sizes:
            raise InputError("sizes are given twice", "pass either --size or --sweep size=…")
        sizes = axis.values
    check_arch(request.arch)
    check_counts(request.warmup, request.trials)
    for dtype in request.dtypes:
        if dtype not in operation.tolerances:
            remedy = f"it takes {', '.join(operation.dtypes)}"
            raise InputError(f"{operation.name} does not take {dtype[:40]!r}", remedy)
    if not sizes:
        raise InputError(f"{operation.name} has no default sizes", "pass one: --size 4096")
    for size in sizes:
        if not isinstance(size, Integral) or size < 1:
            raise InputError(f"size {size!r}"[:60], "pass positive whole numbers")
    names = [operation.version(name).name for name in request.versions]
    over: str = SIZE
    values: tuple[int | None, ...] = (None,)
    if axis and axis.over != SIZE:
        operation.at(**{axis.over: axis.values[0]})
        if len(request.sizes) > 1:
            what = f"{len(request.sizes)} sizes and a sweep over {axis.over}"
            raise InputError(what, "sweep at one --size")
        sizes = request.sizes or (sorted(sizes)[len(sizes) // 2],)
        over, values = axis.over, axis.values
    resolved = replace(
        request,
        sizes=sizes,
        dtypes=request.dtypes or operation.dtypes[:1],
        versions=names or [version.name for version in operation.versions],
    )
    return resolved, over, values
