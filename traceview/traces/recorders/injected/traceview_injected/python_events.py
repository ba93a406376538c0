"""Note garbage collections, and what torch.compile does, in a file of the gathered folder.

Its lines have the fields of FIELDS, separated by tabs; times are ns since the epoch.
"""

from __future__ import annotations

import gc
import os
import sys
from _thread import get_native_id, interrupt_main, start_new_thread
from time import perf_counter_ns, time_ns

from .import_hooks import after
from .python_sampler import mark_clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUFFIX = ".events"
NUMBERS = ("start", "end", "thread", "line", "guards")
FIELDS = (*NUMBERS, "kind", "file", "function", "source", "reason")
COLLECTION, MODULE = "garbage-collection", "module"
LEAST_NS = 1_000_000
"""Shorter collections are not noted: those of young objects come thousands of times per second."""
LEAST_OBJECTS = 10_000
"""Young objects of which a collection takes about 0.5 ms."""
REASON_CHARACTERS = 200

_folder: list[str] = []
"""Where events go: nowhere if empty. A list, which is never replaced."""


def install(folder: str) -> None:
    """Note the events of this process in `folder` from now on; earlier folders are left."""
    is_first = not _folder
    _folder[:] = [folder]
    if is_first:
        changed = _Collections().changed
        gc.callbacks.append(changed)
        _pass_interrupts_on(changed)
        after("torch._dynamo.convert_frame", _watch_compilation)
        after("torch._dynamo.output_graph", _watch_graph_breaks)
        after("torch._dynamo", _hide)


def _pass_interrupts_on(callback: Any) -> None:
    """Send an interrupt again that comes during a collection.

    Python raises it where it next runs Python code, in our callback, and ignores it there.
    """
    earlier = sys.unraisablehook

    def unraisablehook(lost: Any) -> None:
        if lost.exc_type is KeyboardInterrupt and lost.object == callback:
            # By another thread: here it would be raised at once, and ignored again.
            start_new_thread(interrupt_main, ())
        else:
            earlier(lost)

    sys.unraisablehook = unraisablehook


# Imported only if the program compiles.


def _watch_compilation(module: Any) -> None:
    from . import compilations

    compilations.wrap_frames(module)


def _watch_graph_breaks(module: Any) -> None:
    from . import compilations

    compilations.wrap_graphs(module)


def _hide(_: Any) -> None:
    from . import dynamo

    dynamo.hide((sys.modules[__name__],))


class _Collections:
    """The garbage collection in progress: there is one at a time."""

    def __init__(self) -> None:
        self._began = 0

    def changed(self, phase: str, info: Any) -> None:
        """Called by the collector when it begins and ends. Never raises."""
        if phase == "start":
            self._began = perf_counter_ns()
            return
        took = perf_counter_ns() - self._began
        if not self._began or took < LEAST_NS:
            return
        try:
            # One of so few objects takes long only where the thread loses its core.
            if info["generation"] == 0 and gc.get_threshold()[0] < LEAST_OBJECTS:
                return
            from .sync_call_sites import innermost

            caller = sys._getframe(1)
            user = innermost(caller)
            called = source_of(caller) if "collect" in caller.f_code.co_names else ""
            # Where a library asks for it, the program's line is the one that calls the library.
            source = source_of(user) if "collect(" in called else ""
            code, line = user.f_code, user.f_lineno
            what = f"generation {info['generation']}, {info['collected']} objects freed"
            add(COLLECTION, took, code.co_filename, line, code.co_name, source, what)
        except Exception:  # The program must not notice.
            return


def called(module: str, caller: Any) -> None:
    """Note the user's line from which a module of a torch model is called, by its path."""
    try:
        if _folder:
            from .sync_call_sites import innermost

            user = innermost(caller)
            code = user.f_code
            add(MODULE, 0, code.co_filename, user.f_lineno, code.co_name, source_of(user), module)
    except Exception:  # The program must not notice.
        return


def source_of(frame: Any) -> str:
    """The text of the line that a frame executes."""
    import linecache

    return linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def add(
    kind: str,
    took_ns: int,
    file: str,
    line: int,
    function: str,
    source: str = "",
    reason: str = "",
    guards_ns: int = 0,
) -> None:
    """Write an event that ends now, in one write, so that those of processes do not mix.

    `guards_ns` is the time of one check of the guards of compiled code, 0 if unknown.
    """
    # Imported late: most programs have no events, and all pay for what is imported at their start.
    from .sync_call_sites import SOURCE_CHARACTERS, bounded, shown

    end = time_ns()
    texts = (kind, shown(file), function, bounded(source, SOURCE_CHARACTERS))
    cells = (end - took_ns, end, get_native_id(), line or 0, guards_ns, *texts, reason)
    flat = "\t".join(bounded(str(cell), REASON_CHARACTERS) for cell in cells)
    path = os.path.join(_folder[0], f"{os.getpid()}{SUFFIX}")
    try:
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(place, f"{flat}\n".encode("utf-8", "replace"))
        finally:
            os.close(place)
    except OSError:
        # This process has outlived the recording, whose folder is gone.
        return
    mark_clock()
