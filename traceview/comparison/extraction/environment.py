"""The machine and software of a run, as far as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping

from traceview.trace import Trace
from traceview.trace.recording_options import recording_options

_OF_RUN = (
    *("driver", "cuda", "python", "torch", "triton", "jax", "numpy", "nvtx", "host_os"),
    *("cpu_count", "git_commit", "git_dirty"),
)
_GPU_IDLE = 0x1
_CLOCK_LIMITS: Mapping[int, str] = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "temperature", 0x40: "temperature (hardware)", 0x80: "power brake", 0x100: "display",
}  # fmt: skip
"""nvmlClocksEventReasons: why a clock is not higher, where the GPU is not idle."""
_OF_DEVICE = {"gpu": "name", "compute_capability": "compute_capability", "sm_count": "sm_count"}


def environment_of(trace: Trace, device: int) -> Mapping[str, str]:
    """Known facts of the environment that may explain a difference, name to text."""
    device_row = {name: trace.devices.cells(column)[device] for name, column in _OF_DEVICE.items()}
    options = vars(recording_options(trace))
    slowing = ", ".join(name.replace("_", " ") for name, on in options.items() if on)
    clock_hz = trace.devices.cells("clock_hz")[device]
    values = {
        "gpu": trace.run.get("gpu"),
        **{name: trace.run[name] for name in _OF_RUN if name in trace.run},
        "recorder": trace.recorder,
        "recorder_version": trace.recorder_version,
        "recorder_options": slowing or "plain",
        "traceview": trace.run.get("traceview_version"),
        **_gpu_state(trace.run),
        "max_sm_clock_mhz": f"{float(clock_hz) / 1e6:g}" if clock_hz else None,
        **{name: str(value) for name, value in device_row.items() if value is not None},
    }
    return {name: value for name, value in values.items() if value}


def _gpu_state(run: Mapping[str, str]) -> dict[str, str]:
    """The state of the program's GPUs before and after the run by nvidia-smi, in one value.

    Clocks after the run are of GPUs that were not yet idle again, as idle GPUs lower them.
    """
    reasons = [int(value) for value in _numbers(run, "clock_reasons_after")]
    busy = [number for number, bits in enumerate(reasons) if not bits & _GPU_IDLE]
    figures: dict[str, float | None] = {
        "power_limit_w": min(_numbers(run, "power_limit_w_after"), default=None),
        "temperature_c": max(_numbers(run, "temperature_c_after"), default=None),
        "other_processes": max(
            (n for when in ("before", "after") for n in _numbers(run, f"other_processes_{when}")),
            default=None,
        ),
    }
    for name in ("sm_clock_mhz", "memory_clock_mhz"):
        clocks = _numbers(run, f"{name}_after")
        of_busy = [clocks[number] for number in busy if len(clocks) == len(reasons)]
        figures[name] = min(of_busy, default=None)
    state = {name: f"{value:g}" for name, value in figures.items() if value is not None}
    if busy:
        limits = {bit for number in busy for bit in _CLOCK_LIMITS if reasons[number] & bit}
        state["clock_limits"] = ", ".join(_CLOCK_LIMITS[bit] for bit in sorted(limits)) or "none"
    return state


def _numbers(run: Mapping[str, str], name: str) -> list[float]:
    """The values of a recorded fact, one per GPU; empty if one of them is not a number."""
    texts = [text for text in run.get(name, "").split(",") if text]
    try:
        return [int(text, 16) if text.startswith("0x") else float(text) for text in texts]
    except ValueError:
        return []
