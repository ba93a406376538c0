"""NVTX ranges of the program, mirrored into the trace of torch.profiler.

Kineto writes names without escaping them and knows no domains, so a mirrored range is named by a
number; the texts are written beside the trace.
"""

from __future__ import annotations

from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Range = tuple[str | None, str, str]

PREFIX = "traceview:nvtx:"
PUSH_POP, START_END, MARK = "push-pop", "start-end", "mark"
DOMAIN = "traceview"


class OpenRange:
    """A range that has begun; `event` is None while nothing is recorded."""

    __slots__ = ("closed", "event", "text")

    def __init__(self, text: str, event: Any) -> None:
        self.text, self.event, self.closed = text, event, False


class MirroredRanges:
    """The ranges of one process. `watch(text, begins)` is called when one begins or ends."""

    def __init__(self, make_event: Callable[[str], Any]) -> None:
        self._make_event = make_event
        self.numbers: dict[Range, int] = {}
        self.recording = False
        self.watch: Callable[[str, bool], None] | None = None
        self._stacks: dict[tuple[int, str | None], list[OpenRange]] = {}
        self._open: dict[int, OpenRange] = {}

    def begin(self) -> None:
        """Record from now on, with new numbers from 0."""
        self.numbers, self.recording = {}, True

    def push(self, text: Any, domain: str | None = None) -> None:
        """Open a range on the stack of this thread and domain."""
        opened = self.start(text, domain, PUSH_POP)
        self._stacks.setdefault((get_ident(), domain), []).append(opened)

    def pop(self, domain: str | None = None) -> None:
        """Close the innermost range of this thread and domain, if there is one."""
        stack = self._stacks.get((get_ident(), domain))
        if stack:
            self.end(stack.pop())

    def start(self, text: Any, domain: str | None = None, kind: str = START_END) -> OpenRange:
        """Open a range that any thread may end."""
        text = str(text)
        if self.watch is not None:
            self.watch(text, True)
        opened = OpenRange(text, None)
        if self.recording:
            event = self._make_event(f"{PREFIX}{self._number(domain, text, kind)}")
            event.__enter__()
            opened.event = event
            self._open[id(opened)] = opened
        return opened

    def end(self, opened: OpenRange | None) -> None:
        """Close a range, unless it is closed already or began before the recording."""
        if opened is None or opened.closed:
            return
        opened.closed = True
        if self._open.pop(id(opened), None) is not None:
            opened.event.__exit__(None, None, None)
            opened.event = None
        if self.watch is not None:
            self.watch(opened.text, False)

    def mark(self, text: Any, domain: str | None = None) -> None:
        """Record an NVTX mark, an instant with a text."""
        if self.recording:
            with self._make_event(f"{PREFIX}{self._number(domain, str(text), MARK)}"):
                pass

    def stop(self) -> None:
        """Close all ranges: the recording ends."""
        self.recording = False
        for opened in list(self._open.values()):
            if self._open.pop(id(opened), None) is not None:
                opened.event.__exit__(None, None, None)

    def forget(self) -> None:
        """Drop everything: in a forked process, which must not touch the parent's events."""
        self.recording, self.watch = False, None
        self._open.clear()
        self._stacks.clear()

    def _number(self, domain: str | None, text: str, kind: str) -> int:
        return self.numbers.setdefault((domain, text, kind), len(self.numbers))


installed: MirroredRanges | None = None
"""The ranges of this process, if torch.profiler records it or did."""


def install(make_event: Callable[[str], Any]) -> MirroredRanges:
    """Return the ranges of this process, one object for all recordings: its users keep it."""
    global installed
    if installed is None:
        installed = MirroredRanges(make_event)
    return installed


def stack_carrier() -> Any:
    """Functions that push and pop a range in our domain; None if torch.profiler is not used."""
    ranges = installed
    if ranges is None:
        return None
    return (lambda text: ranges.push(text, DOMAIN), lambda: ranges.pop(DOMAIN))


def free_carrier() -> Any:
    """Functions that start and end a range; None if torch.profiler is not used."""
    ranges = installed
    return None if ranges is None else (ranges.start, ranges.end)
