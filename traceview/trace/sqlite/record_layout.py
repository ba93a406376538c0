"""Layout of a record, from its header: type and offset of every column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

# Types of a column: NULL, integers of 1 to 8 bytes, a real number, the constants 0 and 1, two that
# are reserved; from 12 on blobs and texts take turns.
NULL_TYPE, ZERO_TYPE, ONE_TYPE, FIRST_TEXT_TYPE = 0, 8, 9, 13
INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
FIXED_BYTES = (0, *INTEGER_BYTES.values(), 8, 0, 0, -1, -1)


class DeclinedError(Exception):
    """The page decoder cannot read this table; sqlite3 must."""


class RecordLayout:
    """Types and offsets of the columns of records with equal headers."""

    def __init__(self, header: bytes) -> None:
        self.types = list(_varints(header[1:]))
        self.starts = [len(header)]
        for kind in self.types:
            self.starts.append(self.starts[-1] + _length(kind))

    def end(self, places: Sequence[int]) -> int:
        """Offset of the end of the last of these columns."""
        if max(places) >= len(self.types):
            raise DeclinedError("a row is older than a column and takes its default")
        return self.starts[max(places) + 1]


# Records of one table repeat their headers, and parsing one takes a Python step per column.
layout_of = lru_cache(maxsize=4096)(RecordLayout)


def _length(kind: int) -> int:
    if kind >= len(FIXED_BYTES):
        return (kind - len(FIXED_BYTES)) // 2
    if FIXED_BYTES[kind] < 0:
        raise DeclinedError("a type is reserved")
    return FIXED_BYTES[kind]


def _varints(raw: bytes) -> Iterator[int]:
    value = 0
    for place, byte in enumerate(raw):
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            yield value
            value = 0
        elif value >> 32 or place + 1 == len(raw):
            raise DeclinedError("a header does not end where it should")
