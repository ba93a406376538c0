"""The folders of ~/.cache/traceview: readable by their user only, whoever made them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600


def cache_folder(*parts: str) -> Path:
    """The folder `parts` in $XDG_CACHE_HOME/traceview or ~/.cache/traceview, private to the user.

    Raises OSError if it cannot be made, or if part of it is a link or belongs to another user.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(home) if home else Path.home() / ".cache"
    except RuntimeError as error:
        # An unknown user, as in some containers.
        raise OSError("the user has no home folder") from error
    return private_folder(root, "traceview", *parts)


def private_folder(root: Path, *parts: str) -> Path:
    """The folder `parts` below `root`, each of them made with mode 0700 or tightened to it.

    The umask and other programs may have left one open to others. `root` itself is the user's
    choice and stays as it is. Raises OSError as `cache_folder` does.
    """
    root.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    folder = root
    for part in parts:
        folder = folder / part
        folder.mkdir(mode=_FOLDER, exist_ok=True)
        _tighten(folder, _FOLDER, os.O_DIRECTORY)
    return folder


def private_file(path: Path) -> None:
    """Make an existing file of a cache readable by its user only. Raises OSError as above."""
    _tighten(path, _FILE, 0)


def _tighten(path: Path, mode: int, flags: int) -> None:
    # By descriptor: what is checked is what is changed.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
