"""Texts as bytes in one array, for columns in which nearly every row has a text of its own.

A million str take half a second and a hundred MB, and a report shows a handful of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_int64
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.records import record
from traceview.tables import Array, Integers, Texts, TextValues, object_array, picked, thrifty

Bytes = npt.NDArray[np.uint8]
_SPACE, _DELETE = 0x20, 0x7F


@record
class PackedTexts:
    """Text i is the `sizes[i]` bytes of `content` from `starts[i]` on.

    `separated` is True if `content` is the texts in order, each followed by one NUL.
    """

    content: Bytes
    starts: Integers
    sizes: Integers
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

    def picked(self, numbers: Array) -> PackedTexts:
        """The texts of these numbers, in that order."""
        sizes = self.sizes[numbers]
        ends = np.cumsum(sizes + 1)
        starts = ends - sizes - 1
        if not library.has("traceview_pick_texts"):
            # Each byte is as far from its text's start here as there, and a NUL follows each text.
            content = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
            to = np.delete(np.arange(len(content)), ends - 1)
            content[to] = self.content[to + np.repeat(self.starts[numbers] - starts, sizes)]
            return PackedTexts(content, starts, sizes, separated=True)
        content = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        given = (np.ascontiguousarray(e, np.int64) for e in (self.starts, self.sizes, numbers))
        arrays: list[Array] = [self.content, *given]
        addresses, count = map(pointer, arrays), c_int64(len(numbers))
        library.call("traceview_pick_texts", *addresses, count, pointer(content))
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
            self._held[part] = _occurs(part, self.content)
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

    def some(self, numbers: Array) -> list[str]:
        """The texts of these numbers, in a third of the time that decoding one by one takes."""
        content, starts = self.content.data, self.starts[numbers]
        ends = (starts + self.sizes[numbers]).tolist()
        rows = zip(starts.tolist(), ends, strict=True)
        return [str(content[start:end], "utf-8", "surrogatepass") for start, end in rows]

    @cached_property
    def every(self) -> TextValues:
        """All texts, decoded from UTF-8."""
        if self.separated and len(self) and not self._holds_nul:
            return object_array(str(self.content.data, "utf-8", "surrogatepass").split("\0")[:-1])
        return object_array([raw.decode("utf-8", "surrogatepass") for raw in self])


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

    def values_of(self, codes: Array) -> list[str]:
        return self.packed.some(codes)

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.packed.decoded(code)

    def decode(self) -> npt.NDArray[np.object_]:
        if self._FEW * len(self.codes) <= len(self.packed):
            absent = np.flatnonzero(self.codes < 0)
            texts = object_array(self.packed.some(self.codes))
            texts[absent] = None
            return texts
        used = np.zeros(len(self.packed) + 1, bool)
        used[self.codes] = True
        if not callable(self._values) or used[:-1].all():
            return super().decode()
        # The last element is that of code −1, an absent text.
        place = np.cumsum(used) - 1
        place[-1] = -1
        some = object_array([*self.packed.picked(np.flatnonzero(used[:-1])).every, None])
        decoded: npt.NDArray[np.object_] = some[place[self.codes]]
        return decoded

    def take(self, rows: Array | slice) -> Texts:
        return PackedTextColumn(picked(self.codes, rows), self.packed)

    def thrifty(self) -> Texts:
        return PackedTextColumn(thrifty(self.codes), self.packed)


def packed(texts: Texts) -> PackedTexts:
    """The distinct values of a text column, packed."""
    if isinstance(texts, PackedTextColumn):
        return texts.packed
    return PackedTexts.encoded(texts.values.tolist())


def _occurs(part: bytes, content: Bytes) -> bool:
    if not library.has("traceview_holds"):
        return part in content.tobytes()
    given = (pointer(content), c_int64(len(content)), part, c_int64(len(part)))
    return library.answer("traceview_holds", *given) != 0
