"""Notes about failed hooks: lines of a file in the gathered folder."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

STARTED = "started"
NOTES = "notes.txt"
STOPPED = "stopped"
_MOST_BYTES = 64_000
_noted: set[str] = set()


def started(folder: str) -> None:
    """Leave a marker file: the hooks of a Python process have started."""
    _leave(folder, STARTED)


def stopped(folder: str, after_s: float) -> None:
    """Leave a file: the recording ended so many seconds after its start, the program did not."""
    _leave(folder, STOPPED, f"{after_s:.1f}")


def _leave(folder: str, name: str, text: str = "") -> None:
    try:
        place = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(place, text.encode())
        finally:
            os.close(place)
    except OSError:
        pass


def note(folder: str | None, line: str) -> None:
    """Append a line, each once per process. Never raises."""
    try:
        if not folder or line in _noted:
            return
        _noted.add(line)
        path = os.path.join(folder, NOTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        # A single short write, so that lines of several processes do not interleave.
        place = os.open(path, flags, 0o600)
        try:
            if os.fstat(place).st_size < _MOST_BYTES:
                os.write(place, (" ".join(line.split())[:300] + "\n").encode("utf-8", "replace"))
        finally:
            os.close(place)
    except Exception:  # noqa: S110 (there is nowhere left to report it)
        pass


class noting_errors:  # noqa: N801 (a context manager, which contextlib would be an import for)
    """Turn an exception in the block into a note."""

    def __init__(self, folder: str | None, what: str) -> None:
        self._folder, self._what = folder, what

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        note(self._folder, f"{self._what}: {type(error).__name__}: {error}")
        return True
