"""The folder that a server answers about, and its work: a few computations at once."""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Semaphore
from typing import Generic, TypeVar

from traceview.base import outputs, units
from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.traces.trace.archives import ARCHIVES

# Without the reports of nsys, which only nsys can read.
_RECORDINGS = (".sqlite", ".json")
_LONGEST_NAME = 200
MOST_FILES = 128
"""Of one call: each is read, in turn, while other calls wait."""
_MOST_BYTES, _MOST_BYTES_OF_CALL, _MOST_BYTES_OF_CODE = 4 << 30, 16 << 30, 64 << 20
"""Ten million kernels with their launches have 2 GB, the modules of libraries some MB of PTX."""
_PACKED_FACTOR = 10
"""An archive counts as ten times its size: exports of nsys shrink to a tenth or more."""
# An absolute path in a sentence; a URL or a fraction is none.
_PATH = re.compile(r"(?<![\w.:/~-])/(?:[^\s/:;,'\"()]+/)+([^\s/:;,'\"()]*)")
CODE = (".ptx", ".cubin")
"""Endings of files with the code of kernels that are read without running a program."""


@record
class ServedFolder:
    """The folder that is served; all symbolic links in its path are resolved."""

    root: Path

    @classmethod
    def of(cls, folder: Path) -> ServedFolder:
        """The folder to serve. Raises InputError if it is not a folder."""
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder", "pass the folder that holds the recordings"
            )
        return cls(folder.resolve())

    def file(self, name: str) -> Path:
        """The file of that name, relative to the folder.

        Raises InputError for a path outside the folder, also by way of a link, or that is no file.
        """
        path = self._inside(self.root / name)
        if path is None:
            raise InputError(
                f"there is no file {name[:_LONGEST_NAME]!r} in the folder",
                "list_recordings names those there are",
            )
        return path

    def _inside(self, path: Path) -> Path | None:
        """The file behind a path, links resolved; None if it is outside the folder, or no file."""
        try:
            file = path.resolve()
            return file if file.is_relative_to(self.root) and file.is_file() else None
        except (OSError, ValueError, RuntimeError):
            # A name that no file can have, or links in a circle.
            return None

    def check_sizes(self, files: Sequence[Path]) -> None:
        """Raise InputError if a call names too many files, or more bytes than a server reads."""
        if len(files) > MOST_FILES:
            raise InputError(
                f"the call names more than {MOST_FILES} files",
                "name fewer, or use the command line",
            )
        sizes = [_possible_bytes(file) for file in files]
        for file, size in zip(files, sizes, strict=True):
            most = _MOST_BYTES_OF_CODE if file.suffix in CODE else _MOST_BYTES
            if size > most:
                raise _too_large(self.name_of(file), size, most)
        if sum(sizes) > _MOST_BYTES_OF_CALL:
            raise _too_large("all files of the call together", sum(sizes), _MOST_BYTES_OF_CALL)

    def relative(self, text: str) -> str:
        """The text, which may be JSON, with paths in the folder relative to it."""
        # Literally, as a path may hold spaces; one with a quote differs in JSON.
        root = str(self.root)
        for form in (json.dumps(root, ensure_ascii=False)[1:-1], root):
            if len(self.root.parts) > 1:
                text = text.replace(f"{form}{os.sep}", "").replace(form, "the folder")
        return text

    def without_paths(self, text: str) -> str:
        """The text of an error with names relative to the folder, and no other absolute path."""
        return _PATH.sub(lambda path: f"…/{path[1]}" if path[1] else "…", self.relative(text))

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def recordings(self) -> list[Path]:
        """Files named like a recording, in order of the path."""
        return self._files(is_named_like_recording)

    def code(self) -> list[Path]:
        """Files named like the code of kernels, in order of the path."""
        return self._files(lambda path: path.suffix in CODE)

    def _files(self, is_named: Callable[[Path], bool]) -> list[Path]:
        files: list[Path] = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = (Path(folder, name) for name in names)
            files += (path for path in paths if is_named(path) and self._inside(path))
        return sorted(files)


def _possible_bytes(file: Path) -> int:
    """The size of a file, or about what an archive unpacks to."""
    with file.open("rb") as opened:
        is_packed = opened.read(6).startswith(tuple(ARCHIVES))
    return file.stat().st_size * (_PACKED_FACTOR if is_packed else 1)


def _too_large(what: str, size: int, most: int) -> InputError:
    return InputError(
        f"{what}: up to {units.size(size)} to read, and a server reads {units.size(most)} at most",
        "use the command line: traceview report",
    )


def is_named_like_recording(path: Path) -> bool:
    """Whether a file is one that the server reads as a recording, by its name."""
    return outputs.unpacked_name(path).endswith(_RECORDINGS)


_AT_ONCE = 2
"""Each may hold a recording in memory, and uses more than one core itself."""
_MOST_CALLS = 16
"""Fewer than the 40 threads in which the SDK runs calls: some are left for what is cached."""
_KEPT = 2

Result = TypeVar("Result")


class Work(Generic[Result]):
    """Computations by key. A call waits for those of its own key alone; the latest are kept."""

    def __init__(
        self, at_once: int = _AT_ONCE, most_calls: int = _MOST_CALLS, kept: int = _KEPT
    ) -> None:
        self._slots = Semaphore(at_once)
        self._most_calls, self._most_kept = most_calls, kept
        self._lock = Lock()
        self._calls = 0
        self._running: dict[Hashable, Future[Result]] = {}
        self._kept: OrderedDict[Hashable, Result] = OrderedDict()

    def result(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The kept result, that of the computation under way, or a new one.

        Raises what the computation raises, and InputError if too many calls wait already.
        """
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            if self._calls >= self._most_calls:
                raise InputError(
                    f"the server is busy: {self._calls} calls wait for recordings to be read",
                    "call again when one of them has been answered",
                )
            self._calls += 1
            running = self._running.get(key)
            mine = self._running.setdefault(key, Future())
        try:
            return running.result() if running else self._computed(key, mine, compute)
        finally:
            with self._lock:
                self._calls -= 1

    def _computed(
        self, key: Hashable, mine: Future[Result], compute: Callable[[], Result]
    ) -> Result:
        try:
            with self._slots:
                result = compute()
        except BaseException as error:
            with self._lock:
                del self._running[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._running[key]
            self._kept[key] = result
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        mine.set_result(result)
        return result
