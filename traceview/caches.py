"""The folders of ~/.cache/traceview: readable by their user only, whoever made them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_PRIVATE = 0o700


class UnsafeFolderError(OSError):
    """A cache folder that is a link, or that belongs to another user."""


def cache_folder(*parts: str) -> Path:
    """The folder `parts` in $XDG_CACHE_HOME/traceview or ~/.cache/traceview, private to the user.

    Raises OSError if it cannot be made, UnsafeFolderError if part of it is not the user's own.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    root = Path(home) if home else Path("~/.cache").expanduser()
    root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    return private_folder(root / "traceview", *parts)


def private_folder(folder: Path, *parts: str) -> Path:
    """The folder `parts` below `folder`, each level made or tightened to mode 0700.

    The umask and earlier versions may have left an existing one open to others. Raises OSError as
    `cache_folder` does.
    """
    for level in (folder, *(folder.joinpath(*parts[: end + 1]) for end in range(len(parts)))):
        level.mkdir(mode=_PRIVATE, exist_ok=True)
        _tighten(level)
    return folder.joinpath(*parts)


def _tighten(folder: Path) -> None:
    # By descriptor: the folder checked is the folder changed.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise UnsafeFolderError(f"{folder} belongs to another user")
        if stat.S_IMODE(status.st_mode) != _PRIVATE:
            os.fchmod(descriptor, _PRIVATE)
    finally:
        os.close(descriptor)
