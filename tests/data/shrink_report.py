"""Cut a report of Nsight Compute down to what its raw page shows.

    python tests/data/shrink_report.py launches.ncu-rep small.ncu-rep

Goes: code, sections, results of rules, and the values of metrics per instruction. Stays, byte for
byte: headers, names, and each launch with its metrics.
"""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from traceview.trace.ncu_report import _fields, _sized

SECTIONS, RULES, METRIC, INSTANCES = 17, 19, 13, 3
CODES, PAYLOAD_BYTES = 1, 5


def varint(value: int) -> bytes:
    low, high = value & 127, value >> 7
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def field(message: bytes, left_out: frozenset[int]) -> bytes:
    """The message without some of its fields."""
    return b"".join(raw for number, raw in pieces(message) if number not in left_out)


def pieces(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each field."""
    sizes = {0: None, 1: 8, 5: 4}
    place = 0
    for number, value in _fields(message):
        kind = message[place] & 7
        key = varint(number << 3 | kind)
        if isinstance(value, int):
            raw = key + varint(value)
        elif sizes.get(kind):
            raw = key + value
        else:
            raw = key + varint(len(value)) + value
        assert message[place : place + len(raw)] == raw
        place += len(raw)
        yield number, raw


def launch(entry: bytes) -> bytes:
    kept = []
    for (number, raw), (_, value) in zip(pieces(entry), _fields(entry), strict=True):
        if number == METRIC:
            assert isinstance(value, bytes)
            value = field(value, frozenset({INSTANCES}))
            raw = varint(METRIC << 3 | 2) + varint(len(value)) + value
        if number not in (SECTIONS, RULES):
            kept.append(raw)
    return b"".join(kept)


def shrunk(data: bytes) -> bytes:
    _, place = _sized(data, 4)
    out = [data[:place]]
    while place < len(data):
        header, place = _sized(data, place)
        counts = dict(_fields(header))
        payload = b""
        for _ in range(int(counts.get(CODES, 0))):
            _, place = _sized(data, place)
        for _ in range(int(counts.get(2, 0))):
            entry, place = _sized(data, place)
            entry = launch(entry)
            payload += struct.pack("<I", len(entry)) + entry
        header = field(header, frozenset({CODES, PAYLOAD_BYTES}))
        header += varint(PAYLOAD_BYTES << 3) + varint(len(payload))
        out.append(struct.pack("<I", len(header)) + header + payload)
    return b"".join(out)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(shrunk(Path(sys.argv[1]).read_bytes()))
