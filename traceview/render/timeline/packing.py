"""Numbers and text packed for a page: byte planes, deflated, in base64.

The first plane holds the lowest byte of every number, the next one the second byte, and so on:
bytes of equal weight are alike, which halves what deflate leaves.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from traceview.tables import Array, Integers

_LEVEL = 3
"""Of zlib. The levels above take more than twice the time for a twentieth less."""


def packed_numbers(values: Array, *, patterned: bool = True) -> dict[str, str | int]:
    """Numbers ≥ 0: how many, in how many planes, and the planes.

    `patterned` where the same values follow each other again and again, as names do. Times do not:
    deflate looks for runs alone then, which takes a third of the time and leaves less.
    """
    values = np.ascontiguousarray(values)
    width = max((int(values.max(initial=0)).bit_length() + 7) // 8, 1)
    planes = np.ascontiguousarray(values.view(np.uint8).reshape(-1, values.itemsize)[:, :width].T)
    strategy = zlib.Z_DEFAULT_STRATEGY if patterned else zlib.Z_RLE
    return {"rows": len(values), "planes": width, "data": _packed_bytes(planes.data, strategy)}


def _packed_bytes(data: bytes | memoryview, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> str:
    packing = zlib.compressobj(_LEVEL, strategy=strategy)
    return base64.b64encode(packing.compress(data) + packing.flush()).decode("ascii")


def packed_texts(texts: Sequence[str]) -> dict[str, str | int]:
    """Texts without line breaks or lone surrogates, which no visible text has: lines in UTF-8."""
    return {"rows": len(texts), "data": _packed_bytes("\n".join(texts).encode())}


def packed_json(value: object) -> str:
    """A JSON document."""
    return _packed_bytes(json.dumps(value, separators=(",", ":")).encode())


def zigzag(values: Integers) -> Integers:
    """Signed numbers as numbers ≥ 0, small ones small: 0, −1, 1, −2 … become 0, 1, 2, 3 …"""
    result: Integers = (values << 1) ^ (values >> 63)
    return result


def differences(values: Integers) -> Integers:
    """The first value, and of each other one what it adds to the one before."""
    return np.diff(values, prepend=np.int64(0))


def script_json(document: Mapping[str, object]) -> str:
    """JSON as the content of a script element, which no text in it can end."""
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
