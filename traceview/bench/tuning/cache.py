"""Tuning results kept between runs: a bounded folder of small JSON files.

One file per key, in $XDG_CACHE_HOME/traceview/bench or ~/.cache/traceview/bench. A file is written
whole and renamed into place, so that a reader sees either the old or the new one. An update holds a
lock while it reads, changes and writes, so that processes do not lose each other's results.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceview.bench.machine import Machine, this_machine
from traceview.outputs import cache_folder, private_file, private_folder

MOST_FILES = 1_000
_LARGEST_BYTES = 1 << 20
Entry = dict[str, Any]


def cache_key(
    what: str,
    operation: str,
    size: int,
    dtype: str,
    machine: Machine | None = None,
    *,
    source: str = "",
) -> Mapping[str, str]:
    """The key of a result: valid for this GPU, these versions, this operation and size class.

    Sizes of the same power of two are one class: 2^20 to 2^21 − 1. `what` names the kind of result.
    With the `source` of the kernel, such as inspect.getsource(kernel.fn) of Triton's, the key
    changes when the kernel does.
    """
    machine = machine or this_machine()
    source_hash = {"source": hashlib.sha256(source.encode()).hexdigest()[:32]} if source else {}
    return {
        **source_hash,
        "what": what,
        "operation": operation,
        "size_class": str(max(size, 1).bit_length() - 1),
        "dtype": dtype,
        "gpu": machine.gpu or "cpu",
        "driver": machine.driver_version or "",
        "torch": machine.torch_version or "",
        "triton": machine.triton_version or "",
    }


class TuningCache:
    """The cache folder. If it cannot be written to, nothing is kept and no error is raised."""

    def __init__(self, folder: Path | None = None, most: int = MOST_FILES) -> None:
        try:
            self.folder = folder or cache_folder("bench")
        except OSError:
            self.folder = Path(os.devnull) / "traceview"
        self._most = most

    def get(self, key: Mapping[str, str]) -> Entry | None:
        """The entry under a key; None if there is none, or if it cannot be read."""
        try:
            with self._file(key).open("rb") as file:
                document = json.loads(file.read(_LARGEST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("key") != dict(key):
            return None
        entry = document.get("entry")
        return entry if isinstance(entry, dict) else None

    def put(self, key: Mapping[str, str], entry: Entry) -> None:
        """Store an entry, replacing any other."""
        self.update(key, lambda _: entry)

    def update(self, key: Mapping[str, str], change: Callable[[Entry | None], Entry]) -> Entry:
        """Store `change(entry)`, holding the lock; returns it."""
        try:
            with self._locked():
                entry = change(self.get(key))
                self._write(key, entry)
                self._remove_oldest()
                return entry
        except OSError:
            return change(None)

    def _file(self, key: Mapping[str, str]) -> Path:
        text = json.dumps(dict(key), sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def _write(self, key: Mapping[str, str], entry: Entry) -> None:
        text = json.dumps({"key": dict(key), "entry": entry})
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".part-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self._file(key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _remove_oldest(self) -> None:
        files = sorted(self.folder.glob("*.json"), key=_written_at, reverse=True)
        for file in files[self._most :]:
            file.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_folder(self.folder.parent, self.folder.name)
        with (self.folder / "lock").open("a") as file:
            private_file(self.folder / "lock")
            try:
                import fcntl
            except ImportError:
                # Without locks a process may lose what another stored at the same moment.
                yield
                return
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _written_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
