"""Run the command on one mutant with the C library and without it, and classify what came of it."""

import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.fuzz.mutants import MUTANTS
from tests.oracles import plain_library
from traceview.base.compiled import library
from traceview.cli import run

MEMORY_BYTES = 4 << 30
# Of processor time, as other programs may take the machine; waiting for ever takes none.
CPU_LIMIT_S, WAIT_LIMIT_S = 100, 900
SANITIZED = "TRACEVIEW_FUZZ_SANITIZED"
"""Set in a process with AddressSanitizer, which itself reserves terabytes and bounds memory."""
_FOUND_BY_SANITIZER = (b"AddressSanitizer", b"runtime error:")
GOOD = ("ok", "clear error")


class Ran(NamedTuple):
    """What one run of the command left: a signal is a negative status, None a time-out."""

    status: int | None
    output: bytes
    errors: bytes


def trial(kind: str, seed: int, keep: Path | None = None) -> str:
    """Classify the mutant of that seed: one of GOOD, else what went wrong."""
    with TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        inputs, temporary = folder / "in", folder / "tmp"
        inputs.mkdir()
        temporary.mkdir()
        arguments = MUTANTS[kind](random.Random(f"{kind}-{seed}"), inputs)
        before = _hashes(inputs)
        runs = [_run(arguments, folder, temporary, without_c) for without_c in (False, True)]
        result = _classified(runs)
        if result in GOOD and _hashes(inputs) != before:
            result = "input changed"
        if result in GOOD and any(temporary.iterdir()):
            result = "file left"
        if keep and result not in GOOD:
            shutil.copytree(inputs, keep / f"{kind}-{seed}", dirs_exist_ok=True)
        return result


def _classified(runs: list[Ran]) -> str:
    for ran in runs:
        if any(mark in ran.errors for mark in _FOUND_BY_SANITIZER):
            return "sanitizer"
        if ran.status in (None, -signal.SIGXCPU):
            return "hang"
        if ran.status < 0:
            return f"signal {signal.Signals(-ran.status).name}"
        if b"internal error" in ran.errors or b"Traceback" in ran.errors:
            return "internal error"
        if ran.status not in (0, 1, 2):
            return f"status {ran.status}"
    if runs[0] != runs[1]:
        return "C and no C differ"
    return "ok" if runs[0].status == 0 else "clear error"


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(folder.iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _run(arguments: list[str], folder: Path, temporary: Path, without_c: bool) -> Ran:
    """Run the command in a fork of this process, which has imported it already."""
    child = os.fork()
    if child == 0:
        _command(arguments, folder, temporary, without_c)
    status = _waited(child)
    return Ran(status, (folder / "out").read_bytes(), (folder / "err").read_bytes())


def _command(arguments: list[str], folder: Path, temporary: Path, without_c: bool) -> None:
    os.environ |= {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(folder / "cache")}
    os.environ["COLUMNS"] = "100"
    if without_c:
        # SQLite then reads the tables, and the decoder the events.
        library.call = plain_library.call
    # Tools that the command starts are not what is tested, and are slow under it.
    os.environ.pop("LD_PRELOAD", None)
    limit = CPU_LIMIT_S * (3 if SANITIZED in os.environ else 1)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    if SANITIZED not in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    status = run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _waited(child: int) -> int | None:
    """The exit status, or minus the signal, of a child; None after killing one that hangs."""
    end = time.monotonic() + WAIT_LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
