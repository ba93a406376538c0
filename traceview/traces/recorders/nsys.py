"""nsys on this machine: find it, run it until it or the user ends it, export its reports."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from traceview.base.errors import RecordingError, ToolNotFoundError, TraceFormatError, unreadable
from traceview.base.outputs import cache_folder, private_file
from traceview.base.records import record
from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.tools import run_process
from traceview.traces.trace.scrub.facts import remove_environment

NAMED_BY = tools.variable_of("nsys")
# Older versions export a schema below 3.0, which cannot be read.
OLDEST = (2022, 4)
GET_IT = (
    "install Nsight Systems from https://developer.nvidia.com/nsight-systems, "
    f"or set {NAMED_BY} to its path"
)
INSTALLED = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "usr/lib/*/nsight-systems/target-linux-*/nsys",
)
INSIDE_NSIGHT_COMPUTE = (
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
)
# On a busy machine the processes of nsys sometimes lose their connection before the program starts
# ("End of file", "Connection to Agent lost", "Local Endpoint is not available"): nsys 2023.4 did so
# in 12 of 300 recordings made four at a time on two cores, and in none of 25 made one at a time.
# In one of 160 recordings its importer failed (in AnalysisStatus::SetNextState), but imported the
# same file when run again.
ATTEMPTS = 3
_VERSION = re.compile(r"NVIDIA Nsight Systems version ((\d{4})\.(\d+)[\w.\-]*)")
_SHARED_LIBRARY = re.compile(r"(lib\w+)[\w.\-]*\.so[\w.]*: cannot open shared object")
_PACKAGES = {"libdw": "libdw1", "libelf": "libelf1", "libssh": "libssh-4"}


@record
class Defect:
    """Why an nsys cannot produce a usable recording, and the fix."""

    what: str
    remedy: str


@record
class Nsys:
    """An nsys that runs. `version` is its year and its number within the year."""

    path: Path
    version_text: str
    version: tuple[int, int]

    @property
    def importer(self) -> Path | None:
        """The program that turns a raw recording into a report, if it is where nsys expects it."""
        path = _importer_folder(self.path) / "QdstrmImporter"
        return path if path.exists() else None

    @cached_property
    def defect(self) -> Defect | None:
        """What keeps this nsys from importing its own recordings; None if nothing is known.

        The importer, a second program, turns the raw recording into a report.
        """
        folder = _importer_folder(self.path)
        if folder.is_dir():
            importer = self.importer
            answer = tools.run_process([importer, "--help"]) if importer else None
            library = _SHARED_LIBRARY.search(answer.text) if answer and not answer.ok else None
            if answer is None or library is None:
                return None
            return Defect(
                f"the importer of nsys does not start ({answer.evidence})",
                f"install the package {_PACKAGES.get(library[1], library[1])}",
            )
        shipped = sorted(folder.parent.glob("linux-desktop-*-x64"))
        if not shipped:
            return None
        link = f"ln -s {shlex.quote(shipped[-1].name)} {shlex.quote(str(folder))}"
        what = f"{self.path} cannot find its importer (folder {folder} does not exist)"
        return Defect(what, f"run: {link}")


@record
class Broken:
    """An nsys executable that does not work, with the evidence."""

    path: Path
    reason: str
    remedy: str = GET_IT


def find(root: Path = Path("/")) -> Nsys:
    """The nsys to use: the one named by $TRACEVIEW_NSYS, or the first without a defect.

    An nsys that cannot import its own recordings is the last choice. `root` holds the install
    folders. Raises ToolNotFoundError if none works.
    """
    candidates = list(probe_all(root))
    working = [tool for tool in candidates if isinstance(tool, Nsys)]
    for tool in working:
        if not tool.defect:
            return tool
    if working:
        return working[0]
    broken = [tool for tool in candidates if isinstance(tool, Broken)]
    if broken:
        raise ToolNotFoundError("; ".join(tool.reason for tool in broken), broken[0].remedy)
    raise ToolNotFoundError("nsys was not found on PATH or in the usual install folders", GET_IT)


def probe_all(root: Path = Path("/")) -> Iterator[Nsys | Broken]:
    """Probe every nsys in the usual install folders, best first, each once."""
    seen: set[Path] = set()
    for path in _places(root):
        if path.resolve() not in seen:
            seen.add(path.resolve())
            yield probe(path)


def probe(path: Path) -> Nsys | Broken:
    """Run `nsys --version`: the least that a working nsys can do."""
    answer = tools.run_process([path, "--version"])
    match = _VERSION.search(answer.out)
    if not answer.ok or not match:
        why = "`nsys --version` shows no version: " if answer.ok else ""
        return Broken(path, f"{path} is broken ({why}{answer.evidence})")
    version = int(match[2]), int(match[3])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Broken(path, f"{path} is version {match[1]}, but {oldest} or newer is needed")
    return Nsys(path, match[1], version)


def _places(root: Path) -> Iterator[Path]:
    chosen = tools.chosen_by_user("nsys")
    if chosen:
        # No other nsys may take its place: that would be a surprise.
        yield chosen
        return
    yield from tools.on_path("nsys")
    for pattern in (*INSTALLED, *INSIDE_NSIGHT_COMPUTE):
        yield from tools.newest_first(root.glob(pattern))


def _importer_folder(tool: Path) -> Path:
    return tool.resolve().parent.parent / "host-linux-x64"


# Compatibility of the nvtx package with nsys: newer packages record no range in older nsys.

FIRST_NEW_NVTX = (0, 2, 12)
LAST_OLD_NSYS = (2024, 2)


def incompatibility(nvtx: str | None, nsys: Nsys) -> str | None:
    """Warning if ranges of this nvtx will not be recorded; None if they will."""
    numbers = tuple(map(int, re.findall(r"\d+", nvtx or "")[:3]))
    if not nvtx or nsys.version > LAST_OLD_NSYS or numbers < FIRST_NEW_NVTX:
        return None
    newest = ".".join(map(str, LAST_OLD_NSYS))
    return (
        f"nvtx {nvtx} records no ranges under nsys {nsys.version_text} (nor any nsys up to "
        f"{newest}): pip install 'nvtx<0.2.12' or use a newer nsys"
    )


CACHE_BYTES = 2 * 10**9
_HOUR_S = 3600.0
INCLUDE_JSON = "--include-json=true"
_ELSEWHERE = "or export it on a machine with nsys: nsys export --type sqlite FILE.nsys-rep"


def export(nsys: Nsys, report: Path, out: Path, *, include_json: bool = False) -> None:
    """Export a report to SQLite; `include_json` adds the JSON of NVTX events.

    Raises TraceFormatError if nsys fails.
    """
    json = (INCLUDE_JSON,) if include_json else ()
    options = ("--type=sqlite", "--quiet=true", *json, f"--output={out}")
    ran = run_process([nsys.path, "export", *options, report], timeout_s=_HOUR_S)
    # Some versions exit with 0 after a failure.
    if not ran.ok or not out.is_file():
        raise TraceFormatError(
            f"nsys {nsys.version_text} cannot export {report} ({ran.evidence})",
            "export it with the nsys that recorded it, or copy the file again",
        )


def can_include_json(nsys: Nsys) -> bool:
    """Whether this nsys can export the JSON of NVTX events, which holds Python stacks."""
    return INCLUDE_JSON.partition("=")[0] in run_process([nsys.path, "export", "--help"]).out


def export_report(path: Path) -> Path:
    """Export an nsys report to SQLite, or return the cached export.

    The cache is $XDG_CACHE_HOME/traceview or ~/.cache/traceview, 2 GB at most: the least recently
    used exports are removed. It is private, and of environments holds ranks alone. Raises
    TraceFormatError if the report cannot be read or exported, ToolNotFoundError if there is no
    nsys, RecordingError if the cache cannot be written.
    """
    key = _content_key(path)
    try:
        nsys = find()
    except ToolNotFoundError as error:
        what = f"{path} must be exported by nsys first, and {error.what}"
        raise ToolNotFoundError(what, f"{error.remedy}, {_ELSEWHERE}") from error
    try:
        cached = cache_folder() / f"{key}-{nsys.version_text}.sqlite"
        if cached.is_file():
            private_file(cached)
            cached.touch()
        else:
            # Exported elsewhere and renamed: other processes see the whole file or none.
            with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".export-") as folder:
                fresh = Path(folder, "export.sqlite")
                export(nsys, path, fresh, include_json=can_include_json(nsys))
                remove_environment(fresh)
                fresh.chmod(0o600)
                fresh.replace(cached)
            _remove_oldest(cached)
    except OSError as error:
        what = f"cannot write to the export cache: {error}"
        raise RecordingError(what, "set XDG_CACHE_HOME to a writable folder") from error
    return cached


def _content_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise unreadable(path, error, TraceFormatError) from error
    if not size:
        raise TraceFormatError(f"cannot read {path}: the file is empty", "copy the file again")
    return f"{size}-{digest}"


def _remove_oldest(keep: Path) -> None:
    stats = []
    for path in filter(Path.is_file, keep.parent.glob("*.sqlite")):
        # Another process may have removed it.
        with suppress(FileNotFoundError):
            stats.append((path, path.stat()))
    total = sum(stat.st_size for _, stat in stats)
    for path, stat in sorted(stats, key=lambda pair: pair[1].st_mtime_ns):
        if total <= CACHE_BYTES:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            total -= stat.st_size


RAW_BYTES = 200_000_000
"""Raw data of nsys from which on a recording has enough."""
_BETWEEN_LOOKS_S = 0.5


class SizeLimit:
    """Ends the recording of a session, but not the program, once its raw data exceed RAW_BYTES.

    nsys writes them to `folder`, its $TMPDIR. From then on `requests` go to the program alone.
    `reached_s` is the time since the start at which nsys was told to stop, None if it was not.
    """

    def __init__(
        self, nsys: Nsys, session: str | None, folder: Path, requests: StopSignals
    ) -> None:
        self._nsys, self.session, self._folder = nsys, session, folder
        self._requests = requests
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = time.monotonic()
        self.reached_s: float | None = None

    def __enter__(self) -> SizeLimit:
        if self.session:
            self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        if self.session and kind is None:
            # nsys may still write its report.
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_BETWEEN_LOOKS_S):
            if _size(self._folder) > RAW_BYTES:
                # Before the look at the signals: each goes to nsys or to the program, not to both.
                self._requests.is_alone = True
                if self._requests.signals or not self._stop():
                    self._requests.is_alone = False
                return

    def _stop(self) -> bool:
        passed_s = time.monotonic() - self._began
        stop: list[str | Path] = [self._nsys.path, "stop", f"--session={self.session}"]
        # nsys finds its sessions in $TMPDIR.
        place = {"TMPDIR": str(self._folder)}
        if run_process(stop, timeout_s=_HOUR_S, environment=place).ok:
            self.reached_s = passed_s
        return self.reached_s is not None


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(root, name).stat().st_size
    return total


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOP_TIMEOUT_S = 3.0
_MOST_PROLONGED = 5
_HEARD_S = 2.0
"""An nsys that hears an interrupt ends a program that it has just started sooner."""


class Aborted(Exception):  # noqa: N818 (the user's wish, not an error)
    """The user interrupted a second time: discard the recording."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"aborted by signal {signal_number}")
        self.status = 128 + signal_number


