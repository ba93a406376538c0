"""The main program of a worker process: runs tasks that come through a socket, one by one.

A message is a pickled (function, item), the function being module-level. The answer is a pickled
(value or TaskFailure, whether the worker ends now).
"""

from __future__ import annotations

import os
import queue
import resource
import shutil
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from traceview.base import failures, memory
from traceview.base.memory import Free, free_memory, keep_freed_memory
from traceview.traces.ranks.execution.task import TaskFailure, attempt

_STOPPED = 143


def main(socket: int, folder: str) -> None:
    """Serve the socket with file descriptor `socket` until the other side closes it.

    Temporary files are in `folder`, which the worker removes if it is terminated.
    """
    # As SystemExit, so that temporary files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_STOPPED))
    keep_freed_memory()
    connection = Connection(socket)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    try:
        _serve(connection, tasks)
    except SystemExit:
        shutil.rmtree(folder, ignore_errors=True)
        # The last worker removes the folder of all workers.
        with suppress(OSError):
            Path(folder).parent.rmdir()
        raise


def _serve(connection: Connection, tasks: queue.SimpleQueue[Any]) -> None:
    ends = False
    while not ends:
        function, item = tasks.get()
        with memory.paused():
            outcome = attempt(function, item)
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak_bytes *= 1 if sys.platform == "darwin" else 1024
        ends = holds_too_much(peak_bytes, free_memory())
        try:
            connection.send((outcome, ends))
        except OSError:
            sys.exit(_STOPPED)
        except Exception as error:
            connection.send((TaskFailure(failures.internal_error(error), failures.REPORT_IT), ends))


def holds_too_much(kept_bytes: int, free: Free | None) -> bool:
    """Whether a process that keeps `kept_bytes` allocated should end, to give memory back.

    Otherwise its next file could be refused, since a file's memory must be free before it is read.
    """
    return free is not None and free.size_bytes < 2 * kept_bytes


def _receive(connection: Connection, tasks: queue.SimpleQueue[Any]) -> None:
    """Queue tasks. If the sender has ended, end this process and all that it started."""
    try:
        while True:
            tasks.put(connection.recv())
    except (EOFError, OSError):
        # The worker leads a process group of its own.
        os.killpg(os.getpgrp(), signal.SIGTERM)
