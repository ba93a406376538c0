"""Mark the steps to record for nsys, with cudaProfilerStart and cudaProfilerStop."""

from __future__ import annotations

import sys

from . import training_steps

_started: list[bool] = []


def install(bounds: str) -> None:
    """Capture the steps of `bounds`: for `10:20`, from the start of step 10 to that of step 20."""
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
        # Work still running on the GPU belongs to the step that has just ended.
        cuda.synchronize()
        getattr(cuda.cudart(), name)()
