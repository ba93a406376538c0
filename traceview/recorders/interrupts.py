"""Run nsys in the foreground and stop it gracefully when the user interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOP_TIMEOUT_S = 3.0
_MOST_PROLONGED = 5


class Aborted(Exception):  # noqa: N818 (the user's wish, not an error)
    """The user interrupted a second time: discard the recording."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"aborted by signal {signal_number}")
        self.status = 128 + signal_number


@dataclass
class StopSignals:
    """Received termination signals, in order of arrival.

    With `patience_s`, a program that still runs that many seconds after SIGTERM gets the signal
    itself, and SIGKILL after 1.5 times as long. While `is_writing` its recording, each of the two
    is put off by its own waiting time, up to _MOST_PROLONGED times. `marker` is a text that only
    the environment of the program contains.
    """

    patience_s: float | None = None
    marker: str | None = None
    is_writing: Callable[[], bool] = lambda: False
    signals: list[int] = field(default_factory=list)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def take(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)
        if len(self.signals) == 2:
            raise Aborted(number)
        for process in self.running:
            process.send_signal(signal.SIGINT)
        if self.patience_s and number == signal.SIGTERM:
            for sent, factor in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.5)):
                self._send_after(self.patience_s * factor, sent, _MOST_PROLONGED)

    def _send_after(self, wait_s: float, number: int, prolonged: int) -> None:
        def due() -> None:
            if self.running and prolonged and self.is_writing():
                self._send_after(wait_s, number, prolonged - 1)
            else:
                self.send(number)

        timer = threading.Timer(wait_s, due)
        timer.daemon = True
        timer.start()

    def send(self, number: int) -> None:
        """Send a signal to the processes of the program, but not to the nsys that records it."""
        for process_id in _marked(self.marker) if self.marker and self.running else ():
            with suppress(OSError):
                os.kill(process_id, number)

    @property
    def status(self) -> int | None:
        """128 + n for the first signal n, or None if there was none."""
        return 128 + self.signals[0] if self.signals else None


@contextmanager
def handled(patience_s: float | None = None) -> Iterator[StopSignals]:
    """Handle termination signals in the block: the first stops the program, the second aborts."""
    requests = StopSignals(patience_s)
    on_main_thread = threading.current_thread() is threading.main_thread()
    # None outside the main thread, and not those ignored by nohup.
    numbers = [n for n in ENDING if on_main_thread and signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, requests.take) for number in numbers}
    if signal.SIGINT not in before and on_main_thread:
        # `&` in a script makes the shell ignore SIGINT. The program would inherit that and not
        # stop when interrupted; a handler is not inherited.
        before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    command: Sequence[str], requests: StopSignals, environment: Mapping[str, str] | None = None
) -> int:
    """Run a command and return its exit status, 128 + n if signal n killed it.

    The command receives an interrupt once, as SIGINT. It has its own process group, because a
    terminal interrupts the whole foreground group and nsys discards its recording when interrupted
    twice. Raises OSError if the command cannot start.
    """
    process = subprocess.Popen(command, process_group=0, env=environment)  # noqa: S603
    requests.running.append(process)
    try:
        status = process.wait()
    except Aborted:
        # nsys starts the program in a process group of its own.
        requests.send(signal.SIGKILL)
        # Stop an interrupted nsys: a second signal makes it discard its session.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        requests.running.remove(process)
    return 128 - status if status < 0 else status


def _marked(marker: str) -> Iterator[int]:
    """Ids of the processes whose environment contains a text; none without /proc."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if os.fsencode(marker) in path.read_bytes():
                yield int(path.parent.name)
