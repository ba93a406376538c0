"""Record a whole program with torch.profiler, or only the requested steps or range of it."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from functools import wraps
from time import perf_counter

from .. import dynamo, notes
from ..annotations import training_steps
from ..import_hooks import after
from . import mirrored_ranges, nvtx_calls, session
from .session import TorchSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

MOST_S, LEAST_STEPS = 10.0, 50
"""A launch-bound loop then fills 70 MB: it took 10.1 MB for 1.5 s (docs/backends.md)."""


def record(torch: ModuleType, folder: str, settings: Mapping[str, Any]) -> None:
    """Record this process from now on, or from the start of the requested steps or range."""
    started = TorchSession(torch, folder, shapes=bool(settings.get("shapes")))
    nvtx_calls.wrap(torch, started.ranges)
    _stop_at_the_end(started)
    modules = (mirrored_ranges, nvtx_calls, session)
    after("torch._dynamo", lambda _: dynamo.hide(modules))
    if steps := settings.get("steps"):
        training_steps.window(tuple(steps), started.start, started.stop, folder)
    elif name := settings.get("range"):
        started.ranges.watch = _range_window(started, name)
    else:
        started.start()
        if not settings.get("whole"):
            training_steps.watch = _enough(started, folder)


def _enough(started: TorchSession, folder: str) -> Callable[[int], None]:
    """Stop at the first step after MOST_S seconds of recorded steps and LEAST_STEPS of them."""
    since = perf_counter()
    began: list[tuple[int, float]] = []

    def begins(step: int) -> None:
        if not began:
            began.append((step, perf_counter()))
        elif step - began[0][0] >= LEAST_STEPS and perf_counter() - began[0][1] >= MOST_S:
            training_steps.watch = None
            started.stop()
            notes.stopped(folder, perf_counter() - since)

    return begins


def _range_window(started: TorchSession, name: str) -> Callable[[str, bool], None]:
    """Record the first range with that name."""
    depth = 0

    def sees(text: str, begins: bool) -> None:
        nonlocal depth
        if text != name:
            return
        depth += 1 if begins else -1
        if begins:
            started.start()
        elif depth == 0:
            started.stop()

    return sees


def _stop_at_the_end(started: TorchSession) -> None:
    atexit.register(started.stop)
    leave = os._exit

    @wraps(leave)
    def _exit(status: int) -> Any:
        # A forked process leaves this way; its session does nothing.
        started.stop()
        leave(status)

    os._exit = _exit
    _stop_when_terminated(started)


def _stop_when_terminated(started: TorchSession) -> None:
    """Write the trace before SIGTERM ends the program, unless the program handles it."""

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        started.stop_and_then(lambda: os.kill(os.getpid(), number))

    def forget() -> None:
        # A Python handler does not run during native code, so a worker would not end.
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    on_main_thread = threading.current_thread() is threading.main_thread()
    if on_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
        os.register_at_fork(after_in_child=forget)
