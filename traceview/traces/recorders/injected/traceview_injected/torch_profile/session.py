"""One recording of torch.profiler, from `start` to `stop`, in one process.

It leaves two files in its folder: the Chrome trace, and the texts of the mirrored ranges. The trace
gets its name when it is whole.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import wraps

from .. import notes
from . import mirrored_ranges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

TRACE = "torch.trace.json"
RANGES = "torch.ranges.json"
WRITING = "torch.writing"
"""Marker file: as long as TRACE does not exist, it is being written."""
OTHER_PROFILER = (
    "the program started torch.profiler itself, and only one can run: the recording ends there"
)
_WAITING, _RUNNING, _ENDED = range(3)


class TorchSession:
    """The profiler of this process. Its methods never raise."""

    def __init__(self, torch: ModuleType, folder: str, *, shapes: bool = False) -> None:
        self._torch: Any = torch
        self._folder = folder
        self._shapes = shapes
        self._state = _WAITING
        self._profiler: Any = None
        self._calling = False
        self._stopping = False
        self._after: list[Callable[[], None]] = []
        self._process = os.getpid()
        fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
        make_event = fast or torch.autograd.profiler.record_function
        self.ranges = mirrored_ranges.install(make_event)
        _protect(torch, self)

    def start(self) -> None:
        """Start recording; does nothing if the session has been started before."""
        if self._state != _WAITING:
            return
        self._state = _ENDED
        with notes.noting_errors(self._folder, "torch.profiler could not be started"):
            if getattr(self._torch.autograd.profiler, "_is_profiler_enabled", False):
                notes.note(self._folder, OTHER_PROFILER.replace("ends there", "did not begin"))
                return
            self._calling = True
            try:
                self._profiler = _profiler(self._torch, shapes=self._shapes)
                with _without_inductor(self._torch):
                    self._profiler.start()
            finally:
                self._calling = False
            self._state = _RUNNING
            self.ranges.begin()

    def stop(self) -> None:
        """Stop recording and write the trace; does nothing if the session is not recording."""
        if self._state != _RUNNING or os.getpid() != self._process:
            return
        self._state, self._stopping = _ENDED, True
        with notes.noting_errors(self._folder, "torch.profiler failed"):
            self._calling = True
            try:
                open(os.path.join(self._folder, WRITING), "wb").close()
                self.ranges.stop()
                self._profiler.stop()
                self._write()
            finally:
                self._calling, self._profiler = False, None
        self._stopping = False
        for function in self._after:
            function()

    def stop_and_then(self, function: Callable[[], None]) -> None:
        """Stop, then call `function` once the trace is written, even if a stop is in progress."""
        if self._stopping:
            self._after.append(function)
            return
        self.stop()
        function()

    def _write(self) -> None:
        import json

        path = os.path.join(self._folder, TRACE)
        with open(os.path.join(self._folder, RANGES), "w", encoding="utf-8") as file:
            # Escaped, so that a lone surrogate in a name does no harm.
            json.dump({"process": self._process, "ranges": list(self.ranges.numbers)}, file)
        self._profiler.export_chrome_trace(path + ".part")
        os.replace(path + ".part", path)

    def give_way(self) -> None:
        """Stop and write the trace, because the program is about to start its own profiler."""
        if self._state == _RUNNING and not self._calling and os.getpid() == self._process:
            notes.note(self._folder, OTHER_PROFILER)
            self.stop()

    def forget(self) -> None:
        """Record nothing in a forked process, and switch off torch's operator callbacks there."""
        running, self._state = self._state == _RUNNING, _ENDED
        self.ranges.forget()
        if running:
            switch = getattr(self._torch._C._autograd, "_enable_record_function", None)
            if switch is not None:
                switch(False)


_latest: list[TorchSession] = []
"""The latest session of this process. A list, which is never replaced."""


def _protect(torch: ModuleType, session: TorchSession) -> None:
    """End this session if the program starts its own profiler, and in forked processes."""
    is_first = not _latest
    _latest[:] = [session]
    if not is_first:
        return
    os.register_at_fork(after_in_child=lambda: _latest[0].forget())
    module: Any = torch.autograd.profiler
    for name in ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy"):
        original = getattr(module, name, None)
        if original is not None:
            # torch refuses a second profiler.
            setattr(module, name, _giving_way(original))


def _giving_way(original: Any) -> Any:
    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        _latest[0].give_way()
        return original(*args, **kwargs)

    return function


@contextmanager
def _without_inductor(torch: Any) -> Iterator[None]:
    """Keep torch.profiler from importing Inductor for 3 s just to read one of its options.

    Before Inductor is imported, only the environment can have set that option.
    """
    lazy: Any = getattr(torch, "_lazy_modules", None)
    uses_graphs = os.environ.get("TORCHINDUCTOR_CUDAGRAPHS") == "1"
    awaited = isinstance(lazy, set) and "_inductor" in lazy and "_inductor" not in vars(torch)
    if uses_graphs or not awaited:
        yield
        return
    lazy.remove("_inductor")
    try:
        yield
    finally:
        lazy.add("_inductor")


def _profiler(torch: Any, *, shapes: bool) -> Any:
    # Options of newer torch versions: sync events, all threads, no list of Python objects.
    wanted = {"enable_cuda_sync_events": True, "profile_all_threads": True, "trace_only": True}
    experiments = None
    while experiments is None:
        try:
            experiments = torch._C._profiler._ExperimentalConfig(**wanted)
        except TypeError:
            wanted.popitem()
    activities = {torch.profiler.ProfilerActivity.CPU}
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        activities.add(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=activities,
        record_shapes=shapes,
        # Reports show GPU memory only.
        profile_memory=on_gpu,
        experimental_config=experiments,
    )
