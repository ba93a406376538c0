"""A recording to make: what every backend needs to know of it, and its work folder."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from traceview.errors import RecordingError
from traceview.recorders import interrupts
from traceview.records import record
from traceview.trace.rank_identity import STARTED_BY_RECORD, RankIdentity, pseudonym
from traceview.version import __version__

Note = Callable[[str], None]
GATHERED = "gathered"
"""Name of the folder, within the work folder, for what the hooks in the program write."""
MARKER = "TRACEVIEW_RECORDED_BY"
"""Variable of the recorded program and its children: the name of the work folder."""
PATIENCE_S, RANK_PATIENCE_S = 20.0, 10.0
"""Seconds that a program, or a rank, has to end after SIGTERM.

In native code it does not see the interrupt and keeps nsys waiting, such as a rank in a collective
with one that has failed.
"""
_REMOVALS, _BETWEEN_REMOVALS_S = 20, 0.1


@record
class Recording:
    """Result of a recording.

    `path` is None if the user aborted it. `exit_status` is the program's, or 128 + n if the user
    stopped it with signal n. `report` is the .nsys-rep file, if kept. `rank` is the rank of the
    process in a distributed run, `pattern` a shell glob for the files of all its ranks.
    """

    path: Path | None
    exit_status: int
    interrupted: bool = False
    report: Path | None = None
    rank: RankIdentity | None = None
    pattern: str | None = None


@record
class RecordingJob:
    """A recording to make, checked before the program runs; `report` is for nsys only."""

    words: Sequence[str]
    command: list[str]
    out: Path
    report: Path | None
    keep_env: bool
    note: Note
    rank: RankIdentity | None = None
    ended: Callable[[int], None] = lambda _: None

    def run(
        self,
        command: list[str],
        requests: interrupts.StopSignals,
        added: Mapping[str, str],
        remedy: str = "run traceview doctor",
    ) -> int:
        """Run a command with variables added to the environment. Returns its exit status."""
        self.note(shlex.join(command))
        try:
            kept = {name: v for name, v in os.environ.items() if name != STARTED_BY_RECORD}
            return interrupts.run(command, requests, {**kept, **added})
        except OSError as error:
            reason = error.strerror or str(error)
            raise RecordingError(f"cannot start {command[0]}: {reason}", remedy) from error

    @property
    def patience_s(self) -> float:
        """Seconds from the recorder's SIGTERM until the program itself is sent one."""
        return PATIENCE_S if self.rank is None else RANK_PATIENCE_S

    def run_facts(self, status: int, started: datetime) -> Mapping[str, str]:
        """The facts that every backend writes to TRACEVIEW_RUN, name to value."""
        return {
            "traceview_version": __version__,
            "command_line": shlex.join(self.words),
            "exit_status": str(status),
            "started_utc": started.isoformat(timespec="seconds"),
            **rank_facts(self.rank, keep_host=self.keep_env),
        }


def rank_facts(rank: RankIdentity | None, *, keep_host: bool) -> Mapping[str, str]:
    """The facts about a rank for TRACEVIEW_RUN; its host is a pseudonym unless `keep_host`.

    Hosts with the same name get different pseudonyms, containers on one host get the same.
    """
    if rank is None:
        return {}
    host = platform.node()
    if not keep_host:
        # Linux gives each boot of a host a random id.
        with suppress(OSError):
            host = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip() or host
        host = pseudonym(host)
    return replace(rank, host=host).as_run()


@contextmanager
def work_folder(out: Path) -> Iterator[Path]:
    """A new folder beside the output, removed at the end: a rename within it is atomic."""
    parent = out.absolute().parent
    try:
        folder = tempfile.TemporaryDirectory(dir=parent, prefix=".traceview-")
    except OSError as error:
        what = f"cannot write to {parent}: {error.strerror or error}"
        raise RecordingError(what, "choose another output file with -o") from error
    try:
        yield Path(folder.name)
    finally:
        _remove(folder)


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    # Processes of nsys may still be writing for a moment.
    for _ in range(_REMOVALS):
        try:
            folder.cleanup()
            return
        except OSError:
            time.sleep(_BETWEEN_REMOVALS_S)
    shutil.rmtree(folder.name, ignore_errors=True)
