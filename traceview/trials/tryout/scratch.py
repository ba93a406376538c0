"""A scratch copy of the user's folder: reads see the files, writes change copies of them.

Folders are real and Python's sources copies, so that paths built on `__file__` stay inside. Other
files are links that become copies before Python changes them; so do folders beyond MOST_ENTRIES.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PATH = (str, bytes, os.PathLike)
_Path = str | bytes | os.PathLike[str]
MOST_ENTRIES = 20_000
"""Links to make, which takes 0.2 s. Folders beyond them are links until something is written."""
_WHOLE = frozenset((".git", ".hg", ".venv", "venv", "node_modules", "__pycache__"))
_CHANGES_FILE = frozenset(
    ("os.truncate", "os.utime", "os.chmod", "os.chown", "os.setxattr", "os.removexattr", "os.link")
)
_CREATES = frozenset(("os.mkdir", "os.symlink"))
_CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, 2),),
    "os.utime": ((0, 3),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.setxattr": ((0, 4),),
    "os.removexattr": ((0, 2),),
    "shutil.rmtree": ((0, 1),),
}
"""Per audit event, where its arguments are a path and the descriptor that it starts from."""
_ENTERS = frozenset(("os.chdir", "os.rmdir", "shutil.rmtree"))
_WATCHED = frozenset(("open", "sqlite3.connect", "socket.connect", "os.chdir", *_CHANGES))
_MOST_LINKS = 40
"""Links that one path may lead through, as of Linux."""


def mirror(folder: Path, scratch: Path) -> list[str]:
    """Fill an empty folder with what `folder` has. Returns where its links out of it lead."""
    left, root, linked = MOST_ENTRIES, os.path.realpath(folder), set()
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
            leads_to = os.path.realpath(entry.path)
            if leads_to in around:  # A copy would contain itself.
                continue
            if entry.is_symlink() and not is_within(leads_to, root):
                linked.add(leads_to)
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
    return sorted(linked)


def harmless() -> tuple[str, ...]:
    """Folders that every program writes to: of temporary files, devices, and caches."""
    caches = (str(Path.home() / name) for name in (".cache", ".triton", ".nv"))
    return tuple(map(os.path.realpath, (tempfile.gettempdir(), "/dev", "/proc", *caches)))


def to_keep(linked: Iterable[str]) -> tuple[str, ...]:
    """Of what links lead to, what can be kept unchanged: not devices, and caches as they grow."""
    usual = harmless()[1:]
    return tuple(path for path in linked if not any(is_within(path, each) for each in usual))


class WriteWatch:
    """An audit hook that turns links into copies before they are written to.

    It notes what is written outside of `scratch`, and what is connected to. What is in a folder
    of `kept` is not changed: PermissionError.
    """

    def __init__(self, scratch: str, kept: Sequence[str], note: Callable[[str], object]) -> None:
        self._root, self._kept = os.path.realpath(scratch), tuple(map(os.path.realpath, kept))
        self._harmless, self._note = (*harmless(), str(Path(self._root).parent)), note
        self._own = threading.local()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of `sys.addaudithook`."""
        if event not in _WATCHED or getattr(self._own, "is_busy", False):
            return
        self._own.is_busy = True  # What it does to the scratch folder are events, too.
        try:
            self._takes(event, arguments)
        finally:
            self._own.is_busy = False

    def _takes(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._opens(*arguments)
        elif event == "sqlite3.connect":
            if arguments[0] != ":memory:":
                self._opens(arguments[0], "a", 0)
        elif event == "os.chdir":
            if isinstance(arguments[0], _PATH):
                own(self._root, arguments[0])
        elif event in _CHANGES:
            self._changes(event, arguments)
        elif isinstance(arguments[1], tuple):
            host = str(arguments[1][0])
            if not host.startswith(("127.", "::1", "localhost", "0.0.0.0")):  # noqa: S104
                self._note(f"connected to {host}")

    def _opens(self, path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(path, _PATH):
            return
        if _writes(mode, flags):
            # Not emptied for os.open: its path may start from a descriptor, which is not told.
            keep = not (isinstance(mode, str) and "w" in mode)
            self._leaves("wrote", os.path.realpath(own(self._root, path, keep=keep)))
        elif mode is None and Path(os.fsdecode(path)).is_dir():  # To change it by its descriptor.
            own(self._root, path)

    def _changes(self, event: str, arguments: tuple[Any, ...]) -> None:
        places = []
        for number, (at, start) in enumerate(_CHANGES[event]):
            path, base = arguments[at], ""
            if is_opened := isinstance(path, int):
                path = _opened(path)
            elif len(arguments) > start and arguments[start] not in (None, -1):
                base, is_opened = _opened(arguments[start]), True
            if isinstance(path, _PATH) and path:
                follows = event in _ENTERS or (event in _CHANGES_FILE and not number)
                place = Path(own(self._root, path, base, follow=follows))
                places.append((place.parent.resolve() / place.name, is_opened))
        if places and os.path.lexists(places[0][0]) is not (event in _CREATES):
            for place, is_opened in places:
                self._leaves("changed", str(place), is_opened=is_opened)

    def _leaves(self, what: str, place: str, *, is_opened: bool = False) -> None:
        """Note a change outside of the scratch folder, or refuse it."""
        if is_within(place, self._root):
            return
        usual, kept = (
            max((len(folder) for folder in folders if is_within(place, folder)), default=0)
            for folders in (self._harmless, self._kept)
        )
        if (kept and kept >= usual) or (is_opened and not usual):
            raise PermissionError(errno.EACCES, "traceview try does not change", place)
        if not usual:
            self._note(f"{what} {place}")


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    changes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    return isinstance(flags, int) and bool(flags & changes)


def _opened(descriptor: int) -> str:
    """The path of an open file or folder; "" for pipes and the like, and where it is unknown."""
    path = ""
    with suppress(OSError):
        if sys.platform == "darwin":
            import fcntl

            path = os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        else:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return path if os.path.lexists(path) else ""


def own(root: str, path: _Path, base: str = "", *, follow: bool = True, keep: bool = True) -> str:
    """Make a path in the scratch folder lead to no file outside of it; the place it leads to.

    Links to folders on its way become folders of links. The last link, which only `follow` goes
    through, becomes a folder or a copy of its file, which is empty unless `keep`.
    """
    parts = deque(Path(base or Path.cwd(), os.fsdecode(path)).parts)
    place, links = Path(), 0
    while parts:
        part = parts.popleft()
        place = place.parent if part == os.pardir else place / part
        if not (parts or follow):
            break
        try:
            link, target = place.readlink(), os.path.realpath(place)
        except OSError:  # No link, or no longer: another process was first.
            continue
        if not is_within(str(place), root) or is_within(target, root):
            links += 1
            if links > _MOST_LINKS:
                break
            parts.extendleft(reversed(link.parts))
            place = place.parent
        elif Path(target).is_dir():
            _unfold(root, place, target)
        elif Path(target).is_file():
            copy = _part(root)
            if keep:
                shutil.copyfile(target, copy)
            else:
                copy.touch()
            copy.replace(place)
        elif not Path(target).exists():  # It would be made there.
            place.unlink()
    return str(place)


def _unfold(root: str, link: Path, folder: str) -> None:
    """Replace a link to a folder with a folder of links."""
    entries = list(os.scandir(folder))
    copy = _part(root)
    copy.mkdir()
    for entry in entries:
        (copy / entry.name).symlink_to(entry.path)
    try:
        link.unlink()
        copy.rename(link)
    except OSError:  # Another process was first.
        shutil.rmtree(copy, ignore_errors=True)


def _part(root: str) -> Path:
    """Where something is made that then replaces a link, which other processes read meanwhile."""
    return Path(f"{root}.part-{os.getpid()}-{threading.get_ident()}")


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it; both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
