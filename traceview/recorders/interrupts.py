"""Run the recorder in the foreground, and end it gently when the user asks."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GIVE_UP_S = 3.0


class GivenUp(Exception):  # noqa: N818 (it is the user's wish, not an error)
    """The user asked a second time: what was recorded is not wanted either."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"given up on signal {signal_number}")
        self.status = 128 + signal_number


@dataclass
class Requests:
    """The signals that asked to end, in the order they came."""

    signals: list[int] = field(default_factory=list)
    running: subprocess.Popen[bytes] | None = None

    def take(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)
        if len(self.signals) == 2:
            raise GivenUp(number)
        if self.running:
            self.running.send_signal(signal.SIGINT)

    @property
    def status(self) -> int | None:
        """The exit status of somebody who was interrupted; None if nobody asked."""
        return 128 + self.signals[0] if self.signals else None


@contextmanager
def watched() -> Iterator[Requests]:
    """Within the block the first signal to end is a request, the second raises GivenUp."""
    requests = Requests()
    before = {number: signal.signal(number, requests.take) for number in _heeded()}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heeded() -> list[signal.Signals]:
    """What may be watched: in the main thread, and not where nohup told us to ignore it."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]


def run(
    command: Sequence[str], requests: Requests, environment: Mapping[str, str] | None = None
) -> int:
    """Run a command to its end and return its exit status, 128 + n if signal n ended it.

    A request to end reaches the command once, as SIGINT. A terminal would send it to the whole
    foreground group, too, and nsys drops its recording when it is interrupted twice: so the
    command has a process group of its own. Raises OSError if it cannot start.
    """
    process = subprocess.Popen(command, process_group=0, env=environment)  # noqa: S603
    requests.running = process
    try:
        status = process.wait()
    except GivenUp:
        _end(process)
        raise
    finally:
        requests.running = None
    return 128 - status if status < 0 else status


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a recorder that was interrupted before: a second signal makes nsys drop its session."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GIVE_UP_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
