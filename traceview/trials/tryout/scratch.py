"""A scratch copy of the user's folder: reads see the files, writes change copies of them.

Folders are real and Python's sources copies, so that paths built on `__file__` stay inside. Other
files are links that become copies before Python changes them; so do folders beyond MOST_ENTRIES.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_ENTRIES = 20_000
"""Links to make, which takes 0.2 s. Folders beyond them are links until something is written."""
_WHOLE = frozenset((".git", ".hg", ".venv", "venv", "node_modules", "__pycache__"))
_CHANGES_FILE = frozenset(
    ("os.truncate", "os.utime", "os.chmod", "os.chown", "os.setxattr", "os.link")
)
_CHANGES_FOLDER = frozenset(
    ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink")
)
"""Audit events of calls that change the file that a link leads to, or the folders of two paths."""


def mirror(folder: Path, scratch: Path) -> None:
    """Fill an empty folder with what `folder` has."""
    left = MOST_ENTRIES
    place = Path(os.path.realpath(scratch))
    around = {str(place), *map(str, place.parents)}
    waiting = deque([(folder, scratch)])
    while waiting:
        source, target = waiting.popleft()
        try:
            entries = list(os.scandir(source))
        except OSError:  # Not readable: not for the program either.
            continue
        for entry in entries:
            if os.path.realpath(entry.path) in around:  # A copy would contain itself.
                continue
            left -= 1
            copy = target / entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name not in _WHOLE and left > 0:
                copy.mkdir()
                waiting.append((Path(entry.path), copy))
                continue
            if entry.name.endswith(".py") and entry.is_file():
                with suppress(OSError):  # With its time: bytecode stays valid.
                    shutil.copy2(entry.path, copy)
            if not os.path.lexists(copy):
                copy.symlink_to(entry.path)


def harmless() -> tuple[str, ...]:
    """Folders that every program writes to: of temporary files, devices, and caches."""
    caches = (str(Path.home() / name) for name in (".cache", ".triton", ".nv"))
    return tuple(map(os.path.realpath, (tempfile.gettempdir(), "/dev", "/proc", *caches)))


class WriteWatch:
    """An audit hook that turns links into copies before they are written to.

    It notes what is written outside of `scratch`, a copy of `folder`, and what is connected to. A
    folder that `is_protected` cannot be written to.
    """

    def __init__(
        self, scratch: str, folder: str, is_protected: bool, note: Callable[[str], object]
    ) -> None:
        self._root, self._users = os.path.realpath(scratch), os.path.realpath(folder)
        self._harmless, self._is_protected, self._note = harmless(), is_protected, note

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of `sys.addaudithook`."""
        if event == "open":
            self._opens(*arguments)
        elif event == "sqlite3.connect":
            self._opens(arguments[0], "a", 0)
        elif event in _CHANGES_FOLDER or event in _CHANGES_FILE:
            paths = [absolute(path) for path in arguments[:2] if isinstance(path, str | bytes)]
            for path in paths:
                unfold(self._root, path)
            if paths and event in _CHANGES_FILE:
                own(self._root, paths[0])
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            host = str(arguments[1][0])
            if not host.startswith(("127.", "::1", "localhost", "0.0.0.0")):  # noqa: S104
                self._note(f"connected to {host}")

    def _opens(self, path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(path, str | bytes) or not _writes(mode, flags):
            return
        place = absolute(path)
        own(self._root, place, keep=not _truncates(mode, flags))
        elsewhere = os.path.realpath(place)
        if is_within(elsewhere, self._root):
            return
        is_usual = any(is_within(elsewhere, each) for each in self._harmless)
        if not (self._is_protected if is_within(elsewhere, self._users) else is_usual):
            self._note(f"wrote {elsewhere}")


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wa+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _truncates(mode: Any, flags: Any) -> bool:
    return "w" in mode if isinstance(mode, str) else bool(flags & os.O_TRUNC)


def own(root: str, path: str, *, keep: bool = True) -> None:
    """Replace a link in the scratch folder with a copy of its file, empty unless `keep`."""
    unfold(root, path)
    link, target = Path(path), os.path.realpath(path)
    if is_within(path, root) and link.is_symlink() and Path(target).is_file():
        link.unlink()
        if keep:
            shutil.copyfile(target, link)
        else:
            link.touch()


def unfold(root: str, path: str) -> None:
    """Replace links to folders on the way to a path in the scratch folder: folders of links."""
    link = Path(root)
    parts = Path(os.path.relpath(path, root)).parts if is_within(path, root) else ()
    for part in parts[:-1]:
        link /= part
        if link.is_symlink() and link.is_dir():
            source = Path(os.path.realpath(link))
            link.unlink()
            link.mkdir()
            for entry in source.iterdir():
                (link / entry.name).symlink_to(entry)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it; both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def absolute(path: str | bytes | os.PathLike[str]) -> str:
    """The path from the root, with its links as they are."""
    return os.path.normpath(Path.cwd() / os.fsdecode(path))
