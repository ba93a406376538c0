"""The stacks of all threads, as text, in a Python without a GIL.

There the frames of a thread that runs may be freed while another one reads them: in a tight loop,
walking sys._current_frames() broke three of three programs within 8 s, two by a segmentation fault
(CPython 3.13.5, 16 cores). faulthandler stops all threads while it writes their stacks.
"""

from __future__ import annotations

import os
import re
from time import perf_counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_ESCAPED = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")


class StackDumps:
    """A file in memory to which the stacks are written; `took_s` is the time the threads stood."""

    def __init__(self) -> None:
        import faulthandler

        self._dump = faulthandler.dump_traceback
        self._file = os.memfd_create("traceview-stacks")
        self.took_s = 0.0

    def take(self) -> Iterator[tuple[int, str]]:
        """The identity of each thread but our own, and its stack as faulthandler writes it."""
        os.lseek(self._file, 0, os.SEEK_SET)
        began = perf_counter()
        self._dump(self._file)
        self.took_s = perf_counter() - began
        size = os.lseek(self._file, 0, os.SEEK_CUR)
        for text in os.pread(self._file, size, 0).decode("ascii", "replace").split("\n\n"):
            head, _, stack = text.partition("\n")
            words = head.split()
            if words[:1] == ["Thread"]:
                yield int(words[1], 16), stack

    @staticmethod
    def frames(stack: str) -> Iterator[tuple[int, str, str]]:
        """Line, file and function of each frame, innermost first."""
        for file, line, function in _FRAME.findall(stack):
            yield int(line), _plain(file), _plain(function)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[0][2:], 16)), text)
