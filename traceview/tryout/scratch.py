"""A scratch copy of the user's folder: reads see the files, writes change copies of them.

Folders are real, files are links that become copies before they are written to. That holds for
what Python opens by a relative path, and for torch.save. What is written elsewhere is noted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_ENTRIES = 20_000
"""Links to make, which takes 0.2 s. Folders beyond them are links themselves: not isolated."""
_WHOLE = frozenset((".git", ".hg", ".venv", "venv", "node_modules", "__pycache__"))


def mirror(folder: Path, scratch: Path) -> list[str]:
    """Fill an empty folder with links to the files of `folder`; returns folders that are linked."""
    linked, left = [], MOST_ENTRIES
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
            copy.symlink_to(entry.path)
            if entry.is_dir() and entry.name not in _WHOLE:
                linked.append(os.path.relpath(entry.path, folder))
    return linked


def watch_writes(scratch: str, folder: str, note: Callable[[str], object]) -> None:
    """Turn links into copies before they are written to; note what is written elsewhere.

    `folder` is the one that `scratch` is a copy of.
    """
    root, users = os.path.realpath(scratch), os.path.realpath(folder)
    home = str(Path.home())
    caches = (f"{home}/.cache", f"{home}/.triton", f"{home}/.nv")
    harmless = (tempfile.gettempdir(), "/dev", "/proc", *caches)

    def opened(path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(path, str | bytes) or not _writes(mode, flags):
            return
        place = absolute(path)
        own(root, place)
        elsewhere = os.path.realpath(place)
        in_scratch = elsewhere.startswith(root + os.sep)
        if not in_scratch and (elsewhere.startswith(users) or not elsewhere.startswith(harmless)):
            note(f"wrote {elsewhere}")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            opened(*arguments)
        elif event == "sqlite3.connect":
            opened(arguments[0], "w", 0)
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            host = str(arguments[1][0])
            if not host.startswith(("127.", "::1", "localhost", "0.0.0.0")):  # noqa: S104
                note(f"connected to {host}")

    sys.addaudithook(hook)


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def own(root: str, path: str) -> None:
    """Replace a link in the scratch folder with a copy of its file."""
    link, target = Path(path), os.path.realpath(path)
    if path.startswith(root + os.sep) and link.is_symlink() and Path(target).is_file():
        link.unlink()
        shutil.copyfile(target, link)


def absolute(path: str | bytes | os.PathLike[str]) -> str:
    """The path from the root, with its links as they are."""
    return os.path.normpath(Path.cwd() / os.fsdecode(path))
