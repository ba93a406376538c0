"""The recordings in a folder."""

from __future__ import annotations

from pathlib import Path

from traceview.outputs import TRACE_SUFFIXES, unpacked_name

USE_RECORDINGS = "pass files, or a folder with .sqlite, .nsys-rep or .json files"
_NAMED = (*TRACE_SUFFIXES, ".json")
"""Endings of the names of recordings, before a compression suffix."""


def recordings_in(folder: Path) -> list[Path]:
    """The recordings directly in a folder, sorted by name, without reports that have an export."""
    plain = {file: Path(unpacked_name(file)) for file in sorted(folder.iterdir()) if file.is_file()}
    plain = {file: name for file, name in plain.items() if name.name.endswith(_NAMED)}
    exports = {name.stem for name in plain.values() if name.suffix == ".sqlite"}
    whole = (".sqlite", ".json")
    return [f for f, name in plain.items() if name.suffix in whole or name.stem not in exports]
