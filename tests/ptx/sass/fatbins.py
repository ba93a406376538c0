"""Fatbins written by hand, as nvcc's are laid out."""

import struct

from tests.zstd import compress

LZ4, ZSTD = 0x2000, 0x8000


def fatbin(*entries: bytes) -> bytes:
    """A fatbin of entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def entry(kind: int, arch: int, code: bytes, compressed: int = 0) -> bytes:
    """One PTX (1) or cubin (2), stored as it is, or compressed by LZ4 or ZSTD."""
    stored, size = code, 0
    if compressed:
        size = len(code)
        stored = compress(code) if compressed == ZSTD else lz4(code)
    padded = stored + bytes(-len(stored) % 8)
    packed = len(stored) if compressed else 0
    head = (kind, 0x101, 64, len(padded), packed, 0, 8, 1, arch, 0, 0, 0x11 | compressed, 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *head) + padded


def lz4(data: bytes) -> bytes:
    """A block of LZ4: greedy, with the last bytes as literals, as the format asks."""
    out, seen, start, at = bytearray(), {}, 0, 0
    while at + 12 < len(data):
        key = data[at : at + 4]
        found = seen.get(key)
        seen[key] = at
        if found is None or at - found > 0xFFFF:
            at += 1
            continue
        count = 4
        while at + count + 5 < len(data) and data[found + count] == data[at + count]:
            count += 1
        out += _sequence(data[start:at], at - found, count)
        start = at = at + count
    return bytes(out + _sequence(data[start:], 0, 0))


def _sequence(literals: bytes, back: int, count: int) -> bytes:
    more = count - 4 if back else 0
    out = bytearray([min(len(literals), 15) << 4 | min(more, 15)])
    out += _rest(len(literals)) + literals
    return bytes(out + struct.pack("<H", back) + _rest(more)) if back else bytes(out)


def _rest(count: int) -> bytes:
    if count < 15:
        return b""
    return b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])
