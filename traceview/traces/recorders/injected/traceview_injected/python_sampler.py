"""Sample the Python stacks of all threads from a thread of our own.

Samples are kept in memory and appended to a file once per second, so that a killed program leaves
what it had. Its lines, with tab-separated fields:

    F <stack> <line> <file> <function>      a frame, innermost first
    S <time> <thread> <stack>               a sample; time in ns since the epoch, OS thread id
"""

from __future__ import annotations

import gc
import os
import sys
from _thread import get_ident, get_native_id, start_new_thread
from time import perf_counter, sleep, thread_time, time_ns

from . import site_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

PERIOD_S = 0.01
"""A sample stops a Python thread for some 0.1 ms: docs/record.md has what that costs."""
SWITCH_S = 0.0005
"""How long the sampler waits for a thread that computes in Python. With the default of 5 ms, most
samples would be taken where the program gives up the interpreter lock by itself, as in a sleep."""
MOST_COST = 0.01
"""The fraction of a core's time that sampling may take, 0 to 1."""
FLUSH_S = 1.0
MOST_FRAMES = 200
MOST_STACKS = 200_000
LEAST_WITHOUT_GIL = (3, 13, 2)
"""From here on faulthandler stops the threads whose stacks it writes (python/cpython#128400)."""
COLLECTS_IN_WALKS = sys.version_info[:2] == (3, 11)
"""Whether `frame.f_back` may collect garbage: 3.11 makes frame objects when asked, and collects
when it makes objects. Other threads run in a collection, and return from the function whose object
is being made, which then has the memory of another frame: a segmentation fault (2 of 30 imports of
torch, sampled every 0.1 ms)."""
SUFFIX = ".stacks"
CLOCK = "traceview:clock:"
"""Prefix of NVTX ranges that hold the time of day, to place the samples on the timeline."""


