"""The recordings in a folder."""

from __future__ import annotations

from pathlib import Path

from traceview.outputs import TRACE_SUFFIXES, unpacked_name

USE_RECORDINGS = "pass files, or a folder with .sqlite, .nsys-rep or .json files"
_NAMED = (*TRACE_SUFFIXES, ".json")
"""Endings of the names of recordings, before a compression suffix."""


def recordings_in(folder: Path) -> list[Path]:
    """The recordings directly in a folder, sorted by name, without reports that have an export."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    recordings = [file for file in files if unpacked_name(file).endswith(_NAMED)]
    exports = {_stem(file) for file in recordings if _suffix(file) == ".sqlite"}
    return [f for f in recordings if _suffix(f) in (".sqlite", ".json") or _stem(f) not in exports]


def _stem(file: Path) -> str:
    return Path(unpacked_name(file)).stem


def _suffix(file: Path) -> str:
    return Path(unpacked_name(file)).suffix
