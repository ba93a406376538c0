"""The gathered folder: one JSON file per kernel, each written atomically."""

from __future__ import annotations

import os

from . import kernel_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SOUND = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"


class Folder:
    """The folder for kernels, and the files this process has handled."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: set[str] = set()

    def add_compiled(self, kernel: Any) -> None:
        """Write a kernel compiled by Triton."""
        key = _key(kernel.hash)
        if self._take(key + ".json"):
            self._write(key + ".json", kernel_metadata.compiled(kernel))

    def add_loaded(self, kernel: Any, result: Any, tuner: Any) -> None:
        """Write a kernel that Inductor loads from a cubin file."""
        key = _key(kernel.hash)
        if not self._is_there(key + ".json") and self._take(key + ".loaded.json"):
            self._write(key + ".loaded.json", kernel_metadata.loaded(kernel, result, tuner))

    def add_known(self, kernel: Mapping[str, Any]) -> None:
        """Write a kernel from its description."""
        key = _key(kernel["hash"])
        if self._take(key + ".json"):
            self._write(key + ".json", kernel)

    def _take(self, name: str) -> bool:
        """Claim a file name; False if this or another process has written it."""
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
            # This process has outlived the recording, whose folder is gone.
            return


def _key(identity: Any) -> str:
    """A file name: Triton's hash, if it is a valid one."""
    text = str(identity)
    if 0 < len(text) <= 128 and all(letter in _SOUND for letter in text):
        return text
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