class Sampler:
    """Stacks seen so far, and the samples not yet written."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, f"{os.getpid()}-{time_ns()}{SUFFIX}")
        self._stacks: dict[tuple[int, ...] | str, int] = {}
        # Keeps code objects alive: the stacks above are keyed by their ids.
        self._code: dict[int, CodeType] = {}
        self._lines: list[str] = []
        self._native: dict[int, int] = {get_ident(): get_native_id()}
        self._start_folder = os.getcwd()
        self._stopped = False
        self._dumps = None
        if not has_gil():
            # Other Pythons do not pay for its import.
            from . import stack_dumps

            self._dumps = stack_dumps.StackDumps()

    def run(self) -> None:
        """Sample until stopped; runs on the sampler's own thread."""
        own, written, cost, before = get_ident(), perf_counter(), 0.0, 0.0
        while not self._stopped:
            # The lesser of the last two costs: after a single one that includes a garbage
            # collection, there would be no samples for many seconds.
            sleep(max(PERIOD_S, min(cost, before) / MOST_COST))
            began, spent = perf_counter(), thread_time()
            try:
                self.sample(own)
                if began - written > FLUSH_S:
                    self.flush()
                    mark_clock()
                    written = began
            except Exception:  # The program must not notice.
                return
            # CPU time: on a busy machine a sample waits for a core, at no cost to the program.
            cost, before = thread_time() - spent, cost
            if self._dumps:
                # All threads of the program stood still.
                cost = max(cost, self._dumps.took_s)

    def sample(self, own: int) -> None:
        """Take one sample of every thread but our own."""
        if not (COLLECTS_IN_WALKS and gc.isenabled()):
            self._sample(own)
            return
        gc.disable()
        try:
            self._sample(own)
        finally:
            gc.enable()

    def _sample(self, own: int) -> None:
        now = time_ns()
        taken: Any = self._dumps.take() if self._dumps else _frames().items()
        for ident, top in taken:
            thread = None if ident == own else self._native_id(ident)
            if thread is not None:
                stack = self._number_of_text(top) if self._dumps else self._number(top)
                if stack is not None:
                    self._lines.append(f"S\t{now}\t{thread}\t{stack}\n")

    def _native_id(self, ident: int) -> int | None:
        known = self._native.get(ident)
        if known is None:
            # A program without threads need not have imported it.
            active = getattr(sys.modules.get("threading"), "_active", {})
            known = getattr(active.get(ident), "native_id", None)
            if known is not None:
                self._native[ident] = known
        return known

    def _number(self, innermost: FrameType) -> int | None:
        """The number of a stack; None for new ones if there are too many."""
        key: list[int] = []
        frame: FrameType | None = innermost
        while frame is not None and len(key) < 2 * MOST_FRAMES:
            # Bytecode offsets, because finding a line number takes longer.
            key += (id(frame.f_code), frame.f_lasti)
            frame = frame.f_back
        number = self._stacks.get(tuple(key))
        if number is None and len(self._stacks) < MOST_STACKS:
            number = self._stacks[tuple(key)] = len(self._stacks)
            self._describe(number, innermost)
        return number

    def _number_of_text(self, stack: str) -> int | None:
        number = self._stacks.get(stack)
        if number is None and len(self._stacks) < MOST_STACKS:
            number = self._stacks[stack] = len(self._stacks)
            for frame in self._dumps.frames(stack) if self._dumps else ():
                self._add_frame(number, *frame)
        return number

    def _describe(self, number: int, innermost: FrameType) -> None:
        frame: FrameType | None = innermost
        for _ in range(MOST_FRAMES):
            if frame is None:
                return
            code = frame.f_code
            self._code[id(code)] = code
            self._add_frame(number, frame.f_lineno or 0, code.co_filename, code.co_name)
            frame = frame.f_back

    def _add_frame(self, number: int, line: int, file: str, function: str) -> None:
        where = f"{_plain(self._absolute(file))}\t{_plain(function)}"
        self._lines.append(f"F\t{number}\t{line}\t{where}\n")

    def _absolute(self, file: str) -> str:
        if file.startswith("<"):
            return file
        path = os.path.join(self._start_folder, file)
        installed = site_folders.below(path)
        return path if installed is None else f"site-packages/{installed}"

    def flush(self) -> None:
        """Append the buffered lines to the file."""
        lines, self._lines = self._lines, []
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = os.open(self._path, flags, 0o600)
            try:
                rest = "".join(lines).encode("utf-8", "replace")
                while rest:
                    rest = rest[os.write(file, rest) :]
            finally:
                os.close(file)
        except OSError:
            # This process has outlived the recording, whose folder is gone.
            self._stopped = True

    def stop(self) -> None:
        """Write what is left when the program ends."""
        if not self._stopped:
            self._stopped = True
            self.flush()

    def forget(self) -> None:
        """Drop everything in a forked process, in which the sampler's thread does not run."""
        self._stopped, self._lines = True, []


def _frames() -> dict[int, FrameType]:
    """The innermost frame of every thread but our own.

    Ours would hold the frames of all others in a cycle: what their functions used, such as tensors
    and the workers of a DataLoader, would live on until garbage is collected.
    """
    frames = sys._current_frames()
    del frames[get_ident()]
    return frames


def has_gil() -> bool:
    """Whether one Python thread runs at a time, so that another may read its frames."""
    enabled: Any = getattr(sys, "_is_gil_enabled", None)
    return enabled is None or enabled()


def install(folder: str) -> None:
    """Start to sample this process."""
    import atexit

    if not has_gil() and sys.version_info < LEAST_WITHOUT_GIL:
        from . import notes

        text = "Python stacks are not sampled: without a GIL that takes Python 3.13.2 or newer"
        notes.note(folder, text)
        return

    sampler = Sampler(folder)
    atexit.register(sampler.stop)
    os.register_at_fork(after_in_child=sampler.forget)
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
    start_new_thread(sampler.run, ())


def mark_clock() -> None:
    """Put the time of day on the profiler's timeline, if the program has imported torch's NVTX."""
    nvtx = getattr(getattr(sys.modules.get("torch"), "_C", None), "_nvtx", None)
    if nvtx is not None:
        nvtx.rangePushA(f"{CLOCK}{time_ns()}")
        nvtx.rangePop()


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
