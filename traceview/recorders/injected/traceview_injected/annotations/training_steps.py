"""Where the steps of a training loop begin and end.

A step ends with the work of the optimizer, and the next one begins there: so loading the data of a
step is part of it, and so is every backward pass whose gradients it accumulates. With several
optimizers, a step ends with the one that came last in the first round (the generator of a GAN).
Evaluation is not part of a step: if the model is evaluated right after a step, the range that began
there ends. Readers drop it, since no optimizer worked in it.
"""

from __future__ import annotations

import sys
from _thread import get_ident

from . import nvtx_ranges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OPTIMIZER = "optimizer"
MOST_CALLS = 128
"""Outermost modules with a range per step. A program may call its layers one by one."""
_PATIENCE = 16
watch: Callable[[int], None] | None = None
"""Called with the number of each step that begins, before its range opens."""


class TrainingSteps:
    """The range of the step in progress. Its methods are for the thread of the training loop."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self._is_training_thread = False
        self._has_optimizer = False
        self.forget()

    def forget(self) -> None:
        """Reset in a forked process, which must not close the ranges of its parent."""
        self._completed = 0
        self._open: Any = None
        self._untouched = True
        self._calls = 0
        self._last: int | None = None
        self._seen: set[int] = set()
        self._since_last = 0
        self._most_since_last = 0
        self._ends_with_backward = False
        self._trained: set[int] = set()

    def has_optimizer(self) -> None:
        """Note that an optimizer was created: the program trains."""
        self._has_optimizer = True

    def loads_data(self) -> None:
        """Note that data is about to be loaded, for training or evaluation."""
        self._begin()

    def calls_model(self, module: Any, has_gradients: bool) -> bool:
        """Note the call of an outermost module. Returns whether it may get a range."""
        if has_gradients and module.training:
            self._trained.add(id(module))
            self._work()
        elif self._untouched and not module.training and id(module) in self._trained:
            self._drop()
        self._calls += 1
        return self._open is None or self._calls <= MOST_CALLS

    def starts_backward(self) -> None:
        """Note the start of a backward pass; the first one identifies the loop's thread."""
        if not self._is_training_thread:
            self._is_training_thread = True
            self._thread = get_ident()
        self._work()

    def ended_backward(self) -> None:
        """Note the end of a backward pass, which ends the step if the last optimizer ran in it."""
        if self._ends_with_backward and get_ident() == self._thread:
            self._ends_with_backward = False
            self._finish()

    def ended_optimizer(self, optimizer: Any) -> None:
        """Note the end of an optimizer's step, which ends the training step if it is the last."""
        if not self._is_last(id(optimizer)):
            return
        if get_ident() == self._thread:
            self._finish()
        else:
            # Hooks on gradients run optimizers on a thread of autograd.
            self._ends_with_backward = True

    def _is_last(self, optimizer: int) -> bool:
        """Whether a step ends with this optimizer: the latest new one, or one that replaced it."""
        self._since_last += 1
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            self._last = optimizer
        elif self._since_last > _PATIENCE * max(self._most_since_last, 1):
            self._last = optimizer
        if optimizer != self._last:
            return False
        self._most_since_last = max(self._most_since_last, self._since_last)
        self._since_last = 0
        return True

    def _work(self) -> None:
        self._begin()
        if get_ident() == self._thread:
            self._untouched = False

    def _begin(self) -> None:
        if self._open is None and self._has_optimizer and get_ident() == self._thread:
            if watch is not None:
                watch(self._completed)
            self._open = nvtx_ranges.start(f"step_{self._completed}")
            self._untouched, self._calls = True, 0

    def _finish(self) -> None:
        self._drop()
        self._completed += 1
        self._begin()

    def _drop(self) -> None:
        if get_ident() == self._thread:
            nvtx_ranges.end(self._open)
            self._open = None


# Steps to record for nsys, marked with cudaProfilerStart and cudaProfilerStop.

_started: list[bool] = []


def capture(bounds: str) -> None:
    """Capture the steps of `bounds`: for `10:20`, from the start of step 10 to that of step 20."""
    global watch
    first, end = map(int, bounds.split(":"))

    def begins(step: int) -> None:
        if first <= step < end and not _started:
            _started.append(True)
            _call("cudaProfilerStart")
        elif step >= end and _started == [True]:
            _started.append(False)
            _call("cudaProfilerStop")

    watch = begins


def _call(name: str) -> None:
    cuda = sys.modules["torch"].cuda
    if cuda.is_available():
        # Work still running on the GPU belongs to the step that has just ended.
        cuda.synchronize()
        getattr(cuda.cudart(), name)()
