"""The folder that a server answers about: nothing outside it is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from traceview.errors import InputError
from traceview.outputs import unpacked_name
from traceview.records import record

# Without the reports of nsys, which only nsys can read.
_RECORDINGS = (".sqlite", ".json")
_LONGEST_NAME = 200
CODE = (".ptx", ".cubin")
"""Endings of files with the code of kernels that are read without running a program."""


@record
class ServedFolder:
    """The folder that is served; all symbolic links in its path are resolved."""

    root: Path

    @classmethod
    def of(cls, folder: Path) -> ServedFolder:
        """The folder to serve. Raises InputError if it is not a folder."""
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder", "pass the folder that holds the recordings"
            )
        return cls(folder.resolve())

    def file(self, name: str) -> Path:
        """The file of that name, relative to the folder.

        Raises InputError for a path outside the folder, also by way of a link, or that is no file.
        """
        path = self._inside(self.root / name)
        if path is None:
            raise InputError(
                f"there is no file {name[:_LONGEST_NAME]!r} in the folder",
                "list_recordings names those there are",
            )
        return path

    def _inside(self, path: Path) -> Path | None:
        """The file behind a path, links resolved; None if it is outside the folder, or no file."""
        try:
            file = path.resolve()
            return file if file.is_relative_to(self.root) and file.is_file() else None
        except (OSError, ValueError, RuntimeError):
            # A name that no file can have, or links in a circle.
            return None

    def name_of(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def recordings(self) -> list[Path]:
        """Files named like a recording, in order of the path."""
        return self._files(is_named_like_recording)

    def code(self) -> list[Path]:
        """Files named like the code of kernels, in order of the path."""
        return self._files(lambda path: path.suffix in CODE)

    def _files(self, is_named: Callable[[Path], bool]) -> list[Path]:
        files: list[Path] = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = (Path(folder, name) for name in names)
            files += (path for path in paths if is_named(path) and self._inside(path))
        return sorted(files)


def is_named_like_recording(path: Path) -> bool:
    """Whether a file is one that the server reads as a recording, by its name."""
    return unpacked_name(path).endswith(_RECORDINGS)
