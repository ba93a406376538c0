"""Texts as bytes in one array, for columns in which nearly every row has a text of its own.

A million str take half a second and a hundred MB, and a report shows a handful of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import Structure, c_int64, c_void_p
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceview.base.compiled import library
from traceview.base.compiled.library import address
from traceview.base.records import record
from traceview.base.tables import arrays
from traceview.base.tables.texts import Texts

Bytes = npt.NDArray[np.uint8]
_SPACE, _DELETE = 0x20, 0x7F


@record
class PackedTexts:
    """Text i is the `sizes[i]` bytes of `content` from `starts[i]` on.

    `separated` is True if `content` is the texts in order, each followed by one NUL.
    """

    content: Bytes
    starts: arrays.Integers
    sizes: arrays.Integers
    separated: bool = False

    @classmethod
    def of(cls, raw: Sequence[bytes]) -> PackedTexts:
        """The texts, packed in order."""
        content = np.frombuffer(b"\0".join((*raw, b"")), np.uint8)
        sizes = np.fromiter(map(len, raw), np.int64, len(raw))
        return cls(content, np.cumsum(sizes + 1) - sizes - 1, sizes, separated=True)

    @classmethod
    def encoded(cls, texts: Sequence[str]) -> PackedTexts:
        """The texts in UTF-8, packed in order; encoded in one call if none contains a NUL."""
        joined = "\0".join((*texts, ""))
        if joined.count("\0") != len(texts):
            return cls.of([text.encode("utf-8", "surrogatepass") for text in texts])
        content = np.frombuffer(joined.encode("utf-8", "surrogatepass"), np.uint8)
        ends = np.flatnonzero(content == 0)
        starts = np.append(0, ends + 1)[:-1]
        return cls(content, starts, ends - starts, separated=True)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> bytes:
        start = int(self.starts[number])
        return self.content[start : start + int(self.sizes[number])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        content, ends = self.content.data, (self.starts + self.sizes).tolist()
        for start, end in zip(self.starts.tolist(), ends, strict=True):
            yield bytes(content[start:end])

    @classmethod
    def joined(cls, parts: Sequence[PackedTexts]) -> PackedTexts:
        """The texts of all parts, in order. Requires `separated` of each."""
        if len(parts) == 1:
            return parts[0]
        content = np.concatenate([np.zeros(0, np.uint8), *(each.content for each in parts)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(each.sizes for each in parts)])
        return cls(content, np.cumsum(sizes + 1) - sizes - 1, sizes, separated=True)

    def picked(self, numbers: arrays.Array) -> PackedTexts:
        """The texts of these numbers, in that order."""
        sizes = self.sizes[numbers]
        ends = np.cumsum(sizes + 1)
        starts = ends - sizes - 1
        content = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        given = (self.content, self.starts, self.sizes, numbers, len(numbers), content)
        library.call("traceview_pick_texts", *given)
        return PackedTexts(content, starts, sizes, separated=True)

    def slice(self, part: slice) -> PackedTexts:
        """A slice of the texts, which shares `content`."""
        return PackedTexts(self.content, self.starts[part], self.sizes[part])

    def raw(self) -> list[bytes]:
        """All texts as bytes, split in one call if none contains a NUL."""
        if self.separated and len(self) and not self._holds_nul:
            return self.content.tobytes().split(b"\0")[:-1]
        return list(self)

    @cached_property
    def _holds_nul(self) -> bool:
        return int(np.count_nonzero(self.content == 0)) != len(self)

    def holds(self, part: bytes) -> bool:
        """Whether `part`, which has no NUL, occurs in any text. Requires `separated`."""
        if part not in self._held:
            given = (self.content, len(self.content), part, len(part))
            self._held[part] = library.call("traceview_holds", *given) != 0
        return self._held[part]

    @cached_property
    def _held(self) -> dict[bytes, bool]:
        return {}

    @cached_property
    def is_plain(self) -> bool:
        """Whether every character is printable ASCII. Requires `separated`."""
        content = self.content
        return not len(content) or (
            int(content.max()) < _DELETE and int(np.count_nonzero(content < _SPACE)) == len(self)
        )

    @cached_property
    def is_utf8(self) -> bool:
        """Whether every text is valid UTF-8. Requires `separated`."""
        if not len(self.content) or int(self.content.max()) < 0x80:
            return True
        try:
            str(self.content.data, "utf-8")
        except UnicodeDecodeError:
            return False
        # The NUL after each text keeps bytes of two texts from forming one character.
        return True

    def decoded(self, number: int) -> str:
        return self[number].decode("utf-8", "surrogatepass")

    def some(self, numbers: arrays.Array) -> list[str]:
        """The texts of these numbers, in a third of the time that decoding one by one takes."""
        content, starts = self.content.data, self.starts[numbers]
        ends = (starts + self.sizes[numbers]).tolist()
        rows = zip(starts.tolist(), ends, strict=True)
        return [str(content[start:end], "utf-8", "surrogatepass") for start, end in rows]

    @cached_property
    def every(self) -> arrays.TextValues:
        """All texts, decoded from UTF-8."""
        if self.separated and len(self) and not self._holds_nul:
            return arrays.object_array(
                str(self.content.data, "utf-8", "surrogatepass").split("\0")[:-1]
            )
        return arrays.object_array([raw.decode("utf-8", "surrogatepass") for raw in self])


class PackedTextColumn(Texts):
    """A text column whose distinct values are packed, and decoded when they are read."""

    __slots__ = ("packed",)

    # Decoding one text alone costs as much as this many decoded together.
    _FEW = 8

    def __init__(self, codes: npt.NDArray[np.int32], packed: PackedTexts) -> None:
        super().__init__(codes, lambda: packed.every)
        self.packed = packed

    def value(self, code: int) -> str:
        return self.packed.decoded(code)

    def values_of(self, codes: arrays.Array) -> list[str]:
        return self.packed.some(codes)

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.packed.decoded(code)

    def decode(self) -> npt.NDArray[np.object_]:
        if self._FEW * len(self.codes) <= len(self.packed):
            absent = np.flatnonzero(self.codes < 0)
            texts = arrays.object_array(self.packed.some(self.codes))
            texts[absent] = None
            return texts
        used = np.zeros(len(self.packed) + 1, bool)
        used[self.codes] = True
        if not callable(self._values) or used[:-1].all():
            return super().decode()
        # The last element is that of code −1, an absent text.
        place = np.cumsum(used) - 1
        place[-1] = -1
        some = arrays.object_array([*self.packed.picked(np.flatnonzero(used[:-1])).every, None])
        decoded: npt.NDArray[np.object_] = some[place[self.codes]]
        return decoded

    def take(self, rows: arrays.Array | slice) -> Texts:
        return PackedTextColumn(arrays.picked(self.codes, rows), self.packed)

    def thrifty(self) -> Texts:
        return PackedTextColumn(arrays.thrifty(self.codes), self.packed)


def packed(texts: Texts) -> PackedTexts:
    """The distinct values of a text column, packed."""
    if isinstance(texts, PackedTextColumn):
        return texts.packed
    return PackedTexts.encoded(texts.values.tolist())


class CollidingTextsError(Exception):
    """Texts crafted to have equal hashes; the caller must use a dict or sqlite3 instead."""


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


class TextNumbers:
    """Numbers of the distinct texts so far, in order of appearance.

    They are in a hash table of texts.c, whose address other C functions can use.
    """

    def __init__(self) -> None:
        self._table = _CTable()
        self._content = np.empty(0, np.uint8)
        self._starts = np.zeros(1, np.int64)
        self._slots = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return int(self._table.texts)

    def of(self, texts: PackedTexts) -> arrays.RowNumbers:
        """The number of each text. Raises CollidingTextsError."""
        self.make_room(len(texts), int(texts.sizes.sum()) + len(texts))
        numbers = np.empty(len(texts), np.int32)
        given = (texts.content, texts.starts, texts.sizes, len(texts), numbers)
        _call("traceview_number_texts", self._table, *given)
        return numbers

    def distinct(self) -> PackedTexts:
        """The texts by number; after this call, none can be added."""
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
            _call("traceview_index_texts", table)


def _longer(values: arrays.Array, used: int, size: int) -> arrays.Array:
    result = np.empty(size, values.dtype)
    result[:used] = values[:used]
    return result


def _call(name: str, *given: object) -> None:
    reason = library.call(name, *given)
    if reason is not None:
        raise CollidingTextsError(reason)
