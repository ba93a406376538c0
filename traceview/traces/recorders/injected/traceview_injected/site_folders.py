"""Folders outside site-packages that packages were installed into, as by pip --target."""

from __future__ import annotations

import os
import sys

_START_FOLDER = os.getcwd()
_USUAL = ("site-packages", "dist-packages")
_known: dict[str, bool] = {}


def below(path: str) -> str | None:
    """An absolute path as seen from such a folder of sys.path; None if it is in none."""
    for entry in sys.path:
        folder = entry.rstrip(os.sep) if isinstance(entry, str) else ""
        if folder and path.startswith(folder + os.sep) and _holds_packages(folder):
            return path[len(folder) + 1 :]
    return None


def _holds_packages(folder: str) -> bool:
    """Whether packages were installed there, but not into the program's own folder."""
    known = _known.get(folder)
    if known is None:
        own = {_START_FOLDER, os.path.dirname(os.path.abspath(sys.argv[0]))} if sys.argv else set()
        try:
            names = [] if folder in own or folder.endswith(_USUAL) else os.listdir(folder)
        except OSError:
            names = []
        known = _known[folder] = any(name.endswith(".dist-info") for name in names)
    return known
