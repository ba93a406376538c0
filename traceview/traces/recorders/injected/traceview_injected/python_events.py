"""Note garbage collections, and what torch.compile does, in a file of the gathered folder.

Its lines have the fields of FIELDS, separated by tabs; times are ns since the epoch.
"""

from __future__ import annotations

import gc
import os
import sys
from _thread import allocate_lock, get_native_id, interrupt_main, start_new_thread
from time import perf_counter_ns, time_ns

from .import_hooks import after
from .python_sampler import mark_clock
from .sync_call_sites import SOURCE_CHARACTERS, bounded, innermost, shown, source_of

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
        import atexit

        collections = _Collections()
        changed = collections.changed
        gc.callbacks.append(changed)
        atexit.register(collections.write)
        os.register_at_fork(after_in_child=collections.forget)
        _pass_interrupts_on(changed)
        after("torch._dynamo.convert_frame", _watch_compilation)
        after("torch._dynamo.output_graph", _watch_graph_breaks)
        after("torch._dynamo", _hide)
        after("torch._inductor.compile_worker.subproc_pool", _unprofile)


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


def _unprofile(subproc_pool: Any) -> None:
    from . import dynamo

    dynamo.unprofile_workers(subproc_pool)


class _Collections:
    """The garbage collection in progress, of which there is one at a time, and those to write.

    Another thread writes them: for the text of a line it imports modules, and an import in a
    callback of the collector breaks the import during which the collection runs, by a KeyError
    (CPython before 3.13: python/cpython#106176; it met one import of torch in 120).
    """

    def __init__(self) -> None:
        self._began = 0
        self.forget()

    def forget(self) -> None:
        """Leave what is not written, in a forked process, to its parent."""
        self._ended: list[tuple[int, int, int, _Line, _Line, str]] = []
        self._writing = allocate_lock()

    def changed(self, phase: str, info: Any) -> None:
        """Called by the collector when it begins and ends. Never raises, and imports nothing."""
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
            caller = sys._getframe(1)
            user = _Line(innermost(caller))
            what = f"generation {info['generation']}, {info['collected']} objects freed"
            self._ended.append((took, time_ns(), get_native_id(), _Line(caller), user, what))
            mark_clock()
            start_new_thread(self.write, ())
        except Exception:  # The program must not notice.
            return

    def write(self) -> None:
        """Write the collections that have ended."""
        with self._writing:
            while self._ended:
                try:
                    self._write(*self._ended.pop(0))
                except Exception:  # noqa: S112 (the program must not notice)
                    continue

    def _write(
        self, took: int, end: int, thread: int, caller: _Line, user: _Line, what: str
    ) -> None:
        called = source_of(caller) if "collect" in caller.f_code.co_names else ""
        # Where a library asks for it, the program's line is the one that calls the library.
        source = source_of(user) if "collect(" in called else ""
        where = (user.f_code.co_filename, user.f_lineno, user.f_code.co_name)
        add(COLLECTION, took, *where, source, what, ended=(end, thread))


class _Line:
    """What is kept of a frame that goes on: its code, line and globals."""

    def __init__(self, frame: Any) -> None:
        self.f_code, self.f_lineno, self.f_globals = frame.f_code, frame.f_lineno, frame.f_globals


def called(module: str, caller: Any) -> None:
    """Note the user's line from which a module of a torch model is called, by its path."""
    try:
        if _folder:
            user = innermost(caller)
            code = user.f_code
            add(MODULE, 0, code.co_filename, user.f_lineno, code.co_name, source_of(user), module)
    except Exception:  # The program must not notice.
        return


def add(
    kind: str,
    took_ns: int,
    file: str,
    line: int,
    function: str,
    source: str = "",
    reason: str = "",
    guards_ns: int = 0,
    ended: tuple[int, int] | None = None,
) -> None:
    """Write an event in one write, so that those of processes do not mix.

    It ends now on this thread, unless `ended` gives the time and the thread. `guards_ns` is the
    time of one check of the guards of compiled code, 0 if unknown.
    """
    end, thread = ended or (time_ns(), get_native_id())
    texts = (kind, shown(file), function, bounded(source, SOURCE_CHARACTERS))
    cells = (end - took_ns, end, thread, line or 0, guards_ns, *texts, reason)
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
    if not ended:
        mark_clock()
