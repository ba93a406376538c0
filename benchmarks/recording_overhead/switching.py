"""A part of a recording that is switched on and off, step by step, inside one process.

Imports no more than Python has: a free-threaded Python may have no packages.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "traceview" / "traces" / "recorders" / "injected"))
from traceview_injected import python_sampler  # noqa: E402 (as in a recorded program)

TURN = 40
"""Steps of a thing until it is the turn of the next."""
Switch = Callable[[bool], object]
Times = dict[str, dict[str, list[tuple[bool, float]]]]
"""For each loop and each thing to switch, whether it was on and the time per step in ms."""


class Samples(python_sampler.Sampler):
    """The sampler inside the process; while it is off, its thread sleeps."""

    def __init__(self, folder: str, period_s: float = python_sampler.PERIOD_S) -> None:
        super().__init__(folder)
        self._period_s, self._on = period_s, threading.Event()
        self._usual_s = sys.getswitchinterval()
        start_new_thread(self.run, ())

    def sample(self, own: int) -> None:
        if self._on.is_set():
            super().sample(own)
        else:
            self._on.wait()

    def turn(self, on: bool) -> None:
        sys.setswitchinterval(python_sampler.SWITCH_S if on else self._usual_s)
        if on:
            python_sampler.PERIOD_S = self._period_s
            self._on.set()
        else:
            self._on.clear()


def timed_ms(
    step: Callable[[], object], steps: int = 1, wait: Callable[[], None] = lambda: None
) -> float:
    """Time per step."""
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return 1e3 * (time.perf_counter() - begun) / steps


def turn_ms(step: Callable[[], object], switch: Switch) -> Iterator[tuple[bool, float]]:
    """Whether each step of a turn was with the thing, and its time in ms."""
    for _ in range(TURN):
        on = random.random() < 0.5
        switch(on)
        yield on, timed_ms(step)
    switch(False)
