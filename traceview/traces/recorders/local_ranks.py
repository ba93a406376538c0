"""Start ranks on this machine as torchrun does, each recorded into a file of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any

from traceview.base.errors import InputError, RecordingError
from traceview.base.outputs import check_output, check_trace_output
from traceview.base.records import record
from traceview.traces.recorders import job, nsys
from traceview.traces.recorders.job import Note, RankOutput, Recording
from traceview.traces.recorders.options import Backend, RecordOptions
from traceview.traces.trace.rank_identity import STARTED_BY_RECORD, launched_rank

# Signals before and after the recording, which handles its own: there is nothing to save.
_START = (
    "import os, signal; "
    "[signal.signal(each, lambda number, _: os._exit(128 + number)) for each in (2, 15)]; "
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from traceview.traces.recorders.rank_worker import main; main(*sys.argv[2:])"
)
_ABORT_TIMEOUT_S = 10.0

Message = dict[str, Any]


@record
class RankRecordings:
    """The recordings of all ranks that left one, in rank order.

    `exit_status` is that of the first rank that failed, or 128 + n if the user stopped them with
    signal n. `pattern` is a shell glob for the files of all ranks.
    """

    recordings: tuple[Recording, ...]
    exit_status: int
    interrupted: bool
    pattern: str | None


def record_ranks(
    words: Sequence[str],
    ranks: int,
    out: Path | None = None,
    *,
    backend: Backend = "auto",
    options: RecordOptions | None = None,
    force: bool = False,
    keep_env: bool = False,
    keep_rep: bool = False,
    note: Note = lambda _: None,
) -> RankRecordings:
    """Run a program as `ranks` processes of this machine and record each of them.

    The processes get the environment that torchrun sets, with a free port of this machine. If one
    fails, the others are stopped, and what was recorded so far is kept. The other arguments, and
    the errors, are those of `record`; RecordingError is raised only if no rank leaves a recording.
    """
    if launched_rank(os.environ):
        raise InputError("another launcher has started several ranks", "leave out --nproc")
    job.command_of(words)
    target = out or Path(f"{job.script_of(words).stem}.sqlite")
    with socket.socket() as listening:
        # A free port, for the rendezvous of the ranks.
        listening.bind(("127.0.0.1", 0))
        port = int(listening.getsockname()[1])
    environments = [_environment(rank, ranks, port) for rank in range(ranks)]
    outputs = [job.rank_output(words, target, environment) for environment in environments]
    _check(outputs, target, force=force, keep_rep=keep_rep)
    request = {
        "words": list(words),
        "out": str(target),
        "backend": backend,
        "options": asdict(options or RecordOptions()),
        "flags": {"force": force, "keep_env": keep_env, "keep_rep": keep_rep},
    }
    with tempfile.TemporaryDirectory(prefix="traceview-ranks-") as folder:
        path = Path(folder, "request.json")
        path.write_text(json.dumps(request), "utf-8")
        run = _Run(path, environments, outputs, note)
        with nsys.handled() as requests:
            run.follow(requests)
    return run.result(requests.status)


def _check(outputs: Sequence[RankOutput], target: Path, *, force: bool, keep_rep: bool) -> None:
    """Raise an error, before any rank starts, if a rank could not write its file."""
    paths = [output.path for output in outputs]
    if len(set(paths)) < len(paths):
        raise InputError(f"{target} names the same file for all ranks", "use {rank} in the name")
    for path in paths:
        check_trace_output(path, force=force)
        if keep_rep:
            check_output(path.with_suffix(".nsys-rep"), force=force)


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """The environment of a rank: torch/distributed/run.py lists the variables."""
    of_rank = dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(rank))
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), str(ranks))
    group = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default"}
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), STARTED_BY_RECORD: str(ranks)}
    return {"OMP_NUM_THREADS": "1", **os.environ, **of_rank, **sizes, **group, **master}


class _Run:
    """The ranks of a run, each recorded by a process, and what these processes report."""

    def __init__(
        self,
        request: Path,
        environments: Sequence[Mapping[str, str]],
        outputs: Sequence[RankOutput],
        note: Note,
    ) -> None:
        self._request, self._environments, self._outputs = request, environments, outputs
        self._note = note
        self._noted: set[str] = set()
        self._messages: queue.SimpleQueue[tuple[int, Message | None]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended: dict[int, int] = {}
        self._recordings: dict[int, Recording] = {}
        self._errors: dict[int, tuple[str, str]] = {}
        self._failed: int | None = None

    def follow(self, requests: nsys.StopSignals) -> None:
        """Start all ranks and wait for them; stop the others when one fails."""
        with ExitStack() as open_pipes:
            try:
                for rank, environment in enumerate(self._environments):
                    self._start(rank, environment, open_pipes, requests)
                running = set(range(len(self._processes)))
                while running:
                    rank, message = self._messages.get()
                    if message is None:
                        running.discard(rank)
                        self._died(rank)
                    else:
                        self._take(rank, message)
                    if self._failed is None and not requests.signals:
                        self._stop_others(rank)
            except nsys.Aborted:
                self._abort()
                self._recordings.clear()
            except BaseException:
                self._abort()
                raise

    def _start(
        self,
        rank: int,
        environment: Mapping[str, str],
        pipes: ExitStack,
        requests: nsys.StopSignals,
    ) -> None:
        reading, writing = os.pipe()
        pipe = pipes.enter_context(os.fdopen(reading, encoding="utf-8"))
        words = [json.dumps(sys.path), str(self._request), str(writing)]
        try:
            # In a process group of its own: a terminal would interrupt it a second time.
            command = [sys.executable, "-P", "-c", _START, *words]
            process = requests.start(command, env=environment, pass_fds=[writing])
        finally:
            os.close(writing)
        self._processes.append(process)

        def read() -> None:
            for line in pipe:
                self._messages.put((rank, json.loads(line)))
            self._messages.put((rank, None))

        Thread(target=read, daemon=True).start()

    def _take(self, rank: int, message: Message) -> None:
        if "note" in message:
            # All notes of rank 0, and from other ranks the warnings not seen before.
            line = message["note"]
            if rank == 0 or (line.startswith("warning: ") and line not in self._noted):
                self._note(f"rank {rank}: {line}" if rank else line)
            self._noted.add(line)
        elif "ended" in message:
            self._ended[rank] = message["ended"]
        elif "error" in message:
            self._errors[rank] = (message["error"]["what"], message["error"]["remedy"])
        else:
            written, output = message["recording"], self._outputs[rank]
            path, report = (
                Path(written[name]) if written[name] else None for name in ("path", "report")
            )
            ending = written["exit_status"], written["interrupted"]
            self._recordings[rank] = Recording(path, *ending, report, output.rank, output.pattern)

    def _died(self, rank: int) -> None:
        """Handle the end of a rank's recorder, which reports nothing if it was killed."""
        status = self._processes[rank].wait()
        if rank not in self._recordings and rank not in self._errors:
            self._errors[rank] = (f"its recorder ended with status {status}", "record it again")
        if rank in self._errors:
            self._ended.setdefault(rank, 1)

    def _stop_others(self, rank: int) -> None:
        if not self._ended.get(rank):
            return
        self._failed = rank
        others = [other for other in range(len(self._processes)) if other not in self._ended]
        if others and rank not in self._errors:
            status = self._ended[rank]
            self._note(f"rank {rank} failed with exit status {status}; the others are stopped")
        for other in others:
            self._processes[other].send_signal(signal.SIGTERM)

    def _abort(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            try:
                process.wait(_ABORT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def result(self, stopped: int | None) -> RankRecordings:
        """The recordings of the ranks. Raises RecordingError if there is none."""
        kept = tuple(
            self._recordings[rank]
            for rank in sorted(self._recordings)
            if self._recordings[rank].path
        )
        if self._errors and not kept and not stopped:
            rank, (what, remedy) = min(self._errors.items())
            raise RecordingError(f"no rank was recorded: rank {rank}: {what}", remedy)
        for rank, (what, remedy) in sorted(self._errors.items()) if kept else ():
            self._note(f"rank {rank} was not recorded: {what}; {remedy}")
        status = int(bool(self._errors)) if self._failed is None else self._ended[self._failed]
        return RankRecordings(
            kept, stopped or status, stopped is not None, self._outputs[0].pattern
        )
