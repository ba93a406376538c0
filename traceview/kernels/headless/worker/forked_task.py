"""A function that runs in a process of its own, so that neither a crash nor a hang of it matters.

What it compiles is in Triton's cache afterwards, so that compiling it again costs little.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

_MOST_BYTES = 1 << 16


def cores() -> int:
    """The number of cores that this process may use: fewer in a container or under taskset."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class ForkedTask:
    """A function that runs in a forked process; its result must be representable in JSON."""

    def __init__(self, function: Callable[[], Any]) -> None:
        lifeline = _lifeline()
        self._pipe, writer = os.pipe()
        self._process_id = os.fork()
        if self._process_id:
            os.close(writer)
            return
        try:
            # With a process group of its own, killing it ends ptxas, too.
            os.setsid()
            _end_with(lifeline)
            # Drop the pages that Triton and ptxas print where a compilation fails.
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (1, 2):
                os.dup2(nothing, descriptor)
            os.write(writer, json.dumps(function()).encode()[:_MOST_BYTES])
        finally:
            os._exit(0)

    def result(self, seconds: float) -> Any:
        """Wait for the result; end the process.

        Raises TimeoutError where it takes longer, ChildProcessError where it crashes.
        """
        ready = select.select([self._pipe], [], [], seconds)[0]
        text = os.read(self._pipe, _MOST_BYTES) if ready else b""
        self.close()
        if text:
            return json.loads(text)
        if ready:
            raise ChildProcessError("it crashed")
        raise TimeoutError

    def close(self) -> None:
        """End the process."""
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(self._process_id, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._process_id, 0)
        with suppress(OSError):
            os.close(self._pipe)


@cache
def _lifeline() -> tuple[int, int]:
    """A pipe that nobody writes to; it closes when the process that holds it open ends."""
    return os.pipe()


def _end_with(lifeline: tuple[int, int]) -> None:
    """Kill this process and ptxas once the one that started it has ended, even if it was killed.

    Otherwise it would go on compiling and keep open the pipe that the client waits for.
    """
    reader, writer = lifeline
    os.close(writer)

    def watch() -> None:
        os.read(reader, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
