"""Record a whole program with torch.profiler, or only the requested steps or range of it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from functools import wraps

from ..annotations import training_steps
from ..import_hooks import after
from . import mirrored_ranges, nvtx_calls, session
from .session import TorchSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, ModuleType
    from typing import Any


def record(torch: ModuleType, folder: str, settings: Mapping[str, Any]) -> None:
    """Record this process from now on, or from the start of the requested steps or range."""
    started = TorchSession(torch, folder, shapes=bool(settings.get("shapes")))
    nvtx_calls.wrap(torch, started.ranges)
    _stop_at_the_end(started)
    after("torch._dynamo", lambda _: _hide_from_dynamo())
    if steps := settings.get("steps"):
        training_steps.watch = _StepWindow(started, *steps).begins
    elif name := settings.get("range"):
        started.ranges.watch = _RangeWindow(started, name).sees
    else:
        started.start()


class _StepWindow:
    """Records from the start of step `first` to the start of step `end`."""

    def __init__(self, started: TorchSession, first: int, end: int) -> None:
        self._session, self._first, self._end = started, first, end

    def begins(self, step: int) -> None:
        if step >= self._end:
            self._session.stop()
        elif step >= self._first:
            self._session.start()


class _RangeWindow:
    """Records the first range with a given name."""

    def __init__(self, started: TorchSession, name: str) -> None:
        self._session, self._name, self._depth = started, name, 0

    def sees(self, text: str, begins: bool) -> None:
        if text != self._name:
            return
        self._depth += 1 if begins else -1
        if begins:
            self._session.start()
        elif self._depth == 0:
            self._session.stop()


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


def _hide_from_dynamo() -> None:
    """Keep torch.compile from tracing our frames, as if they were written in C."""
    skip = sys.modules["torch._dynamo.decorators"].skip_code
    modules = (mirrored_ranges, nvtx_calls, session)
    values = [value for module in modules for value in vars(module).values()]
    own = [v for v in values if getattr(v, "__module__", "").startswith(__package__ or "-")]
    methods = [value for each in own if isinstance(each, type) for value in vars(each).values()]
    for each in (*own, *methods):
        if hasattr(each, "__code__"):
            _skip(skip, each.__code__)


def _skip(skip: Any, code: CodeType) -> None:
    skip(code)
    for inner in code.co_consts:
        if isinstance(inner, type(code)):
            _skip(skip, inner)
