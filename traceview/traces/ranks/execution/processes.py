"""A pool of worker processes on this machine, which survives the death of a worker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from traceview.traces.ranks.execution.task import Item, TaskFailure, Value, crash, with_second_try

# Not multiprocessing: it would run the user's script again in each process that it starts, unless
# the script guards its main program.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from traceview.traces.ranks.execution.worker import main; main(int(sys.argv[2]), sys.argv[3])"
)
# There is little linear algebra: one thread per process is enough.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_GRACE_S = 0.5
_LAST_WORDS = 200


@dataclass
class WorkerProcess:
    """A process that takes one task at a time. `folder` holds its temporary files."""

    process: subprocess.Popen[bytes]
    connection: Connection
    folder: Path
    task: int = -1

    @classmethod
    def start(cls, inside: str) -> WorkerProcess:
        """Start a process in a group of its own, which Ctrl-C in the terminal does not reach.

        Its folder is created in the folder `inside`.
        """
        ours, theirs = socket.socketpair()
        # The last worker that ended may have removed `inside`.
        Path(inside).mkdir(mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=inside))
        environment = {**dict.fromkeys(_THREADS, "1"), **os.environ, "TMPDIR": str(folder)}
        command = [sys.executable, "-P", "-c", _PROGRAM]
        with theirs, (folder / "stderr").open("wb") as words:
            process = subprocess.Popen(  # noqa: S603
                [*command, json.dumps(sys.path), str(theirs.fileno()), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=environment,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        return cls(process, Connection(ours.detach()), folder)

    def give(self, task: int, function: Callable[[Item], Value], item: Item) -> None:
        """Send the worker an item to work on; `task` is the item's place."""
        self.task = task
        # A process that has died is noticed when its answer is read.
        with suppress(OSError):
            self.connection.send((function, item))

    def answer(self) -> tuple[Any, bool]:
        """Return the outcome of the task, or the crash, and whether the worker has ended."""
        try:
            outcome, ends = self.connection.recv()
        except (EOFError, OSError):
            self.process.wait()
            lines = (self.folder / "stderr").read_text("utf-8", "replace").split("\n")
            words = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return crash(self.process.returncode, words[:_LAST_WORDS]), True
        return outcome, ends

    def stop(self) -> None:
        """Send SIGTERM to the worker and to the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)

    def end(self) -> None:
        """Kill the worker if it runs on for half a second, and remove its folder."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class ProcessPool:
    """A pool of at most `jobs` worker processes at a time."""

    def __init__(self, jobs: int, note: Callable[[str], None] = lambda _: None) -> None:
        self._jobs = jobs
        self._note = note
        self._workers: list[WorkerProcess] = []
        self._folder = ""

    def outcomes(
        self, function: Callable[[Item], Value], items: Sequence[Item]
    ) -> Iterator[tuple[int, Value | TaskFailure]]:
        """The place and the value or failure of each item, in order of completion.

        `function` is a module-level function; it and the items can be pickled. A task whose process
        died is tried once more, alone, after the others: memory may have run out. All processes are
        ended when the iterator is closed or fails.
        """
        # Ctrl-C may come while a process starts: its files are in this folder, too.
        with tempfile.TemporaryDirectory(
            prefix="traceview-workers-", ignore_cleanup_errors=True
        ) as self._folder:
            try:
                every = self._round(function, items, range(len(items)), self._jobs)
                alone = partial(self._round, function, items, jobs=1)
                yield from with_second_try(every, alone, items, self._note)
            finally:
                self._end(self._workers)

    def _round(
        self,
        function: Callable[[Item], Value],
        items: Sequence[Item],
        places: Sequence[int],
        jobs: int,
    ) -> Iterator[tuple[int, Any]]:
        """Run the tasks at `places`, each once; the processes of an earlier round are ended."""
        self._end(self._workers)
        ahead = deque(places)
        free = [self._started() for _ in range(min(jobs, len(ahead)))]
        busy: dict[Any, WorkerProcess] = {}
        while ahead or busy:
            while free and ahead:
                worker = free.pop()
                worker.give(ahead[0], function, items[ahead.popleft()])
                busy[worker.connection] = worker
            for connection in wait([*busy]):
                worker = busy.pop(connection)
                outcome, ends = worker.answer()
                if ends:
                    self._end([worker])
                if ahead:
                    free.append(self._started() if ends else worker)
                yield worker.task, outcome

    def _started(self) -> WorkerProcess:
        worker = WorkerProcess.start(self._folder)
        self._workers.append(worker)
        return worker

    def _end(self, workers: Sequence[WorkerProcess]) -> None:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.end()
        self._workers = [worker for worker in self._workers if worker not in workers]
