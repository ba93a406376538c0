"""Tell nsys when the steps to keep begin and end, by CUDA's profiler API."""

from __future__ import annotations

import sys

from . import training_steps

_started: list[bool] = []


def install(bounds: str) -> None:
    """Capture from the beginning of the first step to that of the second, as in `10:20`."""
    first, end = map(int, bounds.split(":"))

    def begins(step: int) -> None:
        if first <= step < end and not _started:
            _started.append(True)
            _call("cudaProfilerStart")
        elif step >= end and _started == [True]:
            _started.append(False)
            _call("cudaProfilerStop")

    training_steps.watch = begins


def _call(name: str) -> None:
    cuda = sys.modules["torch"].cuda
    if cuda.is_available():
        # The work of the step before belongs to that step.
        cuda.synchronize()
        getattr(cuda.cudart(), name)()
