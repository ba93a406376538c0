"""The recording inside a Perfetto trace of traceview's, so that an export is read back as it is.

Its first packets hold the stored file, compressed, in a field that Perfetto skips as unknown.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from traceview.base.errors import TraceFormatError
from traceview.traces.trace import foreign
from traceview.traces.trace.archives import most_content
from traceview.traces.trace.model import Trace
from traceview.traces.trace.stored_writer import write_trace

_PIECE_BYTES = 1 << 20
_FIELD = bytes([0xE2, 0xEA, 0x04])
"""The tag of field 9,900, with a length; those of TracePackets have numbers below 1,000."""
_LEVEL = 6


def recording_packets(trace: Trace) -> Iterator[bytes]:
    """The first packets of an export."""
    packer = zlib.compressobj(_LEVEL)
    with TemporaryDirectory(prefix="traceview-") as folder:
        path = Path(folder, "recording.sqlite")
        write_trace(trace, path)
        with path.open("rb") as stored:
            while piece := stored.read(_PIECE_BYTES):
                if packed := packer.compress(piece):
                    yield _packet(packed)
    yield _packet(packer.flush())


def _packet(content: bytes) -> bytes:
    field = _FIELD + varint(len(content)) + content
    return foreign.FIRST_FIELD + varint(len(field)) + field


def write_recording(pieces: Iterator[bytes], target: Path, size: int) -> None:
    """Write the stored file in an export, of `size` bytes, to `target`.

    Raises TraceFormatError if another program wrote it, or it is damaged.
    """
    unpacker, text, at, left = zlib.decompressobj(), b"", 0, most_content(size)
    with target.open("wb") as file:
        while not unpacker.eof:
            # The heads of a packet and of its field take 15 bytes at most.
            text = _more(text[at:], pieces, 16)
            head, length = _head(text)
            if head is None:
                break
            text, at = _more(text, pieces, head + length), head + length
            content = unpacker.decompress(text[head:at], left + 1)
            left -= len(content)
            if left < 0:
                raise TraceFormatError("its recording unpacks to too many bytes", "export it again")
            file.write(content)
        if not file.tell():
            raise foreign.of_protocol_buffers(text)
    if not unpacker.eof:
        raise TraceFormatError("the recording in the Perfetto trace is cut off", "export it again")


def _head(text: bytes) -> tuple[int | None, int]:
    """Where the content of the first packet begins, None if it is none of ours, and its length."""
    _, at = _read_varint(text, 1)
    if text[:1] != foreign.FIRST_FIELD or text[at : at + len(_FIELD)] != _FIELD:
        return None, 0
    length, at = _read_varint(text, at + len(_FIELD))
    return at, length


def _more(text: bytes, pieces: Iterator[bytes], least: int) -> bytes:
    parts, size = [text], len(text)
    while size < least and (piece := next(pieces, b"")):
        parts.append(piece)
        size += len(piece)
    return b"".join(parts)


def varint(value: int) -> bytes:
    """The shortest varint of a number; one below 0 has the bits of its 64-bit complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _read_varint(text: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    value = shift = 0
    for byte in text[at : at + 10]:
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            break
    return value, at
