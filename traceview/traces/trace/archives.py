"""Compressed files of any size, piece by piece."""

from __future__ import annotations

import lzma
import queue
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, BinaryIO

from traceview.base.errors import TraceFormatError

BLOCK_BYTES = 1 << 20
_PACKED_BYTES = 1 << 15
"""Traces compress to a tenth or less: a piece of the content is about as long as a block."""
ARCHIVES = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""The kinds of archive that are read, by their first bytes."""
MOST_RATIO = 256
"""Most bytes of content per byte of archive. The 119 archives of this repository and of the traces
it was tested on have at most 44, a million kernels that differ in their times only have 155."""
FREE_BYTES = 64 << 20
"""Content of any ratio: small recordings can be empty pages for the most part."""
_MOST_WINDOW_BYTES = 1 << 27
"""Memory of an xz decompressor; `xz -9` needs half of it. That of zstd allows itself as much."""


class TruncatedArchiveError(EOFError):
    """The archive ends within a frame; its content up to there has been yielded."""


def unpacked_pieces(packed: BinaryIO, archive: str | None) -> Iterator[bytes]:
    """The content of an archive, or of a plain file (`archive` None), piece by piece.

    Raises TruncatedArchiveError after the last piece of a truncated archive, TraceFormatError once
    there is more content than an archive of a trace has, and the errors that `damage` lists.
    """
    if archive is None:
        while piece := packed.read(BLOCK_BYTES):
            yield piece
        return
    size = 0
    for piece, packed_size in _pieces_of_frames(packed, archive):
        size += len(piece)
        if size > most_content(packed_size):
            raise too_dense(archive)
        if piece:
            yield piece


def most_content(packed_size: int) -> int:
    """Most bytes of content in an archive of this size."""
    return FREE_BYTES + MOST_RATIO * packed_size


def too_dense(archive: str) -> TraceFormatError:
    """The error for an archive of more content than that."""
    return TraceFormatError(
        f"the {archive} archive unpacks to over {MOST_RATIO} times its size, unlike any trace",
        "unpack it first if it is one",
    )


def _pieces_of_frames(packed: BinaryIO, archive: str) -> Iterator[tuple[bytes, int]]:
    """Pieces of up to BLOCK_BYTES, each with the number of bytes of the archive read so far."""
    start = _DECOMPRESSORS[archive]
    frame: Any = None
    read = 0
    while block := packed.read(_PACKED_BYTES):
        read += len(block)
        while block:
            frame = frame or start()
            yield frame.decompress(block, BLOCK_BYTES), read
            while not frame.eof and not frame.needs_input:
                yield frame.decompress(b"", BLOCK_BYTES), read
            # A file may hold several frames, one after the other; zeros may pad the last one.
            block, frame = (frame.unused_data.lstrip(b"\0"), None) if frame.eof else (b"", frame)
    if frame is not None:
        raise TruncatedArchiveError(f"the {archive} archive has no end")


class _GzipDecompressor:
    """zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        # A full piece may leave some of the content in the decompressor itself.
        self.needs_input = not self._stream.unconsumed_tail and len(piece) < max_length
        return piece

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


@contextmanager
def ahead(pieces: Iterator[bytes], most: int = 4) -> Iterator[Iterator[bytes]]:
    """Read the pieces in a thread of their own, up to `most` ahead of the caller.

    Errors of reading them are raised in the caller's thread.
    """
    ready: queue.Queue[bytes | Exception | None] = queue.Queue(most)
    stop = threading.Event()

    def put(item: bytes | Exception | None) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def read() -> None:
        try:
            for piece in pieces:
                put(piece)
                if stop.is_set():
                    return
            put(None)
        except Exception as error:
            put(error)

    def received() -> Iterator[bytes]:
        while (item := ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield received()
    finally:
        stop.set()
        thread.join()


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
    "gzip": _GzipDecompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_MOST_WINDOW_BYTES),
    "zstd": lambda: _zstd().ZstdDecompressor(),
}
