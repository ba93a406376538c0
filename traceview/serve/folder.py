"""The folder that a server answers about: nothing outside it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traceview.errors import InputError
from traceview.outputs import TRACE_SUFFIXES, unpacked_name

_RECORDINGS = (*(suffix for suffix in TRACE_SUFFIXES if suffix != ".nsys-rep"), ".json")
_MOST_LISTED = 500


@dataclass(frozen=True)
class ServedFolder:
    """A folder, with every link resolved."""

    root: Path

    @classmethod
    def of(cls, folder: Path) -> ServedFolder:
        """Raises InputError if it is no folder."""
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder", "pass the folder that holds the recordings")
        return cls(folder.resolve())

    def file(self, name: str) -> Path:
        """The file of that name, relative to the folder.

        Raises InputError for what is outside the folder, also by way of a link, or is no file.
        """
        path = (self.root / name).resolve() if "\0" not in name else self.root
        if not path.is_relative_to(self.root) or not path.is_file():
            raise InputError(
                f"there is no file {name!r} in the folder", "list_recordings names those there are"
            )
        return path

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def recordings(self) -> list[Path]:
        """Files named like a recording, at most 500, in order of the path."""
        found = sorted(self._files())
        return found[:_MOST_LISTED]

    def _files(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in files:
                path = Path(folder, name)
                looks_right = unpacked_name(path).endswith(_RECORDINGS)
                if looks_right and path.resolve().is_relative_to(self.root):
                    yield path
