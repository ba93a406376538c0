"""Linux' Landlock: a process and its children can change no file of a folder, in C code neither.

Native libraries follow the links of the scratch folder; what they would do to the user's files
fails with EACCES. Interface: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_WRITE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = sum(1 << bit for bit in range(4, 14))
"""Bits of what changes a folder, to move files (13) among it."""
_LEAST_VERSION, _TRUNCATING_VERSION = 2, 3
"""Version 1 forbids all moves of files to other folders."""


def protect(kept: Sequence[str], writable: Sequence[str]) -> bool:
    """Forbid changes in some folders, but in `writable` ones. Returns whether the system can.

    Nor can anything be created in the folders that contain them, beside what they have: Landlock
    only allows, folder by folder.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < _LEAST_VERSION:
        return False
    of_files = _WRITE | (_TRUNCATE if version >= _TRUNCATING_VERSION else 0)
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("Q", of_files | _CHANGES), 8, 0)
    if ruleset < 0:
        return False
    try:
        for path in _allowed(set(map(os.path.realpath, kept)), writable):
            with suppress(OSError):
                _allow(libc, ruleset, path, of_files)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allowed(kept: Set[str], writable: Sequence[str]) -> Iterator[str]:
    """What the folders around have beside the ways to `kept` ones, and the writable ones."""
    around = {str(parent) for path in kept for parent in Path(path).parents}
    ways = kept | around
    yield from (path for path in writable if path not in ways)
    for folder in around:
        if folder in kept or kept & {*map(str, Path(folder).parents)}:
            continue
        with suppress(OSError):
            entries = map(str, Path(folder).iterdir())
            yield from (entry for entry in entries if entry not in ways)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, of_files: int) -> None:
    # Not through a link, which may lead into the folder.
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        rights = of_files | (_CHANGES if is_folder else 0)
        libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
