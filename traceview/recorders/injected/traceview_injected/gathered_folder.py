"""The gathered folder: one JSON file a kernel, each there as a whole or not at all."""

from __future__ import annotations

import os

from . import kernel_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SOUND = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"


class Folder:
    """Where kernels go, and which of them this process has seen."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: set[str] = set()

    def add_compiled(self, kernel: Any) -> None:
        """Write a kernel as Triton's compiler gives it."""
        key = _key(kernel.hash)
        if self._take(key + ".json"):
            self._write(key + ".json", kernel_metadata.compiled(kernel))

    def add_loaded(self, kernel: Any, result: Any, tuner: Any) -> None:
        """Write a kernel as Inductor loads it from a file, with what its parts tell of it."""
        key = _key(kernel.hash)
        if not self._is_there(key + ".json") and self._take(key + ".loaded.json"):
            self._write(key + ".loaded.json", kernel_metadata.loaded(kernel, result, tuner))

    def add_known(self, kernel: Mapping[str, Any]) -> None:
        """Write a kernel that is described already."""
        key = _key(kernel["hash"])
        if self._take(key + ".json"):
            self._write(key + ".json", kernel)

    def _take(self, name: str) -> bool:
        """Whether a file is ours to write: neither this process nor another one has."""
        if name in self._seen:
            return False
        self._seen.add(name)
        return not self._is_there(name)

    def _is_there(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.path, name))

    def _write(self, name: str, kernel: Mapping[str, Any] | None) -> None:
        if kernel is None:
            return
        import json
        from threading import get_ident

        path = os.path.join(self.path, name)
        unfinished = f"{path}.{os.getpid()}-{get_ident()}.part"
        try:
            with open(unfinished, "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(kernel, file, default=str)
            os.replace(unfinished, path)
        except FileNotFoundError:
            # The recording has ended and its folder is gone: a process that outlives it.
            return


def _key(identity: Any) -> str:
    """A name for a file: Triton's hash where it is one."""
    text = str(identity)
    if 0 < len(text) <= 128 and all(letter in _SOUND for letter in text):
        return text
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
