"""Compressed files of any size, piece by piece."""

from __future__ import annotations

import lzma
import queue
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, BinaryIO

BLOCK_BYTES = 1 << 20
_PACKED_BYTES = 1 << 15
"""Traces compress to a tenth or less: a piece of the content is about as long as a block."""
ARCHIVES = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""The kinds of archive that are read, by their first bytes."""


class TruncatedArchiveError(EOFError):
    """The archive ends within a frame; its content up to there has been yielded."""


def unpacked_pieces(packed: BinaryIO, archive: str | None) -> Iterator[bytes]:
    """The content of an archive, or of a plain file (`archive` None), piece by piece.

    Raises TruncatedArchiveError after the last piece of a truncated archive, and the errors that
    `damage` lists for a damaged one.
    """
    if archive is None:
        while piece := packed.read(BLOCK_BYTES):
            yield piece
        return
    start = _DECOMPRESSORS[archive]
    frame: Any = None
    while block := packed.read(_PACKED_BYTES):
        while block:
            frame = frame or start()
            if piece := frame.decompress(block):
                yield piece
            # A file may hold several frames, one after the other; zeros may pad the last one.
            block, frame = (frame.unused_data.lstrip(b"\0"), None) if frame.eof else (b"", frame)
    if frame is not None:
        raise TruncatedArchiveError(f"the {archive} archive has no end")


@contextmanager
def ahead(pieces: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """Read the pieces in a thread of their own, ahead of the caller."""
    reader = _Ahead(pieces)
    thread = threading.Thread(target=reader.read, daemon=True)
    thread.start()
    try:
        yield reader.taken()
    finally:
        reader.stop.set()
        thread.join()


class _Ahead:
    """A bounded queue of pieces between two threads; errors go through it as well."""

    def __init__(self, pieces: Iterator[bytes], most: int = 4) -> None:
        self._pieces = pieces
        self._ready: queue.Queue[bytes | Exception | None] = queue.Queue(most)
        self.stop = threading.Event()

    def read(self) -> None:
        try:
            for piece in self._pieces:
                if not self._put(piece):
                    return
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, item: bytes | Exception | None) -> bool:
        while not self.stop.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def taken(self) -> Iterator[bytes]:
        while (item := self._ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


def damage(archive: str | None) -> tuple[type[Exception], ...]:
    """The errors that a damaged archive of this kind raises."""
    errors: tuple[type[Exception], ...] = (EOFError, lzma.LZMAError, zlib.error)
    return (*errors, _zstd().ZstdError) if archive == "zstd" else errors


def _zstd() -> ModuleType:
    # Imported only for .zst files: loading a plain trace must start fast.
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return zstd


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "xz": lzma.LZMADecompressor,
    "zstd": lambda: _zstd().ZstdDecompressor(),
}
