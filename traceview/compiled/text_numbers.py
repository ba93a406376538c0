"""Numbers of texts in order of their first appearance, without a str per text."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p
from itertools import count, filterfalse, pairwise
from typing import Protocol

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address, pointer
from traceview.compiled.packed_texts import PackedTexts
from traceview.tables import Array, RowNumbers


class CollidingTextsError(Exception):
    """Texts crafted to have equal hashes; the caller must use a dict or sqlite3 instead."""


class TextNumbers(Protocol):
    """Numbers of the distinct texts so far, in order of appearance."""

    def of(self, texts: PackedTexts) -> RowNumbers:
        """The number of each text. Raises CollidingTextsError."""

    def __len__(self) -> int: ...

    def distinct(self) -> PackedTexts:
        """The texts by number; after this call, none can be added."""


def text_numbers() -> TextNumbers:
    """An empty TextNumbers: compiled, or a dict without the library."""
    if library.has("traceview_number_texts", "traceview_index_texts"):
        return CompiledNumbers()
    return TextDictionary()


class TextDictionary:
    """Text numbers in a dict."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}

    def of(self, texts: PackedTexts) -> RowNumbers:
        index, raw = self._index, texts.raw()
        first, new = len(index), filterfalse(index.__contains__, raw)
        index.update(zip(dict.fromkeys(new), count(first)))
        if len(index) == first + len(raw):
            return np.arange(first, len(index), dtype=np.int32)
        return np.fromiter(map(index.__getitem__, raw), np.int32, len(raw))

    def __len__(self) -> int:
        return len(self._index)

    def distinct(self) -> PackedTexts:
        return PackedTexts.of(list(self._index))


class _CTable(Structure):
    _fields_ = (
        ("content", c_void_p),
        ("most_bytes", c_int64),
        ("starts", c_void_p),
        ("most_texts", c_int64),
        ("texts", c_int64),
        ("slots", c_void_p),
        ("slot_count", c_int64),
    )


class CompiledNumbers:
    """Text numbers in a hash table of texts.c, whose address other C functions can use."""

    def __init__(self) -> None:
        self._table = _CTable()
        self._content = np.empty(0, np.uint8)
        self._starts = np.zeros(1, np.int64)
        self._slots = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return int(self._table.texts)

    def of(self, texts: PackedTexts) -> RowNumbers:
        self.make_room(len(texts), int(texts.sizes.sum()) + len(texts))
        starts, sizes = (np.ascontiguousarray(each) for each in (texts.starts, texts.sizes))
        numbers = np.empty(len(texts), np.int32)
        _call(
            "traceview_number_texts",
            ctypes.byref(self._table),
            pointer(texts.content),
            pointer(starts),
            pointer(sizes),
            c_int64(len(texts)),
            pointer(numbers),
        )
        return numbers

    def distinct(self) -> PackedTexts:
        starts = self._starts[: len(self) + 1]
        self._slots = np.empty(0, np.uint64)
        return PackedTexts(
            self._content[: starts[-1]], starts[:-1], np.diff(starts) - 1, separated=True
        )

    def since(self, first: int) -> list[bytes]:
        """The texts from number `first` on."""
        starts = self._starts[first : len(self) + 1].tolist()
        content = self._content.data
        return [bytes(content[start : end - 1]) for start, end in pairwise(starts)]

    @property
    def address(self) -> int:
        """The address of the C table, valid while this object lives."""
        return ctypes.addressof(self._table)

    def make_room(self, texts: int, size: int) -> None:
        """Make room for `texts` more texts of `size` bytes in all, a NUL after each included."""
        table, known = self._table, len(self)
        used = int(self._starts[known])
        if used + size > len(self._content):
            # Unused room takes address space but no memory.
            self._content = _longer(self._content, used, 2 * (used + size))
            table.content, table.most_bytes = address(self._content), len(self._content)
        if known + texts >= len(self._starts):
            self._starts = _longer(self._starts, known + 1, 2 * (known + texts) + 1)
            table.starts, table.most_texts = address(self._starts), len(self._starts) - 1
        if 2 * (known + texts) > len(self._slots):
            self._slots = np.empty(1 << (4 * (known + texts)).bit_length(), np.uint64)
            table.slots, table.slot_count = address(self._slots), len(self._slots)
            _call("traceview_index_texts", ctypes.byref(table))


def _longer(values: Array, used: int, size: int) -> Array:
    result = np.empty(size, values.dtype)
    result[:used] = values[:used]
    return result


def _call(name: str, *given: object) -> None:
    reason = library.call(name, *given)
    if reason is not None:
        raise CollidingTextsError(reason)
