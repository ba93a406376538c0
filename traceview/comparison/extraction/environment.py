"""The machine and software of a run, as far as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping

from traceview.trace import Trace
from traceview.trace.recording_options import recording_options

_OF_RUN = (
    *("driver", "cuda", "python", "torch", "triton", "jax", "numpy", "nvtx", "host_os"),
    *("cpu_count", "git_commit", "git_dirty"),
)
_OF_DEVICE = {"gpu": "name", "compute_capability": "compute_capability", "sm_count": "sm_count"}


def environment_of(trace: Trace, device: int) -> Mapping[str, str]:
    """What may explain a difference between runs, name to text; unknown facts are left out."""
    row = {name: trace.devices.cells(column)[device] for name, column in _OF_DEVICE.items()}
    run = {name: trace.run[name] for name in _OF_RUN if name in trace.run}
    own = {
        "recorder": trace.recorder,
        "recorder_version": trace.recorder_version,
        "recorder_options": _options(trace),
        "traceview": trace.run.get("traceview_version"),
    }
    every = {"gpu": trace.run.get("gpu"), **run, **own}
    every.update((name, str(value)) for name, value in row.items() if value is not None)
    return {name: value for name, value in every.items() if value}


def _options(trace: Trace) -> str:
    """What the recorder was asked for that slows the program down."""
    asked = vars(recording_options(trace))
    return ", ".join(name.replace("_", " ") for name, on in asked.items() if on) or "plain"
