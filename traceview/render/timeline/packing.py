"""Numbers and text packed for a page: byte planes, deflated, in base64.

The first plane holds the lowest byte of every number, the next one the second byte, and so on:
bytes of equal weight are alike, which halves what deflate leaves.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt

from traceview.tables import Array, Integers

_TOGETHER = 1 << 15
"""Parts with fewer rows are packed together with the following ones."""
_LEVEL = 3
"""The zlib level. Higher levels take more than twice the time to save a twentieth."""
_LINE_BREAK = 0x0A
_PLACE = "\0packed\0"
"""Placeholder for packed data in a document. No visible text contains a NUL character."""


def packed_numbers(values: Array, *, patterned: bool = True) -> dict[str, bytes | int]:
    """Pack numbers ≥ 0: their count, the number of byte planes, and the deflated planes.

    `patterned` means that sequences of values recur, as with names. For other columns, such as
    times, deflate only looks for runs, which takes a third of the time and packs smaller.
    """
    return packed_parts((values,), patterned=patterned)


def packed_parts(parts: Iterable[Array], *, patterned: bool = True) -> dict[str, bytes | int]:
    """Pack numbers that come in parts like `packed_numbers`, without holding all at once."""
    each = list(map(_planes, _gathered(parts)))
    ends = list(accumulate((part.shape[1] for part in each), initial=0))
    planes = np.zeros((max(map(len, each), default=1), ends[-1]), np.uint8)
    for part, first, end in zip(each, ends, ends[1:], strict=False):
        planes[: len(part), first:end] = part
    strategy = zlib.Z_DEFAULT_STRATEGY if patterned else zlib.Z_RLE
    data = _packed_bytes(planes.data, strategy)
    return {"rows": planes.shape[1], "planes": len(planes), "data": data}


def _gathered(parts: Iterable[Array]) -> Iterator[Array]:
    """Merge short parts: a thousand streams yield a thousand parts."""
    short: list[Array] = []
    for part in parts:
        short.append(part)
        if sum(map(len, short)) >= _TOGETHER:
            yield np.concatenate(short) if len(short) > 1 else part
            short = []
    if short:
        yield np.concatenate(short)


def _planes(values: Array) -> npt.NDArray[np.uint8]:
    """The byte planes of the numbers: as many as the greatest one needs, at least one."""
    values = np.ascontiguousarray(values)
    width = max((int(values.max(initial=0)).bit_length() + 7) // 8, 1)
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, values.itemsize)[:, :width].T)


def _packed_bytes(data: bytes | memoryview, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    packing = zlib.compressobj(_LEVEL, strategy=strategy)
    return base64.b64encode(packing.compress(data) + packing.flush())


def packed_texts(texts: Sequence[str]) -> dict[str, bytes | int]:
    """Pack texts as lines in UTF-8; visible texts have no line breaks or lone surrogates."""
    return {"rows": len(texts), "data": _packed_bytes("\n".join(texts).encode())}


def packed_lines(content: npt.NDArray[np.uint8], texts: int) -> dict[str, bytes | int]:
    """Pack visible texts in UTF-8, each followed by a NUL in `content`, like `packed_texts`."""
    lines = content[:-1].copy()
    lines[lines == 0] = _LINE_BREAK
    return {"rows": texts, "data": _packed_bytes(lines.data)}


def packed_json(value: object) -> bytes:
    """Pack a value as a JSON document."""
    return _packed_bytes(json.dumps(value, separators=(",", ":")).encode())


def zigzag(values: Integers) -> Integers:
    """Signed numbers as numbers ≥ 0, small ones small: 0, −1, 1, −2 … become 0, 1, 2, 3 …"""
    result: Integers = values << 1
    result ^= values >> 63
    return result


def differences(values: Integers, before: int = 0) -> Integers:
    """The difference of each value to the previous one, which is `before` for the first."""
    result = values.copy()
    result[1:] -= values[:-1]
    result[:1] -= before
    return result


def script_json(document: Mapping[str, object]) -> str:
    """JSON as the content of a script element, escaped so that no text can end the element.

    Packed data need no escapes, so they are inserted unchanged.
    """
    packed: list[str] = []

    def place(data: bytes) -> str:
        packed.append(data.decode("ascii"))
        return _PLACE

    text = json.dumps(document, separators=(",", ":"), default=place).replace("<", "\\u003c")
    rest = text.split(json.dumps(_PLACE))
    quoted = (f'"{data}"' for data in packed)
    return "".join(chain.from_iterable(zip(rest, (*quoted, ""), strict=True)))