@dataclass
class StopSignals:
    """Received termination signals, in order of arrival.

    With `patience_s`, a program that still runs that many seconds after SIGTERM gets that signal
    itself, and SIGKILL after 1.5 times as long. While `is_writing` its recording, each of the two
    is put off by its own waiting time, up to _MOST_PROLONGED times. `marker` is a text that only
    the environment of the program contains. A program that `is_alone`, as its recording has ended
    or is about to, gets each signal itself, and nsys none: it would lose a report that it still
    writes, and pass an interrupt on, so that the program had it twice.
    """

    patience_s: float | None = None
    marker: str | None = None
    is_writing: Callable[[], bool] = lambda: False
    is_alone: bool = False
    signals: list[int] = field(default_factory=list)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def take(self, number: int, _: FrameType | None) -> None:
        self.signals.append(number)
        if len(self.signals) == 2:
            raise Aborted(number)
        alone = self.is_alone
        if alone:
            self.send(number)
        for process in () if alone else self.running:
            process.send_signal(signal.SIGINT)
        if self.marker and not alone and not any(_marked(self.marker)):
            threading.Thread(target=self._repeat, daemon=True).start()
        if self.patience_s and (alone or number == signal.SIGTERM):
            arguments = (self.patience_s, time.monotonic())
            threading.Thread(target=self._insist, args=arguments, daemon=True).start()

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process that gets signals from now on, and one that came while it started.

        Raises OSError if the command cannot start.
        """
        known = len(self.signals)
        process = subprocess.Popen(command, process_group=0, **options)  # noqa: S603
        # No call between the two: Python runs handlers after calls, and `take` would miss it.
        missed = self.signals[known:]
        self.running.append(process)
        if missed:
            process.send_signal(signal.SIGINT)
        return process

    def _repeat(self) -> None:
        """Interrupt nsys again if it starts the program all the same: it was not listening yet.

        Only then: one that was would discard its recording at a second interrupt.
        """
        while self.running and len(self.signals) == 1:
            time.sleep(_BETWEEN_LOOKS_S)
            if any(_marked(self.marker)):
                time.sleep(_HEARD_S)
                for process in self.running if any(_marked(self.marker)) else ():
                    process.send_signal(signal.SIGINT)
                return

    def _insist(self, patience_s: float, since_s: float) -> None:
        # On one thread: on two, the later signal might come first.
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 1.5 * patience_s)):
            for prolonged in range(_MOST_PROLONGED + 1):
                time.sleep(max(0.0, since_s + (prolonged + 1) * wait_s - time.monotonic()))
                if not (self.running and self.is_writing()):
                    break
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the processes of the program, but not to the nsys that records it."""
        for process_id in _marked(self.marker) if self.running else ():
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
    process = requests.start(command, env=environment)
    try:
        status = _ended(process)
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


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The status with which a process ends. Signals are seen in time.

    Python loses a signal during waitpid, until that returns, if another thread starts a process at
    the same moment (18 of 404 signals beside a thread that does nothing else).
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_BETWEEN_LOOKS_S)


def _marked(marker: str | None) -> Iterator[int]:
    """Ids of the processes whose environment contains a text; none without a text, or /proc."""
    if not marker:
        return
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if os.fsencode(marker) in path.read_bytes():
                yield int(path.parent.name)
