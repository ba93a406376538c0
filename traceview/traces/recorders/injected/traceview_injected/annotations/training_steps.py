"""Where the steps of a training loop begin and end.

A step ends with the work of the optimizer, and the next one begins there: so loading the data of a
step is part of it, and so is every backward pass whose gradients it accumulates. With several
optimizers, a step ends with the one that came last in the first round (the generator of a GAN).
Evaluation is not part of a step: if the model is evaluated right after a step, the range that began
there ends. Readers drop it, since no optimizer worked in it.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import perf_counter

from ..python_sampler import mark_clock
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


# Windows of steps: what is recorded of a program, and how long its steps take before that.

UNRECORDED = "unrecorded_step"
"""File of the gathered folder: time per step in ns, and the number of steps, before the window."""
_MOST_TIMED, _LEAST_TIMED = 50, 4


def window(
    bounds: tuple[int, int],
    start: Callable[[], object],
    stop: Callable[[], object],
    folder: str | None,
) -> None:
    """Call `start` as step `first` begins, and `stop` as step `end` does, for bounds (first, end).

    The steps before, without the first half of them, are timed: nothing is recorded yet, and on
    one H200 they took what they take without nsys (19.8, 21.5, 19.9 ms beside 19.8, 20.9, 20.4),
    while those behind the window were up to 1.5 times as long.
    """
    global watch
    first, end = bounds
    since = max((first + 1) // 2, first - _MOST_TIMED)
    timed = first - since >= _LEAST_TIMED
    began: list[float] = []
    started: list[bool] = []

    def begins(step: int) -> None:
        if step == since and timed and not began:
            _wait()
            began.append(perf_counter())
        elif first <= step < end and not started:
            started.append(True)
            if began and step == first:
                _wait()
                _tell(folder, (perf_counter() - began[0]) / (first - since), first - since)
            start()
        elif step >= end and started == [True]:
            started.append(False)
            stop()

    watch = begins


def _wait() -> None:
    """Wait for the GPU: work still running on it belongs to the step that has just ended."""
    cuda = sys.modules["torch"].cuda
    if cuda.is_available() and cuda.is_initialized():
        cuda.synchronize()


def _tell(folder: str | None, step_s: float, steps: int) -> None:
    if folder:
        try:
            with open(os.path.join(folder, UNRECORDED), "w", encoding="utf-8") as file:
                file.write(f"{round(step_s * 1e9)} {steps}")
        except OSError:  # The recording goes on without.
            return


def capture(bounds: str, folder: str | None) -> None:
    """Capture the steps of `bounds` with nsys: for `10:20`, from the start of step 10 to 20's."""
    first, end = map(int, bounds.split(":"))

    def start() -> None:
        _call("cudaProfilerStart")
        # The sampler's own marks are a second apart: a short window may have none.
        mark_clock()

    window((first, end), start, lambda: _call("cudaProfilerStop"), folder)


def _call(name: str) -> None:
    cuda = sys.modules["torch"].cuda
    if cuda.is_available():
        cuda.synchronize()
        getattr(cuda.cudart(), name)()
